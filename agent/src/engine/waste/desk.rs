//! The rules at work on two kinds of sessions: runs, seen in MCP traffic, and model sessions, told by their agents.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use kams_detect::Finding;
use kams_detect::redact::shown;
use kams_detect::waste::{
    Config, LlmCall, MCP_RULES, McpCall, Monitor, Rule, ToolDefinitions, digest, failed, listed,
};
use kams_export::view::Time;
use lru::LruCache;
use serde_json::Value;

use super::joins::Joins;
use super::per_user::PerUser;
use super::turns::Turns;
use super::{About, Input, Output, Sender, without_server};
use crate::engine::judge::usage::Usage;

/// Runs that are remembered.
const RUNS: usize = 2_048;
/// Model sessions whose turns are followed.
const SESSIONS: usize = 2_048;
/// Servers of one run whose definitions are added up.
const SERVERS: usize = 256;
/// Bytes of arguments that are read as JSON; longer ones are compared by their beginning.
const READ: usize = 1 << 20;
/// Bytes of a session's name that are kept.
const NAME: usize = 128;

/// What waste is looked for in.
pub struct Desk {
    mcp: Monitor,
    model: Monitor,
    runs: LruCache<(u32, u32), Run>,
    turns: PerUser<String, Turns>,
    joins: Joins,
}

/// One agent process.
#[derive(Debug, Default)]
struct Run {
    /// By server instance.
    definitions: BTreeMap<u64, ToolDefinitions>,
    /// Its MCP traffic is seen.
    seen: bool,
    /// Its telemetry comes, which knows better what the person hears.
    tells: bool,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk")
            .field("runs", &self.runs.len())
            .finish_non_exhaustive()
    }
}

impl Desk {
    /// A desk that remembers nothing.
    pub fn new(config: Config) -> Self {
        let limit = |n| NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN);
        Self {
            mcp: Monitor::new(config.clone()),
            model: Monitor::new(config),
            runs: LruCache::new(limit(RUNS)),
            turns: PerUser::new(SESSIONS),
            joins: Joins::default(),
        }
    }

    /// Sessions held now.
    pub fn sessions(&self) -> usize {
        self.mcp.len() + self.model.len()
    }

    /// Takes in one observation.
    pub fn take(&mut self, input: Input) -> Vec<Output> {
        match input {
            Input::Called {
                about,
                tool,
                arguments,
                ids,
            } => {
                let agent = (about.party.agent_pid, about.party.agent.to_string());
                self.joins.seen(about.party.uid, &ids, &agent);
                self.called(&about, &tool, &arguments)
            }
            Input::Answered {
                about,
                tool,
                arguments,
                bytes,
                failed,
            } => self.answered(&about, &tool, arguments, bytes, failed),
            Input::Listed { about, definitions } => self.listed(&about, definitions),
            Input::Left {
                uid,
                agent_pid,
                server_id,
            } => {
                if let Some(run) = self.runs.get_mut(&(uid, agent_pid)) {
                    run.definitions.remove(&server_id);
                }
                Vec::new()
            }
            Input::Gone { uid, agent_pid } => {
                // What its telemetry says may come later: the run stays until its place is needed.
                self.mcp.forget(&run_key(uid, agent_pid));
                self.joins.forget(uid, agent_pid);
                if let Some(run) = self.runs.get_mut(&(uid, agent_pid)) {
                    run.definitions.clear();
                }
                Vec::new()
            }
            Input::Calls { sender, calls } => calls
                .into_iter()
                .flat_map(|call| self.model_call(&sender, call))
                .collect(),
            Input::Knobs(config) => {
                self.mcp.reconfigure((*config).clone());
                self.model.reconfigure(*config);
                Vec::new()
            }
        }
    }

    fn run(&mut self, uid: u32, agent_pid: u32) -> &mut Run {
        self.runs.get_or_insert_mut((uid, agent_pid), Run::default)
    }

    fn called(&mut self, about: &About, tool: &str, arguments: &str) -> Vec<Output> {
        let (uid, pid) = (about.party.uid, about.party.agent_pid);
        let run = self.run(uid, pid);
        run.seen = true;
        let (definitions, tells) = (sum(&run.definitions), run.tells);
        let arguments = if arguments.len() <= READ {
            serde_json::from_str(arguments).unwrap_or(Value::Null)
        } else {
            let end = arguments.floor_char_boundary(READ / 8);
            Value::from(arguments.get(..end).unwrap_or_default())
        };
        let call = McpCall {
            tool,
            arguments: &arguments,
            at: about.mono,
            definitions,
        };
        let key = run_key(uid, pid);
        let call = call.measure(&key, self.mcp.config());
        let findings = self.mcp.observe_rules(&key, &call, rules(tells));
        found(about, findings, None)
    }

    fn answered(
        &mut self,
        about: &About,
        tool: &str,
        arguments: u64,
        bytes: u64,
        is_error: bool,
    ) -> Vec<Output> {
        let key = run_key(about.party.uid, about.party.agent_pid);
        self.mcp.answered(&key, tool, bytes);
        if !is_error {
            return Vec::new();
        }
        let call = digest(format!("{tool}\0{arguments:x}").as_bytes());
        let call = failed(&key, about.mono, call, bytes);
        let findings = self.mcp.observe_rules(&key, &call, &[Rule::RetryStorm]);
        found(about, findings, Some(tool))
    }

    fn listed(&mut self, about: &About, definitions: ToolDefinitions) -> Vec<Output> {
        let (uid, pid) = (about.party.uid, about.party.agent_pid);
        let run = self.run(uid, pid);
        run.seen = true;
        if run.definitions.len() < SERVERS || run.definitions.contains_key(&about.party.server_id) {
            run.definitions.insert(about.party.server_id, definitions);
        }
        let Some(all) = sum(&run.definitions) else {
            return Vec::new();
        };
        let key = run_key(uid, pid);
        let call = listed(&key, about.mono, all);
        let findings = self.mcp.observe_rules(&key, &call, &[Rule::ToolDefinitionBloat]);
        found(about, findings, None)
    }

    fn model_call(&mut self, sender: &Sender, mut call: LlmCall) -> Vec<Output> {
        let joined = self.joins.find(sender.uid, &call.session, call.call_key);
        let sender = &Sender {
            agent: joined.or_else(|| sender.agent.clone()),
            ..sender.clone()
        };
        let pid = sender.agent.as_ref().map(|(pid, _)| *pid);
        let seen = pid.is_some_and(|pid| {
            let run = self.run(sender.uid, pid);
            run.tells = true;
            run.seen
        });
        if seen && call.over_mcp {
            // The traffic itself says it better.
            return Vec::new();
        }
        let name = match call.session.as_str() {
            "" => format!("process {}", pid.unwrap_or_default()),
            name if name.len() > NAME => format!("{:016x}", digest(name.as_bytes())),
            name => name.to_owned(),
        };
        let key = format!("{} {name}", sender.uid);
        let mut outputs = Vec::new();
        let turn = if let Some(turns) = self.turns.get(sender.uid, &name) {
            turns.take(&call)
        } else {
            let mut turns = Turns::default();
            let turn = turns.take(&call);
            self.turns.put(sender.uid, name.clone(), turns);
            turn
        };
        if let (Some(turn), Some(agent_pid), true) = (turn, pid, seen) {
            let uid = sender.uid;
            outputs.push(match turn.grown {
                Some(input_tokens) => Output::Usage(Usage {
                    uid,
                    agent_pid,
                    input_tokens,
                    server: None,
                    before: Some(turn.before),
                }),
                None => Output::Passed {
                    uid,
                    agent_pid,
                    before: turn.before,
                },
            });
        }
        if is_mark(&call) {
            return outputs;
        }
        call.session = name;
        let mut party = without_server(sender);
        if party.agent_pid == 0 && !call.service.is_empty() {
            // What it calls itself, where the kernel ties it to no agent that is known.
            party.agent = shown(&call.service).as_ref().into();
        }
        let about = About {
            party,
            time: Time::from_unix_nanos(i64::try_from(call.at).unwrap_or(i64::MAX)),
            mono: call.at,
            request_id: None,
        };
        let findings = self.model.observe(&key, &call);
        outputs.extend(found(&about, findings, None));
        outputs
    }
}

/// Nothing but a date.
fn is_mark(call: &LlmCall) -> bool {
    call.side
        && !call.user_facing
        && call.usage.prompt_tokens == 0
        && call.tool_calls.is_empty()
        && call.request_hash.is_none()
}

/// Silence is for telemetry to tell where it comes.
fn rules(tells: bool) -> &'static [Rule] {
    const WITH_TELEMETRY: [Rule; 4] = [
        Rule::ToolLoop,
        Rule::RetrievalThrash,
        Rule::RetryStorm,
        Rule::ToolDefinitionBloat,
    ];
    if tells { &WITH_TELEMETRY } else { &MCP_RULES }
}

fn sum(servers: &BTreeMap<u64, ToolDefinitions>) -> Option<ToolDefinitions> {
    servers.values().copied().reduce(ToolDefinitions::and)
}

fn run_key(uid: u32, agent_pid: u32) -> String {
    format!("{uid} {agent_pid}")
}

fn found(about: &About, findings: Vec<Finding>, tool: Option<&str>) -> Vec<Output> {
    let of = |finding: Finding| Output::Found {
        about: Box::new(about.clone()),
        finding: Box::new(Finding {
            tool: finding.tool.clone().or_else(|| tool.map(str::to_owned)),
            ..finding
        }),
    };
    findings.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use kams_detect::waste::{Usage as Tokens, call_key};

    use super::super::joins::Ids;
    use super::*;

    fn called(agent_pid: u32, id: &str) -> Input {
        let sender = Sender {
            uid: 1000,
            user: "ana".to_owned(),
            agent: Some((agent_pid, "claude-code".to_owned())),
            ..Sender::default()
        };
        Input::Called {
            about: About {
                party: without_server(&sender),
                time: Time::from_unix_nanos(0),
                mono: 0,
                request_id: None,
            },
            tool: "search".to_owned(),
            arguments: "{}".to_owned(),
            ids: Ids {
                call: Some(call_key(id)),
                session: None,
            },
        }
    }

    fn told(uid: u32, call: LlmCall) -> Input {
        let sender = Sender {
            uid,
            user: "ana".to_owned(),
            ..Sender::default()
        };
        Input::Calls {
            sender,
            calls: vec![call],
        }
    }

    fn turn(at: u64, prompt_tokens: u64) -> LlmCall {
        LlmCall {
            session: "s-1".to_owned(),
            at,
            usage: Tokens {
                prompt_tokens,
                ..Tokens::default()
            },
            ..LlmCall::default()
        }
    }

    fn tool_result(id: &str) -> LlmCall {
        LlmCall {
            session: "s-1".to_owned(),
            side: true,
            over_mcp: true,
            call_key: Some(call_key(id)),
            ..LlmCall::default()
        }
    }

    /// Agents whose costs are corrected by these outputs, and by how many tokens.
    fn corrected(outputs: &[Output]) -> Vec<(u32, u64)> {
        let of = |output: &Output| match output {
            Output::Usage(usage) => Some((usage.agent_pid, usage.input_tokens)),
            _ => None,
        };
        outputs.iter().filter_map(of).collect()
    }

    #[test]
    fn a_report_that_names_a_call_belongs_to_the_agent_that_made_it() {
        let mut desk = Desk::new(Config::default());
        desk.take(called(7, "toolu_1"));
        desk.take(called(8, "toolu_2"));
        // The socket tells whose user it is and no more.
        assert!(corrected(&desk.take(told(1000, turn(1, 1_000)))).is_empty());
        desk.take(told(1000, tool_result("toolu_2")));
        assert_eq!(corrected(&desk.take(told(1000, turn(2, 1_450)))), [(8, 450)]);
        // Another user who names the same call has made none.
        desk.take(told(1001, tool_result("toolu_1")));
        desk.take(told(1001, turn(3, 1_000)));
        assert!(corrected(&desk.take(told(1001, turn(4, 2_000)))).is_empty());
        desk.take(Input::Gone {
            uid: 1000,
            agent_pid: 8,
        });
        assert!(corrected(&desk.take(told(1000, turn(5, 2_000)))).is_empty());
    }
}
