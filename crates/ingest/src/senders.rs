//! Senders: a user's programs, or a host. Each has its own account and limits, so that a sender
//! that floods the agent is identified and cannot crowd out the others.
//!
//! [`Senders`] creates accounts on first use; [`crate::admission`] charges them. Counts are atomic
//! and are updated without a lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use pegel_config::UserInfo;
use pegel_metric::{DropReason, Input, Millis};
use serde::Serialize;

use crate::admission::try_add;

/// The most senders that are distinguished. Further ones share the account [`OTHER_SENDERS`].
const SENDERS_MAX: usize = 1000;
pub const OTHER_SENDERS: &str = "others";
/// The account of senders that neither the kernel nor an address identifies.
pub(crate) const UNKNOWN_SENDER: &str = "unknown";

/// The approximate maximum size of a stored current value in the log: a difference to the previous
/// one.
pub(crate) const SAMPLE_BYTES: u64 = 8;
/// The same for a row of current values that a sender waits for, besides its values.
pub(crate) const ROW_BYTES: u64 = 16;
/// The same for a point with its own timestamp.
pub(crate) const POINT_BYTES: u64 = 16;
/// A sender that was idle may write the bytes of this many seconds at once.
const BURST_SECONDS: i64 = 600;

/// The account of one sender.
#[derive(Debug)]
pub struct Sender {
    pub input: Input,
    pub name: Box<str>,
    is_trusted: bool,
    user: Option<Box<str>>,
    received: AtomicU64,
    series: AtomicU32,
    usage: Arc<SenderUsage>,
    delayed: AtomicU64,
    dropped: [AtomicU64; DropReason::ALL.len()],
}

/// What limits apply to: of one sender, or of all inputs of one user.
#[derive(Debug)]
struct SenderUsage {
    series: AtomicU32,
    text_bytes: AtomicU64,
    /// The bytes that may be written now. Increased by [`Senders::refill`].
    allowance: AtomicI64,
}

impl SenderUsage {
    fn new(allowance: i64) -> Arc<SenderUsage> {
        Arc::new(SenderUsage {
            series: AtomicU32::new(0),
            text_bytes: AtomicU64::new(0),
            allowance: AtomicI64::new(allowance),
        })
    }
}

impl Sender {
    fn new(input: Input, who: &str, usage: Arc<SenderUsage>) -> Arc<Sender> {
        Arc::new(Sender {
            usage,
            delayed: AtomicU64::new(0),
            input,
            name: who.into(),
            is_trusted: is_trusted(who),
            user: other_user(input, who),
            received: AtomicU64::new(0),
            series: AtomicU32::new(0),
            dropped: std::array::from_fn(|_| AtomicU64::new(0)),
        })
    }

    /// Returns whether it is the agent's user or root, for whom a part of shared pools is reserved.
    /// Known only if the kernel identifies the sender.
    pub fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    /// Returns the value of the label `user` of its points and pushes: no user writes to the series
    /// of another.
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    pub(crate) fn add_received(&self, count: u64) {
        self.received.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn add_dropped(&self, reason: DropReason, count: u64) {
        self.dropped[reason as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// Charges the sender for bytes to be written. Returns false if its allowance is used up.
    pub(crate) fn try_charge(&self, bytes: u64) -> bool {
        let take = |left: i64| (left > 0).then_some(left - bytes as i64);
        self.is_trusted
            || self
                .usage
                .allowance
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .is_ok()
    }

    /// Charges the sender for bytes that are written in any case: its next writes are delayed until
    /// the debt is refilled.
    pub(crate) fn charge(&self, bytes: u64) {
        if !self.is_trusted {
            self.usage
                .allowance
                .fetch_sub(bytes as i64, Ordering::Relaxed);
        }
    }

    /// Counts changed values that are stored later because [`Sender::try_charge`] returned false.
    pub(crate) fn add_delayed(&self, count: u64) {
        self.delayed.fetch_add(count, Ordering::Relaxed);
    }

    pub fn series(&self) -> u32 {
        self.series.load(Ordering::Relaxed)
    }

    pub(crate) fn try_reserve_text(&self, bytes: u64, max: u64) -> bool {
        try_add(&self.usage.text_bytes, bytes, max)
    }

    pub(crate) fn release_text(&self, bytes: u64) {
        self.usage.text_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Charges one more series. Returns false if the sender has `max` already.
    pub(crate) fn try_reserve_series(&self, max: u32) -> bool {
        let more = |series| (series < max).then_some(series + 1);
        let all = &self.usage.series;
        let reserved = all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        if reserved.is_ok() {
            self.series.fetch_add(1, Ordering::Relaxed);
        }
        reserved.is_ok()
    }

    /// Charges a series that was admitted before a restart, beyond all limits.
    pub(crate) fn charge_restored(&self, text_bytes: u64) {
        self.series.fetch_add(1, Ordering::Relaxed);
        self.usage.series.fetch_add(1, Ordering::Relaxed);
        let held = &self.usage.text_bytes;
        held.fetch_add(text_bytes, Ordering::Relaxed);
    }

    pub(crate) fn release_series(&self, count: u32) {
        self.series.fetch_sub(count, Ordering::Relaxed);
        self.usage.series.fetch_sub(count, Ordering::Relaxed);
    }
}

/// Returns the user of an account named `uid N`: users identified by the kernel.
fn uid_of(who: &str) -> Option<u32> {
    who.strip_prefix("uid ").and_then(|uid| uid.parse().ok())
}

fn is_trusted(who: &str) -> bool {
    uid_of(who).is_some_and(|uid| uid == 0 || uid == rustix::process::geteuid().as_raw())
}

/// Returns the user if it is not the agent's. statsd sums the lines of all senders, so it does not
/// distinguish users.
fn other_user(input: Input, who: &str) -> Option<Box<str>> {
    match uid_of(who) {
        _ if input == Input::Statsd => None,
        None if who == OTHER_SENDERS => Some(OTHER_SENDERS.into()),
        uid => other_user_name(uid?).map(String::into_boxed_str),
    }
}

/// Returns the name of a user other than the agent's, or its number if it has no name.
pub(crate) fn other_user_name(uid: u32) -> Option<String> {
    let is_own = uid == rustix::process::geteuid().as_raw();
    (!is_own).then(|| {
        UserInfo::lookup(uid)
            .name
            .unwrap_or_else(|| uid.to_string())
    })
}

/// Returns the account of the user that [`other_user_name`] names, or of the agent's user. `None`
/// if there is no such user any more.
pub(crate) fn account_of(user: Option<&str>) -> Option<String> {
    let uid = match user {
        None => rustix::process::geteuid().as_raw(),
        Some(user) => UserInfo::uid_of(user).or_else(|| user.parse().ok())?,
    };
    Some(format!("uid {uid}"))
}

/// One sender, as shown in `/status`.
#[derive(Debug, Serialize)]
pub struct SenderStatus {
    pub input: &'static str,
    pub sender: String,
    pub received: u64,
    pub series: u32,
    /// How often a changed value was stored later than its tick, because of `limits.sender_bytes`.
    pub delayed: u64,
    /// Only reasons that occurred.
    pub dropped: std::collections::BTreeMap<&'static str, u64>,
}

type SenderMap = HashMap<(Input, Box<str>), Arc<Sender>>;

#[derive(Debug, Default)]
struct SenderTable {
    senders: SenderMap,
    /// Usage by account: all inputs of a user have one, so that a user is not several senders.
    usages: HashMap<(Option<Input>, Box<str>), Arc<SenderUsage>>,
}

impl SenderTable {
    /// The agent's user and root have the limits of a sender with each input. Senders that the
    /// kernel does not identify are distinguished by input.
    fn usage(&mut self, input: Input, who: &str, allowance: i64) -> Arc<SenderUsage> {
        let is_user = uid_of(who).is_some() && !is_trusted(who);
        let account = ((!is_user).then_some(input), who.into());
        let usage = self.usages.entry(account);
        usage.or_insert_with(|| SenderUsage::new(allowance)).clone()
    }
}

/// All senders.
#[derive(Debug)]
pub struct Senders {
    table: Mutex<SenderTable>,
    /// The bytes that each sender may write per second.
    bytes_per_second: i64,
    refilled: Mutex<Millis>,
}

impl Senders {
    pub fn new(bytes_per_second: u64) -> Senders {
        Senders {
            table: Mutex::default(),
            bytes_per_second: i64::try_from(bytes_per_second)
                .unwrap_or(i64::MAX)
                .min(i64::MAX / BURST_SECONDS),
            refilled: Mutex::new(Millis::MAX),
        }
    }

    /// Adds to every sender's allowance for the time since the last call.
    pub fn refill(&self, now: Millis) {
        let mut refilled = self.refilled.lock();
        // A clock that was set forward adds at most a burst, one that was set back adds nothing.
        let elapsed = now.saturating_sub(std::mem::replace(&mut *refilled, now));
        let elapsed = elapsed.clamp(0, BURST_SECONDS * 1000);
        let more = self.bytes_per_second.saturating_mul(elapsed) / 1000;
        let max = self.bytes_per_second * BURST_SECONDS;
        for usage in self.lock().usages.values() {
            let refill = |left: i64| Some(left.saturating_add(more).clamp(-max, max));
            let _ = usage
                .allowance
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, refill);
        }
    }

    pub fn get(&self, input: Input, who: &str) -> Arc<Sender> {
        let mut table = self.lock();
        let known = &mut table.senders;
        if let Some(sender) = known.get(&(input, who.into())) {
            return sender.clone();
        }
        // The agent's user and root always get accounts, however many others there are.
        let is_full = |known: &SenderMap| known.len() >= SENDERS_MAX && !is_trusted(who);
        if is_full(known) {
            // Senders without series and connections are removed; their drops stay in the ledger.
            known.retain(|_, sender| {
                sender.is_trusted || sender.series() > 0 || Arc::strong_count(sender) > 1
            });
        }
        let who = if is_full(known) { OTHER_SENDERS } else { who };
        let usages = &mut table.usages;
        if usages.len() >= SENDERS_MAX {
            usages.retain(|_, usage| Arc::strong_count(usage) > 1);
        }
        let usage = table.usage(input, who, self.bytes_per_second * BURST_SECONDS);
        let sender = table.senders.entry((input, who.into()));
        sender
            .or_insert_with(|| Sender::new(input, who, usage))
            .clone()
    }

    /// Returns every sender that sent something, the one with the most series first.
    pub fn statuses(&self) -> Vec<SenderStatus> {
        let table = self.lock();
        let accounts = table.senders.values().map(|sender| status_of(sender));
        let has_sent = |account: &SenderStatus| {
            account.received > 0 || account.series > 0 || !account.dropped.is_empty()
        };
        let mut accounts: Vec<SenderStatus> = accounts.filter(has_sent).collect();
        accounts
            .sort_by(|a, b| (b.series, &a.sender, a.input).cmp(&(a.series, &b.sender, b.input)));
        accounts
    }

    fn lock(&self) -> MutexGuard<'_, SenderTable> {
        self.table.lock()
    }
}

fn status_of(sender: &Sender) -> SenderStatus {
    let dropped = DropReason::ALL.iter().map(|&reason| {
        let count = sender.dropped[reason as usize].load(Ordering::Relaxed);
        (reason.as_str(), count)
    });
    SenderStatus {
        input: sender.input.as_str(),
        sender: sender.name.to_string(),
        received: sender.received.load(Ordering::Relaxed),
        series: sender.series(),
        delayed: sender.delayed.load(Ordering::Relaxed),
        dropped: dropped.filter(|(_, count)| *count > 0).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_cannot_have_more_series_than_it_may() {
        let senders = Senders::new(1000);
        let sender = senders.get(Input::Statsd, "127.0.0.1");
        assert!(sender.try_reserve_series(2) && sender.try_reserve_series(2));
        assert!(!sender.try_reserve_series(2));
        sender.release_series(1);
        assert_eq!(sender.series(), 1);
        assert!(sender.try_reserve_series(2));
        assert!(Arc::ptr_eq(
            &sender,
            &senders.get(Input::Statsd, "127.0.0.1")
        ));
        assert!(!Arc::ptr_eq(&sender, &senders.get(Input::Put, "127.0.0.1")));
    }

    #[test]
    fn senders_without_end_share_an_account() {
        let senders = Senders::new(1000);
        let held: Vec<_> = (0..SENDERS_MAX)
            .map(|at| senders.get(Input::Statsd, &at.to_string()))
            .collect();
        assert_eq!(&*senders.get(Input::Statsd, "one more").name, OTHER_SENDERS);
        drop(held);
        assert_eq!(&*senders.get(Input::Statsd, "another").name, "another");
    }

    #[test]
    fn what_a_sender_writes_is_bounded_except_for_the_agents_user_and_root() {
        let senders = Senders::new(1000);
        let (stranger, root) = (
            senders.get(Input::Statsd, "127.0.0.1"),
            senders.get(Input::Put, "uid 0"),
        );
        let written = |sender: &Sender| (0..2000).filter(|_| sender.try_charge(1000)).count();
        senders.refill(0);
        assert_eq!((written(&stranger), written(&root)), (600, 2000));
        senders.refill(5_000);
        senders.refill(6_000);
        assert_eq!(written(&stranger), 6);
        senders.refill(i64::MAX);
        assert_eq!(written(&stranger), 600, "at most a burst");
        senders.refill(0);
        assert_eq!(written(&stranger), 0, "the clock was set back");
    }

    #[test]
    fn a_user_is_one_sender_whatever_inputs_it_uses() {
        let senders = Senders::new(10);
        let [put, push] =
            [Input::Put, Input::Push].map(|input| senders.get(input, "uid 4000000001"));
        assert!(put.try_reserve_series(2) && push.try_reserve_series(2));
        assert!(!put.try_reserve_series(2) && !push.try_reserve_series(2));
        assert_eq!((put.series(), push.series()), (1, 1), "shown by input");
        assert!(put.try_reserve_text(5, 8) && !push.try_reserve_text(5, 8));
        assert!(put.try_charge(6000) && !push.try_charge(1));
        senders.refill(0);
        senders.refill(1000);
        assert!(push.try_charge(10) && !put.try_charge(1), "refilled once");
        put.release_series(1);
        assert!(push.try_reserve_series(2));
        let root = [Input::Put, Input::Push].map(|input| senders.get(input, "uid 0"));
        assert!(root.iter().all(|sender| sender.try_reserve_series(1)));
        let hosts = [Input::Put, Input::Statsd].map(|input| senders.get(input, "127.0.0.1"));
        assert!(hosts.iter().all(|sender| sender.try_reserve_series(1)));
    }

    #[test]
    fn the_account_of_a_user_is_found_by_the_label_of_its_series() {
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(account_of(None), Some(format!("uid {own}")));
        assert_eq!(account_of(Some("root")).as_deref(), Some("uid 0"));
        let nameless = "4000000001";
        let account = account_of(Some(nameless)).expect("a number is enough");
        assert_eq!(other_user(Input::Lane, &account).as_deref(), Some(nameless));
        assert_eq!(account_of(Some("no such user")), None);
    }

    #[test]
    fn accounts_say_who_dropped_what() {
        let senders = Senders::new(1000);
        let small = senders.get(Input::Push, "uid 1");
        let large = senders.get(Input::Lane, "uid 2");
        assert!(large.try_reserve_series(9));
        small.add_received(3);
        small.add_dropped(DropReason::Rule, 2);
        let accounts = senders.statuses();
        assert_eq!(
            (accounts[0].sender.as_str(), accounts[0].series),
            ("uid 2", 1)
        );
        assert_eq!(accounts[1].received, 3);
        assert_eq!(accounts[1].dropped.get("rule"), Some(&2));
    }
}
