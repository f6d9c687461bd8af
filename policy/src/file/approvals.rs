//! `approvals`: how long, and who.

use crate::policy::ApprovalPolicy;
use crate::reader::Reader;
use crate::tree::Node;

/// Keys of the section.
pub(crate) const KEYS: &[&str] = &["timeout", "valid_for", "groups", "default_group", "allow_self"];

pub(crate) fn read(reader: &mut Reader<'_>, node: &Node) -> ApprovalPolicy {
    let mut out = ApprovalPolicy::default();
    let Some(fields) = reader.fields(node, "approvals", KEYS) else {
        return out;
    };
    if let Some(ms) = fields
        .get("timeout")
        .and_then(|n| reader.duration(n, "approvals.timeout"))
    {
        out.timeout_ms = ms;
    }
    if let Some(ms) = fields
        .get("valid_for")
        .and_then(|n| reader.duration(n, "approvals.valid_for"))
    {
        out.valid_for_ms = ms;
    }
    if let Some(groups) = fields
        .get("groups")
        .and_then(|n| reader.any_fields(n, "approvals.groups"))
    {
        for (key, node) in groups.iter() {
            if let Some(unix) = reader.name(node, "a Unix group") {
                out.groups.insert(key.text.clone(), unix);
            }
        }
    }
    if let Some(node) = fields.get("default_group")
        && let Some(group) = reader.name(node, "approvals.default_group")
    {
        check_group(reader, node, &group, &out);
        out.default_group = Some(group);
    }
    if let Some(node) = fields.get("allow_self") {
        out.allow_self = reader.truth(node, "approvals.allow_self").unwrap_or(false);
    }
    out
}

/// Reports an approver group that maps to no Unix group.
pub(crate) fn check_group(reader: &mut Reader<'_>, node: &Node, group: &str, approvals: &ApprovalPolicy) {
    if approvals.groups.contains_key(group) {
        return;
    }
    let hint = match crate::problem::nearest(group, approvals.groups.keys().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("add it: `approvals: {{groups: {{{group}: <unix group>}}}}`"),
    };
    reader.error_hint(
        node.place,
        format!(
            "approver group `{}` maps to no Unix group",
            crate::reader::show(group)
        ),
        hint,
    );
}
