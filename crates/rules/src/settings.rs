//! The keys of rules and alerts.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;

use pegel_config::{
    ConfigProblem, ConfigTree, ConfigValue, OptionalTimeSpan, Setting, TimeSpan, read_scalar,
    settings,
};

use crate::delivery::ReceiverUrl;

settings! {
    /// How rules are evaluated and where alerts are sent.
    pub struct AlertSettings {
        /// How often groups of rules that set no interval are evaluated.
        evaluation_interval: TimeSpan = TimeSpan::seconds(60),
        /// Labels that are added to every alert that is sent. Without this key: node, with the
        /// name of this node.
        external_labels: Option<BTreeMap<String, String>> = None => "{site: north}",
        /// The URL of this agent in alerts. Without this key: that of its page.
        external_url: Option<String> = None => "http://nid0001:1337",
        /// The URLs of Alertmanagers; all of them get every alert.
        alertmanagers: Vec<ReceiverUrl> = Vec::new(),
        /// How often a firing alert is sent to the Alertmanagers again.
        resend_delay: TimeSpan = TimeSpan::seconds(60),
        /// URLs to which changes of alerts are posted, as Alertmanager's webhooks are.
        webhooks: Vec<ReceiverUrl> = Vec::new(),
        /// A program and its arguments, started for changes of alerts, with the webhook's JSON as
        /// its standard input. No shell is involved.
        command: Vec<String> = Vec::new(),
        /// When the command is killed.
        command_timeout: TimeSpan = TimeSpan::seconds(30),
        /// How many commands run at one time.
        command_concurrency: NonZeroU32 = NonZeroU32::MIN,
        /// How often an alert that is still firing is reported to webhooks and the command again;
        /// 0 is never.
        repeat_interval: OptionalTimeSpan = TimeSpan::seconds(4 * 3600).into(),
        /// The certificates of authorities (PEM) for https URLs. Without this key: those of the
        /// system.
        ca_file: Option<PathBuf> = None => "/etc/pegel/ca.pem",
        /// How long one request may take.
        timeout: TimeSpan = TimeSpan::seconds(10),
        /// How many alerts wait for each receiver. When it is full, the oldest are dropped and
        /// counted.
        queue_length: NonZeroU32 = NonZeroU32::new(10_000).expect("not 0"),
    } with {
        /// The memory of one expression, whatever that of queries is.
        expression_bytes_max: usize = 64 << 20,
    }
}

/// A pattern for rule files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleFilePattern(pub String);

impl Setting for RuleFilePattern {
    fn accepts() -> String {
        "a rule file in Prometheus' format, relative to this file; * and ? in its name".to_owned()
    }

    fn read(tree: &ConfigTree, problems: &mut Vec<ConfigProblem>) -> Option<RuleFilePattern> {
        if matches!(tree.value, ConfigValue::Map(_)) {
            let message = "this is a rule for the series of programs, not a rule file";
            problems.push(ConfigProblem::new(tree, message, "move it to `relabel`"));
            return None;
        }
        read_scalar(tree, problems, |text| match text {
            "" => Err("the value is empty".to_owned()),
            text => Ok(RuleFilePattern(text.to_owned())),
        })
    }

    fn to_value(&self) -> ConfigValue {
        ConfigValue::Scalar(self.0.clone())
    }
}
