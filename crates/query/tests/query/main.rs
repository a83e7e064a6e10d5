//! The public API of the engine: requests as clients send them, responses as they read them.

mod against_reference;
mod annotations;
mod bounds;
mod filters;
mod fixture;
mod manual_examples;
mod reference;
