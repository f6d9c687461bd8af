//! The process that blocks dies, is replaced, or is overruled.

use kams_host::netblock::{Blocks, heal};

use crate::rig::{Actor, EPERM, Folder, Goal, alone, no_programs, process};

/// Attempts before the change; more than those after it.
const MANY: u64 = 30_000;
/// Attempts during the change.
const FEWER: u64 = 20_000;

#[test]
fn the_death_of_the_daemon_ends_no_block_and_the_next_one_goes_on() {
    let Some(_alone) = alone() else { return };
    let goal = Goal::new();
    let call = format!("tcp4 {}", goal.tcp());
    let folder = Folder::new("death");
    let mut actor = Actor::start();
    let mut daemon = Actor::start();
    let target = actor.process();
    let answer = daemon.say(&format!(
        "block {} {} {}",
        folder.0.display(),
        target.pid,
        target.start_ns
    ));
    assert!(answer.starts_with("ok"), "{answer}");
    assert_eq!(actor.say(&call), EPERM);
    assert_eq!(actor.say(&format!("hammer {} {MANY}", goal.tcp())), "ok refused");
    daemon.kill();
    assert_eq!(
        actor.say(&call),
        EPERM,
        "nobody lives who could refuse it but the kernel"
    );
    assert_eq!(actor.say(&format!("child {call}")), format!("ok {EPERM}"));
    // The next one takes over while the blocked one tries without a pause, and forks.
    assert!(actor.say("start").starts_with("ok"));
    actor.tell(&format!("hammer {} {FEWER}", goal.tcp()));
    let next = Blocks::new(Some(&folder.0));
    let ids = next.take_over().expect("taken over");
    assert_eq!(ids.len(), 1);
    assert_eq!(actor.answer(), "ok refused");
    assert_eq!(next.of_process(target.pid), ids.first().copied());
    assert_eq!(actor.say(&format!("tell {call}")), format!("ok {EPERM}"));
    // A few in the very moment of the change may be missing; those from before must not be.
    let refused = || next.counts(ids[0]).refused.iter().sum::<u64>();
    let counted = refused();
    assert!(counted > MANY, "counts go on: {counted}");
    assert_eq!(actor.say(&call), EPERM);
    assert_eq!(refused(), counted + 1);
    // A block of its own in the place of the old one: never neither.
    let own = next.block(&[process(target.pid)]).expect("blocked");
    assert_ne!(own, ids[0], "numbers are not used twice");
    next.unblock(ids[0]);
    assert_eq!(actor.say(&call), EPERM);
    next.sweep(own);
    assert_eq!(actor.say(&format!("tell {call}")), format!("ok {EPERM}"));
    next.unblock(own);
    assert_eq!(actor.say(&call), "ok");
    assert_eq!(actor.say(&format!("tell {call}")), "ok ok");
    assert!(no_programs());
}

#[test]
fn healing_ends_everything() {
    let Some(_alone) = alone() else { return };
    let goal = Goal::new();
    let call = format!("tcp4 {}", goal.tcp());
    let folder = Folder::new("heal");
    let mut actor = Actor::start();
    let blocks = Blocks::new(Some(&folder.0));
    blocks.block(&[actor.process()]).expect("blocked");
    assert_eq!(actor.say(&call), EPERM);
    assert!(heal(&folder.0), "there was something");
    // Also while whoever blocked it lives: it is the way out for a person.
    assert!(no_programs());
    assert_eq!(actor.say(&call), "ok");
    assert!(!heal(&folder.0), "there is nothing left");
    // And the daemon can block again.
    let id = blocks.block(&[actor.process()]).expect("blocked");
    assert_eq!(actor.say(&call), EPERM);
    blocks.unblock(id);
    assert!(no_programs());
    assert_eq!(actor.say(&call), "ok");
}

#[test]
fn without_a_folder_blocks_end_with_the_daemon() {
    let Some(_alone) = alone() else { return };
    let goal = Goal::new();
    let mut actor = Actor::start();
    let blocks = Blocks::new(None);
    assert_eq!(blocks.take_over().expect("nothing to do"), []);
    blocks.block(&[actor.process()]).expect("blocked");
    assert_eq!(actor.say(&format!("tcp4 {}", goal.tcp())), EPERM);
    drop(blocks);
    assert!(no_programs());
    assert_eq!(actor.say(&format!("tcp4 {}", goal.tcp())), "ok");
}
