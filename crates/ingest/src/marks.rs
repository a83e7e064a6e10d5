//! Marks and phases of programs, received as DogStatsD events.
//!
//! An event is a mark at its time (`d:`, otherwise now). With the tag `kind:phase` it begins a
//! phase, with `state:end` it ends one. Datagrams and streams only queue events, so that receiving
//! never waits for a disk: the thread `marks` stores them and counts the result in the ledger. The
//! lines of the push socket are acknowledged, so they are stored at once.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex};
use pegel_metric::{DropReason, Millis};
use pegel_wire::statsd::StatsdEvent;

use crate::admission::Admission;
use crate::senders::Sender;

/// The most queued marks, and their memory. Further ones are dropped and counted.
const QUEUE_MAX: usize = 4_096;
const QUEUE_BYTES_MAX: usize = 8 << 20;
/// What a mark takes in the file besides its text.
const RECORD_BYTES: usize = 128;
/// The tag with the kind of a mark, and that with the part of a phase.
const KIND_TAG: &str = "kind";
const STATE_TAG: &str = "state";

/// A mark, the begin or the end of a phase, as a program sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncomingMark {
    pub step: MarkStep,
    pub text: String,
    pub notes: String,
    /// In milliseconds since 1970; `None`: when it arrived.
    pub time: Option<Millis>,
    /// The process that sent it, if the kernel reports it.
    pub pid: Option<u32>,
    pub labels: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkStep {
    Mark,
    PhaseBegin,
    PhaseEnd,
}

/// Keeps marks. The agent implements it with its annotations.
pub trait MarkStore: Send + Sync + fmt::Debug {
    /// Stores a mark of a sender. Waits for the disk.
    fn store(&self, sender: &Sender, mark: IncomingMark) -> Result<(), MarkRefusal>;
}

/// Why a mark was not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkRefusal {
    pub reason: DropReason,
    pub message: String,
}

impl IncomingMark {
    /// Converts an event of a client. Unknown fields are ignored, as in DogStatsD.
    pub(crate) fn from_event(event: &StatsdEvent<'_>, pid: Option<u32>) -> IncomingMark {
        let mut mark = IncomingMark {
            step: MarkStep::Mark,
            text: unescape(event.title),
            notes: unescape(event.text),
            time: None,
            pid,
            labels: Vec::new(),
        };
        let mut is_phase = false;
        let mut is_end = false;
        for (key, value) in event.tags() {
            match (key, value) {
                (KIND_TAG, value) => is_phase = value == "phase",
                (STATE_TAG, value) => is_end = value == "end",
                (key, value) => mark.labels.push((key.to_owned(), value.to_owned())),
            }
        }
        if is_phase {
            mark.step = if is_end {
                MarkStep::PhaseEnd
            } else {
                MarkStep::PhaseBegin
            };
        }
        for (key, value) in event.named_fields() {
            match key {
                "d" => mark.time = value.parse().ok().filter(|time| *time > 0).map(to_millis),
                _ => mark
                    .labels
                    .push((field_label(key).to_owned(), value.to_owned())),
            }
        }
        mark
    }

    /// Returns what it takes in the file.
    fn bytes(&self) -> usize {
        let labels = self
            .labels
            .iter()
            .map(|(key, value)| key.len() + value.len());
        let text = self.text.len() + self.notes.len();
        RECORD_BYTES + text + labels.sum::<usize>()
    }

    /// Returns what it takes in the queue.
    fn memory_bytes(&self) -> usize {
        size_of::<IncomingMark>() + self.labels.len() * size_of::<(String, String)>() + self.bytes()
    }
}

/// Returns the label of an event's field.
fn field_label(key: &str) -> &str {
    match key {
        "h" => "host",
        "k" => "aggregation_key",
        "p" => "priority",
        "s" => "source_type",
        "t" => "alert_type",
        other => other,
    }
}

/// Times with more than ten digits are milliseconds, as those of annotations.
fn to_millis(time: i64) -> Millis {
    if time <= 9_999_999_999 {
        time * 1_000
    } else {
        time
    }
}

fn unescape(text: &[u8]) -> String {
    String::from_utf8_lossy(text).replace("\\n", "\n")
}

/// The marks that wait for the thread that stores them.
#[derive(Debug, Default)]
pub(crate) struct MarkQueue {
    /// Set if the agent keeps marks; otherwise events are dropped as not supported.
    store: OnceLock<Arc<dyn MarkStore>>,
    state: Mutex<MarkQueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct MarkQueueState {
    waiting: VecDeque<(Arc<Sender>, IncomingMark)>,
    bytes: usize,
    is_stopped: bool,
}

impl MarkQueue {
    pub(crate) fn set_store(&self, store: Arc<dyn MarkStore>) {
        // The agent calls it once.
        let _ = self.store.set(store);
    }

    pub(crate) fn has_store(&self) -> bool {
        self.store.get().is_some()
    }

    /// Queues a mark. Its sender is charged, and the mark counted, when it is stored.
    pub(crate) fn push(&self, sender: &Arc<Sender>, mark: IncomingMark) -> Result<(), DropReason> {
        if !self.has_store() {
            return Err(DropReason::Unsupported);
        }
        let mut state = self.state.lock();
        // A quarter is reserved for the agent's user and root.
        let part = |max: usize| match sender.is_trusted() {
            true => max,
            false => max - max / 4,
        };
        let bytes = state.bytes + mark.memory_bytes();
        let is_full = state.waiting.len() >= part(QUEUE_MAX) || bytes > part(QUEUE_BYTES_MAX);
        if state.is_stopped || is_full {
            return Err(DropReason::QueueFull);
        }
        state.bytes = bytes;
        state.waiting.push_back((sender.clone(), mark));
        self.changed.notify_one();
        Ok(())
    }

    /// Stores a mark at once, and counts it.
    pub(crate) fn store_now(
        &self,
        sender: &Sender,
        mark: IncomingMark,
        admission: &Admission,
    ) -> Result<(), MarkRefusal> {
        let stored = match self.store.get() {
            _ if !sender.try_charge(mark.bytes() as u64) => Err(MarkRefusal {
                reason: DropReason::SenderRate,
                message: "the sender exceeds limits.sender_bytes".to_owned(),
            }),
            Some(store) => store.store(sender, mark),
            None => Err(MarkRefusal {
                reason: DropReason::Unsupported,
                message: "events are not supported".to_owned(),
            }),
        };
        admission.count_received(sender, 1);
        match &stored {
            Ok(()) => admission.count_kept(sender, 1),
            Err(refusal) => admission.count_dropped(sender, refusal.reason, 1),
        }
        stored
    }

    /// Stores queued marks until the queue is stopped and empty.
    pub(crate) fn run(&self, admission: &Admission) {
        while let Some((sender, mark)) = self.next() {
            if let Err(refusal) = self.store_now(&sender, mark, admission) {
                let message = refusal.message;
                tracing::debug!(sender = %sender.name, message, "mark refused");
            }
        }
    }

    fn next(&self) -> Option<(Arc<Sender>, IncomingMark)> {
        let mut state = self.state.lock();
        loop {
            if let Some(next) = state.waiting.pop_front() {
                state.bytes -= next.1.memory_bytes();
                return Some(next);
            }
            if state.is_stopped {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Ends [`MarkQueue::run`] once everything that waits is stored.
    pub(crate) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use pegel_metric::Input;
    use pegel_wire::statsd::{StatsdLines, StatsdMessage};

    use super::*;
    use crate::admission::AdmissionSettings;

    fn mark(line: &str) -> IncomingMark {
        match StatsdLines::new(line.as_bytes()).next() {
            Some(Ok(StatsdMessage::Event(event))) => IncomingMark::from_event(&event, Some(7)),
            other => panic!("{other:?}"),
        }
    }

    fn labels(mark: &IncomingMark) -> Vec<(&str, &str)> {
        let labels = mark.labels.iter();
        labels.map(|(key, value)| (&**key, &**value)).collect()
    }

    #[test]
    fn an_event_is_a_mark() {
        let plain = mark("_e{13,9}:checkpoint 12|two\\nrows");
        assert_eq!(
            (&*plain.text, &*plain.notes),
            ("checkpoint 12", "two\nrows")
        );
        assert_eq!(
            (plain.step, plain.time, plain.pid),
            (MarkStep::Mark, None, Some(7))
        );
        let full = mark("_e{1,0}:x||d:1713379493|h:n1|p:low|t:error|#a:1,b:2:3,c");
        assert_eq!(full.time, Some(1_713_379_493_000));
        let expected = [
            ("a", "1"),
            ("b", "2:3"),
            ("c", ""),
            ("host", "n1"),
            ("priority", "low"),
            ("alert_type", "error"),
        ];
        assert_eq!(labels(&full), expected);
        assert_eq!(
            mark("_e{1,0}:x||d:1713379493123").time,
            Some(1_713_379_493_123)
        );
        assert_eq!(mark("_e{1,0}:x||d:-5").time, None);
    }

    #[derive(Debug)]
    struct DiscardingStore;

    impl MarkStore for DiscardingStore {
        fn store(&self, _: &Sender, _: IncomingMark) -> Result<(), MarkRefusal> {
            Ok(())
        }
    }

    /// The disk hangs: nothing takes marks from the queue.
    #[test]
    fn the_queue_is_bounded_by_bytes_and_leaves_room_to_the_agents_user_and_root() {
        let queue = MarkQueue::default();
        queue.set_store(Arc::new(DiscardingStore));
        let admission = Admission::new(AdmissionSettings::for_tests(), Arc::default());
        let [stranger, root] =
            ["127.0.0.1", "uid 0"].map(|who| admission.sender(Input::Statsd, who));
        let text = "x".repeat(40_000);
        let line = format!("_e{{40000,0}}:{text}|");
        let fill = |sender| {
            let pushed = (0..QUEUE_MAX).map(|_| queue.push(sender, mark(&line)));
            pushed.take_while(Result::is_ok).count()
        };
        let count = fill(&stranger);
        let bytes = queue.state.lock().bytes;
        assert!((100..QUEUE_MAX).contains(&count), "{count}");
        assert!(bytes <= QUEUE_BYTES_MAX / 4 * 3, "{bytes}");
        assert_eq!(
            queue.push(&stranger, mark(&line)),
            Err(DropReason::QueueFull)
        );
        assert!(fill(&root) > count / 4);
        queue.stop();
        queue.run(&admission);
        assert_eq!(queue.state.lock().bytes, 0);
    }

    #[test]
    fn tags_make_it_a_phase() {
        let begin = mark("_e{5,0}:solve||#kind:phase,id:9");
        assert_eq!(
            (begin.step, labels(&begin)),
            (MarkStep::PhaseBegin, vec![("id", "9")])
        );
        let end = mark("_e{5,0}:solve||#state:end,kind:phase");
        assert_eq!(end.step, MarkStep::PhaseEnd);
        assert_eq!(mark("_e{5,0}:solve||#state:end").step, MarkStep::Mark);
    }
}
