//! x
use std::io::{Read, Write};
use std::process::{Command, Stdio};
#[test]
fn smoke() {
    let t = std::time::Instant::now();
    let (sensor, mut events) = match kams_host::Sensor::start(kams_host::SensorOptions::default()) {
        Ok(x) => x,
        Err(e) => panic!("{e}"),
    };
    eprintln!("start {:?}", t.elapsed());
    let control = sensor.control();
    let me = std::process::id();
    control
        .mark(me, None, kams_host::Marks::ENDPOINT.with(kams_host::Marks::TREE))
        .unwrap();
    control.attach_payload().unwrap();
    let mut child = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut i = child.stdin.take().unwrap();
    let mut o = child.stdout.take().unwrap();
    i.write_all(b"hello\n").unwrap();
    let mut b = [0; 100];
    let n = o.read(&mut b).unwrap();
    assert_eq!(&b[..n], b"hello\n");
    drop(i);
    assert_eq!(o.read(&mut b).unwrap(), 0);
    child.wait().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    while let Some(e) = events.try_recv() {
        eprintln!("{e:?}");
    }
    eprintln!(
        "{:?}",
        control
            .losses()
            .iter()
            .filter(|l| l.count > 0)
            .collect::<Vec<_>>()
    );
    eprintln!("{:?} {:?}", control.streams(), control.maps());
    let d = control.adopt();
    match d {
        Ok(d) => eprintln!("adopt {} pids {:?}", d.pids().count(), d.stdio(me)),
        Err(e) => eprintln!("{e}"),
    }
    eprintln!("probes {:?}", control.probes());
}
