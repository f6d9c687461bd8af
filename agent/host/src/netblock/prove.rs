//! Each program is asked once right after it was attached: one that is never called would protect nobody.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use kams_sensor_abi::netblock::{HOOK_CONNECT, HOOK_SEND, HOOK_SOCKET};

use super::attached::Attached;
use crate::options::SensorError;

/// The discard service: nothing listens there, and what is sent is one byte to this host.
const PORT: u16 = 9;

/// Provokes every program from this process, which a block marks that counts and refuses nothing.
pub(super) fn prove(attached: &mut Attached) -> Result<(), SensorError> {
    let pid = std::process::id();
    for (any, to) in [
        (
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)),
        ),
        (
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
            SocketAddr::from((Ipv6Addr::LOCALHOST, PORT)),
        ),
    ] {
        attached.begin_proof(pid)?;
        let tried = provoke(any, to);
        let counts = attached.end_proof(pid);
        if tried.is_err() && any.is_ipv6() {
            // IPv6 is switched off here: there is nothing to refuse.
            continue;
        }
        for (hook, name) in [
            (HOOK_SOCKET, "sock_create"),
            (HOOK_CONNECT, "connect"),
            (HOOK_SEND, "sendmsg"),
        ] {
            let asked = usize::try_from(hook)
                .ok()
                .and_then(|hook| counts.refused.get(hook))
                .is_some_and(|count| *count > 0);
            if !asked {
                let family = if any.is_ipv6() { "IPv6" } else { "IPv4" };
                return Err(SensorError::Refused {
                    what: format!(
                        "the network backstop: its {name} program for {family} is attached and not asked"
                    ),
                    detail: "a socket of our own passed it unseen".into(),
                    remedy: "check that the kernel has CONFIG_CGROUP_BPF=y, and report its version",
                });
            }
        }
    }
    Ok(())
}

/// Makes a socket, sends a datagram, connects. Only the socket has to succeed: the programs are asked before a route is
/// looked for.
fn provoke(any: SocketAddr, to: SocketAddr) -> std::io::Result<()> {
    let socket = UdpSocket::bind(any)?;
    let _no_route = socket.send_to(&[0], to);
    let _no_route = socket.connect(to);
    Ok(())
}
