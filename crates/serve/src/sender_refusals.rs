//! Counts, per sender, which limits of the server were exceeded.

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};

use crate::refusals::ClientRefusal;

/// How many senders are counted separately; further ones are counted as [`OTHERS`].
const SENDERS_MAX: usize = 200;
const OTHERS: &str = "others";

type RefusalCounts = BTreeMap<&'static str, u64>;

#[derive(Debug, Default)]
pub(crate) struct SenderRefusals {
    senders: Mutex<BTreeMap<String, RefusalCounts>>,
}

impl SenderRefusals {
    pub(crate) fn count(&self, sender: &str, refusal: ClientRefusal) {
        let mut senders = self.lock();
        let is_known = senders.contains_key(sender) || senders.len() < SENDERS_MAX;
        let sender = if is_known { sender } else { OTHERS };
        let counts = senders.entry(sender.to_owned()).or_default();
        *counts.entry(refusal.as_str()).or_default() += 1;
    }

    /// The counts by sender, for `/status`.
    pub(crate) fn all(&self) -> BTreeMap<String, RefusalCounts> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, RefusalCounts>> {
        self.senders.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_counted_by_name_and_there_are_not_too_many() {
        let refusals = SenderRefusals::default();
        refusals.count("uid 7", ClientRefusal::BodySize);
        refusals.count("uid 7", ClientRefusal::BodySize);
        refusals.count("uid 7", ClientRefusal::Connections);
        for uid in 0..1000 {
            refusals.count(&format!("uid {uid}"), ClientRefusal::Connections);
        }
        let all = refusals.all();
        assert_eq!(all["uid 7"]["body_size"], 2);
        assert_eq!(all["uid 7"]["connections"], 2);
        assert_eq!(all.len(), SENDERS_MAX + 1);
        assert_eq!(all[OTHERS]["connections"], 1000 - SENDERS_MAX as u64);
    }
}
