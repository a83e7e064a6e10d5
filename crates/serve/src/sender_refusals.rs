//! Who ran into the server's limits, and into which.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::refusals::ClientRefusal;

/// How many are told apart; further ones are [`OTHERS`].
const SENDERS_MAX: usize = 200;
const OTHERS: &str = "others";

type RefusalCounts = BTreeMap<&'static str, u64>;

#[derive(Debug, Default)]
pub(crate) struct SenderRefusals {
    senders: Mutex<BTreeMap<String, RefusalCounts>>,
}

impl SenderRefusals {
    pub fn count(&self, who: &str, refusal: ClientRefusal) {
        let mut senders = self.lock();
        let is_known = senders.contains_key(who) || senders.len() < SENDERS_MAX;
        let who = if is_known { who } else { OTHERS };
        let counts = senders.entry(who.to_owned()).or_default();
        *counts.entry(refusal.as_str()).or_default() += 1;
    }

    /// By name, for `/status`.
    pub fn all(&self) -> BTreeMap<String, RefusalCounts> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, RefusalCounts>> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_counted_by_name_and_there_are_not_too_many() {
        let limited = SenderRefusals::default();
        limited.count("uid 7", ClientRefusal::BodySize);
        limited.count("uid 7", ClientRefusal::BodySize);
        limited.count("uid 7", ClientRefusal::Connections);
        for uid in 0..1000 {
            limited.count(&format!("uid {uid}"), ClientRefusal::Connections);
        }
        let all = limited.all();
        assert_eq!(all["uid 7"]["body_size"], 2);
        assert_eq!(all["uid 7"]["connections"], 2);
        assert_eq!(all.len(), SENDERS_MAX + 1);
        assert_eq!(all[OTHERS]["connections"], 1000 - SENDERS_MAX as u64);
    }
}
