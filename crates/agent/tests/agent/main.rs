//! The agent inside the test process, with a clock and a disk that the test controls.

mod clock_steps;
mod threads;
