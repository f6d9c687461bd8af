//! The sensor against the running kernel: what a process really reads and writes is what arrives. Root only.

#[path = "sensor/adopt.rs"]
mod adopt;
#[path = "sensor/calls.rs"]
mod calls;
#[path = "sensor/forms.rs"]
mod forms;
#[path = "sensor/lifecycle.rs"]
mod lifecycle;
#[path = "sensor/losses.rs"]
mod losses;
#[path = "sensor/offsets.rs"]
mod offsets;
#[path = "sensor/rig.rs"]
mod rig;
#[path = "sensor/start.rs"]
mod start;
