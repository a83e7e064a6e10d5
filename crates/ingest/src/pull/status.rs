//! The state of a pull input, as `/status` and the agent's metrics show it.

use std::collections::BTreeMap;

use serde::Serialize;

/// What an input does at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PullState {
    /// Not read yet.
    #[default]
    Waiting,
    /// The last attempt succeeded.
    Up,
    /// The last attempt failed.
    Failing,
    /// Switched off.
    Disabled,
}

/// The state of one input.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PullStatus {
    pub name: String,
    pub kind: &'static str,
    pub state: PullState,
    /// Why the last attempt failed.
    pub error: Option<String>,
    /// The configured interval, in seconds.
    pub interval: f64,
    /// The interval in force: longer after failures.
    pub current_interval: f64,
    /// Times of attempts, in seconds since 1970.
    pub last_attempt: Option<f64>,
    pub last_success: Option<f64>,
    pub next_attempt: Option<f64>,
    pub attempts: u64,
    pub failures: u64,
    pub consecutive_failures: u32,
    /// How long the last attempt took, in seconds.
    pub duration: f64,
    /// The samples of the last attempt that were stored.
    pub samples: u64,
    /// The samples of the last attempt that were dropped, and why the first of them was.
    pub refused: u64,
    pub first_refusal: Option<String>,
    /// The parts of the input, such as modules of Flux, and whether they are read.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, bool>,
}
