//! Phases: named parts of a program.

use pegel_client_datagrams::marks::{PhaseNumber, begin_phase, end_phase};

/// A running phase; ends when the value goes out of scope.
#[derive(Debug)]
#[must_use = "the phase ends when this goes out of scope"]
pub struct Phase {
    name: String,
    number: PhaseNumber,
}

/// Begins a phase, which every chart shows from its beginning to its end. Never waits; without an
/// agent it does nothing.
pub fn phase(name: &str) -> Phase {
    Phase {
        name: name.to_owned(),
        number: begin_phase(name),
    }
}

impl Drop for Phase {
    fn drop(&mut self) {
        end_phase(&self.name, self.number);
    }
}
