//! Remote write out over a real store, to a receiver that records what arrives.

mod delivery;
mod fixture;
mod stream;
