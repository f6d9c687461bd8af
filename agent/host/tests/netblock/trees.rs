//! Who is in a blocked tree.

use kams_host::netblock::Blocks;

use crate::rig::{Actor, EPERM, Goal, alone, block, process};

#[test]
fn children_and_grandchildren_are_in_it_from_before_and_after() {
    let Some(_alone) = alone() else { return };
    let goal = Goal::new();
    let call = format!("tcp4 {}", goal.tcp());
    let mut actor = Actor::start();
    assert!(actor.say("start").starts_with("ok"), "a child from before");
    assert!(
        actor.say("tell start").starts_with("ok ok"),
        "a grandchild from before"
    );
    assert_eq!(actor.say(&format!("tell tell {call}")), "ok ok ok");
    let (blocks, id) = block(&actor);
    assert_eq!(actor.say(&call), EPERM);
    assert_eq!(actor.say(&format!("tell {call}")), format!("ok {EPERM}"));
    assert_eq!(actor.say(&format!("tell tell {call}")), format!("ok ok {EPERM}"));
    // From after, and below those from before.
    assert_eq!(actor.say(&format!("child {call}")), format!("ok {EPERM}"));
    assert_eq!(
        actor.say(&format!("child child {call}")),
        format!("ok ok {EPERM}")
    );
    assert_eq!(
        actor.say(&format!("tell tell child {call}")),
        format!("ok ok ok {EPERM}")
    );
    blocks.unblock(id);
    assert_eq!(actor.say(&format!("tell tell child {call}")), "ok ok ok ok");
    assert_eq!(actor.say(&format!("child child {call}")), "ok ok ok");
}

#[test]
fn a_daemon_that_it_started_stays_in_it() {
    let Some(_alone) = alone() else { return };
    let goal = Goal::new();
    let call = format!("tcp4 {}", goal.tcp());
    let folder = tempfile::tempdir().expect("a folder");
    let mut actor = Actor::start();
    let (before, after) = (folder.path().join("before"), folder.path().join("after"));
    let answer = actor.say(&format!("orphan {}", before.display()));
    let pid = answer
        .strip_prefix("ok ")
        .and_then(|pid| pid.parse().ok())
        .expect("a process");
    let mut early = Actor::at(&before, pid);
    // Whoever follows forks can name it; by its parent it cannot be found.
    let blocks = Blocks::new(None);
    let id = blocks.block(&[actor.process(), process(pid)]).expect("blocked");
    blocks.sweep(id);
    let answer = actor.say(&format!("orphan {}", after.display()));
    let pid = answer
        .strip_prefix("ok ")
        .and_then(|pid| pid.parse().ok())
        .expect("a process");
    let mut late = Actor::at(&after, pid);
    assert_eq!(early.say(&call), EPERM);
    assert_eq!(late.say(&call), EPERM, "entered at its fork");
    // The process that was named may end: the block goes on for the others.
    drop(actor);
    blocks.sweep(id);
    assert_eq!(late.say(&call), EPERM);
    blocks.unblock(id);
    assert_eq!(early.say(&call), "ok");
    assert_eq!(late.say(&call), "ok");
}

#[test]
fn trees_can_lie_in_one_another() {
    let Some(_alone) = alone() else { return };
    let goal = Goal::new();
    let call = format!("tcp4 {}", goal.tcp());
    let mut actor = Actor::start();
    let answer = actor.say("start");
    let pid = answer
        .strip_prefix("ok ")
        .and_then(|pid| pid.parse().ok())
        .expect("a process");
    let blocks = Blocks::new(None);
    let outer = blocks.block(&[actor.process()]).expect("blocked");
    blocks.sweep(outer);
    let inner = blocks.block(&[process(pid)]).expect("blocked");
    blocks.sweep(inner);
    assert_eq!(blocks.of_process(pid), Some(inner));
    blocks.unblock(inner);
    assert_eq!(
        blocks.of_process(pid),
        Some(outer),
        "it falls back to the outer one"
    );
    assert_eq!(actor.say(&format!("tell {call}")), format!("ok {EPERM}"));
    blocks.unblock(outer);
    assert_eq!(actor.say(&format!("tell {call}")), "ok ok");
}

#[test]
fn many_processes_come_and_go_and_leave_nothing() {
    let Some(_alone) = alone() else { return };
    let mut actor = Actor::start();
    let (blocks, id) = block(&actor);
    let before = blocks.state().processes;
    for _ in 0..40 {
        assert!(actor.say("child pid").starts_with("ok ok"));
    }
    let state = blocks.state();
    assert_eq!((state.processes, state.lost), (before, 0));
    assert_eq!(blocks.sweep(id).processes, before);
}
