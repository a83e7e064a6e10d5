//! Recording and alerting rules in Prometheus' file format.
//!
//! ```text
//! files ──► RuleFile ──► RuleGroup ──evaluate──► store: recorded series, ALERTS
//!           checked      one thread   PromQL  ╰► delivery: Alertmanagers, webhooks, a command
//! ```
//!
//! Without rules nothing runs. A rule is bounded by the limits of a query, an alert's texts by
//! those of `template`, and delivery by the length of its queues. State survives a crash because
//! it is stored: `ALERTS_FOR_STATE` holds since when an alert is active.

mod alert;
mod delivery;
mod duration;
mod engine;
mod expression;
#[doc(hidden)] // For fuzz/ only.
pub mod fuzzing;
mod group;
mod map_keys;
mod restore;
mod rule_file;
mod rule_state;
mod rule_status;
mod settings;
mod storage;
mod template;
#[cfg(test)]
mod tests;
mod unit_test;

pub use alert::{Alert, AlertState, DueAlert};
pub use delivery::{ReceiverCounts, ReceiverUrl};
pub use engine::{GroupCounts, RuleEngine, RuleEngineOptions, load_rule_files};
pub use rule_file::{AlertSpec, RuleFile, RuleGroupSpec, RuleSpec, RuleText};
pub use rule_status::GroupStatus;
pub use settings::{AlertSettings, RuleFilePattern};
pub use storage::{MissingNode, RuleNodeSource, RuleSample, RuleStorage, StoreStorage};
pub use unit_test::run_test_file;
