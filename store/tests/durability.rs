//! What operators rely on when things go wrong: kill -9, a full disk, a damaged file, a newer file.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::tests_outside_test_module, reason = "an integration test")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use kams_store::{
    Baseline, BaselineState, FindingFilter, FindingRow, ListMembers, Noted, Retention, Store, StoreError,
    WriteOp,
};

const LIMIT: Duration = Duration::from_mins(1);

fn baseline(n: u32) -> Baseline {
    Baseline {
        uid: 1000,
        server: "npm:demo".to_owned(),
        item: format!("tool:{n}"),
        state: BaselineState::Provisional,
        digest: format!("digest-{n}"),
        definition: format!("{{\"name\":\"{n}\",\"description\":\"{}\"}}", "x".repeat(400)),
        version: Some("1.0.0".to_owned()),
        seen: None,
        first_seen: 1,
        changed_at: 1,
        changed_by: None,
    }
}

fn finding(n: i64, uid: u32, at: i64) -> FindingRow {
    FindingRow {
        seq: 0,
        at,
        uid,
        server: "npm:demo".to_owned(),
        fingerprint: format!("f{n}"),
        detector: "integrity.definition_drift".to_owned(),
        severity: 2,
        record: format!("{{\"n\":{n}}}"),
    }
}

fn now() -> i64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    i64::try_from(now.as_nanos()).unwrap()
}

fn open(dir: &Path) -> Store {
    Store::open(dir, Retention::default()).unwrap().0
}

#[test]
fn what_was_written_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut pinned = baseline(7);
    pinned.state = BaselineState::Pinned;
    pinned.seen = Some(("other".to_owned(), "{}".to_owned()));
    pinned.changed_by = Some(0);
    let list = ListMembers {
        capabilities: "roots".to_owned(),
        items: vec!["tool:7".to_owned()],
    };
    assert!(store.write(WriteOp::Baseline(Box::new(baseline(7)))));
    assert!(store.write(WriteOp::Baseline(Box::new(pinned.clone()))));
    assert!(store.write(WriteOp::List {
        uid: 1000,
        server: "npm:demo".to_owned(),
        list: list.clone(),
        at: 5
    }));
    store.flush(LIMIT).unwrap();
    assert_eq!(store.baselines(1000, "npm:demo").unwrap(), vec![pinned]);
    assert_eq!(store.baselines(1001, "npm:demo").unwrap(), vec![]);
    assert_eq!(store.list_members(1000, "npm:demo").unwrap(), vec![list]);
    drop(store);
    assert_eq!(open(dir.path()).all_baselines(None, 10).unwrap().len(), 1);
}

#[test]
fn retention_keeps_the_newest_of_each_user() {
    let dir = tempfile::tempdir().unwrap();
    let keep = Retention {
        findings_per_user: 3,
        days: 1,
    };
    let now = now();
    {
        let (store, _) = Store::open(dir.path(), keep).unwrap();
        for n in 0..2_000 {
            assert!(store.write(WriteOp::Finding(Box::new(finding(n, 1000, now)))));
        }
        assert!(store.write(WriteOp::Finding(Box::new(finding(1, 1001, now)))));
        assert!(store.write(WriteOp::Finding(Box::new(finding(
            2,
            1001,
            now - 3 * 86_400_000_000_000
        )))));
        store.flush(LIMIT).unwrap();
    }
    let (store, _) = Store::open(dir.path(), keep).unwrap();
    // The first write after a start expires what is over the limits.
    assert!(store.write(WriteOp::Finding(Box::new(finding(9_999, 1000, now)))));
    store.flush(LIMIT).unwrap();
    let of = |uid| {
        store
            .findings(&FindingFilter {
                uid: Some(uid),
                ..FindingFilter::default()
            })
            .unwrap()
    };
    let mine: Vec<_> = of(1000).into_iter().map(|f| f.fingerprint).collect();
    assert_eq!(mine, ["f1998", "f1999", "f9999"]);
    assert_eq!(of(1001).len(), 1);
}

/// Not a test of its own: the writing half of `kill_at_any_moment_loses_nothing_flushed`.
#[test]
fn child_writer() {
    let Ok(dir) = std::env::var("KAMS_STORE_TEST_DIR") else {
        return;
    };
    let store = open(Path::new(&dir));
    let mut out = std::io::stdout();
    for n in 0..u32::MAX {
        assert!(store.write(WriteOp::Baseline(Box::new(baseline(n)))));
        store.flush(LIMIT).unwrap();
        writeln!(out, "flushed {n}").unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn kill_at_any_moment_loses_nothing_flushed() {
    let dir = tempfile::tempdir().unwrap();
    for round in 1..=8 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_writer", "--nocapture"])
            .env("KAMS_STORE_TEST_DIR", dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut last = None;
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for line in lines.by_ref() {
            if let Some((_, n)) = line.unwrap().split_once("flushed ") {
                last = Some(n.parse::<u32>().unwrap());
                if last >= Some(round * 7) {
                    break;
                }
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let store = open(dir.path());
        let found = store.baselines(1000, "npm:demo").unwrap();
        let last = last.expect("the child wrote nothing");
        assert!(
            found.iter().any(|b| *b == baseline(last)),
            "round {round}: {last} is gone"
        );
    }
}

#[test]
fn a_damaged_file_is_set_aside_and_said() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for n in 0..200 {
        assert!(store.write(WriteOp::Baseline(Box::new(baseline(n)))));
    }
    store.flush(LIMIT).unwrap();
    drop(store);
    let path = dir.path().join("kams.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let len = bytes.len();
    bytes[100..len].fill(0xa5);
    std::fs::write(&path, &bytes).unwrap();
    let (store, notice) = Store::open(dir.path(), Retention::default()).unwrap();
    let notice = notice.expect("nothing was said");
    let aside = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().path())
        .find(|p| p.to_string_lossy().contains("kams.db.damaged-"))
        .expect("nothing was set aside");
    assert!(notice.contains(aside.to_str().unwrap()), "{notice}");
    assert_eq!(std::fs::read(aside).unwrap(), bytes);
    assert_eq!(store.baselines(1000, "npm:demo").unwrap(), vec![]);
}

#[test]
fn a_newer_file_is_refused_untouched() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let path = dir.path().join("kams.db");
    let db = rusqlite::Connection::open(&path).unwrap();
    db.pragma_update(None, "user_version", 999).unwrap();
    drop(db);
    let error = Store::open(dir.path(), Retention::default()).unwrap_err();
    assert!(matches!(error, StoreError::TooNew { found: 999, .. }), "{error}");
    assert!(error.to_string().contains("upgrade Kams"), "{error}");
}

#[test]
fn only_the_owner_can_read_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    assert_eq!(
        std::fs::metadata(store.path()).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[test]
fn a_full_disk_is_counted_and_what_waited_is_written_later() {
    let dir = tempfile::tempdir().unwrap();
    let mount = dir.path().join("small");
    std::fs::create_dir(&mount).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "none"])
        .arg(&mount)
        .status();
    if !mounted.is_ok_and(|s| s.success()) {
        assert!(
            std::env::var_os("CI").is_none(),
            "CI must be able to mount a small file system"
        );
        println!("skipped: needs root to mount a small file system");
        return;
    }
    let _unmount = Unmount(mount.clone());
    let store = open(&mount);
    let ballast = mount.join("ballast");
    // Nearly all of what is left, so that the database has room for little more.
    let mut file = std::fs::File::create(&ballast).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    drop(file);
    for n in 0..500 {
        assert!(store.write(WriteOp::Baseline(Box::new(baseline(n)))));
    }
    store.flush(LIMIT).unwrap_err();
    let stats = store.stats();
    assert!(
        stats.failing.as_ref().is_some_and(|why| why.contains("full")),
        "{stats:?}"
    );
    assert!(
        stats.errors.values().sum::<u64>() > 0 && stats.backlog > 0,
        "{stats:?}"
    );
    // A disk that refuses is asked now and then, not for every write that joins those that wait.
    for n in 500..8_000 {
        assert!(store.write(WriteOp::Baseline(Box::new(baseline(n)))));
    }
    store.flush(LIMIT).unwrap_err();
    let attempts: u64 = store.stats().errors.values().sum();
    assert!(attempts < 100, "{attempts} attempts for 8,000 writes");
    std::fs::remove_file(&ballast).unwrap();
    let roomier = Command::new("mount")
        .args(["-o", "remount,size=64m"])
        .arg(&mount)
        .status();
    assert!(roomier.is_ok_and(|s| s.success()));
    store.flush(LIMIT).unwrap();
    let stats = store.stats();
    assert_eq!((stats.failing, stats.backlog, stats.dropped), (None, 0, 0));
    assert_eq!(store.baselines(1000, "npm:demo").unwrap().len(), 8_000);
}

struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let status = Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(
            status.is_ok_and(|s| s.success()),
            "{} stays mounted",
            self.0.display()
        );
    }
}

#[test]
fn a_note_that_is_none_is_told_from_one_that_was_never_made() {
    let folder = tempfile::tempdir().unwrap();
    let open = || open(folder.path());
    assert_eq!(open().noted_head().unwrap(), None);
    let noted = Noted {
        n: 7,
        hash: "a1".repeat(32),
    };
    open().note_head(&noted).unwrap();
    assert_eq!(open().noted_head().unwrap(), Some(noted));
    for spoilt in ["x\0garbage", "7 a1\n", "\n"] {
        std::fs::write(folder.path().join("decisions.head"), spoilt).unwrap();
        let said = open().noted_head().unwrap_err().to_string();
        assert!(said.contains("decisions.head"), "{said}");
    }
}
