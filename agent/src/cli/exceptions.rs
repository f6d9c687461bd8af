//! `kams exceptions`: findings that a named person has accepted, until a day.

use clap::Subcommand;
use kams_policy::Exception;
use serde_json::{Map, Value, json};

use super::client::Client;
use super::runs::table;
use super::{CliError, Out, say};

/// `kams exceptions`.
#[derive(Debug, Subcommand)]
pub enum Exceptions {
    /// Exceptions that count: of the policy file, and added ones.
    List,
    /// Accept findings until a day. They are still reported; no rule acts on them.
    Add(Box<Accepted>),
    /// Take an added exception back.
    Remove {
        /// Its number.
        id: u64,
    },
}

/// What is accepted, by whom, why and until when.
#[derive(Debug, clap::Args)]
pub struct Accepted {
    /// Findings with this fingerprint (`kams findings -o json` shows it).
    #[arg(long, value_name = "FINGERPRINT", required_unless_present = "matching", value_parser = fingerprint)]
    fingerprint: Option<String>,
    /// Findings that match: a key of `match` in the policy with its value, or several values with commas; may be
    /// given more than once, and each must hold.
    #[arg(long = "match", value_name = "KEY=VALUE", value_parser = pair)]
    matching: Vec<(String, String)>,
    /// Who answers for it.
    #[arg(long)]
    owner: String,
    /// Why.
    #[arg(long)]
    reason: String,
    /// Its last day (in UTC), or a time in RFC 3339.
    #[arg(long, value_name = "DAY")]
    expires: String,
}

/// What no finding has would be an exception that is listed and accepts nothing.
fn fingerprint(text: &str) -> Result<String, String> {
    let digits = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if text.len() == 16 && digits {
        Ok(text.to_owned())
    } else {
        Err("a fingerprint is 16 hexadecimal digits, as `kams findings -o json` shows them".to_owned())
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .ok_or_else(|| "write KEY=VALUE, as in server=npm:@corp/mail".to_owned())
}

impl Accepted {
    /// As the policy file would say it.
    fn value(&self) -> Value {
        let mut whole = Map::new();
        if let Some(fingerprint) = &self.fingerprint {
            whole.insert("fingerprint".to_owned(), json!(fingerprint));
        }
        if !self.matching.is_empty() {
            let keys = self.matching.iter().map(|(key, value)| {
                let values: Vec<&str> = value.split(',').collect();
                let value = match values.as_slice() {
                    [one] => json!(one),
                    several => json!(several),
                };
                (key.clone(), value)
            });
            whole.insert("match".to_owned(), Value::Object(keys.collect()));
        }
        whole.insert("owner".to_owned(), json!(self.owner));
        whole.insert("reason".to_owned(), json!(self.reason));
        whole.insert("expires".to_owned(), json!(self.expires));
        Value::Object(whole)
    }
}

pub(super) async fn run(client: &Client, verb: &Exceptions, out: &mut Out) -> Result<(), CliError> {
    let (order, said) = match verb {
        Exceptions::List => {
            let answer: Value = client.get("/v1/query/exceptions").await?;
            let columns = [
                ("id", 9),
                ("from", 8),
                ("fingerprint", 16),
                ("match", 60),
                ("owner", 24),
                ("reason", 60),
                ("expires_ms", 24),
                ("added_by", 16),
            ];
            return table(&answer, "exceptions", &columns, out);
        }
        Exceptions::Add(accepted) => (json!({"op": "add", "exception": accepted.value()}), "added"),
        Exceptions::Remove { id } => (json!({"op": "remove", "id": id}), "removed"),
    };
    let answer: Value = client.order("/v1/command/exceptions", &order).await?;
    if out.is_json() {
        return Ok(out.json(&answer)?);
    }
    let number = answer.get("id").or_else(|| answer.get("removed"));
    let number = number.map(Value::to_string).unwrap_or_default();
    say(&format!("exception {number} is {said}"));
    Ok(())
}

/// The exceptions outside the file that count now.
pub(super) async fn added(client: &Client) -> Result<Vec<Exception>, CliError> {
    let answer: Value = client.get("/v1/query/exceptions").await?;
    let rows = answer
        .get("exceptions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let texts = rows.filter_map(|row| row.get("text")?.as_str());
    // One that a newer daemon understands and this `kams` does not is left out.
    Ok(texts.filter_map(|text| Exception::parse(text).ok()).collect())
}
