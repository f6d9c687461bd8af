use super::*;
use std::collections::HashMap;

struct Files(HashMap<&'static str, &'static str>);

impl ReadFiles for Files {
    fn read(&self, path: &str, _: Scope) -> Result<String, Unread> {
        self.0
            .get(path)
            .map(|text| (*text).to_owned())
            .ok_or(Unread::Absent)
    }

    fn list(&self, dir: &str, max: usize) -> Vec<String> {
        let prefix = format!("{dir}/");
        self.0
            .keys()
            .filter_map(|path| path.strip_prefix(&prefix))
            .map(str::to_owned)
            .take(max)
            .collect()
    }
}

fn places() -> Places {
    Places {
        home: "/home/u".to_owned(),
        projects: vec!["/srv/demo".to_owned()],
        ..Places::default()
    }
}

fn read_all(files: &[(&'static str, &'static str)]) -> Configuration {
    read(&places(), &Files(files.iter().copied().collect()))
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn every_client_in_its_own_form() {
    let out = read_all(&[
        (
            "/home/u/.claude.json",
            r#"{"numStartups": 3,
 "mcpServers": {"mem": {"type": "stdio", "command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"], "env": {"TOKEN": "hunter2"}}},
 "projects": {"/srv/demo": {"mcpServers": {"fs": {"command": "/usr/bin/node", "args": ["fs.js"]}}}}}"#,
        ),
        (
            "/home/u/.codex/config.toml",
            "[mcp_servers.git]\ncommand = \"uvx\"\nargs = [\"mcp-server-git\"]\nenabled = false\n",
        ),
        (
            "/home/u/.gemini/settings.json",
            "{ // mine\n \"mcpServers\": {\"t\": {\"command\": \"uvx\", \"args\": [\"mcp-server-time\",],},},}",
        ),
        (
            "/home/u/.config/opencode/opencode.json",
            r#"{"mcp": {"o": {"type": "local", "command": ["bun", "x", "pkg@1.0.0"], "environment": {"A": "b"}}, "r": {"type": "remote", "url": "https://u:p@h.example:8/s/SECRET?k=v"}}}"#,
        ),
        (
            "/srv/demo/.vscode/mcp.json",
            "{\"inputs\": [], \"servers\": {\"v\": {\"command\": \"docker\", \"args\": [\"run\", \"-i\", \"--rm\", \"-e\", \"T\", \"mcp/git:2\"]}}}",
        ),
        (
            "/home/u/.config/zed/settings.json",
            "{\"context_servers\": {\"z\": {\"command\": {\"path\": \"/opt/z\", \"args\": []}}, \"ext\": {\"settings\": {}}}}",
        ),
        (
            "/home/u/.config/goose/config.yaml",
            "extensions:\n  dev:\n    type: builtin\n  g:\n    type: stdio\n    cmd: uvx\n    args: [mcp-server-fetch]\n    envs: {K: v}\n    enabled: true\n",
        ),
        (
            "/home/u/.continue/config.yaml",
            "name: x\nmcpServers:\n  - name: c\n    command: python\n    args:\n      - -m\n      - srv\n  - command: nameless\n",
        ),
        (
            "/srv/demo/.continue/mcpServers/one.yaml",
            "mcpServers:\n- {name: p, command: deno, args: [run, 'npm:@s/p']}\n",
        ),
        (
            "/home/u/.codeium/windsurf/mcp_config.json",
            "{\"mcpServers\": {\"w\": {\"serverUrl\": \"https://w.example/mcp\"}}}",
        ),
    ]);
    let got: Vec<_> = out
        .servers
        .iter()
        .map(|s| {
            let identity = s.identity.as_ref().map(ToString::to_string);
            (
                s.client,
                s.name.as_str(),
                s.line,
                identity.or(s.url.clone()).unwrap_or_default(),
                s.enabled,
            )
        })
        .collect();
    let expected = [
        (
            "claude-code",
            "mem",
            2,
            "npm:@modelcontextprotocol/server-memory",
            true,
        ),
        ("claude-code", "fs", 3, "file:/srv/demo/fs.js", true),
        ("codex", "git", 1, "pypi:mcp-server-git", false),
        ("gemini-cli", "t", 2, "pypi:mcp-server-time", true),
        ("opencode", "o", 1, "npm:pkg", true),
        ("opencode", "r", 1, "https://h.example:8", true),
        ("vscode", "v", 1, "oci:mcp/git", true),
        ("windsurf", "w", 1, "https://w.example", true),
        ("zed", "z", 1, "bin:z", true),
        ("goose", "g", 4, "pypi:mcp-server-fetch", true),
        ("continue", "c", 3, "pypi:srv", true),
        ("continue", "p", 2, "npm:@s/p", true),
    ];
    assert_eq!(got, expected.map(|(c, n, l, i, e)| (c, n, l, i.to_owned(), e)));
    assert_eq!(out.problems.len(), 1, "{:?}", out.problems);
    assert_eq!((out.problems[0].client, out.problems[0].line), ("continue", 8));
    let shown = format!("{out:?}");
    for secret in ["hunter2", "SECRET", "u:p", "\"-y\"", "k=v"] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
    assert!(shown.contains("TOKEN"));
}

#[test]
fn problems_say_where_and_what_to_do() {
    let out = read_all(&[
        (
            "/home/u/.claude.json",
            "{\n  \"mcpServers\": {\n    \"a\": {},\n    \"b\": {\"command\": 3},\n    \"c\": {\"command\": \"x\", \"args\": [\"ok\", 1]},\n    \"d\": {\"command\": \"fine\"}\n  }\n}",
        ),
        ("/home/u/.cursor/mcp.json", "{\"mcpServers\": [1]}"),
        (
            "/home/u/.codex/config.toml",
            "[mcp_servers.a]\ncommand = hunter2\n",
        ),
        (
            "/srv/demo/.mcp.json",
            "{\"mcpServers\": {\"x\": {\"command\": \"y\"},}}",
        ),
    ]);
    let got: Vec<_> = out
        .problems
        .iter()
        .map(|p| (p.file.as_str(), p.line, p.column))
        .collect();
    assert_eq!(
        got,
        [
            ("/home/u/.claude.json", 3, 5),
            ("/home/u/.claude.json", 4, 22),
            ("/home/u/.claude.json", 5, 35),
            ("/srv/demo/.mcp.json", 1, 38),
            ("/home/u/.codex/config.toml", 2, 11),
            ("/home/u/.cursor/mcp.json", 1, 16),
        ]
    );
    assert!(
        out.problems
            .iter()
            .all(|p| !p.remedy.is_empty() && !p.to_string().contains("hunter2"))
    );
    assert_eq!(out.servers.len(), 1);
}

#[test]
fn too_many_servers_are_cut_with_a_word() {
    let mut text = "{\"mcpServers\": {".to_owned();
    for n in 0..=MAX_SERVERS {
        text += &["\"s", &n.to_string(), "\": {\"command\": \"c\"},"].concat();
    }
    text.push_str("\"z\": {\"command\": \"c\"}}}");
    let out = read_all(&[("/home/u/.claude.json", Box::leak(text.into_boxed_str()))]);
    assert_eq!((out.servers.len(), out.problems.len()), (MAX_SERVERS, 1));
}

#[test]
fn variables_move_files() {
    let files = Files(HashMap::from([
        ("/etc/alt/config.toml", "[mcp_servers.a]\ncommand = \"a\"\n"),
        (
            "/x/zed/settings.json",
            "{\"context_servers\": {\"z\": {\"command\": \"z\"}}}",
        ),
        ("/y/oc.json", "{\"mcp\": {\"o\": {\"command\": [\"o\"]}}}"),
    ]));
    let environment = [
        ("CODEX_HOME", "/etc/alt"),
        ("XDG_CONFIG_HOME", "/x"),
        ("OPENCODE_CONFIG", "/y/oc.json"),
    ];
    let environment = environment
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    let out = read(
        &Places {
            environment,
            ..places()
        },
        &files,
    );
    let clients: Vec<_> = out.servers.iter().map(|s| s.client).collect();
    assert_eq!(clients, ["codex", "opencode", "zed"]);
}

#[test]
fn a_configured_server_is_known_at_its_exec() {
    let out = read_all(&[(
        "/home/u/.claude.json",
        r#"{"mcpServers": {
 "mem": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory@1.0.0", "--key", "${KEY}"]},
 "own": {"command": "/opt/own/srv", "args": ["--root", "~/data"]},
 "off": {"command": "off", "disabled": true},
 "git": {"command": "git", "args": ["mcp"]}}}"#,
    )]);
    let list = ServerList::new(&out);
    let ask = |line: &str| {
        let argv = words(line);
        let launch = crate::discover::identity::Launch {
            exe: "",
            argv: &argv,
            cwd: "/",
            home: "/home/u",
        };
        let identity =
            crate::discover::identity::identify(&launch, &crate::discover::identity::Blind).identity;
        list.known_at_exec(&argv, &identity)
            .map(|(server, how)| (server.name.clone(), how))
    };
    let mem = "mem".to_owned();
    let package = "@modelcontextprotocol/server-memory@1.0.0";
    assert_eq!(
        ask(&format!("npx -y {package} --key 123")),
        Some((mem.clone(), Match::CommandLine))
    );
    assert_eq!(
        ask(&format!("/usr/bin/env node /usr/bin/npx -y {package} --key 1")),
        Some((mem.clone(), Match::CommandLine))
    );
    assert_eq!(
        ask("node /c/node_modules/@modelcontextprotocol/server-memory/dist/index.js"),
        Some((mem, Match::Identity))
    );
    assert_eq!(
        ask("/opt/own/srv --root /home/u/data"),
        Some(("own".to_owned(), Match::CommandLine))
    );
    assert_eq!(ask("/tmp/srv --root /home/u/data"), None);
    assert_eq!(ask("off"), None);
    assert_eq!(ask("git mcp"), Some(("git".to_owned(), Match::CommandLine)));
    assert_eq!(ask("git status"), None);
    assert_eq!(ask("npx -y other"), None);
}

#[test]
fn configuration_on_the_command_line() {
    let argv: Vec<String> = [
        "claude",
        "-p",
        "x",
        "--mcp-config",
        "a.json",
        "/b.json",
        "--strict-mcp-config",
    ]
    .map(str::to_owned)
    .to_vec();
    let found = configs_in_argv("claude-code", &argv, "/w");
    assert_eq!(
        found.iter().map(|c| c.path.as_str()).collect::<Vec<_>>(),
        ["/w/a.json", "/b.json"]
    );
    let argv = vec![
        "copilot".to_owned(),
        "--additional-mcp-config={\"mcpServers\": {\"i\": {\"command\": \"c\"}}}".to_owned(),
    ];
    let mut out = Configuration::default();
    for config in configs_in_argv("copilot-cli", &argv, "/w") {
        read_argv(&config, &places(), &Files(HashMap::new()), &mut out);
    }
    assert_eq!(out.servers[0].name, "i");
    assert!(configs_in_argv("codex", &argv, "/w").is_empty());
}
