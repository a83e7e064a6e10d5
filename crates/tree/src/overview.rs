//! Computes the figures of a node for overviews, from the values of its own series.

use std::sync::Arc;

use pegel_metric::{Millis, Series};
use pegel_tree_protocol::NodeOverview;

/// Computes figures from consecutive ticks: some are increases per second.
#[derive(Debug, Default)]
pub(crate) struct OverviewReader {
    previous: Option<(Millis, OverviewTotals)>,
}

/// Sums of counters and gauges of one tick. NaN: no such series.
#[derive(Debug, Clone, Copy)]
struct OverviewTotals {
    cpu_idle: f64,
    cpu_all: f64,
    /// The time in which some task waited for a CPU, for memory, for I/O.
    waiting: [f64; 3],
    network: f64,
    memory_total: f64,
    memory_available: f64,
    gpu_sum: f64,
    gpu_count: f64,
    temperature: f64,
    load: f64,
}

impl OverviewTotals {
    const NONE: OverviewTotals = OverviewTotals {
        cpu_idle: f64::NAN,
        cpu_all: f64::NAN,
        waiting: [f64::NAN; 3],
        network: f64::NAN,
        memory_total: f64::NAN,
        memory_available: f64::NAN,
        gpu_sum: f64::NAN,
        gpu_count: 0.0,
        temperature: f64::NAN,
        load: f64::NAN,
    };

    fn add(&mut self, series: &Series, value: f64) {
        match series.name() {
            "node_cpu_seconds_total" => {
                let mode = series.label("mode").unwrap_or_default();
                // The time of guests is included in user and nice.
                if !mode.starts_with("guest") {
                    add(&mut self.cpu_all, value);
                }
                if matches!(&*mode, "idle" | "iowait") {
                    add(&mut self.cpu_idle, value);
                }
            }
            "node_memory_MemTotal_bytes" => self.memory_total = value,
            "node_memory_MemAvailable_bytes" => self.memory_available = value,
            "node_pressure_cpu_waiting_seconds_total" => self.waiting[0] = value,
            "node_pressure_memory_waiting_seconds_total" => self.waiting[1] = value,
            "node_pressure_io_waiting_seconds_total" => self.waiting[2] = value,
            "node_network_receive_bytes_total" | "node_network_transmit_bytes_total"
                if series.label("device").as_deref() != Some("lo") =>
            {
                add(&mut self.network, value);
            }
            "node_nvidia_gpu_utilization_ratio" | "node_gpu_busy_ratio" => {
                add(&mut self.gpu_sum, value);
                self.gpu_count += 1.0;
            }
            "node_hwmon_temp_celsius"
            | "node_thermal_zone_temp"
            | "node_nvidia_temperature_celsius"
            | "node_gpu_temperature_celsius" => self.temperature = self.temperature.max(value),
            "node_load1" => self.load = value,
            _ => {}
        }
    }
}

/// Adds to a sum that is NaN while nothing was added.
fn add(sum: &mut f64, value: f64) {
    *sum = if sum.is_nan() { value } else { *sum + value };
}

impl OverviewReader {
    /// Returns the figures of a tick. Those that are increases need two ticks.
    pub(crate) fn update<'a>(
        &mut self,
        time: Millis,
        values: impl Iterator<Item = (&'a Arc<Series>, f64)>,
    ) -> NodeOverview {
        let mut totals = OverviewTotals::NONE;
        values.for_each(|(series, value)| totals.add(series, value));
        let previous = self.previous.replace((time, totals));
        let (seconds, before) = match previous {
            Some((at, before)) if at < time => ((time - at) as f64 / 1000.0, before),
            _ => (f64::NAN, OverviewTotals::NONE),
        };
        let all = totals.cpu_all - before.cpu_all;
        let idle = totals.cpu_idle - before.cpu_idle;
        // The largest increase; `max` ignores what is unknown.
        let waiting = { totals.waiting.iter().zip(before.waiting) }
            .map(|(now, before)| (now - before) / seconds)
            .fold(f64::NAN, f64::max);
        let memory = 1.0 - totals.memory_available / totals.memory_total;
        NodeOverview {
            busy: percent(1.0 - idle / all),
            memory: percent(memory),
            pressure: percent(waiting),
            gpu: percent(totals.gpu_sum / totals.gpu_count),
            network: not_negative((totals.network - before.network) / seconds),
            temperature: totals.temperature as f32,
            load: totals.load as f32,
        }
    }
}

/// Returns an overview in which everything is unknown.
pub(crate) fn unknown_overview() -> NodeOverview {
    NodeOverview {
        busy: f32::NAN,
        memory: f32::NAN,
        pressure: f32::NAN,
        gpu: f32::NAN,
        network: f32::NAN,
        temperature: f32::NAN,
        load: f32::NAN,
    }
}

/// Returns a share as a percentage, within its bounds: counters are not read at one instant.
fn percent(share: f64) -> f32 {
    (share * 100.0).clamp(0.0, 100.0) as f32
}

/// A counter that decreased was reset: its increase is unknown.
fn not_negative(rate: f64) -> f32 {
    if rate < 0.0 { f32::NAN } else { rate as f32 }
}

#[cfg(test)]
mod tests {
    use pegel_metric::{Family, MetricKind};

    use super::*;

    fn series(text: &str) -> Arc<Series> {
        let (name, labels) = text.split_once('{').unwrap_or((text, ""));
        let family = Family::new("", MetricKind::Gauge, "", 1, "");
        let labels: Vec<(&str, &str)> = labels
            .trim_end_matches('}')
            .split(',')
            .filter_map(|pair| pair.split_once('='))
            .collect();
        Arc::new(Series::named(family.into(), name, &labels).expect("valid"))
    }

    fn overview(reader: &mut OverviewReader, time: Millis, values: &[(&str, f64)]) -> NodeOverview {
        let values: Vec<(Arc<Series>, f64)> = { values.iter() }
            .map(|(text, value)| (series(text), *value))
            .collect();
        reader.update(time, values.iter().map(|(series, value)| (series, *value)))
    }

    #[test]
    fn figures_are_computed_from_two_ticks() {
        let mut reader = OverviewReader::default();
        let first = overview(
            &mut reader,
            1_000,
            &[
                ("node_cpu_seconds_total{cpu=0,mode=idle}", 100.0),
                ("node_cpu_seconds_total{cpu=0,mode=user}", 50.0),
                ("node_memory_MemTotal_bytes", 100.0),
                ("node_memory_MemAvailable_bytes", 25.0),
                ("node_network_receive_bytes_total{device=lo}", 1e9),
                ("node_network_receive_bytes_total{device=eth0}", 1_000.0),
                ("node_network_transmit_bytes_total{device=eth0}", 500.0),
                ("node_pressure_io_waiting_seconds_total", 7.0),
                ("node_load1", 1.5),
            ],
        );
        assert!(first.busy.is_nan() && first.network.is_nan() && first.pressure.is_nan());
        assert_eq!((first.memory, first.load), (75.0, 1.5));
        assert!(first.gpu.is_nan() && first.temperature.is_nan());
        let second = overview(
            &mut reader,
            3_000,
            &[
                ("node_cpu_seconds_total{cpu=0,mode=idle}", 101.5),
                ("node_cpu_seconds_total{cpu=0,mode=user}", 50.5),
                ("node_network_receive_bytes_total{device=eth0}", 3_000.0),
                ("node_network_transmit_bytes_total{device=eth0}", 700.0),
                ("node_pressure_io_waiting_seconds_total", 8.0),
                ("node_nvidia_gpu_utilization_ratio{gpu=0}", 0.5),
                ("node_nvidia_gpu_utilization_ratio{gpu=1}", 1.0),
                ("node_hwmon_temp_celsius{chip=a}", 40.0),
                ("node_hwmon_temp_celsius{chip=b}", 60.0),
            ],
        );
        assert_eq!((second.busy, second.network), (25.0, 1_100.0));
        assert_eq!((second.pressure, second.gpu), (50.0, 75.0));
        assert_eq!(second.temperature, 60.0);
        assert!(second.memory.is_nan());
    }

    #[test]
    fn restarted_counters_are_unknown() {
        let mut reader = OverviewReader::default();
        let network = "node_network_receive_bytes_total{device=eth0}";
        overview(&mut reader, 1_000, &[(network, 1_000.0)]);
        let next = overview(&mut reader, 2_000, &[(network, 10.0)]);
        assert!(next.network.is_nan());
    }
}
