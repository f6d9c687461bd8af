//! What a relay does when its engine is silent, dies, comes back.

use std::io::{BufRead, BufReader, Write};
use std::time::Instant;

use kams_relay::fail::Why;
use kams_relay::wire::{FromEngine, FromRelay, Verdict, Way};
use kams_relay::{Connector, FailMode};
use serde_json::Value;

use super::rig::{Engine, Options, Rig, SOON, accepted, listener};

const CALL: &str = "{\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"x\"}}\n";

fn fail(fail: FailMode) -> Options {
    Options {
        fail,
        ..Options::default()
    }
}

#[test]
fn a_silent_engine_delays_by_its_time_and_no_more() {
    let (mut rig, engine) = Rig::linked(fail(FailMode::Open));
    let mut engine = Engine::new(engine);
    let before = Instant::now();
    rig.agent_says(CALL);
    assert_eq!(rig.server_hears(), CALL);
    assert!(before.elapsed() > SOON, "the engine had its time");
    // The verdict that comes too late changes nothing, and the engine learns what passed.
    let (frame, _) = engine.frame().unwrap();
    engine.say(&FromEngine::Verdict(frame.seq, Verdict::default()));
    let told = loop {
        if let (FromRelay::Unjudged(told), _) = engine.hear().unwrap() {
            break told;
        }
    };
    assert_eq!(
        (told.why, told.mode, told.count),
        (Why::Deadline, FailMode::Open, 1)
    );
    assert_eq!(told.method.as_deref(), Some("tools/call"));
    assert_eq!(told.subject.as_deref(), Some("x"));
}

#[test]
fn closed_refuses_what_nobody_judged() {
    let (mut rig, engine) = Rig::linked(fail(FailMode::Closed));
    let _silent = engine;
    rig.agent_says(&format!("{CALL}{{\"method\":\"notifications/x\"}}\n"));
    rig.agent_says("[{\"id\":2,\"method\":\"ping\"},{\"id\":3,\"method\":\"tools/call\"}]\n");
    let answer: Value = serde_json::from_str(&rig.agent_hears()).unwrap();
    assert_eq!(
        (&answer["id"], &answer["result"]["isError"]),
        (&1.into(), &true.into())
    );
    let answers: Value = serde_json::from_str(&rig.agent_hears()).unwrap();
    assert_eq!(answers[0]["error"]["code"], -31_003);
    assert_eq!(answers[1]["result"]["isError"], true);
    // Nothing reached the server.
    drop(rig.agent_out.take());
    assert_eq!(rig.server_hears(), "");
}

#[test]
fn an_engine_that_dies_in_the_middle_costs_no_message() {
    for mode in [FailMode::Open, FailMode::Closed] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("engine");
        let first = listener(&path);
        let mut rig = Rig::new(fail(mode), Connector::Path(path.clone()));
        let mut engine = accepted(&first);
        rig.agent_says(CALL);
        let (frame, _) = engine.frame().unwrap();
        engine.say(&FromEngine::Verdict(frame.seq, Verdict::default()));
        assert_eq!(rig.server_hears(), CALL);
        // It dies with a message in its hands, and its successor is there at once.
        rig.server_says("{\"id\":1,\"result\":{}}\n");
        engine.frame().unwrap();
        let second = listener(&path);
        drop((engine, first));
        let mut engine = accepted(&second);
        let Some((FromRelay::Hello(hello), _)) = engine.hear() else {
            panic!("no greeting")
        };
        assert!(hello.resumed);
        assert!(hello.before[0].line.contains("\"id\":1"), "{:?}", hello.before);
        let (frame, text) = engine.frame().unwrap();
        assert_eq!(
            (frame.way, text.as_slice()),
            (Way::ToAgent, b"{\"id\":1,\"result\":{}}\n".as_slice())
        );
        engine.say(&FromEngine::Verdict(frame.seq, Verdict::default()));
        assert_eq!(rig.agent_hears(), "{\"id\":1,\"result\":{}}\n");
    }
}

#[test]
fn without_an_engine_the_mode_decides_and_the_next_engine_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("engine");
    let mut rig = Rig::new(fail(FailMode::Open), Connector::Path(path.clone()));
    for n in 0..200 {
        let text = format!("{{\"id\":{n},\"method\":\"ping\"}}\n");
        rig.agent_says(&text);
        assert_eq!(rig.server_hears(), text);
    }
    let listener = listener(&path);
    let mut engine = accepted(&listener);
    let told = loop {
        if let (FromRelay::Unjudged(told), _) = engine.hear().unwrap() {
            break told;
        }
    };
    assert_eq!((told.why, told.way, told.count), (Why::Gone, Way::ToServer, 200));
}

#[test]
fn an_engine_replaced_again_and_again_loses_no_message_under_load() {
    const CALLS: usize = 5_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("engine");
    let mut socket = listener(&path);
    let mut rig = Rig::new(fail(FailMode::Open), Connector::Path(path.clone()));
    let (mut out, input) = (rig.agent_out.take().unwrap(), rig.agent_in.take().unwrap());
    let (server_in, mut server_out) = (rig.server_in.take().unwrap(), rig.server_out.take().unwrap());
    let agent = std::thread::spawn(move || {
        let mut answers = BufReader::new(input).lines();
        for n in 0..CALLS {
            writeln!(out, "{{\"id\":{n},\"method\":\"echo\"}}").unwrap();
            let answer = answers.next().unwrap().unwrap();
            assert_eq!(answer, format!("{{\"id\":{n},\"result\":{{}}}}"));
        }
    });
    let server = std::thread::spawn(move || {
        let mut count = 0;
        for line in BufReader::new(server_in).lines() {
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            writeln!(server_out, "{{\"id\":{},\"result\":{{}}}}", line["id"]).unwrap();
            count += 1;
        }
        count
    });
    // Each engine judges a few hundred messages, then dies with one unanswered.
    let mut judged = 0;
    'all: loop {
        let mut engine = accepted(&socket);
        for _ in 0..701 {
            let Some((frame, _)) = engine.frame() else {
                break 'all;
            };
            engine.say(&FromEngine::Verdict(frame.seq, Verdict::default()));
            judged += 1;
        }
        if engine.frame().is_none() {
            break;
        }
        socket = listener(&path);
        if agent.is_finished() {
            break;
        }
    }
    agent.join().unwrap();
    assert_eq!(server.join().unwrap(), CALLS);
    assert!(judged >= CALLS, "{judged} were judged");
}

#[test]
fn what_was_refused_does_not_stand_in_the_way_of_what_comes() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        limit: 2_000_000,
        ..fail(FailMode::Closed)
    };
    let mut rig = Rig::new(options, Connector::Path(folder.path().join("nobody")));
    // More together than may wait at once, and one that is longer than that by itself.
    let call = |text: &str| {
        format!(
            "{{\"id\":7,\"method\":\"tools/call\",\"params\":{{\"name\":\"x\",\"arguments\":{{\"a\":\"{text}\"}}}}}}\n"
        )
    };
    let small = call(&"word ".repeat(200));
    for round in 0..2 {
        for _ in 0..1_500 {
            rig.agent_says(&small);
            assert!(rig.agent_hears().contains("\"isError\":true"));
        }
        if round == 0 {
            rig.agent_says(&call(&"word ".repeat(600_000)));
            assert!(rig.agent_hears().contains("\"isError\":true"));
        }
    }
}
