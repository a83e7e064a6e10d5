//! Pull inputs: sources that the agent reads by itself. Prometheus endpoints, Apache's status page,
//! programs, files, logs and the counters of Flux's modules.
//!
//! Each configured input has a thread of its own, so that one that hangs delays no other; their
//! number is limited. A thread calls the input's [`PullReader`] at each interval and stores what it
//! read through admission: limits, rules and the ledger apply as to every program. Every attempt
//! is bounded in time and in bytes. After a failure the interval doubles, up to `max_interval`.
//! Inputs that are not configured cost nothing.

mod apache;
mod data_format;
mod endpoint;
mod exec;
mod file;
mod flux;
mod http_fetch;
mod input_thread;
mod line_pattern;
mod prometheus;
mod pull_context;
mod settings;
mod status;
mod tail;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use pegel_supervisor::{RestartedThread, Supervisor};

use crate::Ingest;
use input_thread::PullInput;
use pull_context::PullContext;

pub use data_format::DataFormat;
pub use endpoint::EndpointUrl;
pub use settings::{INPUTS_MAX, PullConfig};
pub use status::{PullState, PullStatus};

/// Reads one source.
pub(crate) trait PullReader: Send {
    /// Reads the source once and stores its samples with [`PullContext::store`]. Must return soon
    /// after the context's deadline, and when its stop flag is set.
    fn read(&mut self, context: &PullContext<'_>) -> Result<(), PullError>;

    /// Returns whether the source is read only until it succeeds once. Later calls of `read` store
    /// the same values again, so that queries find them; they are also part of the snapshot.
    fn is_once(&self) -> bool {
        false
    }

    /// Returns whether the source has parts that are switched on and off one by one.
    fn has_parts(&self) -> bool {
        false
    }
}

/// Why an attempt failed, as `/status` shows it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct PullError {
    message: String,
    /// Something was received that is not in its format, and is counted as dropped.
    is_malformed: bool,
}

impl PullError {
    pub(crate) fn new(message: impl ToString) -> PullError {
        PullError {
            message: message.to_string(),
            is_malformed: false,
        }
    }

    pub(crate) fn malformed(message: impl ToString) -> PullError {
        PullError {
            is_malformed: true,
            ..PullError::new(message)
        }
    }
}

/// Why an input cannot be switched on or off.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SwitchError {
    #[error("no input has the name {0:?}")]
    NoInput(String),
    #[error("the input {0} has no parts; only those of the kind flux have")]
    NoParts(String),
    #[error("more than {PARTS_MAX} parts are switched")]
    TooManyParts,
}

/// The most parts of an input that are switched on or off.
const PARTS_MAX: usize = 1000;

/// The values of a program that is run once: series and values.
pub type OnceValues = BTreeMap<String, f64>;

/// Receives the name of an input that is read once, and its values.
pub type OnceSink = Arc<dyn Fn(&str, OnceValues) + Send + Sync>;

/// All pull inputs of an agent.
#[derive(Debug)]
pub struct PullInputs {
    inputs: Vec<Arc<PullInput>>,
    threads: Mutex<Vec<RestartedThread>>,
}

impl PullInputs {
    /// Creates the inputs. Nothing is read before [`PullInputs::start`].
    pub fn new(config: &PullConfig, ingest: &Arc<Ingest>, once: OnceSink) -> PullInputs {
        let inputs = config.inputs().into_iter();
        let inputs = inputs.map(|input| PullInput::new(input, ingest.clone(), once.clone()));
        PullInputs {
            inputs: inputs.map(Arc::new).collect(),
            threads: Mutex::default(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// Starts one thread for each input.
    pub fn start(&self, supervisor: &Supervisor) -> io::Result<()> {
        for input in &self.inputs {
            let for_thread = input.clone();
            let thread = supervisor.thread(format!("pull {}", input.name()));
            let thread = thread.restarted(move || for_thread.run())?;
            self.threads.lock().push(thread);
        }
        Ok(())
    }

    /// Returns the state of each input, in the order of the configuration.
    pub fn statuses(&self) -> Vec<PullStatus> {
        self.inputs.iter().map(|input| input.status()).collect()
    }

    /// Switches an input on or off until the agent stops: `NAME`, or `NAME/PART` for a part of an
    /// input that has parts, such as a module of Flux.
    pub fn set_enabled(&self, target: &str, is_enabled: bool) -> Result<(), SwitchError> {
        let (name, part) = match target.split_once('/') {
            Some((name, part)) => (name, Some(part)),
            None => (target, None),
        };
        let input = self.inputs.iter().find(|input| input.name() == name);
        let input = input.ok_or_else(|| SwitchError::NoInput(name.to_owned()))?;
        match part {
            None => input.set_enabled(is_enabled),
            Some(part) if input.has_parts() => input.set_part_enabled(part, is_enabled)?,
            Some(_) => return Err(SwitchError::NoParts(name.to_owned())),
        }
        Ok(())
    }

    /// Ends the threads; programs that run are killed.
    pub fn stop(&self) {
        for input in &self.inputs {
            input.stop();
        }
        let threads = std::mem::take(&mut *self.threads.lock());
        threads.into_iter().for_each(RestartedThread::join);
    }
}

impl Drop for PullInputs {
    fn drop(&mut self) {
        self.stop();
    }
}
