//! Privileged host operations of Kams: the sensor's user side, procfs, and what the kernel offers.
//!
//! [`Sensor::start`] loads the kernel side, proves each probe and returns the event stream; [`SensorControl`]
//! changes what is watched while it runs. This is the only crate that knows aya and the only one with `unsafe`.

pub mod adopt;
mod arch;
mod at_exit;
pub mod btf;
pub mod clock;
mod control;
pub mod doctor;
mod event;
pub mod filter;
mod functions;
mod heartbeat;
pub mod hold;
pub mod inet;
pub mod inject;
mod iterators;
mod loader;
mod losses;
mod marks;
pub mod memory;
pub mod netblock;
pub mod offsets;
mod options;
mod order;
pub mod peer;
mod placeholder;
mod preemption;
pub mod priority;
pub mod procs;
mod programs;
mod queue;
mod record;
mod recursion;
mod ring;
mod selftest;
mod sensor;
mod stops;
mod streams;
mod sweep;

pub use control::{MapUse, ProbeRole, ProbeState, SensorControl};
pub use doctor::{Fact, Standing};
pub use event::{
    Chunk, ExecReport, FdKind, FdShape, LossReason, LossStage, Marks, Object, Op, SensorEvent, StreamId,
    StreamKey, far_keys,
};
pub use losses::{ForcedStage, LossCount};
pub use options::{
    BACKEND_ENV, Backend, OBJECT_ENV, RING_MAX, RING_MIN, RING_USUAL, SensorError, SensorOptions,
};
pub use programs::PayloadMethod;
pub use queue::SensorEvents;
pub use sensor::Sensor;
pub use streams::{Watch, WatchedStream};

pub mod userfile;
