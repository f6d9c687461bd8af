//! Questions and orders about runs, restrictions and approvals, put to the engine's gate.

use crate::engine::gate::Gatekeeper;
use crate::engine::sink::Sink;

/// Work for the gate, done by the engine's thread between two messages.
pub struct Ask(Box<dyn FnOnce(&mut Gatekeeper, &mut dyn Sink) + Send>);

impl Ask {
    /// Runs it.
    pub fn answer(self, gate: &mut Gatekeeper, sink: &mut dyn Sink) {
        (self.0)(gate, sink);
    }
}

impl std::fmt::Debug for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ask")
    }
}
