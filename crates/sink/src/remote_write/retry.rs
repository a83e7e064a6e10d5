//! The pauses before a failed request is repeated.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The longest pause that a receiver can request.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// The pauses between attempts: twice as long each time.
#[derive(Debug)]
pub(super) struct RetryPause(Duration);

impl Default for RetryPause {
    fn default() -> RetryPause {
        RetryPause(PAUSE_MIN)
    }
}

impl RetryPause {
    /// Returns the pause before the next attempt: at least `retry_after`.
    pub(super) fn next(&mut self, retry_after: Option<Duration>) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(PAUSE_MAX);
        pause.max(retry_after.unwrap_or_default())
    }
}

/// Parses the header `Retry-After`: seconds, or a date.
pub fn parse_retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    let asked = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text);
            let date = u64::try_from(date.ok()?.as_second()).ok()?;
            let now = now.duration_since(UNIX_EPOCH).ok()?;
            Duration::from_secs(date).saturating_sub(now)
        }
    };
    Some(asked.min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_follow_the_receiver() {
        let mut pause = RetryPause::default();
        let pauses: Vec<u128> = (0..10).map(|_| pause.next(None).as_millis()).collect();
        assert_eq!(
            pauses,
            [200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]
        );
        let asked = Some(Duration::from_secs(40));
        assert_eq!(pause.next(asked), Duration::from_secs(40));
        assert_eq!(RetryPause::default().next(asked), Duration::from_secs(40));
    }

    #[test]
    fn seconds_and_dates_are_accepted() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777 - 90);
        let parse = |text: &str| Some(parse_retry_after(text, now)?.as_secs());
        assert_eq!(parse("7"), Some(7));
        assert_eq!(parse(" 100000 "), Some(600));
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:37 GMT"), Some(90));
        assert_eq!(parse("Sun, 06 Nov 1993 08:49:37 GMT"), None, "not a Sunday");
        assert_eq!(parse("Sat, 06 Nov 1993 08:49:37 GMT"), Some(0));
        for text in ["", "-1", "soon", "1.5"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
