//! Container clients: the server runs behind a daemon, and its stdio ends at the client process.

use super::{Resolved, Resolver};
use crate::discover::identity::words::skip_options;
use crate::discover::identity::{IdentityKind, ServerIdentity, package};

/// Options of `docker run` and `podman run` without a value; every other long option takes the next word.
const DOCKER_FLAGS: [&str; 22] = [
    "--interactive",
    "--tty",
    "--detach",
    "--rm",
    "--init",
    "--privileged",
    "--read-only",
    "--no-healthcheck",
    "--oom-kill-disable",
    "--publish-all",
    "--sig-proxy",
    "--disable-content-trust",
    "--quiet",
    "--help",
    "--replace",
    "--no-hosts",
    "--no-hostname",
    "--rmi",
    "--tls-verify",
    "--env-host",
    "--http-proxy",
    "--use-api-socket",
];

/// `docker run IMAGE`: the server runs behind a daemon, and its stdio ends at this client process.
pub(super) fn docker(name: &str, args: &[String]) -> Resolved {
    let plain = || Resolver::plain(IdentityKind::Bin, name);
    let globals = [
        "-H",
        "--host",
        "-c",
        "--context",
        "--config",
        "-l",
        "--log-level",
        "--connection",
        "--url",
        "--root",
    ];
    let mut rest = skip_options(args, &globals);
    if rest.first().is_some_and(|word| word == "container") {
        rest = rest.get(1..).unwrap_or_default();
    }
    let Some((verb, rest)) = rest.split_first() else {
        return plain();
    };
    let Some(target) = docker_target(rest) else {
        return plain();
    };
    match verb.as_str() {
        "run" | "create" => Resolved {
            identity: package::oci(target),
            launcher: None,
        },
        "exec" | "start" | "attach" => Resolved {
            identity: ServerIdentity::new(IdentityKind::Container, target, None),
            launcher: None,
        },
        _ => plain(),
    }
}

fn docker_target(args: &[String]) -> Option<&str> {
    let mut at = 0;
    while let Some(word) = args.get(at) {
        if word == "--" {
            at += 1;
            break;
        }
        if let Some(long) = word.strip_prefix("--") {
            at += if long.contains('=') || DOCKER_FLAGS.contains(&word.as_str()) {
                1
            } else {
                2
            };
        } else if let Some(short) = word.strip_prefix('-') {
            // Flags without a value may stand together, and the last of a group may take one: `-itv a:b`.
            let value_at = short.find(|c: char| !matches!(c, 'i' | 't' | 'd' | 'P' | 'q'));
            let takes_next = value_at.is_some_and(|index| index + 1 == short.len());
            at += if takes_next { 2 } else { 1 };
        } else {
            break;
        }
    }
    args.get(at).map(String::as_str)
}
