//! Logs files in a directory of lanes that are not read: at most one line a minute, with a count.
//! `/status` counts all of them.

use pegel_metric::Millis;

const PAUSE_MS: Millis = 60_000;

/// Skipped files that were not logged yet.
#[derive(Debug, Default)]
pub(super) struct SkipLog {
    count: u64,
    /// The name of the first of them, and why it is not read.
    first: Option<(String, String)>,
    logged: Option<Millis>,
}

impl SkipLog {
    pub(super) fn add(&mut self, name: &str, reason: &str) {
        self.count += 1;
        self.first
            .get_or_insert_with(|| (name.to_owned(), reason.to_owned()));
    }

    /// Logs what was added, unless the last line is less than a minute old.
    pub(super) fn flush(&mut self, now: Millis) {
        if let Some((count, lane, reason)) = self.take_due(now) {
            tracing::warn!(
                count,
                lane,
                reason,
                "files skipped in a lane directory; the first of them is named"
            );
        }
    }

    pub(super) fn take_due(&mut self, now: Millis) -> Option<(u64, String, String)> {
        // A clock that was set back must not delay the line.
        let is_due = |logged: Millis| (now - logged).abs() >= PAUSE_MS;
        if !self.logged.is_none_or(is_due) {
            return None;
        }
        let (lane, reason) = self.first.take()?;
        self.logged = Some(now);
        Some((std::mem::take(&mut self.count), lane, reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_end_give_one_line_a_minute() {
        let mut log = SkipLog::default();
        let mut lines = Vec::new();
        for second in 0..150 {
            for at in 0..10 {
                log.add(&format!("{second}-{at}.lane"), "not a lane");
            }
            lines.extend(log.take_due(second * 1000));
        }
        let lines: Vec<(u64, &str)> = lines.iter().map(|(n, lane, _)| (*n, &**lane)).collect();
        let expected = [(10, "0-0.lane"), (600, "1-0.lane"), (600, "61-0.lane")];
        assert_eq!(lines, expected);
        assert_eq!(log.take_due(180_000).map(|(count, ..)| count), Some(290));
        assert_eq!(log.take_due(500_000), None);
    }
}
