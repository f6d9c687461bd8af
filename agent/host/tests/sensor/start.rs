//! Start and stop: what is refused and how it is said; probes that come and go.

use std::io::Write;

use kams_host::{Op, Sensor, SensorError, SensorOptions};

use crate::rig::{Rig, is_root};

#[test]
fn a_ring_that_cannot_be_used_is_refused_with_the_limits() {
    for ring_bytes in [0, 4096, 3_000_000, 1 << 31] {
        let error = Sensor::start(SensorOptions {
            ring_bytes,
            ..SensorOptions::default()
        })
        .expect_err("refused");
        assert!(matches!(error, SensorError::RingSize { bytes } if bytes == ring_bytes));
        assert!(
            error.to_string().contains(&kams_host::RING_USUAL.to_string()),
            "{error}"
        );
    }
}

#[test]
fn an_object_that_is_not_there_is_named() {
    if !is_root() {
        return;
    }
    let object = Some("/nonexistent/kams.o".into());
    let error = Sensor::start(SensorOptions {
        object,
        ..SensorOptions::default()
    })
    .expect_err("refused");
    assert!(error.to_string().contains("/nonexistent/kams.o"), "{error}");
}

#[test]
fn every_probe_is_proved_and_payload_comes_and_goes() {
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    assert!(
        rig.control
            .probes()
            .iter()
            .filter(|probe| !["call_uring", "call_dup"]
                .iter()
                .any(|part| probe.name.contains(part)))
            .all(|probe| probe.proved || !probe.attached)
    );
    assert!(rig.control.payload_attached());
    rig.control.attach_payload().expect("a second time does nothing");
    rig.control.detach_payload().expect("detach");
    rig.control.detach_payload().expect("a second time does nothing");
    assert!(!rig.control.payload_attached());
    let mut stream = rig.pipe(Op::Write);
    stream.agent.write_all(b"unseen").expect("write");
    rig.control.attach_payload().expect("attach again");
    stream.agent.write_all(b"seen").expect("write");
    assert_eq!(rig.arrived(stream.key, 4).data, b"seen");
}

#[test]
fn after_stop_the_events_end_and_handles_stay_harmless() {
    let Some(rig) = Rig::with_defaults() else { return };
    let control = rig.control.clone();
    let (sensor, mut events) = rig.into_parts();
    sensor.stop();
    while events.blocking_recv().is_some() {}
    assert_eq!(
        control
            .losses()
            .iter()
            .filter(|loss| loss.reason.stage.as_str() == "ring")
            .count(),
        3
    );
    assert!(control.attach_payload().is_err(), "nothing is loaded any more");
}

#[test]
fn what_this_kernel_offers_is_said_in_words() {
    let Some(rig) = Rig::with_defaults() else { return };
    let facts = kams_host::doctor::examine(Some(&rig.control));
    for fact in &facts {
        println!("{:?}: {}: {}", fact.standing, fact.name, fact.found);
    }
    assert!(
        facts
            .iter()
            .all(|fact| fact.standing != kams_host::Standing::Fatal)
    );
    // The way of reading payload and, where it is not the cheap one, why.
    let method = rig.control.payload_method();
    let said = |name: &str| {
        let fact = facts.iter().find(|fact| fact.name == name);
        &fact.unwrap_or_else(|| panic!("no fact `{name}`")).found
    };
    let way = said("payload is read at");
    assert_eq!(way.contains("functions of pipes"), method.at_functions, "{way}");
    assert_eq!(
        way.contains("exit of every system call"),
        method.at_system_calls,
        "{way}"
    );
    assert_eq!(method.reasons.is_empty(), !method.at_system_calls, "{method:?}");
    assert!(method.reasons.iter().all(|why| way.contains(why)), "{way}");
    if method.at_functions {
        assert!(said("trampolines (fentry, fexit)").contains("accepts"));
    }
    assert!(said("kprobes").contains("not used"));
}
