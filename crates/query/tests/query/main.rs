//! The engine through its public face: requests as clients write them, answers as they read them.

mod against_slow;
mod annotations;
mod bounds;
mod filters;
mod rules;
mod shelf;
mod slow;
