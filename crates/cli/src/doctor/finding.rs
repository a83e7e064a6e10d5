//! What the doctor says about one thing.

use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingState {
    Ok,
    /// Something is not measured, or could fail later.
    Better,
    /// Something does not work that should.
    Broken,
}

impl FindingState {
    pub fn as_str(self) -> &'static str {
        match self {
            FindingState::Ok => "ok",
            FindingState::Better => "better",
            FindingState::Broken => "broken",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub check: &'static str,
    pub state: FindingState,
    pub message: String,
    /// The one line that would change it.
    pub fix: Option<String>,
    /// One line for each of several things that it is about.
    pub details: Vec<String>,
}

/// Findings about one part of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindingGroup {
    pub name: &'static str,
    pub findings: Vec<Finding>,
}

impl Finding {
    pub fn ok(check: &'static str, says: impl Into<String>) -> Finding {
        Finding {
            check,
            state: FindingState::Ok,
            message: says.into(),
            fix: None,
            details: Vec::new(),
        }
    }

    pub fn better(check: &'static str, says: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding {
            state: FindingState::Better,
            fix: Some(fix.into()),
            ..Finding::ok(check, says)
        }
    }

    pub fn broken(check: &'static str, says: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding {
            state: FindingState::Broken,
            ..Finding::better(check, says, fix)
        }
    }

    pub fn with_details(mut self, details: Vec<String>) -> Finding {
        self.details = details;
        self
    }

    pub fn json(&self, group: &str) -> Value {
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
