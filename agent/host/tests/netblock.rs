//! The network backstop against the running kernel. Root only; all traffic stays on loopback.

#[cfg(test)]
#[path = "netblock/actor.rs"]
mod actor;
#[cfg(test)]
#[path = "netblock/calls.rs"]
mod calls;
#[cfg(test)]
#[path = "netblock/open.rs"]
mod open;
#[cfg(test)]
#[path = "netblock/restart.rs"]
mod restart;
#[cfg(test)]
#[path = "netblock/rig.rs"]
mod rig;
#[cfg(test)]
#[path = "netblock/trees.rs"]
mod trees;
