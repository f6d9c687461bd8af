//! `kams policy`: the rules, tried before they count.

mod explain;
mod generate;
pub(super) mod text;

use std::path::PathBuf;

use clap::Subcommand;
use kams_export::text::visible;
use kams_export::view::SCHEMA;
use kams_policy::{Mode, Policy, Problem, run_tests, schema};
use serde_json::{Value, json};

use super::client::Client;
use super::out::Ink;
use super::table::{Cell, Column, Table};
use super::{CliError, Ended, Out, exceptions, say};
use crate::engine::backend::policy::problem;
use text::{Text, lines};

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// All problems of a policy file; exit 1 if it would be refused.
    Check {
        /// The file; left out: the installed policy, or the default one.
        file: Option<PathBuf>,
    },
    /// Run a file of policy tests; exit 1 if one fails.
    Test {
        /// The tests [default: beside the policy, `.tests.yaml` for `.yaml`].
        tests: Option<PathBuf>,
        /// The policy [default: beside the tests, `.yaml` for `.tests.yaml`; else the installed one].
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
    },
    /// Why a finding is decided as it is, rule by rule.
    Explain {
        /// Number or fingerprint of a finding, or a file of findings as JSON lines (`-`: standard input).
        finding: String,
        /// Judge by this policy [default: the one kamsd judges by; for a file of findings the installed one].
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
    },
    /// The JSON schema of the policy file, for editors.
    Schema,
    /// Rules from templates.
    #[command(subcommand)]
    Generate(Box<generate::Generate>),
    /// Have kamsd read its policy again; a bad file changes nothing.
    Reload,
    /// The policy in force.
    Show,
}

impl PolicyCommand {
    /// Whether kamsd is asked.
    pub(super) fn is_online(&self) -> bool {
        match self {
            Self::Reload | Self::Show => true,
            Self::Explain { finding, .. } => explain::file(finding).is_none(),
            _ => false,
        }
    }
}

/// Those that need no daemon.
pub(super) fn run(command: &PolicyCommand, out: &mut Out) -> Result<Ended, CliError> {
    match command {
        PolicyCommand::Check { file } => check(&text::of(file.as_deref())?, out),
        PolicyCommand::Test { tests, policy } => test(tests.as_deref(), policy.as_deref(), out),
        PolicyCommand::Explain { finding, policy } => {
            let rules = load(policy.as_deref())?;
            match explain::file(finding) {
                Some(file) => explain::records(&explain::read(&file)?, &rules, &[], out)?,
                None => return Ok(Ended::Clean),
            }
            Ok(Ended::Clean)
        }
        PolicyCommand::Schema => {
            let text = serde_json::to_string_pretty(&schema()).unwrap_or_default();
            out.line(&text)?;
            Ok(Ended::Clean)
        }
        PolicyCommand::Generate(generate) => {
            generate::run(generate, out)?;
            Ok(Ended::Clean)
        }
        PolicyCommand::Reload | PolicyCommand::Show => Ok(Ended::Clean),
    }
}

/// Those that ask kamsd.
pub(super) async fn online(
    client: &Client,
    command: &PolicyCommand,
    out: &mut Out,
) -> Result<Ended, CliError> {
    match command {
        PolicyCommand::Reload => reload(client, out).await?,
        PolicyCommand::Show => show(client, out).await?,
        PolicyCommand::Explain { finding, policy } => {
            let rules = match policy {
                Some(file) => load(Some(file))?,
                None => in_force(client).await?,
            };
            let exceptions = exceptions::added(client).await?;
            explain::records(&explain::ask(client, finding).await?, &rules, &exceptions, out)?;
        }
        _ => {}
    }
    Ok(Ended::Clean)
}

fn load(file: Option<&std::path::Path>) -> Result<Policy, CliError> {
    text::of(file)?
        .load()
        .map_err(|problems| text::refused(&problems))
}

/// The policy that kamsd judges by, from its file; where that file says something else by now, a word about it.
async fn in_force(client: &Client) -> Result<Policy, CliError> {
    let answer: Value = client.get("/v1/query/policy").await?;
    let word = |name: &str| {
        let value = answer.get("policy").and_then(|policy| policy.get(name));
        value.and_then(Value::as_str).unwrap_or_default()
    };
    let file = std::path::Path::new(word("name"));
    let rules = load(file.is_absolute().then_some(file))?;
    if rules.hash() != word("hash") {
        say(
            "kamsd judges by another policy than the file holds now; see `kams policy show` and `kams status`",
        );
    }
    let mode = [Mode::Observe, Mode::Enforce]
        .into_iter()
        .find(|mode| mode.name() == word("mode"));
    Ok(match mode {
        Some(mode) => rules.with_default_mode(mode),
        None => rules,
    })
}

/// Rules of documents.
fn run_level(policy: &Policy) -> usize {
    let documents = policy.runs().documents.iter();
    documents.map(|document| document.rules.len()).sum()
}

fn check(text: &Text, out: &mut Out) -> Result<Ended, CliError> {
    let loaded = text.load();
    let (problems, policy): (&[Problem], _) = match &loaded {
        Ok(policy) => (policy.warnings(), Some(policy)),
        Err(problems) => (problems, None),
    };
    if out.is_json() {
        out.json(&json!({
            "schema": SCHEMA,
            "file": text.name,
            "valid": policy.is_some(),
            "hash": policy.map(Policy::hash),
            "rules": policy.map(|policy| policy.rules().len()),
            "run_level_rules": policy.map(run_level),
            "problems": problems.iter().map(problem).collect::<Vec<_>>(),
        }))?;
    } else {
        for one in problems {
            out.line(&lines(&one.to_string()))?;
        }
        let name = visible(&text.name);
        match policy {
            Some(policy) => say(&format!(
                "{name}: {} rules, {} run-level rules in documents, mode {}, {} warnings",
                policy.rules().len(),
                run_level(policy),
                policy.mode().name(),
                problems.len()
            )),
            None => say(&format!(
                "{name}: {} problems; it would be refused",
                problems.len()
            )),
        }
    }
    Ok(if policy.is_some() {
        Ended::Clean
    } else {
        Ended::Found
    })
}

fn test(
    tests: Option<&std::path::Path>,
    policy: Option<&std::path::Path>,
    out: &mut Out,
) -> Result<Ended, CliError> {
    let beside = tests.and_then(|tests| {
        let name = tests.file_name()?.to_str()?.strip_suffix(".tests.yaml")?;
        let file = tests.with_file_name(format!("{name}.yaml"));
        file.exists().then_some(file)
    });
    let policy = text::of(policy.or(beside.as_deref()))?;
    let tests = match tests {
        Some(tests) => tests.to_owned(),
        None => PathBuf::from(&policy.name).with_extension("tests.yaml"),
    };
    let cases = text::text(&tests)?;
    let results = run_tests(
        (&policy.name, &policy.yaml),
        &policy.beside,
        (&tests.to_string_lossy(), &cases),
    )
    .map_err(|problems| text::refused(&problems))?;
    let failed = results.iter().filter(|result| !result.passed()).count();
    if out.is_json() {
        let rows = results.iter().map(|result| {
            json!({"name": result.name, "line": result.line, "passed": result.passed(), "failures": result.failures})
        });
        out.json(&json!({"schema": SCHEMA, "tests": rows.collect::<Vec<_>>()}))?;
    } else {
        for result in &results {
            let word = if result.passed() {
                out.ink(Ink::Good, "ok    ")
            } else {
                out.ink(Ink::Bad, "FAILED")
            };
            out.line(&format!("{word}  {}", visible(&result.name)))?;
            for failure in &result.failures {
                out.line(&format!("        line {}: {}", result.line, lines(failure)))?;
            }
        }
        say(&format!("{} passed, {failed} failed", results.len() - failed));
    }
    Ok(if failed == 0 { Ended::Clean } else { Ended::Found })
}

async fn reload(client: &Client, out: &mut Out) -> Result<(), CliError> {
    let answer: Value = client
        .order("/v1/command/policy", &json!({"op": "reload"}))
        .await?;
    if out.is_json() {
        out.json(&answer)?;
    }
    let texts: Vec<String> = answer
        .get("problems")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|problem| lines(word(problem, "text")))
        .collect();
    if answer.get("reloaded").and_then(Value::as_bool) != Some(true) {
        return Err(CliError::Policy(format!(
            "the policy is refused, the one in force stays:\n{}",
            texts.join("\n")
        )));
    }
    for text in texts {
        say(&text);
    }
    let changed = answer.get("changed").and_then(Value::as_bool) == Some(true);
    say(if changed {
        "the new policy is in force"
    } else {
        "the policy is the same as before"
    });
    Ok(())
}

async fn show(client: &Client, out: &mut Out) -> Result<(), CliError> {
    let answer: Value = client.get("/v1/query/policy").await?;
    if out.is_json() {
        return Ok(out.json(&answer)?);
    }
    let policy = answer.get("policy").unwrap_or(&Value::Null);
    for name in ["name", "hash", "mode"] {
        out.line(&format!("{name}  {}", visible(word(policy, name))))?;
    }
    let columns = vec![
        Column::left("RULE", 48),
        Column::left("ACTION", 20),
        Column::right("LINE"),
        Column::left("WHAT FOR", 80),
    ];
    let rows: Vec<Vec<Cell>> = policy
        .get("rules")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|rule| {
            let line = rule.get("line").map(Value::to_string).unwrap_or_default();
            vec![
                Cell::new(word(rule, "name")),
                Cell::new(word(rule, "action")),
                Cell::new(line),
                Cell::new(word(rule, "description")),
            ]
        })
        .collect();
    for line in Table::new(columns).all(&rows, out) {
        out.line(&line)?;
    }
    documents(policy, out)?;
    if let Some(refused) = answer.get("refused").filter(|refused| !refused.is_null()) {
        say(&format!(
            "the file {} is refused as it stands; `kams policy check` shows why",
            visible(word(refused, "file"))
        ));
    }
    Ok(())
}

/// Run-level documents in force, one line for each rule.
fn documents(policy: &Value, out: &mut Out) -> Result<(), CliError> {
    let list = |value: &Value, name: &str| {
        value
            .get(name)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let rows: Vec<Vec<Cell>> = list(policy, "documents")
        .iter()
        .flat_map(|document| {
            list(document, "rules").into_iter().map(|rule| {
                vec![
                    Cell::new(word(document, "policy_id")),
                    Cell::new(word(document, "version")),
                    Cell::new(word(document, "status")),
                    Cell::new(word(&rule, "rule_id")),
                    Cell::new(word(&rule, "decision")),
                    Cell::new(word(&rule, "approver_group")),
                ]
            })
        })
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    let columns = ["DOCUMENT", "VERSION", "STATUS", "RULE", "DECISION", "APPROVERS"];
    out.line("")?;
    let columns = columns.into_iter().map(|title| Column::left(title, 48)).collect();
    for line in Table::new(columns).all(&rows, out) {
        out.line(&line)?;
    }
    Ok(())
}

fn word<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or("-")
}
