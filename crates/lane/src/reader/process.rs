use crate::identity;
use crate::reader::Header;

/// What is known of the process behind a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    Alive,
    /// There is no process of that number, or it is another one by now.
    Gone,
    /// Its number counts in another pid namespace, or /proc does not say.
    NotVisible,
}

impl ProcessState {
    pub fn of(header: &Header) -> ProcessState {
        let is_same_space = header.pid_space != 0 && header.pid_space == identity::pid_space();
        if !is_same_space || header.start_ticks == 0 {
            return ProcessState::NotVisible;
        }
        match identity::start_ticks_of(header.pid) {
            Some(ticks) if ticks == header.start_ticks => ProcessState::Alive,
            _ => ProcessState::Gone,
        }
    }
}
