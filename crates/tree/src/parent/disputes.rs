//! Children whose answers cannot be used again and again: malformed ones, and those that include a
//! node of another child. A node that moves causes the latter for a few seconds. After a minute the
//! child is left out, so that it does not hold up the back-fill of all others.

use std::collections::BTreeMap;

use pegel_metric::Millis;

/// The time after which a child is left out.
const LEFT_OUT_AFTER: Millis = 60 * 1000;
/// A fault that does not occur for this time is forgotten.
const FORGOTTEN_AFTER: Millis = 10 * 60 * 1000;
/// The most children that are noted.
const CHILDREN_MAX: usize = 20_000;

/// The first and the last fault of each child.
#[derive(Debug, Default)]
pub(super) struct Disputes(BTreeMap<String, (Millis, Millis)>);

impl Disputes {
    /// Notes a fault of a child. Returns whether it is left out from now on.
    pub(super) fn add(&mut self, child: &str, now: Millis) -> bool {
        if self.0.len() >= CHILDREN_MAX {
            self.0.clear();
        }
        let (first, last) = self.0.entry(child.to_owned()).or_insert((now, now));
        // Also if the clock was set back.
        if !(0..FORGOTTEN_AFTER).contains(&(now - *last)) {
            *first = now;
        }
        *last = now;
        now - *first >= LEFT_OUT_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_left_out_after_a_minute_of_faults() {
        let mut disputes = Disputes::default();
        assert!(!disputes.add("a", 0));
        assert!(!disputes.add("a", LEFT_OUT_AFTER - 1));
        assert!(!disputes.add("b", LEFT_OUT_AFTER));
        assert!(disputes.add("a", LEFT_OUT_AFTER));
        assert!(disputes.add("a", LEFT_OUT_AFTER + FORGOTTEN_AFTER - 1));
        assert!(!disputes.add("a", LEFT_OUT_AFTER + 2 * FORGOTTEN_AFTER));
        assert!(!disputes.add("a", 5), "the clock was set back");
    }
}
