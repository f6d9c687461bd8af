//! `kams policy generate`.

use kams_policy::ToolChain;
use serde_json::json;

use crate::cli::{CliError, Out, say};

/// What can be generated.
#[derive(Debug, clap::Subcommand)]
pub enum Generate {
    /// The three run-level rules: secret then send, enumerate then export, many small actions. A draft document for
    /// `runs.policies`; set its status to `published` once a person has read it.
    ToolChain(Options),
}

/// The templates' knobs.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Leave this template out (repeatable).
    #[arg(long, value_enum, value_name = "TEMPLATE")]
    without: Vec<Template>,
    /// Environments of the document's scope, comma separated; `all` for every one.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    environments: Vec<String>,
    /// Fact key of the tool that reads secrets.
    #[arg(long, value_name = "KEY")]
    secret_tool: Option<String>,
    /// Fact key of the tool that sends to the outside.
    #[arg(long, value_name = "KEY")]
    send_tool: Option<String>,
    /// Fact key of the tool that enumerates.
    #[arg(long, value_name = "KEY")]
    enumerate_tool: Option<String>,
    /// Fact key of the tool that exports.
    #[arg(long, value_name = "KEY")]
    export_tool: Option<String>,
    /// Exported records from which on the rule holds.
    #[arg(long, value_name = "COUNT", value_parser = amount)]
    export_volume: Option<f64>,
    /// Fact key of the tool of the small actions.
    #[arg(long, value_name = "KEY")]
    action_tool: Option<String>,
    /// Numeric field with the amount of one action.
    #[arg(long, value_name = "FIELD")]
    amount_field: Option<String>,
    /// Actions from which on the rule holds.
    #[arg(long, value_name = "COUNT")]
    min_calls: Option<u64>,
    /// Total from which on the rule holds.
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    total: Option<f64>,
    /// Limit of one action.
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    per_call: Option<f64>,
    /// Print the `runs.facts` entries that the document needs instead of the document.
    #[arg(long)]
    facts: bool,
}

/// One of the three.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum Template {
    /// Secret retrieval and external send.
    Secret,
    /// Enumeration and large export.
    Export,
    /// Repeated small actions.
    Repeated,
}

fn amount(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
        _ => Err("a number, not below 0".to_owned()),
    }
}

fn put<T: Clone>(place: &mut T, value: Option<&T>) {
    if let Some(value) = value {
        place.clone_from(value);
    }
}

pub(super) fn run(Generate::ToolChain(o): &Generate, out: &mut Out) -> Result<(), CliError> {
    let mut chain = ToolChain::default();
    if o.environments == ["all"] {
        chain.environments.clear();
    } else if !o.environments.is_empty() {
        chain.environments.clone_from(&o.environments);
    }
    let left_out = |template| o.without.contains(&template);
    chain.secret = chain.secret.filter(|_| !left_out(Template::Secret));
    chain.enumeration = chain.enumeration.filter(|_| !left_out(Template::Export));
    chain.repeated = chain.repeated.filter(|_| !left_out(Template::Repeated));
    if let Some(t) = &mut chain.secret {
        put(&mut t.secret, o.secret_tool.as_ref());
        put(&mut t.external, o.send_tool.as_ref());
    }
    if let Some(t) = &mut chain.enumeration {
        put(&mut t.enumeration, o.enumerate_tool.as_ref());
        put(&mut t.export, o.export_tool.as_ref());
        put(&mut t.volume, o.export_volume.as_ref());
    }
    if let Some(t) = &mut chain.repeated {
        put(&mut t.action, o.action_tool.as_ref());
        put(&mut t.amount_field, o.amount_field.as_ref());
        put(&mut t.calls, o.min_calls.as_ref());
        put(&mut t.total, o.total.as_ref());
        put(&mut t.per_call, o.per_call.as_ref());
    }
    let value = if o.facts {
        json!({"runs": {"facts": chain.facts()}})
    } else {
        say(
            "a draft: name the file in `runs.policies`, add `--facts` to the policy, set `status` to `published`",
        );
        chain.document()
    };
    let text = serde_json::to_string_pretty(&value).unwrap_or_default();
    Ok(out.line(&text)?)
}
