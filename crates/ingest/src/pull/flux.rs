//! The message counters of Flux's modules: `flux.MODULE.RANK.request_tx` and so on.
//!
//! One process per poll asks the broker for all modules: `flux python` with the script
//! `poll_modules.py`, which sends the requests of `flux module list`, `flux module debug` and `flux
//! module stats` over one connection. A module is read if it was switched on by `pegel inputs
//! enable NAME/MODULE`; otherwise, unless it was switched off there, if the configuration lists it
//! or its debug flag 0x1000 is set (`flux module debug -s 0x1000 MODULE`).

use std::collections::BTreeMap;

use pegel_command::{CommandOptions, RunError, run_command};
use pegel_metric::MetricKind;
use pegel_wire::PointBatch;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::pull_context::{PullContext, SampleOptions};
use super::settings::FluxSettings;
use super::{PullError, PullReader};

const SCRIPT: &str = include_str!("poll_modules.py");
/// The bit of a module's debug flags that switches its counters on.
const COUNTERS_FLAG: u64 = 0x1000;
const OUTPUT_BYTES_MAX: usize = 4 << 20;
/// How many modules a message names.
const MODULES_NAMED_MAX: usize = 8;
/// In `modules`: all of them.
const ALL_MODULES: &str = "all";
/// Names of message types; brokers before 0.36 call `control` `keepalive`.
const MESSAGE_TYPES: [&str; 5] = ["request", "response", "event", "control", "keepalive"];
const HELP: &str = "Number of messages of a Flux module, by type and direction.";

/// Reads the counters of one broker.
#[derive(Debug)]
pub(crate) struct FluxReader {
    command: Vec<String>,
    environment: Vec<(String, String)>,
    modules: Vec<String>,
}

/// The output of the script.
#[derive(Debug, Deserialize)]
struct ModulePoll {
    rank: u32,
    modules: BTreeMap<String, PolledModule>,
}

#[derive(Debug, Deserialize)]
struct PolledModule {
    #[serde(default)]
    flags: u64,
    /// The response to `stats-get`, if the module was read.
    #[serde(default)]
    stats: Option<Value>,
}

impl FluxReader {
    pub(crate) fn new(settings: &FluxSettings) -> FluxReader {
        let mut command = settings.command.clone();
        command.extend(["python", "-c", SCRIPT].map(str::to_owned));
        // An agent inside a Flux instance asks that instance.
        let uri = settings
            .uri
            .clone()
            .or_else(|| std::env::var("FLUX_URI").ok());
        let uri = uri.map(|uri| ("FLUX_URI".to_owned(), uri));
        FluxReader {
            command,
            environment: uri.into_iter().collect(),
            modules: settings.modules.clone(),
        }
    }

    /// Returns which modules are on or off whatever their flags; the empty name stands for the
    /// others.
    fn switches(&self, context: &PullContext<'_>) -> Map<String, Value> {
        let all = self.modules.iter().any(|name| name == ALL_MODULES);
        let listed = self.modules.iter().map(|name| (name.clone(), json!(true)));
        let switched = context.switches.iter();
        let switched = switched.map(|(name, is_on)| (name.clone(), json!(is_on)));
        let mut switches: Map<String, Value> = listed.chain(switched).collect();
        switches.insert(String::new(), json!(all));
        switches
    }
}

impl PullReader for FluxReader {
    fn read(&mut self, context: &PullContext<'_>) -> Result<(), PullError> {
        let switches = self.switches(context);
        let input = Value::Object(switches.clone()).to_string();
        let output = run_command(&CommandOptions {
            argv: &self.command,
            input: input.as_bytes(),
            environment: &self.environment,
            timeout: context.time_left(),
            output_max: OUTPUT_BYTES_MAX,
            stop: Some(context.stop.clone()),
        });
        let output = output.map_err(|error| match error {
            RunError::TimedOut(_) => {
                PullError::new(format!("killed after {} s", context.timeout.as_secs_f64()))
            }
            error => PullError::new(error),
        })?;
        let poll: ModulePoll = serde_json::from_slice(&output)
            .map_err(|error| PullError::malformed(format!("unexpected output: {error}")))?;
        let is_on = |name: &str, module: &PolledModule| match switches.get(name) {
            Some(switch) => *switch == json!(true),
            None => switches[""] == json!(true) || module.flags & COUNTERS_FLAG != 0,
        };
        let parts = poll.modules.iter();
        let parts = parts.map(|(name, module)| (name.clone(), is_on(name, module)));
        context.parts.replace(parts.collect());
        let is_selected = |name: &str, module: &PolledModule| match switches.get(name) {
            Some(switch) => *switch == json!(true),
            None => module.flags & COUNTERS_FLAG != 0,
        };
        if let Some(message) = modules_without_counters(&poll, is_selected) {
            context.first_refusal.replace(Some(message));
        }
        context.store(&module_counters(&poll), SampleOptions::default())
    }

    fn has_parts(&self) -> bool {
        true
    }
}

/// Names the modules that were switched on one by one and have no counters: otherwise nothing would
/// show why they have no series.
fn modules_without_counters(
    poll: &ModulePoll,
    is_selected: impl Fn(&str, &PolledModule) -> bool,
) -> Option<String> {
    let has_counters = |module: &PolledModule| {
        let stats = module.stats.as_ref().and_then(Value::as_object);
        stats.is_none_or(|stats| stats.contains_key("tx") || stats.contains_key("#request (tx)"))
    };
    let modules = poll.modules.iter();
    let without: Vec<&str> = modules
        .filter(|(name, module)| is_selected(name, module) && !has_counters(module))
        .map(|(name, _)| name.as_str())
        .take(MODULES_NAMED_MAX)
        .collect();
    let names = without.join(", ");
    (!without.is_empty()).then(|| format!("without message counters: {names}"))
}

/// Returns the counters of all modules that were read. Modules that respond with statistics of
/// their own have none.
fn module_counters(poll: &ModulePoll) -> PointBatch<'static> {
    let mut batch = PointBatch::default();
    let stats = poll.modules.iter();
    let stats = stats.filter_map(|(name, module)| Some((name, module.stats.as_ref()?)));
    for (module, stats) in stats {
        for message in MESSAGE_TYPES {
            for direction in ["tx", "rx"] {
                // Brokers before 0.49 name the counters as in `#request (tx)`.
                let count = stats[direction][message].as_f64();
                let older = || stats[format!("#{message} ({direction})")].as_f64();
                let Some(count) = count.or_else(older) else {
                    continue;
                };
                let name = format!("flux.{module}.{}.{message}_{direction}", poll.rank);
                batch.add_sample((name, MetricKind::Counter, HELP), count, &[]);
            }
        }
    }
    batch
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(poll: Value) -> Vec<String> {
        let poll: ModulePoll = serde_json::from_value(poll).expect("a poll");
        let batch = module_counters(&poll);
        let points = batch.points.iter().flatten();
        points
            .map(|point| format!("{} {}", point.name, point.value))
            .collect()
    }

    #[test]
    fn counters_of_both_forms_have_the_same_names() {
        let new = json!({"rank": 3, "modules": {
            "heartbeat": {"flags": 4096, "stats": {
                "tx": {"request": 275, "response": 1, "event": 0, "control": 1},
                "rx": {"request": 2, "response": 275, "event": 0, "control": 0},
            }},
            "kvs": {"flags": 4096, "stats": {"cache": {"obj size total (MiB)": 0.1}}},
            "cron": {"flags": 0},
        }});
        assert_eq!(
            counters(new),
            [
                "flux.heartbeat.3.request_tx 275",
                "flux.heartbeat.3.request_rx 2",
                "flux.heartbeat.3.response_tx 1",
                "flux.heartbeat.3.response_rx 275",
                "flux.heartbeat.3.event_tx 0",
                "flux.heartbeat.3.event_rx 0",
                "flux.heartbeat.3.control_tx 1",
                "flux.heartbeat.3.control_rx 0",
            ]
        );
        let old = json!({"rank": 0, "modules": {"cron": {"stats": {
            "#request (tx)": 3, "#request (rx)": 2, "#keepalive (tx)": 1, "#keepalive (rx)": 0,
        }}}});
        assert_eq!(
            counters(old),
            [
                "flux.cron.0.request_tx 3",
                "flux.cron.0.request_rx 2",
                "flux.cron.0.keepalive_tx 1",
                "flux.cron.0.keepalive_rx 0",
            ]
        );
    }
}
