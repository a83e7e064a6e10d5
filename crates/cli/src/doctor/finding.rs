//! The result of one check of `pegel doctor`.

use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FindingState {
    Ok,
    /// Could be better: something is not measured, or may fail later.
    Better,
    /// Something that should work does not.
    Broken,
}

impl FindingState {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            FindingState::Ok => "ok",
            FindingState::Better => "better",
            FindingState::Broken => "broken",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub check: &'static str,
    pub state: FindingState,
    pub message: String,
    /// A one-line fix; `None` if and only if the state is `Ok`.
    pub fix: Option<String>,
    /// Further lines, shown in JSON only.
    pub details: Vec<String>,
}

/// Findings about one part of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FindingGroup {
    pub name: &'static str,
    pub findings: Vec<Finding>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, message: impl Into<String>) -> Finding {
        Finding {
            check,
            state: FindingState::Ok,
            message: message.into(),
            fix: None,
            details: Vec::new(),
        }
    }

    pub(super) fn better(
        check: &'static str,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Finding {
        Finding {
            state: FindingState::Better,
            fix: Some(fix.into()),
            ..Finding::ok(check, message)
        }
    }

    pub(super) fn broken(
        check: &'static str,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Finding {
        Finding {
            state: FindingState::Broken,
            ..Finding::better(check, message, fix)
        }
    }

    pub(super) fn with_details(mut self, details: Vec<String>) -> Finding {
        self.details = details;
        self
    }

    pub(super) fn json(&self, group: &str) -> Value {
        json!({
            "group": group,
            "check": self.check,
            "state": self.state.as_str(),
            "says": self.message,
            "fix": self.fix,
            "details": self.details,
        })
    }
}
