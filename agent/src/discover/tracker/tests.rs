use kams_host::clock::NS_PER_TICK;

use super::facts::SECOND;
use super::*;
use crate::discover::agents::AgentKind;
use crate::discover::agents::is_interpreter;
use crate::discover::candidate::StreamKind;
use crate::discover::candidate::{Candidate, Reason};
use crate::discover::identity::{Blind, IdentityKind, Launch, identify};
use crate::discover::opening::NotMcp;
use proptest::prelude::*;

const INITIALIZE: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\"}}\n";
const AGENT: ProcKey = ProcKey { pid: 100, start: 1 };

fn proc(pid: u32) -> ProcKey {
    ProcKey {
        pid,
        start: u64::from(pid) * 10,
    }
}

fn pipe(address: u64) -> ObjectId {
    ObjectId {
        kind: StreamKind::Pipe,
        address,
    }
}

fn streams(base: u64, holder: u32) -> Candidate {
    Candidate {
        stdin: pipe(base),
        stdout: pipe(base + 1),
        agent_writes: pipe(base),
        agent_reads: pipe(base + 1),
        holder,
        stderr_is_stdout: false,
        verified: true,
    }
}

fn program(path: &str, script: Option<&str>) -> ProgramKey {
    ProgramKey {
        exe: ExeKey {
            path: path.to_owned(),
            device: 1,
            inode: 7,
            mtime: 5,
        },
        script: script.map(|name| ServerIdentity::new(IdentityKind::File, name, None)),
    }
}

fn known_agent() -> Holder {
    let agent = AgentName {
        name: "claude-code".to_owned(),
        kind: AgentKind::Cli,
    };
    Holder {
        proc: AGENT,
        agent: Some(agent),
        program: program("/opt/claude", None),
    }
}

fn unknown(pid: u32, path: &str, script: Option<&str>) -> Holder {
    Holder {
        proc: proc(pid),
        agent: None,
        program: program(path, script),
    }
}

/// A child of `holder` shaped like a server.
fn spawn(time: Nanos, child: u32, line: &str, base: u64, holder: &Holder) -> Exec {
    let argv: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let candidate = streams(base, holder.proc.pid);
    Exec {
        time,
        proc: proc(child),
        parent: holder.proc,
        uid: 1000,
        resolved: identify(
            &Launch {
                exe: "",
                argv: &argv,
                cwd: "/w",
                home: "/home/u",
            },
            &Blind,
        ),
        configured: false,
        stdio: Some((candidate.stdin, candidate.stdout)),
        shape: Ok(candidate),
        holder: Some(holder.clone()),
        adopted: false,
    }
}

/// A child of a chain's process that inherits its streams.
fn inherit(time: Nanos, parent: u32, child: u32, line: &str, base: u64) -> Exec {
    Exec {
        parent: proc(parent),
        shape: Err(Reason::StdinInherited),
        holder: None,
        ..spawn(time, child, line, base, &known_agent())
    }
}

fn tracker(limits: Limits) -> Tracker {
    Tracker::new([7; 16], limits, UnknownAgents::Discover)
}

fn candidate_of(seen: Seen) -> InstanceId {
    match seen {
        Seen::Candidate(id) => id,
        other => panic!("{other:?}"),
    }
}

fn confirmed(actions: &[Action]) -> usize {
    actions
        .iter()
        .filter(|action| matches!(action, Action::Confirmed(_)))
        .count()
}

fn gone(actions: &[Action]) -> Vec<GoneReason> {
    actions
        .iter()
        .filter_map(|action| match action {
            Action::Gone(_, _, why) => Some(*why),
            _ => None,
        })
        .collect()
}

#[test]
fn npx_is_one_server_from_first_exec_to_last_exit() {
    let (mut t, mut out) = (tracker(Limits::default()), Vec::new());
    let id = candidate_of(t.exec(
        &spawn(
            1,
            10,
            "/usr/bin/env node /usr/bin/npx -y pkg",
            0x10,
            &known_agent(),
        ),
        &mut out,
    ));
    // env replaces itself, npx starts sh, sh starts node.
    let mut node = spawn(2, 10, "node /usr/bin/npx -y pkg", 0x10, &known_agent());
    assert_eq!(t.exec(&node, &mut out), Seen::SameChain(id));
    t.agent_wrote(pipe(0x10), INITIALIZE, 3, &mut out);
    assert_eq!(confirmed(&out), 1);
    t.fork(proc(10), proc(11), &mut out);
    assert_eq!(
        t.exec(&inherit(4, 10, 11, "sh -c mcp-pkg", 0x10), &mut out),
        Seen::SameChain(id)
    );
    assert_eq!(
        t.exec(
            &inherit(5, 11, 12, "node /c/node_modules/pkg/dist/index.js", 0x10),
            &mut out
        ),
        Seen::SameChain(id)
    );
    assert_eq!(t.instance(id).unwrap().identity.to_string(), "npm:pkg");
    assert_eq!(t.instance(id).unwrap().key.proc, proc(10));
    assert_eq!(t.by_member(proc(12)), Some(id));
    t.exit(proc(12), &mut out);
    t.exit(proc(11), &mut out);
    assert!(gone(&out).is_empty());
    t.exit(proc(10), &mut out);
    assert_eq!(gone(&out), [GoneReason::Exited]);
    // The same package is known at its next exec.
    node.proc = proc(20);
    let again = candidate_of(t.exec(&node, &mut out));
    assert_eq!(t.instance(again).unwrap().known, Some(KnownBy::Fingerprint));
    assert_eq!(t.instance(again).unwrap().state, State::Candidate(None));
}

#[test]
fn the_program_behind_a_script_gives_the_name_until_the_server_speaks() {
    let (mut t, mut out) = (tracker(Limits::default()), Vec::new());
    let id = candidate_of(t.exec(&spawn(1, 10, "bash /opt/run.sh", 0x10, &known_agent()), &mut out));
    t.agent_wrote(pipe(0x10), INITIALIZE, 2, &mut out);
    t.exec(&inherit(3, 10, 11, "uvx mcp-server-git", 0x10), &mut out);
    assert!(
        matches!(&out[..], [Action::ServerLearned(..), Action::Confirmed(_), Action::ServerLearned(..), Action::Renamed { from, .. }]
            if from.to_string() == "file:/opt/run.sh")
    );
    t.exec(&inherit(4, 11, 12, "python3 -m mcp_server_git", 0x10), &mut out);
    // From here on it is a server with helpers of its own.
    t.exec(&inherit(5, 12, 13, "npx other", 0x10), &mut out);
    assert_eq!(
        t.instance(id).unwrap().identity.to_string(),
        "pypi:mcp-server-git"
    );
    t.agent_read(pipe(0x11));
    t.exec(&inherit(6, 10, 12, "npx third", 0x10), &mut out);
    assert_eq!(
        t.instance(id).unwrap().identity.to_string(),
        "pypi:mcp-server-git"
    );
}

/// What no protocol says, often enough to give it up.
const JSON_ROWS: &[u8] = b"{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n";

#[test]
fn a_relayed_server_is_not_renamed_by_its_helpers() {
    let (mut t, mut out) = (tracker(Limits::default()), Vec::new());
    let id = candidate_of(t.exec(&spawn(1, 10, "/opt/notes", 0x10, &known_agent()), &mut out));
    t.relayed(id);
    let name = |t: &Tracker| t.instance(id).unwrap().identity.to_string();
    // A child with streams of its own: behind a relay that cannot be told from the chain.
    t.fork(proc(10), proc(11), &mut out);
    t.exec(&spawn(2, 11, "sh -c exec", 0x50, &known_agent()), &mut out);
    assert_eq!(name(&t), "bin:notes");
}

#[test]
fn helpers_of_agents_are_turned_down() {
    // (what the agent does to its end, why the helper is no server)
    let cases: [(&str, Option<&[u8]>, Rejection); 4] = [
        ("sh -c ps", None, Rejection::Eof),
        (
            "bash -c env",
            Some(b"#!/bin/sh\n"),
            Rejection::NotMcp(NotMcp::NotJson),
        ),
        (
            "gopls serve",
            Some(b"Content-Length: 10\r\n"),
            Rejection::NotMcp(NotMcp::Lsp),
        ),
        (
            "git rev-parse",
            Some(JSON_ROWS),
            Rejection::NotMcp(NotMcp::OtherJson),
        ),
    ];
    for (line, bytes, expected) in cases {
        let (mut t, mut out) = (tracker(Limits::default()), Vec::new());
        let id = candidate_of(t.exec(&spawn(1, 10, line, 0x10, &known_agent()), &mut out));
        match bytes {
            Some(bytes) => {
                t.agent_wrote(pipe(0x10), bytes, 2, &mut out);
            }
            None => t.agent_closed(pipe(0x10), 2, &mut out),
        }
        assert_eq!(t.instance(id).unwrap().state, State::Rejected(expected));
        // Its children hold the same streams and are not looked at again; it may still become another image.
        assert_eq!(
            t.exec(&inherit(3, 10, 11, "cat", 0x10), &mut out),
            Seen::SameChain(id)
        );
        t.exit(proc(10), &mut out);
        t.exit(proc(11), &mut out);
        assert_eq!(t.instances().count(), 0);
    }
}

#[test]
fn silence_ends_a_candidate_but_not_a_known_server() {
    let (mut t, mut out) = (tracker(Limits::default()), Vec::new());
    let silent = candidate_of(t.exec(&spawn(0, 10, "/opt/a", 0x10, &known_agent()), &mut out));
    let mut configured = spawn(0, 11, "/opt/b", 0x20, &known_agent());
    configured.configured = true;
    let configured = candidate_of(t.exec(&configured, &mut out));
    t.tick(59 * SECOND, &mut out);
    assert!(out.is_empty());
    t.tick(60 * SECOND, &mut out);
    assert_eq!(
        t.instance(silent).unwrap().state,
        State::Rejected(Rejection::Time)
    );
    t.tick(u64::MAX, &mut out);
    t.agent_wrote(pipe(0x20), INITIALIZE, u64::MAX, &mut out);
    assert_eq!(t.instance(configured).unwrap().state, State::Confirmed);
}

#[test]
fn what_was_learned_outlives_a_new_start_and_a_new_tracker() {
    let (mut t, mut out) = (tracker(Limits::default()), Vec::new());
    let first = candidate_of(t.exec(&spawn(1, 10, "npx -y @corp/mail", 0x10, &known_agent()), &mut out));
    assert_eq!(t.instance(first).unwrap().known, None);
    t.agent_wrote(pipe(0x10), INITIALIZE, 2, &mut out);
    let learned = out.iter().find_map(|action| match action {
        Action::ServerLearned(uid, identity) => Some((*uid, identity.clone())),
        _ => None,
    });
    let (uid, identity) = learned.unwrap();
    t.start_again();
    assert_eq!(t.instance(first).map(|_| ()), None);
    let mut other = tracker(Limits::default());
    other.recall_server(uid, &identity);
    for t in [&mut t, &mut other] {
        let again = candidate_of(t.exec(&spawn(3, 11, "npx -y @corp/mail", 0x30, &known_agent()), &mut out));
        assert_eq!(t.instance(again).unwrap().known, Some(KnownBy::Fingerprint));
    }
}

#[test]
fn an_unknown_program_that_speaks_mcp_is_learned() {
    let (mut t, mut out) = (tracker(Limits::default()), Vec::new());
    let bot = unknown(50, "/usr/bin/python3.11", Some("/srv/bot.py"));
    let id = candidate_of(t.exec(&spawn(1, 60, "/opt/srv", 0x10, &bot), &mut out));
    assert!(matches!(out[..], [Action::ProbationStarted(p)] if p == bot.proc));
    assert_eq!(t.instance(id).unwrap().agent, None);
    out.clear();
    t.agent_wrote(pipe(0x10), INITIALIZE, 2, &mut out);
    assert!(matches!(
        &out[..],
        [
            Action::ServerLearned(..),
            Action::AgentLearned(_),
            Action::ProbationEnded { learned: true, .. },
            Action::Confirmed(_)
        ]
    ));
    assert_eq!(
        t.instance(id).unwrap().agent.as_ref().unwrap().name,
        "file:/srv/bot.py"
    );
    assert!(t.is_learned(&bot.program));
    // A rebuilt executable is another program, and so is the interpreter with another script.
    assert!(!t.is_learned(&program("/usr/bin/python3.11", Some("/srv/other.py"))));
    let mut rebuilt = bot.program.clone();
    rebuilt.exe.mtime += 1;
    assert!(!t.is_learned(&rebuilt));
    // The next process of the program needs no probation.
    out.clear();
    let next = Holder {
        proc: proc(51),
        ..bot
    };
    let id = candidate_of(t.exec(&spawn(3, 61, "/opt/srv2", 0x20, &next), &mut out));
    assert!(out.is_empty());
    assert_eq!(
        t.instance(id).unwrap().agent.as_ref().unwrap().kind,
        AgentKind::Learned
    );
}

#[test]
fn an_interpreter_without_a_script_is_watched_and_not_learned() {
    let (mut t, mut out) = (tracker(Limits::default()), Vec::new());
    let repl = unknown(50, "/usr/bin/python3.11", None);
    assert!(is_interpreter(&repl.program.exe.path));
    let id = candidate_of(t.exec(&spawn(1, 60, "/opt/srv", 0x10, &repl), &mut out));
    t.agent_wrote(pipe(0x10), INITIALIZE, 2, &mut out);
    assert_eq!(t.instance(id).unwrap().state, State::Confirmed);
    assert!(!t.is_learned(&repl.program));
}

#[test]
fn a_program_wrongly_suspected_is_left_alone_for_a_while() {
    let (mut t, mut out) = (tracker(Limits::default()), Vec::new());
    for n in 0..3 {
        let make = unknown(50 + n, "/usr/bin/make", None);
        candidate_of(t.exec(&spawn(1, 60 + n, "cc", 0x10 * u64::from(n + 1), &make), &mut out));
        t.agent_closed(pipe(0x10 * u64::from(n + 1)), 2, &mut out);
        assert!(matches!(
            out.last(),
            Some(Action::ProbationEnded { learned: false, .. })
        ));
    }
    let make = unknown(70, "/usr/bin/make", None);
    assert_eq!(
        t.exec(&spawn(3, 80, "cc", 0x90, &make), &mut out),
        Seen::UnknownAgent
    );
    assert_eq!(t.counters().doubted, 1);
    candidate_of(t.exec(&spawn(3602 * SECOND, 81, "cc", 0xa0, &make), &mut out));

    t.set_unknown_agents(UnknownAgents::Ignore);
    let other = unknown(71, "/opt/other", None);
    assert_eq!(
        t.exec(&spawn(4, 82, "srv", 0xb0, &other), &mut out),
        Seen::UnknownAgent
    );
}

#[test]
fn probation_is_bounded_in_number_and_time() {
    let (mut t, mut out) = (
        tracker(Limits {
            probation: 2,
            ..Limits::default()
        }),
        Vec::new(),
    );
    for n in 0..3_u32 {
        let holder = unknown(50 + n, &format!("/opt/p{n}"), None);
        let seen = t.exec(
            &spawn(0, 60 + n, "srv", 0x10 * u64::from(n + 1), &holder),
            &mut out,
        );
        assert_eq!(matches!(seen, Seen::Candidate(_)), n < 2);
    }
    assert_eq!(t.counters().probation_full, 1);
    out.clear();
    t.tick(20 * SECOND, &mut out);
    let ended = out
        .iter()
        .filter(|action| matches!(action, Action::ProbationEnded { learned: false, .. }))
        .count();
    assert_eq!(ended, 2);
    candidate_of(t.exec(
        &spawn(21 * SECOND, 70, "srv", 0x90, &unknown(52, "/opt/p2", None)),
        &mut out,
    ));
}

#[test]
fn reused_numbers_and_addresses_end_what_they_belonged_to() {
    let (mut t, mut out) = (tracker(Limits::default()), Vec::new());
    let old = candidate_of(t.exec(&spawn(1, 10, "/opt/a", 0x10, &known_agent()), &mut out));
    // Same pid, later start: the exit was missed.
    let mut exec = spawn(2, 10, "/opt/b", 0x20, &known_agent());
    exec.proc.start += NS_PER_TICK;
    let new = candidate_of(t.exec(&exec, &mut out));
    assert!(t.instance(old).is_none());
    // Same pipe address, other process.
    let third = candidate_of(t.exec(&spawn(3, 12, "/opt/c", 0x20, &known_agent()), &mut out));
    assert!(t.instance(new).is_none());
    assert_eq!(t.by_object(pipe(0x21)), Some(third));
    assert_eq!(gone(&out), [GoneReason::Exited, GoneReason::ObjectReused]);
}

#[test]
fn the_agents_end_lives_as_long_as_a_fork_keeps_it() {
    let (mut t, mut out) = (tracker(Limits::default()), Vec::new());
    candidate_of(t.exec(&spawn(1, 10, "/opt/a", 0x10, &known_agent()), &mut out));
    t.fork(AGENT, proc(101), &mut out);
    t.exit(AGENT, &mut out);
    assert!(gone(&out).is_empty());
    t.exit(proc(101), &mut out);
    assert_eq!(gone(&out), [GoneReason::AgentExited]);
    assert_eq!(t.size(), 0);
}

#[test]
fn a_server_that_is_an_agent_itself_is_both() {
    let (mut t, mut out) = (tracker(Limits::default()), Vec::new());
    let outer = candidate_of(t.exec(
        &spawn(1, 10, "/opt/claude mcp serve", 0x10, &known_agent()),
        &mut out,
    ));
    let inner_agent = Holder {
        proc: proc(10),
        ..known_agent()
    };
    let inner = candidate_of(t.exec(&spawn(2, 11, "/opt/srv", 0x20, &inner_agent), &mut out));
    t.agent_wrote(pipe(0x10), INITIALIZE, 3, &mut out);
    t.agent_wrote(pipe(0x20), INITIALIZE, 3, &mut out);
    assert_eq!(confirmed(&out), 2);
    assert_ne!(outer, inner);
    t.exit(proc(10), &mut out);
    assert_eq!(gone(&out), [GoneReason::Exited, GoneReason::AgentExited]);
}

#[test]
fn a_process_that_takes_other_streams_leaves_the_chain() {
    let (mut t, mut out) = (tracker(Limits::default()), Vec::new());
    let id = candidate_of(t.exec(&spawn(1, 10, "/opt/a", 0x10, &known_agent()), &mut out));
    t.fork(proc(10), proc(11), &mut out);
    let mut helper = inherit(2, 10, 11, "git status", 0x10);
    helper.stdio = None;
    helper.shape = Err(Reason::StdinNotStream);
    assert_eq!(t.exec(&helper, &mut out), Seen::NotShaped(Reason::StdinNotStream));
    assert_eq!(t.instance(id).unwrap().members().count(), 1);
}

#[test]
fn a_running_server_is_adopted_by_any_request() {
    let (mut t, mut out) = (tracker(Limits::default()), Vec::new());
    let mut exec = spawn(1, 10, "/opt/a", 0x10, &known_agent());
    exec.adopted = true;
    candidate_of(t.exec(&exec, &mut out));
    t.agent_wrote(
        pipe(0x10),
        b"d\":1}\n{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"tools/call\"}\n",
        2,
        &mut out,
    );
    assert_eq!(confirmed(&out), 1);
}

#[test]
fn what_runs_already_is_known_to_the_tick_and_ends_all_the_same() {
    let exact = |pid: u32| ProcKey {
        pid,
        start: 7 * NS_PER_TICK + 1_234,
    };
    let of_procfs = |pid: u32| ProcKey {
        pid,
        start: 7 * NS_PER_TICK,
    };
    let (mut t, mut out) = (tracker(Limits::default()), Vec::new());
    let agent = Holder {
        proc: of_procfs(100),
        ..known_agent()
    };
    let mut exec = spawn(1, 10, "/opt/a", 0x10, &agent);
    exec.adopted = true;
    exec.proc = of_procfs(10);
    candidate_of(t.exec(&exec, &mut out));
    // Its next image, a fork, and the ends are told by the kernel.
    exec.proc = exact(10);
    assert!(matches!(t.exec(&exec, &mut out), Seen::SameChain(_)));
    t.fork(exact(10), exact(11), &mut out);
    t.exit(exact(10), &mut out);
    assert!(gone(&out).is_empty());
    t.exit(exact(11), &mut out);
    assert_eq!(gone(&out), [GoneReason::Exited]);
    // The agent goes on with another server, and ends.
    candidate_of(t.exec(
        &spawn(
            2,
            12,
            "/opt/b",
            0x20,
            &Holder {
                proc: exact(100),
                ..known_agent()
            },
        ),
        &mut out,
    ));
    t.exit(exact(100), &mut out);
    assert_eq!(gone(&out), [GoneReason::Exited, GoneReason::AgentExited]);
    assert_eq!(t.size(), 0);
}

#[test]
fn a_flood_of_candidates_costs_the_flooder() {
    let limits = Limits {
        candidates_per_holder: 4,
        candidates: 100,
        ..Limits::default()
    };
    let (mut t, mut out) = (tracker(limits), Vec::new());
    let other = Holder {
        proc: proc(200),
        ..known_agent()
    };
    let victim = candidate_of(t.exec(&spawn(0, 9, "/opt/v", 0x8, &other), &mut out));
    for n in 0..50_u32 {
        candidate_of(t.exec(
            &spawn(1, 300 + n, "/opt/x", 0x100 + 2 * u64::from(n), &known_agent()),
            &mut out,
        ));
    }
    assert_eq!(t.counters().candidates_evicted, 46);
    assert!(matches!(t.instance(victim).unwrap().state, State::Candidate(_)));
}

#[derive(Clone, Debug)]
enum Event {
    Spawn {
        child: u32,
        holder: u32,
        base: u64,
        known: bool,
        line: usize,
    },
    Inherit {
        parent: u32,
        child: u32,
        base: u64,
    },
    Fork(u32, u32),
    Exit(u32),
    Wrote(u64, usize),
    Closed(u64),
    Read(u64),
    Tick,
}

fn event() -> impl Strategy<Value = Event> {
    let pid = 0_u32..24;
    let object = 0_u64..32;
    prop_oneof![
        (
            pid.clone(),
            pid.clone(),
            object.clone(),
            any::<bool>(),
            0_usize..4
        )
            .prop_map(|(child, holder, base, known, line)| Event::Spawn {
                child,
                holder,
                base,
                known,
                line
            }),
        (pid.clone(), pid.clone(), object.clone()).prop_map(|(parent, child, base)| Event::Inherit {
            parent,
            child,
            base
        }),
        (pid.clone(), pid.clone()).prop_map(|(parent, child)| Event::Fork(parent, child)),
        pid.prop_map(Event::Exit),
        (object.clone(), 0_usize..4).prop_map(|(object, bytes)| Event::Wrote(object, bytes)),
        object.clone().prop_map(Event::Closed),
        object.prop_map(Event::Read),
        Just(Event::Tick),
    ]
}

fn small() -> Limits {
    Limits {
        candidate_time: 40,
        probation_time: 20,
        probation: 3,
        doubts: 3,
        doubt_time: 100,
        candidates_per_holder: 3,
        candidates: 6,
        instances: 10,
        members: 4,
        learned: 4,
        fingerprints: 4,
    }
}

proptest! {
    /// Whatever happens in whatever order, the tables agree with each other, stay within the limits, and are empty
    /// (but for what is remembered) once every process is gone.
    #[test]
    fn nothing_grows_without_bound(events in prop::collection::vec(event(), 0..300)) {
        let limits = small();
        let mut t = tracker(limits);
        let mut out = Vec::new();
        let lines = ["npx -y a", "python3 -m b", "/opt/c", "sh -c d"];
        let texts: [&[u8]; 4] = [INITIALIZE, b"{", b"no\n", b"{\"jsonrpc\":"];
        let mut probation = 0_i64;
        for (time, event) in events.into_iter().enumerate() {
            let time = time as u64;
            match event {
                Event::Spawn { child, holder, base, known, line } => {
                    let holder = if known {
                        Holder { proc: proc(holder), ..known_agent() }
                    } else {
                        unknown(holder, &format!("/opt/p{holder}"), None)
                    };
                    t.exec(&spawn(time, child, lines[line], base, &holder), &mut out);
                }
                Event::Inherit { parent, child, base } => {
                    t.exec(&inherit(time, parent, child, "node /x/node_modules/e/i.js", base), &mut out);
                }
                Event::Fork(parent, child) => t.fork(proc(parent), proc(child), &mut out),
                Event::Exit(pid) => t.exit(proc(pid), &mut out),
                Event::Wrote(object, bytes) => {
                    t.agent_wrote(pipe(object), texts[bytes], time, &mut out);
                }
                Event::Closed(object) => t.agent_closed(pipe(object), time, &mut out),
                Event::Read(object) => {
                    t.agent_read(pipe(object));
                }
                Event::Tick => t.tick(time, &mut out),
            }
            for action in out.drain(..) {
                match action {
                    Action::ProbationStarted(_) => probation += 1,
                    Action::ProbationEnded { .. } => probation -= 1,
                    _ => {}
                }
            }
            prop_assert_eq!(probation, i64::try_from(t.on_probation).unwrap());
            prop_assert!(t.on_probation <= limits.probation);
            prop_assert!(t.candidates.len() <= limits.candidates);
            prop_assert!(t.instances.len() <= limits.instances);
            prop_assert!(t.deadlines.len() <= t.candidates.len());
            prop_assert!(t.by_object.len() <= 2 * t.instances.len());
            prop_assert!(t.holders.len() <= t.instances.len());
            for (member, id) in &t.by_member {
                prop_assert!(t.instances[id].members.contains(member));
            }
            for (id, instance) in &t.instances {
                prop_assert!(instance.members.len() <= limits.members);
                prop_assert_eq!(t.candidates.contains(id), matches!(instance.state, State::Candidate(_)));
                prop_assert_eq!(t.rejected.contains(id), matches!(instance.state, State::Rejected(_)));
            }
        }
        for pid in 0..24 {
            t.exit(proc(pid), &mut out);
        }
        let left = t.size() - t.memory.sizes().iter().sum::<usize>();
        prop_assert_eq!(left, 0, "{:?}", t);
    }
}

#[test]
fn a_hundred_thousand_processes_leave_nothing() {
    let (mut t, mut out) = (tracker(Limits::default()), Vec::new());
    for n in 0..100_000_u32 {
        let holder = unknown(1_000_000 + n, &format!("/opt/{}", n % 5000), None);
        t.exec(
            &spawn(
                u64::from(n) * SECOND,
                2_000_000 + n,
                "cc",
                2 * u64::from(n) + 2,
                &holder,
            ),
            &mut out,
        );
        t.exit(proc(2_000_000 + n), &mut out);
        t.exit(proc(1_000_000 + n), &mut out);
        out.clear();
    }
    assert_eq!(t.size(), t.memory.sizes().iter().sum::<usize>());
    assert!(t.size() <= Limits::default().learned);
}
