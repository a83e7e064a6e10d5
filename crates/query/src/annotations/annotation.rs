//! One annotation, as stored and as shown to clients.

use std::collections::BTreeMap;

use pegel_metric::Millis;
use serde::{Deserialize, Serialize};

use super::mark::{KIND_LABEL, MarkKind};

/// A note about a time. Its times are as the client sent them: seconds, or milliseconds if they
/// have more than ten digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Annotation {
    /// Empty for a global annotation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tsuid: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub notes: String,
    #[serde(default)]
    pub custom: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub end_time: i64,
    pub start_time: i64,
    /// The sender that created it; `None` for the agent's user and root. Not shown to clients.
    #[serde(skip)]
    pub(super) writer: Option<String>,
}

impl Annotation {
    /// Returns whether it is a mark or a phase, which programs set.
    pub fn mark_kind(&self) -> Option<MarkKind> {
        MarkKind::from_name(self.label(KIND_LABEL)?)
    }

    /// Returns the value of a label.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.custom.as_ref()?.get(key).map(String::as_str)
    }

    /// Returns when it ends; `None` if it has no end, or a phase is still running.
    pub fn end(&self) -> Option<Millis> {
        (self.end_time > 0).then(|| to_millis(self.end_time))
    }

    pub fn start(&self) -> Millis {
        to_millis(self.start_time)
    }

    /// Changes its times to whole seconds.
    pub(crate) fn round_to_seconds(&mut self) {
        self.start_time = self.start().div_euclid(1_000);
        self.end_time = self.end().map_or(0, |end| end.div_euclid(1_000));
    }

    /// Returns its approximate size in the file and in memory.
    pub(super) fn bytes(&self) -> usize {
        let custom = self.custom.iter().flatten();
        let custom: usize = custom
            .map(|(key, value)| key.len() + value.len() + 16)
            .sum();
        128 + self.tsuid.len() + self.description.len() + self.notes.len() + custom
    }
}

/// Converts a time of a client to milliseconds: ten digits or fewer are seconds.
pub(crate) fn to_millis(time: i64) -> Millis {
    if time.unsigned_abs() <= 9_999_999_999 {
        time * 1_000
    } else {
        time
    }
}
