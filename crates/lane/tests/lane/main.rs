//! Lanes of real processes: writer and reader together, and everything that can go wrong between
//! them.

mod hostile;
mod interrupts;
mod processes;
mod round_trip;
mod support;
