//! Sends alerts to receivers: Alertmanagers, webhooks and a command.
//!
//! Every receiver has a queue and a thread of its own, so that a slow one delays neither the
//! evaluation of rules nor another receiver. A failed attempt is repeated after a pause that
//! doubles from one second to one minute.

mod alert_json;
mod command_sender;
mod http_sender;
mod queue;
mod receiver_url;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pegel_supervisor::{RestartedThread, Supervisor};

use crate::alert::DueAlert;
use crate::settings::AlertSettings;
use queue::DeliveryQueue;

pub(crate) use alert_json::{AlertPresentation, format_optional_time, format_time, labels_json};
pub use receiver_url::ReceiverUrl;

/// The maximum number of alerts in one request.
const BATCH_MAX: usize = 64;
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long what waits is still sent when the agent stops.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Why alerts were not delivered.
#[derive(Debug)]
enum SendError {
    /// A later attempt may succeed.
    Retry(String),
    /// The receiver does not accept these alerts.
    Refused(String),
}

/// All receivers.
#[derive(Debug)]
pub(crate) struct Delivery {
    receivers: Vec<Receiver>,
}

#[derive(Debug)]
struct Receiver {
    name: String,
    /// Gets changes and repetitions only.
    news_only: bool,
    queue: Arc<DeliveryQueue>,
    threads: Vec<RestartedThread>,
}

/// The counts of one receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverCounts {
    /// Scheme, host and port of the URL, or `command`.
    pub name: String,
    pub sent: u64,
    pub errors: u64,
    pub dropped: u64,
    pub waiting: u64,
}

/// How alerts reach one receiver.
#[derive(Debug, Clone)]
enum ReceiverKind {
    Alertmanager(ReceiverUrl),
    Webhook(ReceiverUrl),
    Command(Vec<String>),
}

#[derive(Debug, Clone)]
struct ReceiverSender {
    name: String,
    kind: ReceiverKind,
    presentation: Arc<AlertPresentation>,
    timeout: Duration,
    ca_file: Option<PathBuf>,
}

impl Delivery {
    /// Starts the threads of all configured receivers.
    pub(crate) fn start(
        settings: &AlertSettings,
        presentation: AlertPresentation,
        supervisor: &Supervisor,
    ) -> io::Result<Delivery> {
        let presentation = Arc::new(presentation);
        let alertmanagers = settings.alertmanagers.iter().cloned();
        let webhooks = settings.webhooks.iter().cloned();
        let command = (!settings.command.is_empty()).then(|| settings.command.clone());
        let kinds = alertmanagers
            .map(ReceiverKind::Alertmanager)
            .chain(webhooks.map(ReceiverKind::Webhook))
            .chain(command.map(ReceiverKind::Command));
        let mut delivery = Delivery {
            receivers: Vec::new(),
        };
        for kind in kinds {
            let (name, timeout, threads) = match &kind {
                ReceiverKind::Alertmanager(url) | ReceiverKind::Webhook(url) => {
                    (url.to_string(), &settings.timeout, 1)
                }
                ReceiverKind::Command(_) => (
                    "command".to_owned(),
                    &settings.command_timeout,
                    settings.command_concurrency.get().min(64),
                ),
            };
            let is_alertmanager = matches!(kind, ReceiverKind::Alertmanager(_));
            let capacity = settings.queue_length.get() as usize;
            let queue = Arc::new(DeliveryQueue::new(capacity, is_alertmanager));
            let sender = ReceiverSender {
                name: name.clone(),
                kind,
                presentation: presentation.clone(),
                timeout: timeout.duration(),
                ca_file: settings.ca_file.clone(),
            };
            let threads = (0..threads).map(|_| {
                let (queue, sender) = (queue.clone(), sender.clone());
                supervisor
                    .thread("alerts")
                    .restarted(move || sender.run(&queue))
            });
            let threads = threads.collect::<io::Result<Vec<RestartedThread>>>()?;
            delivery.receivers.push(Receiver {
                name,
                news_only: !is_alertmanager,
                queue,
                threads,
            });
        }
        Ok(delivery)
    }

    /// Queues alerts for all receivers. Never blocks.
    pub(crate) fn send(&self, alerts: &[DueAlert]) {
        for receiver in &self.receivers {
            for alert in alerts {
                if alert.is_news || !receiver.news_only {
                    receiver.queue.push(alert.clone());
                }
            }
        }
    }

    pub(crate) fn counts(&self) -> Vec<ReceiverCounts> {
        let counts = |receiver: &Receiver| {
            let counts = &receiver.queue.counts;
            ReceiverCounts {
                name: receiver.name.clone(),
                sent: counts.sent.load(Ordering::Relaxed),
                errors: counts.errors.load(Ordering::Relaxed),
                dropped: counts.dropped.load(Ordering::Relaxed),
                waiting: receiver.queue.len() as u64,
            }
        };
        self.receivers.iter().map(counts).collect()
    }
}

impl Drop for Delivery {
    /// Sends what waits, for a short time, and ends the threads.
    fn drop(&mut self) {
        for receiver in &self.receivers {
            receiver.queue.stop(STOP_GRACE);
        }
        for receiver in &mut self.receivers {
            receiver.threads.drain(..).for_each(RestartedThread::join);
        }
    }
}

impl ReceiverSender {
    /// Sends alerts until the agent stops.
    fn run(&self, queue: &DeliveryQueue) {
        let by_name = !matches!(self.kind, ReceiverKind::Alertmanager(_));
        let mut pause = PAUSE_MIN;
        let mut last_error = None;
        while let Some(batch) = queue.take(BATCH_MAX, by_name) {
            let Err(error) = self.send(&batch) else {
                queue
                    .counts
                    .sent
                    .fetch_add(batch.len() as u64, Ordering::Relaxed);
                pause = PAUSE_MIN;
                if last_error.take().is_some() {
                    tracing::info!(receiver = self.name, "alerts are delivered again");
                }
                continue;
            };
            queue.counts.errors.fetch_add(1, Ordering::Relaxed);
            match error {
                SendError::Refused(error) => {
                    tracing::warn!(receiver = self.name, error, "alerts were refused");
                    queue.count_dropped(batch.len());
                }
                SendError::Retry(error) => {
                    // Only the first of equal errors is logged.
                    if last_error.as_ref() != Some(&error) {
                        tracing::warn!(receiver = self.name, error, "cannot deliver alerts");
                    }
                    last_error = Some(error);
                    queue.put_back(batch);
                    if !queue.pause(pause) {
                        return;
                    }
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    fn send(&self, alerts: &[DueAlert]) -> Result<(), SendError> {
        match &self.kind {
            ReceiverKind::Alertmanager(url) => {
                let body = self.presentation.alertmanager_body(alerts);
                let path = format!("{}/api/v2/alerts", url.path.trim_end_matches('/'));
                http_sender::post(url, &path, body, (self.timeout, self.ca_file.as_deref()))
            }
            ReceiverKind::Webhook(url) => {
                let body = self.presentation.webhook_body(alerts);
                let path = match url.path.as_str() {
                    path if path.starts_with('/') => path.to_owned(),
                    path => format!("/{path}"),
                };
                http_sender::post(url, &path, body, (self.timeout, self.ca_file.as_deref()))
            }
            ReceiverKind::Command(argv) => {
                let body = self.presentation.webhook_body(alerts);
                command_sender::run(argv, &body, self.timeout)
            }
        }
    }
}
