use super::*;
use crate::discover::identity::Blind;

struct Links(&'static [(&'static str, &'static str)]);

impl Look for Links {
    fn real_path(&self, path: &str) -> Option<String> {
        self.0
            .iter()
            .find(|(from, _)| *from == path)
            .map(|(_, to)| (*to).to_owned())
    }

    fn read(&self, _: &str, _: usize) -> Option<String> {
        None
    }

    fn list(&self, _: &str, _: usize) -> Vec<String> {
        Vec::new()
    }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn agents_as_their_vendors_install_them() {
    let table = AgentTable::new(&[]).unwrap();
    let links = Links(&[
        (
            "/usr/local/bin/gemini",
            "/usr/local/lib/node_modules/@google/gemini-cli/bundle/gemini.js",
        ),
        (
            "/usr/local/bin/codex",
            "/usr/local/lib/node_modules/@openai/codex/bin/codex.js",
        ),
        (
            "/usr/local/bin/eslint",
            "/usr/local/lib/node_modules/eslint/bin/eslint.js",
        ),
        (
            "/p/node_modules/.bin/copilot",
            "/p/node_modules/@github/copilot/npm-loader.js",
        ),
    ]);
    // (executable, command line, agent)
    let rows = [
        (
            "/home/u/.local/share/claude/versions/2.1.197",
            "claude -p hi",
            Some("claude-code"),
        ),
        (
            "/l/node_modules/@anthropic-ai/claude-code/bin/claude.exe",
            "claude",
            Some("claude-code"),
        ),
        (
            "/l/node_modules/@anthropic-ai/claude-code-linux-x64/claude",
            "claude",
            Some("claude-code"),
        ),
        (
            "/usr/bin/node",
            "node /l/node_modules/@anthropic-ai/claude-code/cli.js",
            Some("claude-code"),
        ),
        (
            "/usr/bin/node",
            "node /usr/local/bin/codex exec hi",
            Some("codex"),
        ),
        (
            "/l/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/codex/codex",
            "codex",
            Some("codex"),
        ),
        (
            "/usr/bin/node",
            "node --max-old-space-size=4096 /usr/local/bin/gemini -p x",
            Some("gemini-cli"),
        ),
        (
            "/usr/bin/node",
            "node /p/node_modules/.bin/copilot -p x",
            Some("copilot-cli"),
        ),
        (
            "/l/node_modules/@github/copilot-linux-x64/copilot",
            "copilot",
            Some("copilot-cli"),
        ),
        (
            "/l/node_modules/opencode-linux-x64/bin/opencode",
            "opencode run x",
            Some("opencode"),
        ),
        (
            "/usr/bin/node",
            "node /l/node_modules/@qwen-code/qwen-code/dist/index.js",
            Some("qwen-code"),
        ),
        (
            "/usr/share/cursor/cursor",
            "cursor --type=utility",
            Some("cursor"),
        ),
        ("/usr/share/code/code", "code --type=utility", Some("vscode")),
        (
            "/home/u/.vscode-server/bin/abc/node",
            "node out/bootstrap-fork --type=extensionHost",
            Some("vscode"),
        ),
        (
            "/usr/lib/code-server/lib/node",
            "node /usr/lib/code-server",
            Some("code-server"),
        ),
        ("/usr/share/windsurf/windsurf", "windsurf", Some("windsurf")),
        ("/home/u/.local/zed.app/libexec/zed-editor", "zed", Some("zed")),
        ("/home/u/.local/bin/goose", "goose session", Some("goose")),
        (
            "/usr/bin/node",
            "node /l/node_modules/cline/dist/cli.mjs",
            Some("cline-cli"),
        ),
        (
            "/usr/lib/claude-desktop/node_modules/electron/dist/electron",
            "electron app.asar",
            Some("claude-desktop"),
        ),
        (
            "/usr/bin/node",
            "node /p/node_modules/.bin/mcp-inspector --cli x",
            Some("mcp-inspector"),
        ),
        ("/opt/lm-studio/lm-studio", "lm-studio", Some("lm-studio")),
        ("/usr/bin/node", "node /usr/local/bin/eslint .", None),
        ("/usr/bin/node", "node /srv/claude.js", None),
        ("/usr/bin/python3.11", "python3 -m claude", None),
        ("/usr/bin/git", "claude", None),
        (
            "/usr/bin/vim",
            "vim /l/node_modules/@google/gemini-cli/dist/index.js",
            None,
        ),
    ];
    for (exe, line, expected) in rows {
        let found = table
            .recognise(exe, &words(line), "/home/u", &links)
            .map(|agent| agent.name.as_str());
        assert_eq!(found, expected, "{exe}: {line}");
    }
}

#[test]
fn configuration_adds_agents_and_renames_built_in_ones() {
    let own = AgentPattern {
        name: "house-bot".to_owned(),
        script: vec!["/srv/bots/**".to_owned()],
        ..AgentPattern::default()
    };
    let staged = AgentPattern {
        name: "claude-staging".to_owned(),
        exe: vec!["**/claude/versions/*".to_owned()],
        argv: vec!["--staging*".to_owned()],
        ..AgentPattern::default()
    };
    let table = AgentTable::new(&[own, staged]).unwrap();
    let name = |exe: &str, line: &str| {
        table
            .recognise(exe, &words(line), "/srv/bots", &Blind)
            .map(|agent| agent.name.clone())
    };
    assert_eq!(
        name("/usr/bin/python3.11", "python -u bot.py").as_deref(),
        Some("house-bot")
    );
    assert_eq!(
        name("/x/claude/versions/3", "claude --staging").as_deref(),
        Some("claude-staging")
    );
    assert_eq!(
        name("/x/claude/versions/3", "claude").as_deref(),
        Some("claude-code")
    );
}

#[test]
fn a_pattern_for_arguments_is_over_all_of_them_and_crosses_slashes() {
    let bot = |argv: &str| {
        let own = AgentPattern {
            name: "house-bot".to_owned(),
            exe: vec!["**/python3*".to_owned()],
            argv: vec![argv.to_owned()],
            ..AgentPattern::default()
        };
        let table = AgentTable::new(&[own]).unwrap();
        let line = words("python3 -u /srv/bots/house_bot.py serve --port 1");
        table
            .recognise("/usr/bin/python3.11", &line, "/", &Blind)
            .is_some()
    };
    // The first is the sample configuration's.
    for fits in [
        "*house_bot.py*",
        "*house_bot.py serve*",
        "-u /srv/*",
        "python3 -u *",
        "*",
    ] {
        assert!(bot(fits), "{fits}");
    }
    for other in ["house_bot.py", "*house_bot.py", "serve*", "*other_bot.py*"] {
        assert!(!bot(other), "{other}");
    }
}

#[test]
fn unusable_patterns_say_why() {
    let named = |name: &str, exe: &[&str]| AgentPattern {
        name: name.to_owned(),
        exe: exe.iter().map(|glob| (*glob).to_owned()).collect(),
        ..AgentPattern::default()
    };
    assert!(matches!(
        AgentTable::new(&[named("a b", &["x"])]),
        Err(PatternError::Name(_))
    ));
    assert!(matches!(
        AgentTable::new(&[named("a", &[])]),
        Err(PatternError::Empty(_))
    ));
    assert!(matches!(
        AgentTable::new(&[named("a", &[""])]),
        Err(PatternError::Glob { .. })
    ));
}
