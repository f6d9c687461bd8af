//! Whole configurations, from files to a verdict.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use super::*;

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("conf.d")).unwrap();
    dir
}

fn put(dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
}

/// Whether files made here belong to root, as an installed configuration must.
fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

#[track_caller]
fn of(text: &str) -> Result<Loaded, Problems> {
    let dir = folder();
    put(dir.path(), "k.yaml", text);
    load(&Sources::file(dir.path().join("k.yaml")))
}

/// Messages with line and column.
#[track_caller]
fn problems(text: &str) -> Vec<String> {
    let Problems(problems) = of(text).unwrap_err();
    let show = |p: &Problem| format!("{}:{} {}", p.line(), p.column(), p.message());
    problems.iter().map(show).collect()
}

#[test]
fn nothing_there_is_the_built_in_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let loaded = load(&Sources::below(&dir.path().join("none"))).unwrap();
    assert_eq!(loaded.config, Config::default());
    assert!(loaded.files.is_empty());
    for blank in [
        "",
        "# only a comment\n",
        "---\n",
        "sensor:\n",
        "sensor:\n  # queue: 1\n",
    ] {
        assert_eq!(of(blank).unwrap().config, Config::default(), "{blank:?}");
    }
}

#[test]
fn the_sample_is_committed_and_changes_nothing() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/kams.yaml");
    assert_eq!(
        fs::read_to_string(path).unwrap(),
        sample(),
        "regenerate dist/kams.yaml"
    );
    assert_eq!(of(&sample()).unwrap().config, Config::default());
    // Explanations start with `# `, keys with `#` alone.
    let uncomment = |line: &str| match line.split_once('#') {
        Some((indent, key)) if !key.starts_with(' ') => format!("{indent}{key}\n"),
        _ => format!("{line}\n"),
    };
    let live: String = sample().lines().map(uncomment).collect();
    let loaded = of(&live).unwrap();
    assert_eq!(loaded.config, Config::default());
    assert_eq!(
        loaded.origins.len(),
        keys::KEYS.len(),
        "every key of the sample was read"
    );
}

#[test]
fn all_problems_are_reported_with_their_places() {
    let text = concat!(
        "mode: obsrve\n",
        "sensor:\n",
        "  ringbuffer: 64MiB\n",
        "  queue: -3\n",
        "metrics:\n",
        "  listen: 0.0.0.0:9464\n",
        "colour: blue\n",
    );
    assert_eq!(
        problems(text),
        [
            "1:7 `mode` must be one of `observe`, `enforce`, not `obsrve`",
            "3:3 unknown key `sensor.ringbuffer`",
            "4:10 `sensor.queue` must be a size from 16MiB to 16GiB, such as `64MiB`, not -3",
            "6:11 `metrics.listen: 0.0.0.0:9464` can be reached from other hosts, without any login",
            "7:1 unknown key `colour`",
        ]
    );
}

#[test]
fn a_problem_shows_file_line_excerpt_and_suggestion() {
    let shown = of("sensor:\n  ringbuffer: 64MiB\n").unwrap_err().to_string();
    let (_, tail) = shown.split_once("k.yaml").unwrap();
    assert_eq!(
        tail,
        concat!(
            ":2:3: unknown key `sensor.ringbuffer`\n",
            "  2 |   ringbuffer: 64MiB\n",
            "    |   ^\n",
            "  help: did you mean `sensor.ring_buffer`?"
        )
    );
}

#[test]
fn a_key_in_the_wrong_section_is_found() {
    let Problems(found) = of("log:\n  queue: 5000\n").unwrap_err();
    assert_eq!(found[0].help(), Some("did you mean `sensor.queue`?"));
    let Problems(found) = of("loglevel: info\n").unwrap_err();
    assert_eq!(found[0].help(), Some("did you mean `log.level`?"));
}

#[test]
fn yaml_errors_have_a_place() {
    for (text, line) in [
        ("mode: [observe\n", 2),
        ("mode: a\nmode: b\n", 2),
        ("a: b: c\n", 1),
    ] {
        let Problems(found) = of(text).unwrap_err();
        assert_eq!(found.len(), 1, "{text:?}");
        assert!(
            found[0].line() >= 1 && found[0].line() <= line,
            "{text:?} {found:?}"
        );
    }
    assert_eq!(
        problems("- a\n"),
        ["1:1 a configuration is a map of keys, not a list"]
    );
    assert_eq!(
        problems("sensor: 5\n"),
        ["1:9 `sensor` is a section with keys of its own, not a whole number"]
    );
}

#[test]
fn bombs_are_refused() {
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for n in 1..9 {
        let before = n - 1;
        let items = vec![format!("*a{before}"); 10].join(",");
        bomb.extend([format!("a{n}: &a{n} [{items}]\n")]);
    }
    assert!(of(&bomb).is_err());
    assert!(of(&"[".repeat(5_000)).is_err());
    assert!(of(&format!("mode: {}\n", "x".repeat(2 << 20))).is_err());
}

#[test]
fn what_is_relayed() {
    let config = of("mode: enforce\nrelay: candidates\n").unwrap().config;
    assert_eq!(
        (config.mode, config.relay),
        (Mode::Enforce, RelayWhat::Candidates)
    );
    let config = Config::default();
    assert_eq!((config.mode, config.relay), (Mode::Observe, RelayWhat::Known));
    assert!(of("relay: all\n").is_err());
}

#[test]
fn values_are_checked() {
    for bad in [
        "sensor: {ring_buffer: 3MiB}",
        "sensor: {ring_buffer: 64MB}",
        "sensor: {max_message: 1}",
        "admin: {socket: run/kams.sock}",
        "admin: {socket: /run/../kams.sock}",
        "admin: {group: 'a b'}",
        "metrics: {listen: 9464}",
        "metrics: {listen: localhost}",
        "metrics: {allow_remote: 'yes'}",
        "log: {level: loud}",
        "retention: {findings: 30}",
        "events: {per_user: 1}",
        "watch: {agents: {name: x}}",
        "watch: {agents: [{name: x}]}",
        "watch: {agents: [{name: X, executable: y}]}",
        "watch: {agents: [{name: x, executable: '*'}]}",
        "watch: {agents: [{name: x, executable: y, argv: z}]}",
    ] {
        let Problems(found) = of(bad).unwrap_err();
        assert_eq!(found.len(), 1, "{bad}: {found:?}");
        assert_eq!(found[0].line(), 1, "{bad}");
    }
}

#[test]
fn good_values_arrive() {
    let loaded = of(concat!(
        "watch:\n  unknown_agents: ignore\n  agents:\n",
        "    - {name: house-bot, executable: \"python3*\", arguments: \"*bot.py*\"}\n",
        "metrics: {listen: \"[::1]:9000\", allow_remote: false}\n",
        "sensor: {ring_buffer: 1MiB}\n",
        "log: {level: debug, format: json}\n",
    ))
    .unwrap();
    let config = &loaded.config;
    assert_eq!(config.watch.unknown_agents, UnknownAgents::Ignore);
    assert_eq!(config.watch.agents[0].executable.as_deref(), Some("python3*"));
    assert_eq!(config.metrics.listen, Some("[::1]:9000".parse().unwrap()));
    assert_eq!(config.sensor.ring_buffer, 1 << 20);
    assert_eq!(loaded.origin("log.level").unwrap().line, 7);
    let restart = loaded.needs_restart(&Config::default());
    assert_eq!(restart, ["sensor.ring_buffer", "metrics.listen", "log.format"]);
    assert_eq!(of("metrics: {listen: off}").unwrap().config.metrics.listen, None);
    assert!(of("metrics: {listen: '0.0.0.0:9464', allow_remote: true}").is_ok());
}

#[test]
fn later_files_win_key_by_key() {
    if !is_root() {
        eprintln!("skipped: an installed configuration belongs to root, and so must this test");
        return;
    }
    let dir = folder();
    put(
        dir.path(),
        "kams.yaml",
        "sensor: {queue: 20MiB, ring_buffer: 1MiB}\n",
    );
    put(dir.path(), "conf.d/20.yaml", "sensor:\n  queue: 40MiB\n");
    put(
        dir.path(),
        "conf.d/10.yaml",
        "sensor: {queue: 30MiB}\nlog: {level: warn}\n",
    );
    put(dir.path(), "conf.d/.draft.swp", "nonsense: [");
    let loaded = load(&Sources::below(dir.path())).unwrap();
    assert_eq!(loaded.config.sensor.queue, 40 << 20);
    assert_eq!(loaded.config.sensor.ring_buffer, 1 << 20);
    assert!(
        loaded
            .origin("sensor.queue")
            .unwrap()
            .to_string()
            .ends_with("conf.d/20.yaml:2")
    );
    assert!(
        check(&Sources::below(dir.path()))
            .unwrap()
            .contains("sensor.queue: 40MiB  # ")
    );

    put(dir.path(), "conf.d/30.yml", "");
    put(dir.path(), "conf.d/15.yaml", "quee: 1\n");
    let Problems(found) = load(&Sources::below(dir.path())).unwrap_err();
    let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 2, "{shown:?}");
    assert!(shown[0].contains("15.yaml:1:1: unknown key `quee`"));
    assert!(shown[1].contains("30.yml: not read"));
}

#[test]
fn files_that_others_can_write_are_refused() {
    let dir = folder();
    put(dir.path(), "k.yaml", "mode: observe\n");
    let file = dir.path().join("k.yaml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
    let Problems(found) = load(&Sources::file(&file)).unwrap_err();
    assert!(found[0].message().contains("mode 0664"), "{found:?}");
    assert!(found[0].help().unwrap().starts_with("chmod go-w '"));
}

#[test]
fn files_of_others_are_refused() {
    if !is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    let dir = folder();
    put(dir.path(), "kams.yaml", "mode: observe\n");
    let file = dir.path().join("kams.yaml");
    chown(&file, Some(1234), None).unwrap();
    for sources in [Sources::below(dir.path()), Sources::file(&file)] {
        let Problems(found) = load(&sources).unwrap_err();
        assert!(found[0].message().contains("belongs to uid 1234"), "{found:?}");
    }
    chown(&file, Some(0), None).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let Problems(found) = load(&Sources::below(dir.path())).unwrap_err();
    assert!(found[0].message().contains("mode 0777"), "{found:?}");
}

#[test]
fn things_that_are_no_files_do_not_hang() {
    let dir = folder();
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    for path in [
        fifo.as_path(),
        dir.path(),
        Path::new("/dev/null"),
        Path::new("/nonexistent.yaml"),
    ] {
        assert!(load(&Sources::file(path)).is_err(), "{}", path.display());
    }
    put(dir.path(), "k.yaml", "");
    fs::write(dir.path().join("k.yaml"), b"mode: \xff\n").unwrap();
    assert!(load(&Sources::file(dir.path().join("k.yaml"))).is_err());
}

#[test]
fn secrets_do_not_reach_the_log() {
    let text = "otlp_token: hunter2hunter2\nmode: [hunter2hunter2]\nlog: {level: hunter2hunter2}\n";
    let problems = of(text).unwrap_err();
    let masked = problems.0[0].to_string();
    assert!(!masked.contains("hunter2"), "{masked}");
    let node = tree::parse(text, 0).unwrap();
    assert!(!format!("{node:?}").contains("hunter2"));
    for problem in &problems.0 {
        assert!(!problem.message().contains("hunter2"), "{problem}");
    }
}
