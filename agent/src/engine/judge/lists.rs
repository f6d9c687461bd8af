//! Definitions as servers list them: page by page, then as a whole.

use kams_detect::integrity::{self, Definition, Subject};
use kams_detect::waste::ToolDefinitions;
use kams_mcp::ListKind;
use kams_mcp::event::ListPage;

use super::{Case, Judge};
use crate::engine::sink::Sink;

/// Definitions of one list that are judged; a server that lists more is told so by a counter.
const MOST: usize = 20_000;

/// The list that is being read.
#[derive(Debug, Default)]
pub(super) struct Listing {
    of: Option<(ListKind, u64)>,
    items: Vec<String>,
    weight: ToolDefinitions,
}

impl Judge {
    pub(super) fn instructions(&mut self, case: &Case<'_>, text: &str, sink: &mut dyn Sink) {
        self.definition(case, &Definition::instructions(text), None, sink);
    }

    pub(super) fn page(&mut self, case: &Case<'_>, page: &ListPage<'_>, sink: &mut dyn Sink) {
        let Some(items) = &page.items else { return };
        let Some(session) = self.session(case) else { return };
        let of = Some((page.list, page.key.list));
        if session.listing.of != of || page.key.page == 0 {
            session.listing = Listing {
                of,
                ..Listing::default()
            };
        }
        let earlier = session.listing.items.len();
        let capabilities = capabilities(page);
        let mut raw = Vec::new();
        for item in items.elements() {
            let Ok(value) = serde_json::from_str(item.get()) else {
                continue;
            };
            let definition = match page.list {
                ListKind::Tools => Definition::tool(&value),
                ListKind::Prompts => Definition::prompt(&value),
                _ => Definition::resource(&value),
            };
            let Ok(definition) = definition else { continue };
            let weight = (page.list == ListKind::Tools).then(|| {
                raw.push(item.get().to_owned());
                ToolDefinitions::of(std::slice::from_ref(&value))
            });
            let key = item_key(&definition);
            let Some(session) = self.session(case) else { return };
            if session.listing.items.len() >= MOST {
                break;
            }
            session.listing.items.push(key);
            if let Some(weight) = weight {
                session.listing.weight = session.listing.weight.and(weight);
            }
            // A name is as known as its definition: it is judged once, not at every start.
            let first = self.definition(case, &definition, Some(&capabilities), sink);
            if definition.subject == Subject::Tool {
                self.name(case, &definition.name, first, sink);
            }
        }
        if page.list == ListKind::Tools {
            sink.definitions(case.party.server_id, &case.party.server, page.key.page == 0, raw);
        }
        if page.complete {
            let items = self
                .session(case)
                .map(|s| std::mem::take(&mut s.listing.items))
                .unwrap_or_default();
            if page.list == ListKind::Tools
                && let Some(session) = self.session(case)
            {
                let weight = std::mem::take(&mut session.listing.weight);
                session.tools = items.iter().filter_map(|i| i.strip_prefix("tool:")).collect();
                self.listed(case, weight, sink);
            }
            self.complete(case, page.list, &capabilities, items, sink);
        } else if let Some(session) = self.session(case) {
            // Many clients never ask for the second page: what is on the first can be taken by another server, too.
            let new = session.listing.items.iter().skip(earlier);
            let names = new.filter_map(|i| i.strip_prefix("tool:"));
            session.tools.extend(names, MOST);
        }
    }

    /// Is the name itself a deception, or another server's?
    fn name(&mut self, case: &Case<'_>, name: &str, first: bool, sink: &mut dyn Sink) {
        let Some(own) = self.sessions.get(&case.party.server_id) else {
            return;
        };
        let known = own.tools.contains(name);
        if known {
            return;
        }
        let (run, owner) = (own.run.clone(), own.owner.clone());
        let others = self
            .sessions
            .values()
            .filter(|other| other.run == run && other.owner != owner)
            .map(|other| &other.tools);
        let deceptive = if first {
            integrity::deceptive_name(name)
        } else {
            None
        };
        let finding = deceptive.or_else(|| integrity::shadowing(name, others));
        if let Some(finding) = finding {
            self.report(case, &finding, sink);
        }
    }
}

/// What a list depends on: the client's capabilities, and the era of the protocol.
fn capabilities(page: &ListPage<'_>) -> String {
    let revision = page.key.revision.as_ref().map_or("", |r| r.name());
    format!("{revision} {}", page.key.capabilities.as_deref().unwrap_or("?"))
}

/// The key of an item in the store.
pub(super) fn item_key(definition: &Definition) -> String {
    let kind = match definition.subject {
        Subject::Tool => "tool",
        Subject::Prompt => "prompt",
        Subject::Resource => "resource",
        Subject::Instructions => return "instructions".to_owned(),
    };
    format!("{kind}:{}", definition.name)
}
