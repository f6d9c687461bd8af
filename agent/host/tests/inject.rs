//! The injector against the running kernel: a relay comes between this process, as the agent, and real servers. Root
//! only.

#[cfg(test)]
#[path = "inject/death.rs"]
mod death;
#[cfg(test)]
#[path = "inject/filters.rs"]
mod filters;
#[cfg(test)]
#[path = "inject/images.rs"]
mod images;
#[cfg(test)]
#[path = "inject/programs.rs"]
mod programs;
#[cfg(test)]
#[path = "inject/races.rs"]
mod races;
#[cfg(test)]
#[path = "inject/refusals.rs"]
mod refusals;
#[cfg(test)]
#[path = "inject/relay.rs"]
mod relay;
#[cfg(test)]
#[path = "inject/rig.rs"]
mod rig;
#[cfg(test)]
#[path = "inject/shapes.rs"]
mod shapes;
