//! Admission: the check that every new series of a program passes once.
//!
//! All inputs from programs call [`Admission::admit`] before they use a series. It applies the
//! rules, rejects reserved names, claims the name for the input and charges the series to its
//! sender within the limits. It also counts samples in the ledger and on the sender's account:
//! received = kept + dropped, by reason. A series stays charged exactly as long as its
//! [`SeriesPermit`] lives. The memory that programs can make the agent use is bounded here; no
//! input may create series without it.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use pegel_config::{ByteSize, settings};
use pegel_metric::{
    DropReason, Family, Input, Ledger, Level, MetricKind, Series, SeriesError, is_unprintable,
};

use crate::name_owners::{INPUT_LABEL, NameClaim, NameOwners, NameTaken};
use crate::reserved_names::{ReservedNames, USER_LABEL, exported};
use crate::restored_charges::{RestoredCharge, RestoredCharges};
use crate::rules::RelabelRules;
use crate::senders::{Sender, Senders};

/// Longer help texts are cut.
pub(crate) const HELP_BYTES_MAX: usize = 1024;
/// The part of a help text that is covered by the limit of series, as the other fixed costs of a
/// series: most series share such a text with others.
const HELP_BYTES_FREE: usize = 64;

/// A series that a program requests.
#[derive(Debug, Clone, Copy)]
pub struct SeriesSpec<'a> {
    pub name: &'a str,
    /// Labels as the program sent them. Keys that collide with labels added by the agent are
    /// renamed.
    pub labels: &'a [(&'a str, &'a str)],
    /// Labels that the agent adds to distinguish it from other programs' series.
    pub identity: &'a [(&'a str, &'a str)],
    pub kind: MetricKind,
    pub help: &'a str,
    pub level: Level,
    /// The input that writes it.
    pub input: Input,
}

impl SeriesSpec<'_> {
    /// A counter of level 1 without labels and help text.
    pub fn counter(name: &str, input: Input) -> SeriesSpec<'_> {
        SeriesSpec {
            name,
            labels: &[],
            identity: &[],
            kind: MetricKind::Counter,
            help: "",
            level: 1,
            input,
        }
    }
}

/// The reason why a series is not admitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    #[error("dropped by a rule in the configuration (rules)")]
    Rule,
    #[error("metric level {0} exceeds the agent's level {1}")]
    Level(Level, Level),
    #[error("the sender has reached its limit of {0} series (limits.series_per_sender)")]
    SenderLimit(u32),
    #[error("the agent has reached its limit of {0} series (limits.series)")]
    SeriesLimit(u64),
    #[error(
        "names and labels of the sender exceed the limit of {0} bytes (a part of limits.memory)"
    )]
    SenderBytes(u64),
    #[error(
        "names and labels of all programs exceed the limit of {0} bytes (a part of limits.memory)"
    )]
    Bytes(u64),
    #[error("the name or a label contains control or invisible characters")]
    Control,
    #[error(
        "the name is reserved for the node and the agent (node_*, pegel_*, scrape_*, up, and the names in docs/metrics.md)"
    )]
    Reserved,
    #[error("a series with this name and these labels exists with another kind")]
    OtherKind,
    #[error("a series with this name and these labels belongs to another input")]
    OwnedByOtherInput,
    #[error("the sender exceeds limits.sender_bytes")]
    SenderRate,
    #[error(transparent)]
    Series(#[from] SeriesError),
}

impl AdmissionError {
    pub fn reason(&self) -> DropReason {
        match self {
            AdmissionError::Rule => DropReason::Rule,
            AdmissionError::Level(..) => DropReason::Level,
            AdmissionError::SenderLimit(_) | AdmissionError::SenderBytes(_) => {
                DropReason::SenderLimit
            }
            AdmissionError::SeriesLimit(_) => DropReason::SeriesLimit,
            AdmissionError::Bytes(_) => DropReason::Memory,
            AdmissionError::SenderRate => DropReason::SenderRate,
            AdmissionError::Reserved
            | AdmissionError::Control
            | AdmissionError::OtherKind
            | AdmissionError::OwnedByOtherInput
            | AdmissionError::Series(_) => DropReason::BadName,
        }
    }
}

settings! {
    /// The keys of the section `limits` that apply to each sender.
    pub struct SenderLimits {
        /// Maximum number of live series of one sender: a user's programs, or a host that sends
        /// statsd.
        series_per_sender: NonZeroU32 = NonZeroU32::new(50_000).expect("not zero"),
        /// Bytes per second that one sender may have written to disk, averaged over ten minutes;
        /// the agent's user and root are not limited. Values that change more often are stored less
        /// often, further points are rejected. Without this key: keep.bytes per day, and at least
        /// 4KiB.
        sender_bytes: Option<ByteSize> = None => "12KiB",
    }
}

impl SenderLimits {
    /// For tests and measurements: a limit of series, and none of bytes.
    #[doc(hidden)]
    pub fn of_series(count: u32) -> SenderLimits {
        SenderLimits {
            series_per_sender: NonZeroU32::new(count).expect("not zero"),
            sender_bytes: None,
        }
    }
}

/// Settings that apply to all inputs.
#[derive(Debug, Clone)]
pub struct AdmissionSettings {
    pub level: Level,
    pub series_max: u64,
    /// Limits of each sender; without `sender_bytes`, its bytes are not limited.
    pub senders: SenderLimits,
    /// The most bytes that names and labels of all programs' series may take. They are held several
    /// times, and a response that lists all series must have room for them.
    pub text_bytes_max: u64,
    pub rules: RelabelRules,
    /// Names of the node and of the agent, which programs may not use.
    pub reserved: Arc<ReservedNames>,
}

impl AdmissionSettings {
    /// For tests and measurements: limits that few of them reach, no rules and no reserved names.
    #[doc(hidden)]
    pub fn for_tests() -> AdmissionSettings {
        AdmissionSettings {
            level: 3,
            series_max: 1000,
            senders: SenderLimits::default(),
            text_bytes_max: 16 << 20,
            rules: RelabelRules::default(),
            reserved: Arc::default(),
        }
    }
}

#[derive(Debug)]
pub struct Admission {
    settings: AdmissionSettings,
    ledger: Arc<Ledger>,
    senders: Senders,
    owners: Arc<NameOwners>,
    /// Series that were admitted and are still in use.
    usage: Arc<AdmittedUsage>,
    /// Series of the store that did not pass admission.
    other_series: AtomicU64,
    families: FamilyCache,
    restored: Arc<RestoredCharges>,
}

#[derive(Debug, Default)]
struct AdmittedUsage {
    series: AtomicU64,
    text_bytes: AtomicU64,
}

/// An admitted series, charged to its sender as long as this lives.
#[derive(Debug)]
pub struct AdmittedSeries {
    pub series: Arc<Series>,
    pub permit: SeriesPermit,
    /// Whether the series has the label `input`, because its plain name belongs to another input.
    pub has_input_label: bool,
}

/// The charge for one or more series. Released when dropped.
#[derive(Debug)]
pub struct SeriesPermit {
    sender: Arc<Sender>,
    usage: Arc<AdmittedUsage>,
    series: u32,
    text_bytes: u64,
    owners: Arc<NameOwners>,
    claim: Option<NameClaim>,
    /// Whether it charges a total from before a restart.
    is_restored: bool,
}

impl SeriesPermit {
    pub fn sender(&self) -> &Arc<Sender> {
        &self.sender
    }

    /// Turns this into a permit for several series. Each is released with
    /// [`SeriesPermit::release`].
    pub(crate) fn into_shared(mut self) -> SeriesPermit {
        if let Some(claim) = self.claim.take() {
            claim.keep();
        }
        self
    }

    /// Takes over the series of another permit of the same sender: one permit is enough for all of
    /// them.
    pub(crate) fn merge(&mut self, other: SeriesPermit) {
        debug_assert!(Arc::ptr_eq(&self.sender, &other.sender));
        let mut other = other.into_shared();
        self.series += std::mem::take(&mut other.series);
        self.text_bytes += std::mem::take(&mut other.text_bytes);
    }

    /// Releases one of its series. Returns false if it was the last one.
    pub(crate) fn release(&mut self, series: &Series) -> bool {
        let bytes = charged_bytes(series);
        self.release_usage(1, bytes);
        self.owners.release(series.text(), series.family().input);
        self.series -= 1;
        self.text_bytes -= bytes;
        self.series > 0
    }

    /// Releases what [`Admission::charge_key`] charged.
    pub(crate) fn release_key(&mut self, bytes: u64) {
        self.release_usage(0, bytes);
        self.text_bytes -= bytes;
    }

    fn make_name_lasting(&self, series: &Series) {
        if let Some(claim) = self.claim.as_ref().filter(|_| is_name_lasting(series)) {
            claim.make_lasting();
        }
    }

    fn release_usage(&self, series: u32, text_bytes: u64) {
        self.sender.release_series(series);
        self.sender.release_text(text_bytes);
        let held = &self.usage;
        held.series.fetch_sub(u64::from(series), Ordering::Relaxed);
        held.text_bytes.fetch_sub(text_bytes, Ordering::Relaxed);
    }
}

impl Drop for SeriesPermit {
    fn drop(&mut self) {
        self.release_usage(self.series, self.text_bytes);
    }
}

impl Admission {
    pub fn new(settings: AdmissionSettings, ledger: Arc<Ledger>) -> Admission {
        let sender_bytes = settings.senders.sender_bytes.as_ref();
        Admission {
            senders: Senders::new(sender_bytes.map_or(u64::MAX, ByteSize::count)),
            settings,
            ledger,
            owners: Arc::default(),
            usage: Arc::default(),
            other_series: AtomicU64::new(0),
            families: FamilyCache::default(),
            restored: Arc::default(),
        }
    }

    pub fn senders(&self) -> &Senders {
        &self.senders
    }

    pub fn name_owners(&self) -> &NameOwners {
        &self.owners
    }

    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    pub fn level(&self) -> Level {
        self.settings.level
    }

    pub fn sender(&self, input: Input, who: &str) -> Arc<Sender> {
        self.senders.get(input, who)
    }

    /// Counts samples that arrived. Each must later be counted as kept or dropped.
    pub fn count_received(&self, sender: &Sender, count: u64) {
        sender.add_received(count);
        self.ledger.add_received(sender.input, count);
    }

    pub fn count_kept(&self, sender: &Sender, count: u64) {
        self.ledger.add_kept(sender.input, count);
    }

    pub fn count_dropped(&self, sender: &Sender, reason: DropReason, count: u64) {
        sender.add_dropped(reason, count);
        self.ledger.add_dropped(sender.input, reason, count);
    }

    /// Sets the number of series in the store: series that did not pass admission count towards the
    /// limit too.
    pub fn set_store_series_count(&self, stored: u64) {
        let held = self.usage.series.load(Ordering::Relaxed);
        self.other_series
            .store(stored.saturating_sub(held), Ordering::Relaxed);
    }

    /// Applies the rules and the limits to a new series. If another input owns its name, it gets
    /// the label `input`.
    pub fn admit(
        &self,
        sender: &Arc<Sender>,
        offer: &SeriesSpec<'_>,
    ) -> Result<AdmittedSeries, AdmissionError> {
        if offer.level > self.settings.level {
            return Err(AdmissionError::Level(offer.level, self.settings.level));
        }
        let series = self.resolve_series(offer)?;
        match self.permit(sender, &series) {
            Err(AdmissionError::OwnedByOtherInput) => {
                let series = Arc::new(with_input_label(&series)?);
                Ok(AdmittedSeries {
                    permit: self.permit(sender, &series)?,
                    series,
                    has_input_label: true,
                })
            }
            permit => Ok(AdmittedSeries {
                permit: permit?,
                series,
                has_input_label: false,
            }),
        }
    }

    /// Admits a series under exactly this name and these labels, as remote write requires: without
    /// rules, and without the check of reserved names, which the caller does.
    pub(crate) fn admit_as_sent(
        &self,
        sender: &Arc<Sender>,
        family: &Arc<Family>,
        name: &str,
        labels: &[(&str, &str)],
    ) -> Result<AdmittedSeries, AdmissionError> {
        if family.level > self.settings.level {
            return Err(AdmissionError::Level(family.level, self.settings.level));
        }
        Series::check_lengths(name, labels)?;
        check_printable(name, labels)?;
        let series = Arc::new(Series::named(family.clone(), name, labels)?);
        Ok(AdmittedSeries {
            permit: self.permit(sender, &series)?,
            series,
            has_input_label: false,
        })
    }

    /// Charges one more series to this sender, if its name is free and no limit is reached.
    pub fn permit(
        &self,
        sender: &Arc<Sender>,
        series: &Series,
    ) -> Result<SeriesPermit, AdmissionError> {
        let settings = &self.settings;
        let claim = self.claim_name(series)?;
        if let Some(mut permit) = self.restored.take_over(series.text(), sender) {
            permit.claim = claim;
            permit.make_name_lasting(series);
            return Ok(permit);
        }
        let max = settings.senders.series_per_sender.get();
        if !sender.try_reserve_series(max) {
            return Err(AdmissionError::SenderLimit(max));
        }
        // A twentieth is reserved for the node, so that programs cannot prevent a new disk from
        // being shown, and a quarter for the agent's user, root and the node together.
        let reserve = |of_trusted: u64, of_others: u64| {
            if sender.is_trusted() {
                of_trusted
            } else {
                of_others
            }
        };
        let room = settings.series_max - settings.series_max / reserve(20, 4);
        let room = room.saturating_sub(self.other_series.load(Ordering::Relaxed));
        if !try_add(&self.usage.series, 1, room) {
            sender.release_series(1);
            return Err(AdmissionError::SeriesLimit(settings.series_max));
        }
        // From here on, dropping the permit releases everything.
        let mut permit = self.new_permit(sender, 0, claim);
        let bytes = charged_bytes(series);
        self.charge_key(&mut permit, bytes)?;
        if !sender.try_charge(bytes) {
            return Err(AdmissionError::SenderRate);
        }
        permit.make_name_lasting(series);
        Ok(permit)
    }

    /// Charges more bytes to the sender of a permit: what an input keeps of a series besides its
    /// text. A key by which an input finds a series can be longer than the text, which lacks labels
    /// with empty values and those that rules remove.
    pub(crate) fn charge_key(
        &self,
        permit: &mut SeriesPermit,
        bytes: u64,
    ) -> Result<(), AdmissionError> {
        let (all, half) = (
            self.settings.text_bytes_max,
            self.settings.text_bytes_max / 2,
        );
        let sender = &permit.sender;
        if !sender.try_reserve_text(bytes, half) {
            return Err(AdmissionError::SenderBytes(half));
        }
        // A quarter is reserved for the agent's user and root.
        let part = match sender.is_trusted() {
            true => all,
            false => all - all / 4,
        };
        if !try_add(&self.usage.text_bytes, bytes, part) {
            sender.release_text(bytes);
            return Err(AdmissionError::Bytes(all));
        }
        permit.text_bytes += bytes;
        Ok(())
    }

    /// Returns a permit for one series that is already counted; dropping it releases the series and
    /// `text_bytes`.
    fn new_permit(
        &self,
        sender: &Arc<Sender>,
        text_bytes: u64,
        claim: Option<NameClaim>,
    ) -> SeriesPermit {
        SeriesPermit {
            sender: sender.clone(),
            usage: self.usage.clone(),
            series: 1,
            text_bytes,
            owners: self.owners.clone(),
            claim,
            is_restored: false,
        }
    }

    /// Charges a series that was admitted before a restart, beyond all limits: what was counted is
    /// not lost because a user has reached a limit.
    pub fn permit_restored(
        &self,
        sender: &Arc<Sender>,
        series: &Series,
    ) -> Result<SeriesPermit, AdmissionError> {
        let claim = self.claim_name(series)?;
        Ok(self.new_restored_permit(sender, series, claim))
    }

    /// Charges a total of statsd from before a restart to the sender that had it, beyond all
    /// limits: it was within them when it was admitted. The sender takes the charge over with
    /// [`Admission::permit`].
    pub fn charge_restored(&self, sender: &Arc<Sender>, series: &Series) -> RestoredCharge {
        // Where another input owns the name, the total is renamed next.
        let claim = self.claim_name(series).ok().flatten();
        let mut permit = self.new_restored_permit(sender, series, claim);
        permit.is_restored = true;
        self.restored.add(series.text(), permit)
    }

    /// Takes back series that are not used after all: totals from before a restart stay charged.
    pub(crate) fn take_back(&self, series: Vec<AdmittedSeries>) {
        for one in series.into_iter().filter(|one| one.permit.is_restored) {
            self.restored.put_back(one.series.text(), one.permit);
        }
    }

    fn new_restored_permit(
        &self,
        sender: &Arc<Sender>,
        series: &Series,
        claim: Option<NameClaim>,
    ) -> SeriesPermit {
        let text_bytes = charged_bytes(series);
        sender.charge_restored(text_bytes);
        self.usage.series.fetch_add(1, Ordering::Relaxed);
        let held = &self.usage.text_bytes;
        held.fetch_add(text_bytes, Ordering::Relaxed);
        let permit = self.new_permit(sender, text_bytes, claim);
        permit.make_name_lasting(series);
        permit
    }

    fn claim_name(&self, series: &Series) -> Result<Option<NameClaim>, AdmissionError> {
        let claim = self.owners.claim(series.text(), series.family().input);
        claim.map_err(|NameTaken| AdmissionError::OwnedByOtherInput)
    }

    /// Returns the series under which a request is stored, after the rules. It is not charged to
    /// any sender yet.
    pub fn resolve_series(&self, offer: &SeriesSpec<'_>) -> Result<Arc<Series>, AdmissionError> {
        Series::check_lengths(offer.name, offer.labels)?;
        let borrowed = |&(key, value)| (Cow::Borrowed(key), Cow::Borrowed(value));
        let mut labels = exported(offer.labels);
        labels.extend(offer.identity.iter().map(borrowed));
        let ruled = self.settings.rules.apply(offer.name, labels);
        let (name, labels) = ruled.ok_or(AdmissionError::Rule)?;
        let labels = labels.iter().map(|(key, value)| (&**key, &**value));
        let is_implied = |&(key, value): &_| self.settings.reserved.is_implied(key, value);
        let labels: Vec<(&str, &str)> = labels.filter(|label| !is_implied(label)).collect();
        self.build_series(&name, &labels, offer)
    }

    /// Rejects names of the node and of the agent.
    pub fn check_reserved(&self, name: &str) -> Result<(), AdmissionError> {
        if self.settings.reserved.contains(name) {
            Err(AdmissionError::Reserved)
        } else {
            Ok(())
        }
    }

    /// Returns whether labels name another system than this node.
    pub(crate) fn is_of_other_instance(&self, labels: &[(&str, &str)]) -> bool {
        self.settings.reserved.is_of_other_instance(labels)
    }

    fn build_series(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        offer: &SeriesSpec<'_>,
    ) -> Result<Arc<Series>, AdmissionError> {
        // The configuration names the endpoints that are scraped: metrics of another system keep
        // their names. As those of remote write, only PromQL reads them.
        let is_reserved = self.settings.reserved.contains(name);
        let is_foreign = is_reserved
            && offer.input == Input::Pull
            && self.settings.reserved.is_of_other_instance(labels);
        if is_reserved && !is_foreign {
            return Err(AdmissionError::Reserved);
        }
        check_printable(name, labels)?;
        let offer = &SeriesSpec {
            input: match is_foreign {
                true => Input::RemoteWrite,
                false => offer.input,
            },
            ..*offer
        };
        let family = self.families.get(offer);
        Ok(Arc::new(Series::named(family, name, labels)?))
    }
}

/// Returns the bytes for which a series is charged: its text, and the part of its help text that
/// exceeds [`HELP_BYTES_FREE`].
fn charged_bytes(series: &Series) -> u64 {
    let help = series.family().help.len().saturating_sub(HELP_BYTES_FREE);
    (series.text().len() + help) as u64
}

/// Cuts a help text that is too long.
pub(crate) fn cut_help(help: &str) -> &str {
    let mut end = help.len().min(HELP_BYTES_MAX);
    while !help.is_char_boundary(end) {
        end -= 1;
    }
    &help[..end]
}

/// Rejects control and invisible characters. They would reach the terminals of users, and an
/// invisible character makes a name look like another one.
fn check_printable(name: &str, labels: &[(&str, &str)]) -> Result<(), AdmissionError> {
    let mut texts = labels.iter().flat_map(|(key, value)| [*key, *value]);
    if name.contains(is_unprintable) || texts.any(|text| text.contains(is_unprintable)) {
        return Err(AdmissionError::Control);
    }
    Ok(())
}

/// Returns whether the name of a series stays with its input after its last use. See
/// [`crate::name_owners`].
pub(crate) fn is_name_lasting(series: &Series) -> bool {
    !series.labels().any(|(key, _)| key == USER_LABEL)
}

/// Returns the same series with the label `input`.
pub(crate) fn with_input_label(series: &Series) -> Result<Series, SeriesError> {
    let labels: Vec<(&str, Cow<'_, str>)> = series.labels().collect();
    let own = (INPUT_LABEL, series.family().input.as_str());
    let labels: Vec<(&str, &str)> = labels
        .iter()
        .map(|(key, value)| (*key, &**value))
        .chain([own])
        .collect();
    Series::named(series.family().clone(), series.name(), &labels)
}

/// Adds `more` unless the sum exceeds `max`.
pub(crate) fn try_add(held: &AtomicU64, more: u64, max: u64) -> bool {
    let raised = |held: u64| held.checked_add(more).filter(|sum| *sum <= max);
    held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, raised)
        .is_ok()
}

/// Recently used families, so that series share them. They have no names: most programs send no
/// description of their metrics, so that one family serves all of a kind.
#[derive(Debug)]
struct FamilyCache {
    hasher: RandomState,
    recent: Mutex<Vec<Option<Arc<Family>>>>,
}

const FAMILY_CACHE_SIZE: usize = 256;

impl Default for FamilyCache {
    fn default() -> FamilyCache {
        FamilyCache {
            hasher: RandomState::new(),
            recent: Mutex::new(vec![None; FAMILY_CACHE_SIZE]),
        }
    }
}

impl FamilyCache {
    fn get(&self, offer: &SeriesSpec<'_>) -> Arc<Family> {
        let help = cut_help(offer.help);
        let wanted = (offer.kind, help, offer.level, offer.input);
        let at = (self.hasher.hash_one(wanted) % FAMILY_CACHE_SIZE as u64) as usize;
        let mut recent = self.recent.lock();
        let is_same = |family: &&Arc<Family>| {
            (family.kind, &*family.help, family.level, family.input) == wanted
        };
        if let Some(family) = recent[at].as_ref().filter(is_same) {
            return family.clone();
        }
        let family = Arc::new(Family {
            name: Cow::Borrowed(""),
            kind: offer.kind,
            help: match help {
                "" => Cow::Borrowed(""),
                help => {
                    Cow::Owned(help.replace(|c: char| c.is_control() || is_unprintable(c), " "))
                }
            },
            unit: Cow::Borrowed(""),
            level: offer.level,
            input: offer.input,
        });
        recent[at] = Some(family.clone());
        family
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(series_max: u64, series_per_sender: u32) -> Admission {
        let settings = AdmissionSettings {
            series_max,
            senders: SenderLimits::of_series(series_per_sender),
            text_bytes_max: 1000,
            reserved: Arc::new(ReservedNames::new(["load_average"]).of_node("nid1")),
            ..AdmissionSettings::for_tests()
        };
        Admission::new(settings, Arc::default())
    }

    fn offer(name: &str) -> SeriesSpec<'_> {
        SeriesSpec::counter(name, Input::Statsd)
    }

    #[test]
    fn limits_hold_for_each_sender_and_for_all() {
        let admission = admission(3, 2);
        let (a, b) = (
            admission.sender(Input::Statsd, "a"),
            admission.sender(Input::Statsd, "b"),
        );
        let first = admission.admit(&a, &offer("x")).expect("room");
        let _second = admission.admit(&a, &offer("y")).expect("room");
        assert_eq!(
            admission.admit(&a, &offer("z")).expect_err("full"),
            AdmissionError::SenderLimit(2)
        );
        let _third = admission.admit(&b, &offer("x")).expect("room");
        assert_eq!(
            admission.admit(&b, &offer("y")).expect_err("full"),
            AdmissionError::SeriesLimit(3)
        );
        assert_eq!(b.series(), 1, "a refused series is charged to no sender");
        drop(first);
        admission.admit(&b, &offer("y")).expect("room again");
    }

    #[test]
    fn only_a_scraped_system_with_another_instance_may_use_names_of_the_node() {
        let admission = admission(10, 10);
        let a = admission.sender(Input::Pull, "input a");
        let admit = |input, labels| {
            let offer = SeriesSpec {
                labels,
                ..SeriesSpec::counter("node_load1", input)
            };
            admission
                .admit(&a, &offer)
                .map(|one| one.series.text().to_owned())
        };
        let other: &[(&str, &str)] = &[("instance", "n2:9100")];
        assert_eq!(
            admit(Input::Pull, other),
            Ok("node_load1{instance=\"n2:9100\"}".to_owned())
        );
        assert_eq!(admit(Input::Pull, &[]), Err(AdmissionError::Reserved));
        assert_eq!(
            admit(Input::Pull, &[("instance", "nid1")]),
            Err(AdmissionError::Reserved)
        );
        for input in [Input::Put, Input::Statsd, Input::Lane] {
            assert_eq!(admit(input, other), Err(AdmissionError::Reserved));
        }
    }

    #[test]
    fn no_name_or_label_has_control_or_invisible_characters() {
        let admission = admission(10, 10);
        let a = admission.sender(Input::Statsd, "a");
        for c in [
            "\u{1b}",
            "\u{200b}",
            "\u{202e}",
            "\u{2028}",
            "\u{feff}",
            "\u{e0041}",
        ] {
            let text = format!("n{c}ode_load1");
            let refused = admission.admit(&a, &offer(&text)).map(drop);
            let reason = refused.map_err(|error| error.reason());
            assert_eq!(reason, Err(DropReason::BadName));
            for label in [("k", &*text), (&*text, "v")] {
                let labels = [label];
                let spec = SeriesSpec {
                    labels: &labels,
                    ..offer("x")
                };
                assert!(admission.admit(&a, &spec).is_err(), "{label:?}");
            }
        }
    }

    #[test]
    fn the_nodes_own_series_take_room() {
        let admission = admission(10, 100);
        admission.set_store_series_count(7);
        let a = admission.sender(Input::Lane, "a");
        let _first = admission.admit(&a, &offer("x")).expect("room");
        assert!(admission.admit(&a, &offer("y")).is_err());
        admission.set_store_series_count(8);
        assert!(
            admission.admit(&a, &offer("y")).is_err(),
            "one of the eight is the agent's"
        );
        admission.set_store_series_count(5);
        assert!(admission.admit(&a, &offer("y")).is_ok());
    }

    #[test]
    fn strangers_that_fill_their_part_leave_room_for_the_agents_user_and_root() {
        let admission = admission(20, 100);
        let stranger = admission.sender(Input::Statsd, "127.0.0.1");
        let names: Vec<String> = (0..20).map(|at| format!("s{at}")).collect();
        let fill = |sender| -> Vec<AdmittedSeries> {
            let offers = names
                .iter()
                .map(|name| admission.admit(sender, &offer(name)));
            offers.filter_map(Result::ok).collect()
        };
        let held = fill(&stranger);
        assert_eq!(held.len(), 15);
        for at in 0..2000 {
            admission.sender(Input::Statsd, &at.to_string());
        }
        let root = admission.sender(Input::Put, "uid 0");
        assert_eq!(&*root.name, "uid 0", "accounts are not used up");
        assert_eq!(fill(&root).len(), 4, "one is reserved for the node");
        // After a restart the series are still in the store, but have no sender.
        drop(held);
        admission.set_store_series_count(15);
        assert_eq!(fill(&stranger).len(), 0);
        assert_eq!(fill(&root).len(), 4);
    }

    #[test]
    fn a_name_belongs_to_one_input_and_the_other_gets_a_label() {
        let admission = admission(10, 10);
        let a = admission.sender(Input::Statsd, "a");
        let of = |input| SeriesSpec {
            input,
            ..offer("x")
        };
        let lane = admission.admit(&a, &of(Input::Lane)).expect("room");
        let other = admission.admit(&a, &of(Input::Statsd)).expect("room");
        assert_eq!(other.series.text(), "x{input=\"statsd\"}");
        assert!(other.has_input_label && !lane.has_input_label);
        let labels = &[("input", "statsd")];
        let labelled = SeriesSpec {
            labels,
            ..of(Input::Put)
        };
        let forged = admission.admit(&a, &labelled).expect("another name");
        assert_eq!(forged.series.text(), "x{exported_input=\"statsd\"}");
        drop(lane);
        let still = admission.admit(&a, &of(Input::Statsd)).expect("room");
        assert!(still.has_input_label, "its samples are in the store");
        admission.name_owners().forget_unused(0, 0);
        admission.name_owners().forget_unused(1, 0);
        let plain = admission.admit(&a, &of(Input::Statsd)).expect("room");
        assert_eq!(plain.series.text(), "x");
    }

    #[test]
    fn a_label_that_other_outputs_add_anyway_gives_no_second_series() {
        let admission = admission(10, 10);
        let a = admission.sender(Input::Statsd, "a");
        let of = |input, labels| SeriesSpec {
            input,
            labels,
            ..offer("x")
        };
        let _lane = admission.admit(&a, &of(Input::Lane, &[])).expect("room");
        for labels in [&[("host", "nid1")], &[("phase", "")]] {
            let forged = admission
                .admit(&a, &of(Input::Statsd, labels))
                .expect("room");
            assert_eq!(forged.series.text(), "x{input=\"statsd\"}");
        }
        let labels = &[("host", "nid2")];
        let other = admission.admit(&a, &of(Input::Put, labels)).expect("room");
        assert_eq!(other.series.text(), "x{host=\"nid2\"}");
    }

    #[test]
    fn names_without_end_have_a_bound_for_each_sender_and_for_all() {
        let admission = admission(100, 100);
        let senders = ["a", "b", "uid 0"].map(|who| admission.sender(Input::Statsd, who));
        let long = "x".repeat(300);
        let mut held = Vec::new();
        for sender in &senders {
            held.push(admission.admit(sender, &offer(&long)));
        }
        assert!(held.iter().all(Result::is_ok));
        let refused = admission
            .admit(&senders[0], &offer(&long))
            .expect_err("its half");
        assert_eq!(refused, AdmissionError::SenderBytes(500));
        let other = admission.sender(Input::Put, "d");
        let refused = admission.admit(&other, &offer(&long)).expect_err("all");
        assert_eq!(
            (&refused, refused.reason()),
            (&AdmissionError::Bytes(1000), DropReason::Memory)
        );
        assert_eq!(other.series(), 0);
        held.truncate(1);
        admission.admit(&other, &offer(&long)).expect("room again");
    }

    #[test]
    fn long_help_texts_are_cut_and_charged() {
        let admission = admission(100, 100);
        let stranger = admission.sender(Input::Pushgateway, "127.0.0.1");
        let with_help = |name, help| {
            let offer = SeriesSpec {
                help,
                ..offer(name)
            };
            admission.admit(&stranger, &offer)
        };
        let long = "ü".repeat(HELP_BYTES_MAX);
        let refused = with_help("a", &long).expect_err("cut, and beyond its half");
        assert_eq!(refused, AdmissionError::SenderBytes(500));
        let series = admission.families.get(&SeriesSpec {
            help: &long,
            ..offer("a")
        });
        assert_eq!(series.help.len(), HELP_BYTES_MAX);
        let text = "h".repeat(HELP_BYTES_FREE + 300);
        let first = with_help("a", &text).expect("room");
        let refused = with_help("b", &text).expect_err("its half");
        assert_eq!(refused.reason(), DropReason::SenderLimit);
        with_help("c", &text[..HELP_BYTES_FREE]).expect("room for short texts");
        drop(first);
        assert_eq!(admission.usage.text_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn totals_from_before_a_restart_are_charged_to_their_senders() {
        let admission = admission(20, 3);
        let charge = |sender: &Arc<Sender>, name: &str| {
            let series = admission.resolve_series(&offer(name)).expect("valid");
            admission.charge_restored(sender, &series)
        };
        let stranger = admission.sender(Input::Statsd, "127.0.0.1");
        let other = admission.sender(Input::Statsd, "10.0.0.7");
        let long = "x".repeat(300);
        let mut held = vec![
            charge(&stranger, &long),
            charge(&stranger, "a"),
            charge(&stranger, "b"),
        ];
        let full = AdmissionError::SenderLimit(3);
        let refused = admission.admit(&stranger, &offer("c")).expect_err("full");
        assert_eq!(refused, full);
        let own = admission.admit(&stranger, &offer(&long)).expect("its own");
        assert_eq!(stranger.series(), 3, "charged once");
        held.remove(0);
        assert_eq!(stranger.series(), 3, "the series is in use");
        let theirs = admission.admit(&other, &offer("a")).expect("room");
        assert_eq!((stranger.series(), other.series()), (3, 1));
        drop(held);
        assert_eq!(stranger.series(), 1);
        drop((own, theirs));
        assert_eq!(admission.usage.series.load(Ordering::Relaxed), 0);
        assert_eq!(admission.usage.text_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn one_pass_may_stand_for_many_series() {
        let admission = admission(10, 10);
        let a = admission.sender(Input::Statsd, "a");
        let [one, two] =
            ["one", "second"].map(|name| admission.admit(&a, &offer(name)).expect("room"));
        let mut permit = one.permit;
        permit.merge(two.permit);
        let held = || {
            let text_bytes = admission.usage.text_bytes.load(Ordering::Relaxed);
            (
                a.series(),
                admission.usage.series.load(Ordering::Relaxed),
                text_bytes,
            )
        };
        assert_eq!(held(), (2, 2, 9));
        assert!(permit.release(&two.series));
        assert_eq!(held(), (1, 1, 3));
        assert!(!permit.release(&one.series));
        assert_eq!(held(), (0, 0, 0));
        drop(permit);
        assert_eq!(held(), (0, 0, 0));
    }

    #[test]
    fn series_of_which_the_same_is_known_share_their_family() {
        let admission = admission(10, 10);
        let a = admission.sender(Input::Lane, "a");
        let one = admission.admit(&a, &offer("x")).expect("room");
        let two = admission.admit(&a, &offer("y")).expect("room");
        assert!(Arc::ptr_eq(one.series.family(), two.series.family()));
        assert_eq!((one.series.name(), two.series.name()), ("x", "y"));
        let explained = SeriesSpec {
            help: "Why.",
            ..offer("z")
        };
        let explained = admission.admit(&a, &explained).expect("room");
        assert_eq!(explained.series.family().help, "Why.");
        let gauge = SeriesSpec {
            kind: MetricKind::Gauge,
            ..offer("x")
        };
        let gauge = admission.admit(&a, &gauge).expect("room");
        assert_eq!(gauge.series.family().kind, MetricKind::Gauge);
    }

    #[test]
    fn what_is_refused_has_a_reason() {
        let admission = admission(10, 10);
        let a = admission.sender(Input::Put, "a");
        let refused = |offer| admission.admit(&a, &offer).expect_err("refused").reason();
        assert_eq!(
            refused(SeriesSpec {
                level: 4,
                ..offer("x")
            }),
            DropReason::Level
        );
        assert_eq!(refused(offer("")), DropReason::BadName);
        assert_eq!(refused(offer("node.load1")), DropReason::BadName);
        assert_eq!(refused(offer("load_average")), DropReason::BadName);
        assert_eq!(refused(offer("a\u{0}")), DropReason::BadName);
        let labels = &[("l", "\u{1b}[2J")];
        assert_eq!(
            refused(SeriesSpec {
                labels,
                ..offer("x")
            }),
            DropReason::BadName
        );
    }
}
