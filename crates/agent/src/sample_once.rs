//! Takes one sample, stores it and returns it: `--once`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use pegel_collect::Sampler;
use pegel_metric::{Millis, Selector, Series};

use crate::agent_settings::AgentSettings;
use crate::running_agent::{AgentStartError, open_store, wait_until_readable};
use crate::store_metrics::StoreMetrics;

/// One sample, sorted by series.
#[derive(Debug)]
pub struct OnceSample {
    /// Series, time of the last change in seconds, value.
    pub values: Vec<(String, f64, f64)>,
    /// The same values as Prometheus text.
    pub prometheus: String,
}

/// Opens the store, takes one sample and closes the store again. Starts no server.
pub fn sample_once(plan: AgentSettings) -> Result<OnceSample, AgentStartError> {
    let store = open_store(&plan)?;
    let time = Arc::new(AtomicI64::new(Millis::MAX));
    let (sink_store, sink_time) = (store.clone(), time.clone());
    Sampler::sample_once(
        &plan.collect,
        plan.host,
        plan.level,
        vec![StoreMetrics::new(&store)],
        store.ledger().clone(),
        plan.store.clock,
        Box::new(move |tick| {
            sink_time.store(tick.time, Ordering::Relaxed);
            sink_store.tick(tick);
        }),
    )?;
    let time = time.load(Ordering::Relaxed);
    wait_until_readable(&store, time);
    let mut found: Vec<(Arc<Series>, f64, f64)> = Vec::new();
    store.latest(&Selector::all(), 0, &mut |series, latest| {
        // Series of an earlier agent are not part of this sample.
        if latest.last_sampled >= time {
            found.push((
                series.clone(),
                latest.last_changed as f64 / 1000.0,
                latest.value,
            ));
        }
    });
    found.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    store.close();
    let readings: Vec<(Arc<Series>, f64)> = found
        .iter()
        .map(|(series, _, value)| (series.clone(), *value))
        .collect();
    let mut prometheus = String::new();
    pegel_wire::prometheus::encode(&readings, &mut prometheus);
    let values = found
        .into_iter()
        .map(|(series, ts, value)| (series.text().to_owned(), ts, value))
        .collect();
    Ok(OnceSample { values, prometheus })
}
