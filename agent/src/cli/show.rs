//! Views as text.

mod doctor;
mod live;
mod servers;
mod status;

pub(super) use doctor::doctor;
pub(super) use live::LiveView;
pub(super) use servers::{servers, tools};
pub(super) use status::status;
