//! Alerts and their states.

use std::collections::BTreeMap;

use pegel_metric::Millis;
use pegel_query::promql::LabelSet;

/// The state of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlertState {
    /// Resolved; kept for a while so that its end is delivered.
    Inactive,
    /// The expression holds, but not yet for long enough.
    Pending,
    Firing,
}

impl AlertState {
    pub fn as_str(self) -> &'static str {
        match self {
            AlertState::Inactive => "inactive",
            AlertState::Pending => "pending",
            AlertState::Firing => "firing",
        }
    }
}

/// How long a resolved alert is kept and sent again.
pub(crate) const RESOLVED_RETENTION: Millis = 15 * 60 * 1_000;

/// An alert: one element of the result of an alerting rule's expression.
#[derive(Debug, Clone)]
pub struct Alert {
    /// The labels of the element and of the rule, with `alertname`.
    pub labels: LabelSet,
    pub annotations: BTreeMap<String, String>,
    pub value: f64,
    pub state: AlertState,
    /// Since when the expression holds.
    pub active_at: Millis,
    pub fired_at: Option<Millis>,
    pub resolved_at: Option<Millis>,
    pub keep_firing_since: Option<Millis>,
    /// When it was last handed to delivery.
    pub(crate) last_sent: Option<Millis>,
    /// When its state was last reported to receivers that get changes only.
    pub(crate) last_notified: Option<Millis>,
    /// Until when receivers may take it for firing unless they hear of it again.
    pub valid_until: Millis,
}

/// An alert that is due for delivery.
#[derive(Debug, Clone)]
pub struct DueAlert {
    pub alert: Alert,
    pub expression: String,
    /// The state changed, or the last report of it is older than the interval of repetitions.
    /// Alertmanagers get the others too, because an alert ends for them when they stop hearing of
    /// it.
    pub is_news: bool,
}

/// The intervals of delivery, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendIntervals {
    pub resend: Millis,
    /// 0: never.
    pub repeat: Millis,
    /// The interval of the group.
    pub evaluation: Millis,
}

impl Alert {
    pub(crate) fn pending(
        labels: LabelSet,
        annotations: BTreeMap<String, String>,
        value: f64,
        active_at: Millis,
    ) -> Alert {
        Alert {
            labels,
            annotations,
            value,
            state: AlertState::Pending,
            active_at,
            fired_at: None,
            resolved_at: None,
            keep_firing_since: None,
            last_sent: None,
            last_notified: None,
            valid_until: active_at,
        }
    }

    /// Returns whether it is due for delivery, and if so marks it as sent. `None` if it is not;
    /// otherwise whether it is news.
    pub(crate) fn take_due(&mut self, time: Millis, intervals: SendIntervals) -> Option<bool> {
        let changed_after = |last: Option<Millis>| match self.state {
            AlertState::Pending => false,
            AlertState::Firing => last.is_none(),
            AlertState::Inactive => last.is_none() || self.resolved_at > last,
        };
        if self.state == AlertState::Pending {
            return None;
        }
        let is_resend_due = self
            .last_sent
            .is_none_or(|last| time - last > intervals.resend || self.resolved_at > Some(last));
        let is_repeat_due = self.state == AlertState::Firing
            && intervals.repeat > 0
            && self
                .last_notified
                .is_some_and(|last| time - last >= intervals.repeat);
        let is_news = changed_after(self.last_notified) || is_repeat_due;
        if !is_resend_due && !is_news {
            return None;
        }
        self.last_sent = Some(time);
        if is_news {
            self.last_notified = Some(time);
        }
        // Allows for failures of two evaluations or deliveries.
        self.valid_until = time + 4 * intervals.resend.max(intervals.evaluation);
        Some(is_news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVALS: SendIntervals = SendIntervals {
        resend: 60_000,
        repeat: 200_000,
        evaluation: 10_000,
    };

    #[test]
    fn a_firing_alert_is_sent_again_and_repeated() {
        let mut alert = Alert::pending(LabelSet::empty(), BTreeMap::new(), 1.0, 0);
        assert_eq!(alert.take_due(0, INTERVALS), None, "pending");
        alert.state = AlertState::Firing;
        assert_eq!(alert.take_due(10_000, INTERVALS), Some(true));
        assert_eq!(alert.valid_until, 250_000);
        assert_eq!(alert.take_due(70_000, INTERVALS), None);
        assert_eq!(alert.take_due(80_000, INTERVALS), Some(false));
        assert_eq!(alert.take_due(210_000, INTERVALS), Some(true), "repeated");
        alert.state = AlertState::Inactive;
        alert.resolved_at = Some(220_000);
        assert_eq!(alert.take_due(220_000, INTERVALS), Some(true));
        assert_eq!(alert.take_due(230_000, INTERVALS), None);
        assert_eq!(alert.take_due(290_000, INTERVALS), Some(false));
    }
}
