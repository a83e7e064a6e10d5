//! Input of programs, from lanes and points to the samples in a real store.

mod lanes;
mod program_values;
mod pushes;
