//! The sensor against the running kernel: what a process really reads and writes is what arrives. Root only.

#[cfg(test)]
#[path = "sensor/adopt.rs"]
mod adopt;
#[cfg(test)]
#[path = "sensor/calls.rs"]
mod calls;
#[cfg(test)]
#[path = "sensor/forms.rs"]
mod forms;
#[cfg(test)]
#[path = "sensor/lifecycle.rs"]
mod lifecycle;
#[cfg(test)]
#[path = "sensor/losses.rs"]
mod losses;
#[cfg(test)]
#[path = "sensor/offsets.rs"]
mod offsets;
#[cfg(test)]
#[path = "sensor/rig.rs"]
mod rig;
#[cfg(test)]
#[path = "sensor/start.rs"]
mod start;
