//! The atomics of the lock-free parts: the real ones, or loom's, which explore every interleaving.

#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::{AtomicU64, fence};

#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicU64, fence};

pub(crate) use std::sync::atomic::Ordering;
