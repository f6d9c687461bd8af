//! The configuration as text: the effective one with its origins, and the documented sample.

use super::keys::KEYS;
use super::{Config, Loaded, Problems, Sources, load};

/// What `kamsd --check-config` prints: the effective configuration, each key with where it was set; or every
/// problem.
pub fn check(sources: &Sources) -> Result<String, Problems> {
    let loaded = load(sources)?;
    let mut out = String::new();
    for file in &loaded.files {
        out.push_str(&format_line(&format!("# read {}", file.display())));
    }
    if loaded.files.is_empty() {
        out.push_str("# no configuration file: built-in values\n");
    }
    for key in KEYS {
        out.push_str(&format_line(&effective(
            &loaded,
            key.path,
            &(key.show)(&loaded.config),
        )));
    }
    Ok(out)
}

fn effective(loaded: &Loaded, path: &str, value: &str) -> String {
    match loaded.origin(path) {
        Some(origin) => format!("{path}: {value}  # {origin}"),
        None => format!("{path}: {value}"),
    }
}

fn format_line(line: &str) -> String {
    kams_export::text::visible(line) + "\n"
}

/// The sample file: every key with its meaning and its built-in value, commented out.
pub fn sample() -> String {
    let mut lines: Vec<String> = HEADER.iter().map(|line| (*line).to_owned()).collect();
    let config = Config::default();
    let mut section = "";
    for key in KEYS {
        let (head, name) = key.path.split_once('.').unwrap_or(("", key.path));
        let indent = if head.is_empty() { "" } else { "  " };
        if head != section || head.is_empty() {
            lines.push(String::new());
        }
        if head != section && !head.is_empty() {
            lines.push(format!("{head}:"));
        }
        section = head;
        for (index, line) in key.doc.iter().enumerate() {
            let mark = if index == 0 && !key.reload {
                "[restart] "
            } else {
                ""
            };
            lines.push(format!("{indent}# {mark}{line}"));
        }
        lines.push(format!("{indent}#{name}: {}", (key.show)(&config)));
    }
    lines.join("\n") + "\n"
}

const HEADER: &[&str] = &[
    "# Configuration of kamsd: /etc/kams/kams.yaml. Files in /etc/kams/conf.d/*.yaml are read after it, by",
    "# name; later files win key by key. All must belong to root and be writable by nobody else.",
    "# Every key below shows its built-in value. `kamsd --check-config` says what is in force and why.",
    "# Keys marked [restart] take effect at the next start, all others at a reload (SIGHUP).",
];
