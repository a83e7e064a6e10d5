//! The engine through its public face: requests as clients write them, answers as they read them.

mod against_reference;
mod annotations;
mod bounds;
mod filters;
mod fixture;
mod manual_examples;
mod reference;
