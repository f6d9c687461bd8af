//! What a relay does with verdicts.

use std::io::{Read, Write};

use kams_relay::FailMode;
use kams_relay::relay::Ended;
use kams_relay::wire::{FromEngine, Onward, Verdict, Way};
use serde_json::Value;

use super::rig::{Engine, Options, Rig};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
}

fn verdict(onward: Onward, back: &str) -> Verdict {
    Verdict {
        onward,
        back: back.as_bytes().to_vec(),
    }
}

#[test]
fn verdicts_are_carried_out_in_order() {
    let (mut rig, engine) = Rig::linked(Options::default());
    let mut engine = Engine::new(engine);
    rig.agent_says("one\ntwo\nthree\nfour\n");
    let seqs: Vec<u64> = (0..4).map(|_| engine.frame().unwrap().0.seq).collect();
    // Decided in another order than they came.
    engine.say(&FromEngine::Verdict(seqs[3], Verdict::default()));
    engine.say(&FromEngine::Verdict(
        seqs[1],
        verdict(Onward::Instead(b"2\n".to_vec()), ""),
    ));
    engine.say(&FromEngine::Verdict(
        seqs[2],
        verdict(Onward::Nothing, "no three\n"),
    ));
    assert_eq!(rig.agent_hears(), "no three\n");
    engine.say(&FromEngine::Verdict(seqs[0], Verdict::default()));
    assert_eq!(
        rig.server_hears() + &rig.server_hears() + &rig.server_hears(),
        "one\n2\nfour\n"
    );
}

#[test]
fn a_held_request_steps_out_of_the_line() {
    let (mut rig, engine) = Rig::linked(Options::default());
    let mut engine = Engine::new(engine);
    let call =
        |id: u32| format!("{{\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"pay\"}}}}\n");
    rig.agent_says(&call(1));
    rig.agent_says(&call(2));
    for _ in 0..2 {
        let (frame, _) = engine.frame().unwrap();
        engine.say(&FromEngine::Hold(frame.seq, 60_000, "wait".into()));
    }
    let pass = |rig: &mut Rig, engine: &mut Engine, text: &str| {
        rig.agent_says(text);
        let (frame, _) = engine.frame().unwrap();
        engine.say(&FromEngine::Verdict(frame.seq, Verdict::default()));
        assert_eq!(rig.server_hears(), text);
    };
    pass(&mut rig, &mut engine, "{\"id\":3,\"method\":\"ping\"}\n");
    // The cancellation of a held request is consumed with it.
    rig.agent_says("{\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":2}}\n");
    let (frame, _) = engine.frame().unwrap();
    engine.say(&FromEngine::Verdict(frame.seq, verdict(Onward::Nothing, "")));
    pass(&mut rig, &mut engine, "{\"id\":4,\"method\":\"ping\"}\n");
    // The numbers of relayed messages grow by two; the first is the held call.
    engine.say(&FromEngine::Verdict(2, Verdict::default()));
    assert_eq!(rig.server_hears(), call(1));
    // Too late: it was cancelled.
    engine.say(&FromEngine::Verdict(4, Verdict::default()));
    pass(&mut rig, &mut engine, "{\"id\":5,\"method\":\"ping\"}\n");
}

#[test]
fn a_request_that_nobody_decides_on_is_refused_by_the_relay() {
    let (mut rig, engine) = Rig::linked(Options::default());
    let mut engine = Engine::new(engine);
    rig.agent_says("{\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"pay\"}}\n");
    let (frame, _) = engine.frame().unwrap();
    engine.say(&FromEngine::Hold(frame.seq, 0, "held by rule `r`".into()));
    let answer = json(&rig.agent_hears());
    assert_eq!(answer["result"]["isError"], true);
    assert_eq!(answer["result"]["content"][0]["text"], "held by rule `r`");
}

#[test]
fn a_request_whose_engine_is_gone_is_refused_at_once() {
    let (mut rig, engine) = Rig::linked(Options::default());
    let mut engine = Engine::new(engine);
    rig.agent_says("{\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"pay\"}}\n");
    let (frame, _) = engine.frame().unwrap();
    // A limit that no test outlives.
    engine.say(&FromEngine::Hold(frame.seq, u64::MAX, "held by rule `r`.".into()));
    drop(engine);
    let answer = json(&rig.agent_hears());
    assert_eq!(answer["result"]["isError"], true);
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        text.starts_with("held by rule `r`. kamsd stopped") && text.ends_with("call again to ask again."),
        "{text}"
    );
}

#[test]
fn a_message_over_the_limit_is_decided_by_its_beginning() {
    let pad = "x".repeat(900_000);
    let call = format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\"params\":{{\"name\":\"x\",\"arguments\":{{\"p\":\"{pad}\"}}}},\"id\":\"late\"}}\n"
    );
    for refused in [true, false] {
        let (mut rig, engine) = Rig::linked(Options {
            limit: 100_000,
            ..Options::default()
        });
        let mut engine = Engine::new(engine);
        let mut out = rig.agent_out.take().unwrap();
        let text = call.clone();
        let writer = std::thread::spawn(move || {
            out.write_all(text.as_bytes()).unwrap();
            out.write_all(b"next\n").unwrap();
            out
        });
        let (frame, beginning) = engine.frame().unwrap();
        assert!(frame.oversize && frame.length > 100_000 && call.as_bytes().starts_with(&beginning));
        if refused {
            engine.say(&FromEngine::Refuse(frame.seq, "too long".into()));
            let answer = json(&rig.agent_hears());
            assert_eq!(answer["id"], "late");
            assert_eq!(answer["result"]["isError"], true);
        } else {
            engine.say(&FromEngine::Verdict(frame.seq, Verdict::default()));
            let mut got = vec![0; call.len()];
            rig.server_in.as_mut().unwrap().read_exact(&mut got).unwrap();
            assert!(got == call.as_bytes());
        }
        let (next, text) = engine.frame().unwrap();
        assert_eq!(text, b"next\n");
        engine.say(&FromEngine::Verdict(next.seq, Verdict::default()));
        assert_eq!(rig.server_hears(), "next\n");
        writer.join().unwrap();
    }
}

#[test]
fn an_answer_over_the_limit_is_refused_as_an_answer() {
    let (mut rig, engine) = Rig::linked(Options {
        limit: 10_000,
        fail: FailMode::Closed,
        ..Options::default()
    });
    let mut engine = Engine::new(engine);
    rig.agent_says("{\"id\":9,\"method\":\"tools/call\",\"params\":{\"name\":\"x\"}}\n");
    let (frame, _) = engine.frame().unwrap();
    engine.say(&FromEngine::Verdict(frame.seq, Verdict::default()));
    rig.server_hears();
    let result = format!(
        "{{\"result\":{{\"content\":\"{}\"}},\"id\":9}}\n",
        "y".repeat(50_000)
    );
    rig.server_says(&result);
    // Nobody decides: closed means that it does not pass.
    let answer = json(&rig.agent_hears());
    assert_eq!(
        (&answer["id"], &answer["result"]["isError"]),
        (&9.into(), &true.into())
    );
}

#[test]
fn the_engine_can_speak_and_end() {
    let (mut rig, engine) = Rig::linked(Options::default());
    let mut engine = Engine::new(engine);
    let line = b"{\"method\":\"notifications/tools/list_changed\"}\n";
    engine.say(&FromEngine::Inject(Way::ToAgent, line.to_vec()));
    assert_eq!(rig.agent_hears().as_bytes(), line);
    engine.say(&FromEngine::End);
    assert_eq!(rig.join(), Ended::Ordered);
    assert_eq!(
        (rig.agent_hears(), rig.server_hears()),
        (String::new(), String::new())
    );
}
