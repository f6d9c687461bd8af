use std::collections::BTreeMap;

use super::*;
use proptest::prelude::*;

/// Executable and arguments of one process of a chain.
type Stage = (&'static str, &'static [&'static str]);

/// A file system of links and texts. Every text's path exists; a link leads to its target.
#[derive(Default)]
struct Disk {
    links: BTreeMap<&'static str, &'static str>,
    texts: BTreeMap<&'static str, &'static str>,
}

impl Look for Disk {
    fn real_path(&self, path: &str) -> Option<String> {
        match self.links.get(path) {
            Some(target) => Some((*target).to_owned()),
            None => self.texts.contains_key(path).then(|| path.to_owned()),
        }
    }

    fn read(&self, path: &str, max: usize) -> Option<String> {
        self.texts.get(path).map(|text| text.chars().take(max).collect())
    }

    fn list(&self, dir: &str, max: usize) -> Vec<String> {
        let prefix = format!("{dir}/");
        let mut names: Vec<String> = self
            .texts
            .keys()
            .chain(self.links.keys())
            .filter_map(|path| path.strip_prefix(&prefix)?.split('/').next())
            .map(str::to_owned)
            .collect();
        names.sort();
        names.dedup();
        names.truncate(max);
        names
    }
}

/// What npx, uvx, pipx and friends leave on disk.
fn disk() -> Disk {
    Disk {
        links: BTreeMap::from([
            ("/usr/bin/npx", "/usr/lib/node_modules/npm/bin/npx-cli.js"),
            ("/usr/bin/npm", "/usr/lib/node_modules/npm/bin/npm-cli.js"),
            (
                "/home/u/.npm/_npx/a1/node_modules/.bin/mcp-server-everything",
                "/home/u/.npm/_npx/a1/node_modules/@modelcontextprotocol/server-everything/dist/index.js",
            ),
            (
                "/srv/demo/node_modules/linked/index.js",
                "/home/u/src/linked/index.js",
            ),
            ("/srv/demo/latest.py", "/srv/demo/server.py"),
            ("/srv/demo/.venv/bin/python", "/usr/bin/python3.11"),
            (
                "/srv/demo/node_modules/.bin/tsx",
                "/srv/demo/node_modules/tsx/dist/cli.mjs",
            ),
        ]),
        texts: BTreeMap::from([
            (
                "/home/u/.npm/_npx/a1/node_modules/@modelcontextprotocol/server-everything/package.json",
                r#"{"name": "@modelcontextprotocol/server-everything", "version": "2026.8.31"}"#,
            ),
            ("/home/u/.cache/uv/archive-v0/h/bin/mcp-server-time", "#!python\n"),
            (
                "/home/u/.cache/uv/archive-v0/h/lib/python3.11/site-packages/mcp_server_time-2026.10.19.dist-info/entry_points.txt",
                "[console_scripts]\nmcp-server-time = mcp_server_time:main\n",
            ),
            (
                "/home/u/.cache/uv/archive-v0/h/lib/python3.11/site-packages/pydantic-2.1.dist-info/entry_points.txt",
                "[pydantic]\nx = y\n",
            ),
            ("/opt/tool/bin/short", "#!python\n"),
            (
                "/opt/tool/lib/python3.12/site-packages/long_distribution-3.0.dist-info/entry_points.txt",
                "[console_scripts]\nshort = inner.cli:run\n",
            ),
            ("/opt/git/bin/gitsrv", "#!python\n"),
            (
                "/opt/git/lib/python3.12/site-packages/gitsrv-0.1.dist-info/entry_points.txt",
                "[console_scripts]\ngitsrv = gitsrv:main\n",
            ),
            (
                "/opt/git/lib/python3.12/site-packages/gitsrv-0.1.dist-info/direct_url.json",
                r#"{"url": "https://tok@github.com/o/gitsrv.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}"#,
            ),
            ("/srv/demo/server.py", ""),
            ("/srv/demo/localmod/__main__.py", ""),
            ("/srv/demo/.venv/bin/proj-server", "#!python\n"),
            (
                "/srv/demo/.venv/lib/python3.11/site-packages/proj-0.1.0.dist-info/entry_points.txt",
                "[console_scripts]\nproj-server = proj.app:main\n",
            ),
        ]),
    }
}

fn name(exe: &str, argv: &[&str], look: &dyn Look) -> Resolved {
    let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
    identify(
        &Launch {
            exe,
            argv: &argv,
            cwd: "/srv/demo",
            home: "/home/u",
        },
        look,
    )
}

fn line(exe: &str, line: &str, look: &dyn Look) -> String {
    name(exe, &line.split_whitespace().collect::<Vec<_>>(), look)
        .identity
        .to_string()
}

#[test]
fn a_chain_has_one_name_at_every_stage() {
    let everything = "npm:@modelcontextprotocol/server-everything";
    let time = "pypi:mcp-server-time";
    // (stage's executable, its arguments)
    let chains: [(&str, &[Stage]); 5] = [
        (
            everything,
            &[
                (
                    "/usr/bin/env",
                    &[
                        "/usr/bin/env",
                        "node",
                        "/usr/bin/npx",
                        "-y",
                        "@modelcontextprotocol/server-everything@2026.8.31",
                    ],
                ),
                (
                    "/usr/bin/node",
                    &[
                        "node",
                        "/usr/bin/npx",
                        "-y",
                        "@modelcontextprotocol/server-everything",
                    ],
                ),
                (
                    "/usr/bin/node",
                    &["npm exec @modelcontextprotocol/server-everything stdio"],
                ),
                (
                    "/usr/bin/node",
                    &[
                        "node",
                        "/home/u/.npm/_npx/a1/node_modules/.bin/mcp-server-everything",
                        "stdio",
                    ],
                ),
            ],
        ),
        (
            time,
            &[
                (
                    "/usr/bin/uvx",
                    &["uvx", "mcp-server-time==2026.10.19", "--local-timezone=UTC"],
                ),
                ("/usr/bin/uv", &["/usr/bin/uv", "tool", "uvx", "mcp-server-time"]),
                (
                    "/usr/bin/uv",
                    &[
                        "uv",
                        "tool",
                        "run",
                        "--from",
                        "mcp_server_time",
                        "mcp-server-time",
                    ],
                ),
                (
                    "/usr/bin/python3.11",
                    &[
                        "/home/u/.cache/uv/archive-v0/h/bin/python",
                        "/home/u/.cache/uv/archive-v0/h/bin/mcp-server-time",
                    ],
                ),
                (
                    "/usr/bin/dash",
                    &["/bin/sh", "/home/u/.cache/uv/archive-v0/h/bin/mcp-server-time"],
                ),
                (
                    "/usr/bin/python3.11",
                    &[
                        "/home/u/.cache/uv/archive-v0/h/bin/python",
                        "-m",
                        "mcp_server_time",
                    ],
                ),
            ],
        ),
        (
            "file:/srv/demo/server.py",
            &[
                (
                    "/usr/bin/dash",
                    &[
                        "sh",
                        "-c",
                        "cd /srv/demo && exec python3 server.py --token s3cret",
                    ],
                ),
                (
                    "/usr/bin/bash",
                    &["bash", "/home/u/.pyenv/shims/python", "server.py"],
                ),
                (
                    "/usr/bin/bash",
                    &[
                        "bash",
                        "/home/u/.pyenv/libexec/pyenv",
                        "exec",
                        "python",
                        "server.py",
                    ],
                ),
                (
                    "/home/u/.pyenv/versions/3.11/bin/python3.11",
                    &["python", "-u", "latest.py"],
                ),
                (
                    "/usr/bin/uv",
                    &["uv", "run", "--directory", "/srv/demo", "server.py"],
                ),
                (
                    "/usr/bin/uv",
                    &["uv", "run", "--with", "mcp[cli]", "mcp", "run", "server.py:app"],
                ),
                (
                    "/srv/demo/.venv/bin/python",
                    &[
                        "/srv/demo/.venv/bin/python",
                        "/srv/demo/.venv/bin/mcp",
                        "run",
                        "./server.py",
                    ],
                ),
            ],
        ),
        (
            "pypi:proj",
            &[
                (
                    "/usr/bin/uv",
                    &[
                        "uv",
                        "--directory",
                        "/srv/demo",
                        "run",
                        "proj-server",
                        "--port",
                        "1",
                    ],
                ),
                (
                    "/usr/bin/python3.11",
                    &["/srv/demo/.venv/bin/python3", "/srv/demo/.venv/bin/proj-server"],
                ),
            ],
        ),
        (
            "git:github.com/o/gitsrv",
            &[
                (
                    "/usr/bin/uvx",
                    &[
                        "uvx",
                        "--from",
                        "git+https://tok@github.com/o/gitsrv.git@v1",
                        "gitsrv",
                    ],
                ),
                (
                    "/usr/bin/python3.12",
                    &["/opt/git/bin/python", "/opt/git/bin/gitsrv"],
                ),
            ],
        ),
    ];
    for (expected, stages) in chains {
        for (exe, argv) in stages {
            assert_eq!(
                name(exe, argv, &disk()).identity.to_string(),
                expected,
                "{exe} {argv:?}"
            );
        }
    }
}

#[test]
fn launchers_of_every_kind() {
    let blind = [
        ("npx -y pkg@1.2 --api-key s3cret", "npm:pkg"),
        ("npx --yes --package=@s/p@2 cmd", "npm:@s/p"),
        ("npx -p typescript -c tsc", "npm:typescript"),
        ("npx ./local", "file:/srv/demo/local"),
        ("npx github:o/r#main", "git:github.com/o/r"),
        ("npm exec -y -- pkg --flag", "npm:pkg"),
        ("npm x pkg", "npm:pkg"),
        ("npm --prefix /opt/x run start", "file:/opt/x"),
        ("bunx --bun pkg@latest", "npm:pkg"),
        ("pnpm dlx @s/p@1.0.0", "npm:@s/p"),
        ("pnpm --package=@s/p dlx cmd", "npm:@s/p"),
        ("yarn dlx -q pkg", "npm:pkg"),
        (
            "uvx mcp-server-git[x]==1.0 --repository /r",
            "pypi:mcp-server-git",
        ),
        (
            "uvx --python 3.12 --from MCP.Server_Git cmd",
            "pypi:mcp-server-git",
        ),
        ("uvx --from /opt/src cmd", "file:/opt/src"),
        (
            "uv run --with fastmcp fastmcp run app.py",
            "file:/srv/demo/app.py",
        ),
        ("uv run -m pkg.server", "pypi:pkg"),
        ("pipx run --spec pkg==2.0 cmd", "pypi:pkg"),
        ("pipx run pkg", "pypi:pkg"),
        (
            "python3 -m mcp_server_git --repository s3cret",
            "pypi:mcp-server-git",
        ),
        ("python3 -Ium mcp_server_git.server", "pypi:mcp-server-git"),
        (
            "python3 -W ignore -X dev ../x/./server.py",
            "file:/srv/x/server.py",
        ),
        ("python3 ~/srv/server.py", "file:~/srv/server.py"),
        ("python3 /home/u/srv/server.py", "file:~/srv/server.py"),
        ("python3", "bin:python"),
        ("python3 -", "bin:python"),
        (
            "node --max-old-space-size=99 -r dotenv/config dist/index.js",
            "file:/srv/demo/dist/index.js",
        ),
        ("node /x/node_modules/.pnpm/p@1/node_modules/p/i.js", "npm:p"),
        ("/usr/bin/node /usr/bin/tsx server.ts", "file:/srv/demo/server.ts"),
        ("deno run --allow-net -A npm:@s/p@1.0.0 x", "npm:@s/p"),
        ("deno run jsr:@s/p@1", "jsr:@s/p"),
        (
            "deno run https://u:tok@h.example/x.ts?t=s3cret",
            "url:h.example/x.ts",
        ),
        ("deno server.ts", "file:/srv/demo/server.ts"),
        (
            "docker run -i --rm -e TOKEN=s3cret --name=n -v /a:/b -it mcp/git:2 --flag",
            "oci:mcp/git",
        ),
        (
            "docker --context c run --init --network host docker.io/library/x@sha256:ab",
            "oci:x",
        ),
        (
            "podman run -itv /a:/b ghcr.io/o/i:latest stdio",
            "oci:ghcr.io/o/i",
        ),
        ("docker run -i localhost:5000/o/i:1", "oci:localhost:5000/o/i"),
        ("docker exec -i mybox srv", "container:mybox"),
        ("docker compose up", "bin:docker"),
        ("env -i A=s3cret -u B npx pkg", "npm:pkg"),
        ("env -S npx pkg", "npm:pkg"),
        ("sudo -u bob nice -n 5 timeout 60 /opt/srv --x", "bin:srv"),
        ("dotenvx run -f .env -- npx pkg", "npm:pkg"),
        ("mise exec node@20 -- npx pkg", "npm:pkg"),
        ("go run github.com/o/r/cmd/x@v1.2.3", "go:github.com/o/r/cmd/x"),
        ("dnx Contoso.Mcp@1.0.0 --yes", "nuget:Contoso.Mcp"),
        ("java -Xmx1g -jar /opt/s.jar --k s3cret", "file:/opt/s.jar"),
        ("/opt/x/github-mcp-server stdio", "bin:github-mcp-server"),
        ("/x/node_modules/@s/p-linux-x64-musl/bin/p mcp", "npm:@s/p"),
        ("bash ./run.sh s3cret", "file:/srv/demo/run.sh"),
        ("/home/u/.volta/bin/npx -y pkg", "npm:pkg"),
        ("busybox sh run.sh", "file:/srv/demo/run.sh"),
        ("bash", "bin:bash"),
    ];
    for (command, expected) in blind {
        assert_eq!(line("", command, &Blind), expected, "{command}");
        assert!(!expected.contains("s3cret"));
    }
}

#[test]
fn a_shell_text_is_read_and_never_kept() {
    let shell = |text: &str| {
        name("/usr/bin/bash", &["bash", "-lc", text], &disk())
            .identity
            .to_string()
    };
    assert_eq!(shell("npx -y pkg --key s3cret 2>>log"), "npm:pkg");
    assert_eq!(shell("cd ~/srv && node i.js; true"), "file:~/srv/i.js");
    assert_eq!(
        shell("TOKEN=s3cret exec uvx mcp-server-git \"$X\""),
        "pypi:mcp-server-git"
    );
    let unknown = shell("npx -y \"$PKG\" --key s3cret");
    assert!(unknown.starts_with("inline:bash-"), "{unknown}");
    assert_ne!(unknown, shell("npx -y \"$PKG2\" --key s3cret"));
    let code = name("/usr/bin/python3", &["python3", "-c", "print('s3cret')"], &Blind).identity;
    assert!(code.to_string().starts_with("inline:python-") && code.is_specific());
    // A console script named by its path.
    assert_eq!(shell("/opt/tool/bin/short --x"), "pypi:long-distribution");
    // An npm child: only the link tells which package the command is of.
    assert_eq!(shell("mcp-server-everything"), "bin:mcp-server-everything");
}

#[test]
fn installed_programs_are_traced_to_their_distribution() {
    let seen = |argv: &[&str]| name("/usr/bin/python3.12", argv, &disk()).identity;
    let short = seen(&["/opt/tool/bin/python", "/opt/tool/bin/short"]);
    assert_eq!(
        (short.to_string().as_str(), short.version.as_deref()),
        ("pypi:long-distribution", Some("3.0"))
    );
    assert_eq!(
        seen(&["/opt/tool/bin/python", "-m", "inner.cli"]).to_string(),
        "pypi:long-distribution"
    );
    assert_eq!(
        seen(&["python", "-m", "localmod"]).to_string(),
        "file:/srv/demo/localmod"
    );
    let linked = name(
        "/usr/bin/node",
        &["node", "node_modules/linked/index.js"],
        &disk(),
    );
    assert_eq!(linked.identity.to_string(), "npm:linked");
    assert_eq!(
        line("/usr/bin/node", "node node_modules/.bin/tsx server.ts", &disk()),
        "file:/srv/demo/server.ts"
    );
}

#[test]
fn versions_stand_apart() {
    let version = |command: &str| {
        let words: Vec<&str> = command.split_whitespace().collect();
        name("", &words, &Blind).identity.version
    };
    assert_eq!(version("npx pkg@1.2.3-rc.1").as_deref(), Some("1.2.3-rc.1"));
    assert_eq!(version("npx pkg@^1.2"), None);
    assert_eq!(version("npx pkg@latest"), None);
    assert_eq!(version("uvx pkg==1.0").as_deref(), Some("1.0"));
    assert_eq!(version("uvx pkg>=1.0"), None);
    assert_eq!(version("docker run i:2").as_deref(), Some("2"));
    let installed = name(
        "/usr/bin/node",
        &[
            "node",
            "/home/u/.npm/_npx/a1/node_modules/.bin/mcp-server-everything",
        ],
        &disk(),
    );
    assert_eq!(installed.identity.version.as_deref(), Some("2026.8.31"));
    assert_eq!(
        ServerIdentity::new(IdentityKind::Npm, "p", Some("1")),
        ServerIdentity::new(IdentityKind::Npm, "p", None)
    );
}

#[test]
fn a_process_cannot_name_itself() {
    // argv[0] is the caller's to choose; the executable is not.
    assert_eq!(line("/tmp/evil", "kamsd --stdio", &Blind), "bin:evil");
    assert_eq!(line("/tmp/evil", "/usr/bin/npx -y good", &Blind), "bin:evil");
    assert_eq!(
        line("/usr/bin/python3", "/usr/bin/npx good", &Blind),
        "file:/srv/demo/good"
    );
    let odd = name("/tmp/a\u{202e}b\nc", &["x"], &Blind).identity;
    assert_eq!(odd.to_string(), "bin:a?b?c");
    let long = "x".repeat(10_000);
    assert_eq!(
        name(&format!("/tmp/{long}"), &["x"], &Blind).identity.name.len(),
        MAX_NAME
    );
}

#[test]
fn arguments_are_no_part_of_a_name() {
    let token = format!("gh{}_R7kQ2mZ9xT4bV1nW8cL5sD3gH6jP0aYeUoIq", 'p');
    let opaque = "R7kQ2mZ9xT4bV1nW8cL5sD3gH6jP0aYeUoIqF2hB9tKw";
    for secret in [token.as_str(), opaque] {
        for command in [
            "npx -y pkg --token SECRET",
            "npx --unknown SECRET pkg",
            "uvx --unknown SECRET pkg",
            "npm exec --unknown SECRET -- pkg",
            "docker run -e TOKEN=SECRET -eKEY=SECRET image SECRET",
            "env TOKEN=SECRET npx pkg",
            "python3 -c SECRET",
            "node -e SECRET",
            "node --token=SECRET",
            "uvx --from git+https://me:SECRET@host.example/o/r SECRET",
            "npx https://me:SECRET@host.example/pkg.tgz?key=SECRET",
            "deno run https://host.example/x.ts?key=SECRET SECRET",
        ] {
            let shown = line("", &command.replace("SECRET", secret), &Blind);
            let leaks = secret
                .as_bytes()
                .windows(8)
                .any(|piece| shown.as_bytes().windows(8).any(|window| window == piece));
            assert!(!leaks, "{command}: {shown}");
        }
    }
}

#[test]
fn launchers_are_told_from_servers() {
    let launcher = |command: &str| name("", &command.split_whitespace().collect::<Vec<_>>(), &Blind).launcher;
    for command in [
        "npx pkg",
        "uvx pkg",
        "bash run.sh",
        "env python3 s.py",
        "uv run s.py",
        "tsx s.ts",
    ] {
        assert!(launcher(command).is_some(), "{command}");
    }
    for command in [
        "python3 s.py",
        "node s.js",
        "/opt/srv",
        "docker run i",
        "python3 -m m",
    ] {
        assert_eq!(launcher(command), None, "{command}");
    }
}

#[test]
fn a_later_stage_names_at_least_as_well_or_not_at_all() {
    let id = |kind, name: &str| ServerIdentity::new(kind, name, None);
    let package = id(IdentityKind::Npm, "p");
    assert!(!package.refined_by(&id(IdentityKind::Bin, "p")));
    assert!(!package.refined_by(&id(IdentityKind::File, "/x")));
    assert!(id(IdentityKind::File, "/run.sh").refined_by(&package));
    assert!(id(IdentityKind::Inline, "sh-1").refined_by(&id(IdentityKind::Bin, "srv")));
    assert!(!id(IdentityKind::File, "/x").refined_by(&id(IdentityKind::Bin, "bash")));
}

proptest! {
    #[test]
    fn any_command_line_has_a_name(
        exe in "(/usr/bin/(npx|node|bash|env|uv|uvx|python3|docker|deno|npm|bun|go|java|sudo))?",
        argv in prop::collection::vec(
            "(-[a-zA-Z]{1,3}|--[a-z]{1,8}|run|exec|tool|sh|env|npx|uv|bash|node|-c|-S|\\PC{0,12}|@[a-z]/[a-z]@?|~/|[./]{1,4})", 0..12),
    ) {
        let resolved = identify(&Launch { exe: &exe, argv: &argv, cwd: "/w", home: "/home/u" }, &Blind);
        let shown = resolved.identity.to_string();
        prop_assert!(!shown.chars().any(char::is_control));
        prop_assert!(resolved.identity.name.chars().count() <= MAX_NAME);
    }
}

#[test]
fn what_is_rendered_is_read_back() {
    for text in [
        "npm:@a/b",
        "bin:x",
        "file:~/a b:c",
        "inline:python3-00",
        "url:host/path",
        "oci:a/b",
        "jsr:@a/b",
    ] {
        let identity = ServerIdentity::parse(text).unwrap();
        assert_eq!(identity.to_string(), text);
    }
    for text in ["", "npm", "what:x"] {
        assert!(ServerIdentity::parse(text).is_none(), "{text}");
    }
}
