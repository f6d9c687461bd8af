use super::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};

/// A user that owns nothing; the id exists on no system we know, and none of these calls needs an entry for it.
const STRANGER: u32 = 54_321;

fn me() -> HostUser {
    HostUser::by_uid(nix::unistd::geteuid().as_raw()).unwrap()
}

fn stranger(home: &Path) -> HostUser {
    HostUser {
        name: "stranger".to_owned(),
        uid: STRANGER,
        gid: STRANGER,
        groups: vec![STRANGER],
        home: home.to_owned(),
    }
}

fn open(user: &HostUser) -> UserFiles {
    UserFiles::open(
        user,
        Limits {
            time: Duration::from_mins(1),
            ..Limits::default()
        },
    )
    .unwrap()
}

#[test]
fn ordinary_files_are_read_whole() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("settings.json");
    fs::write(&file, "{}\n").unwrap();
    symlink(&file, dir.path().join("link.json")).unwrap();
    symlink("loop", dir.path().join("loop")).unwrap();
    fs::write(dir.path().join("latin1"), b"ok\xe9").unwrap();
    let files = open(&me());
    assert_eq!(files.read_text(&file, Owner::User).unwrap(), "{}\n");
    // A dotfile may be a link into a repository.
    assert_eq!(
        files
            .read_text(&dir.path().join("link.json"), Owner::User)
            .unwrap(),
        "{}\n"
    );
    assert_eq!(
        files.real_path(&dir.path().join("link.json")).unwrap(),
        file.canonicalize().unwrap()
    );
    assert_eq!(
        files.read(&dir.path().join("link.json"), Owner::Anyone),
        Err(UserFileError::Link)
    );
    assert_eq!(
        files.read(&dir.path().join("loop"), Owner::User),
        Err(UserFileError::Link)
    );
    assert_eq!(
        files.read(&dir.path().join("none"), Owner::User),
        Err(UserFileError::Absent)
    );
    assert_eq!(
        files.read(Path::new("relative"), Owner::User),
        Err(UserFileError::Absent)
    );
    assert_eq!(
        files.read_text(&dir.path().join("latin1"), Owner::User),
        Err(UserFileError::NotText(2))
    );
    let mut names = files.list(dir.path(), 10).unwrap();
    names.sort();
    assert_eq!(names, ["latin1", "link.json", "loop", "settings.json"]);
    assert_eq!(files.list(dir.path(), 2).unwrap().len(), 2);
}

#[test]
fn what_is_no_regular_file_is_refused_without_being_opened() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    symlink("/dev/zero", dir.path().join("device")).unwrap();
    let files = open(&me());
    for path in [
        fifo.as_path(),
        &socket,
        &dir.path().join("device"),
        dir.path(),
        Path::new("/dev/null"),
    ] {
        assert_eq!(
            files.read(path, Owner::UserOrRoot),
            Err(UserFileError::NotRegular),
            "{}",
            path.display()
        );
    }
}

#[test]
fn a_link_through_proc_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let held = fs::File::open(&file).unwrap();
    let link = dir.path().join("link");
    symlink(
        format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            std::os::fd::AsRawFd::as_raw_fd(&held)
        ),
        &link,
    )
    .unwrap();
    assert_eq!(open(&me()).read(&link, Owner::User), Err(UserFileError::Link));
}

#[test]
fn size_is_limited() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("big");
    fs::File::create(&file).unwrap().set_len(100 << 20).unwrap();
    let files = open(&me());
    assert_eq!(
        files.read(&file, Owner::User),
        Err(UserFileError::TooLarge(4 << 20))
    );
    fs::File::create(&file).unwrap().set_len(4 << 20).unwrap();
    assert_eq!(files.read(&file, Owner::User).unwrap().len(), 4 << 20);
    // Claims to be empty, and is not.
    let liar = UserFiles::open(
        &me(),
        Limits {
            bytes: 16,
            ..Limits::default()
        },
    )
    .unwrap();
    assert_eq!(
        liar.read(Path::new("/proc/self/status"), Owner::UserOrRoot),
        Err(UserFileError::TooLarge(16))
    );
}

#[test]
fn a_file_system_that_does_not_answer_costs_one_thread_and_no_hang() {
    let mut files = open(&me());
    files.limits.time = Duration::ZERO;
    let (release, until) = channel();
    assert!(matches!(
        files.ask(Request::Hang(until)),
        Err(UserFileError::Time)
    ));
    assert_eq!(STUCK.load(Ordering::Relaxed), 1);
    assert_eq!(
        files.read(Path::new("/etc/passwd"), Owner::UserOrRoot),
        Err(UserFileError::Time)
    );
    release.send(()).unwrap();
    let UserFiles {
        requests,
        answers,
        thread,
        ..
    } = files;
    drop((requests, answers));
    thread.join().unwrap();
    assert_eq!(STUCK.load(Ordering::Relaxed), 0);
}

#[test]
fn an_unknown_user_is_said_to_be_unknown() {
    assert_eq!(
        HostUser::by_uid(u32::MAX - 7),
        Err(UserFileError::NoUser(u32::MAX - 7))
    );
}

#[test]
#[ignore = "needs root: acts as another user"]
fn another_user_is_that_user_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let own = |name: &str, mode: u32, uid: u32| {
        let path = dir.path().join(name);
        fs::write(&path, name).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        chown(&path, Some(uid), Some(uid)).unwrap();
        path
    };
    let theirs = own("theirs", 0o600, STRANGER);
    let shared = own("shared", 0o644, 0);
    let secret = own("secret", 0o600, 0);
    let unreadable = own("unreadable", 0o000, STRANGER);
    let shadow = dir.path().join("shadow");
    symlink("/etc/shadow", &shadow).unwrap();
    let passwd = dir.path().join("passwd");
    symlink("/etc/passwd", &passwd).unwrap();
    let inside = dir.path().join("inside");
    symlink("/proc/1/root/etc/passwd", &inside).unwrap();

    let files = open(&stranger(dir.path()));
    assert_eq!(files.read_text(&theirs, Owner::User).unwrap(), "theirs");
    assert_eq!(files.read(&unreadable, Owner::User), Err(UserFileError::Denied));
    for owner in [Owner::User, Owner::UserOrRoot] {
        assert_eq!(
            files.read(&secret, owner),
            if owner == Owner::User {
                Err(UserFileError::Foreign(0))
            } else {
                Err(UserFileError::Denied)
            }
        );
        assert!(matches!(
            files.read(&shadow, owner),
            Err(UserFileError::Foreign(0) | UserFileError::Denied)
        ));
        assert_ne!(files.read(&inside, owner).err(), None);
    }
    assert_eq!(files.read(&passwd, Owner::User), Err(UserFileError::Foreign(0)));
    assert_eq!(files.read(&passwd, Owner::Anyone), Err(UserFileError::Link));
    assert_eq!(files.read_text(&shared, Owner::UserOrRoot).unwrap(), "shared");
    assert_eq!(files.read(&shared, Owner::User), Err(UserFileError::Foreign(0)));
    assert_eq!(
        files.list(Path::new("/root"), 1).is_ok(),
        fs::metadata("/root").unwrap().mode() & 0o004 != 0
    );

    // The rest of the process is still root, and so are the ids by which the session's thread could be signalled.
    assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
    let mut threads = 0;
    for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        if !status.starts_with("Name:\tuser-files") {
            continue;
        }
        let line = |name: &str| {
            status
                .lines()
                .find(|line| line.starts_with(name))
                .unwrap()
                .to_owned()
        };
        let uids: Vec<String> = line("Uid:")
            .split_whitespace()
            .skip(1)
            .map(str::to_owned)
            .collect();
        assert_eq!(uids[..3], ["0", "0", "0"]);
        if uids[3] == STRANGER.to_string() {
            threads += 1;
            assert_eq!(
                line("CapPrm:")
                    .split_whitespace()
                    .nth(1)
                    .unwrap()
                    .trim_start_matches('0'),
                ""
            );
            assert_eq!(
                line("Groups:").split_whitespace().nth(1).unwrap(),
                STRANGER.to_string()
            );
        }
    }
    assert_eq!(threads, 1);
}

use std::os::unix::fs::MetadataExt;
