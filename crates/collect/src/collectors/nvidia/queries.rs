//! The NVML queries of each GPU, one call each, and the series of their results.

use pegel_metric::Family;

use super::abi::{Margin, Memory2, NvmlDevice, NvmlError};
use super::families::*;
use super::functions::Functions;
use super::query_interval::QueryInterval;

/// The largest number of values of one query.
pub(super) const VALUES_MAX: usize = 9;

/// One series of a GPU.
#[derive(Debug)]
pub(super) struct GpuSeriesSpec {
    pub(super) family: &'static Family,
    /// In addition to `gpu`.
    pub(super) labels: &'static [(&'static str, &'static str)],
}

pub(super) const fn unlabelled(family: &'static Family) -> GpuSeriesSpec {
    GpuSeriesSpec {
        family,
        labels: &[],
    }
}

pub(super) const fn labelled(
    family: &'static Family,
    labels: &'static [(&'static str, &'static str)],
) -> GpuSeriesSpec {
    GpuSeriesSpec { family, labels }
}

/// The values of a query; NaN means absent.
type QueryValues = [f64; VALUES_MAX];

#[derive(Debug)]
pub(super) struct NvmlQuery {
    pub(super) interval: QueryInterval,
    /// In the order of the values.
    pub(super) series: &'static [GpuSeriesSpec],
    pub(super) run: fn(&Functions, NvmlDevice, &mut QueryValues) -> Result<(), NvmlError>,
}

const fn nvml_query(
    interval: QueryInterval,
    series: &'static [GpuSeriesSpec],
    run: fn(&Functions, NvmlDevice, &mut QueryValues) -> Result<(), NvmlError>,
) -> NvmlQuery {
    NvmlQuery {
        interval,
        series,
        run,
    }
}

/// A query that returns one number.
macro_rules! number {
    ($interval:ident $family:ident = $function:ident / $scale:literal) => {
        nvml_query(
            QueryInterval::$interval,
            &[unlabelled(&$family)],
            |nvml, device, values| {
                values[0] = nvml.$function.query(device)? as f64 / $scale;
                Ok(())
            },
        )
    };
}

/// A query that returns the utilization of an engine in percent, and its sampling period.
macro_rules! engine {
    ($family:ident = $function:ident) => {
        nvml_query(
            QueryInterval::Second,
            &[unlabelled(&$family)],
            |nvml, device, values| {
                values[0] = percent(nvml.$function.query(device)?.0);
                Ok(())
            },
        )
    };
}

/// A query that selects one of several numbers by an argument.
macro_rules! selected {
    ($interval:ident $reading:expr => $function:ident($which:literal) * $scale:literal) => {
        nvml_query(
            QueryInterval::$interval,
            &[$reading],
            |nvml, device, values| {
                values[0] = f64::from(nvml.$function.query(device, $which)?) * $scale;
                Ok(())
            },
        )
    };
}

pub(super) static QUERIES: &[NvmlQuery] = &[
    nvml_query(
        QueryInterval::EveryPass,
        &[
            unlabelled(&GPU_UTILIZATION),
            unlabelled(&MEMORY_UTILIZATION),
            unlabelled(&DRAGON_UTILIZATION),
        ],
        utilization,
    ),
    engine!(ENCODER = encoder),
    engine!(DECODER = decoder),
    engine!(JPEG = jpeg),
    engine!(OFA = ofa),
    nvml_query(
        QueryInterval::Second,
        &[
            unlabelled(&MEMORY_TOTAL),
            unlabelled(&MEMORY_USED),
            unlabelled(&MEMORY_FREE),
            unlabelled(&MEMORY_RESERVED),
            unlabelled(&DRAGON_MEMORY),
        ],
        memory,
    ),
    nvml_query(
        QueryInterval::Minute,
        &[unlabelled(&BAR1_TOTAL), unlabelled(&BAR1_USED)],
        bar1,
    ),
    nvml_query(
        QueryInterval::EveryPass,
        &[unlabelled(&POWER), unlabelled(&DRAGON_POWER)],
        power,
    ),
    number!(Minute POWER_LIMIT = power_limit / 1000.0),
    number!(Minute ENERGY = energy / 1000.0),
    selected!(EveryPass unlabelled(&TEMPERATURE) => temperature(0) * 1.0),
    nvml_query(
        QueryInterval::TenSeconds,
        &[unlabelled(&TEMPERATURE_MARGIN)],
        margin,
    ),
    selected!(EveryPass labelled(&CLOCK, &[("clock", "graphics")]) => clock(0) * 1e6),
    selected!(EveryPass labelled(&CLOCK, &[("clock", "sm")]) => clock(1) * 1e6),
    selected!(Second labelled(&CLOCK, &[("clock", "memory")]) => clock(2) * 1e6),
    selected!(Second labelled(&CLOCK, &[("clock", "video")]) => clock(3) * 1e6),
    selected!(Minute labelled(&CLOCK_MAX, &[("clock", "graphics")]) => clock_max(0) * 1e6),
    selected!(Minute labelled(&CLOCK_MAX, &[("clock", "sm")]) => clock_max(1) * 1e6),
    selected!(Minute labelled(&CLOCK_MAX, &[("clock", "memory")]) => clock_max(2) * 1e6),
    selected!(Minute labelled(&CLOCK_MAX, &[("clock", "video")]) => clock_max(3) * 1e6),
    nvml_query(QueryInterval::EveryPass, &CLOCK_REASONS, clock_events),
    number!(Second PERFORMANCE_STATE = performance_state / 1.0),
    number!(TenSeconds FAN = fan / 100.0),
    number!(Second PCIE_GENERATION = pcie_generation / 1.0),
    number!(Minute PCIE_WIDTH = pcie_width / 1.0),
    number!(Minute PCIE_GENERATION_MAX = pcie_generation_max / 1.0),
    number!(Minute PCIE_WIDTH_MAX = pcie_width_max / 1.0),
    number!(Minute PCIE_REPLAYS = pcie_replays / 1.0),
    selected!(Blocking unlabelled(&PCIE_TRANSMIT) => pcie_throughput(0) * 1e3),
    selected!(Blocking unlabelled(&PCIE_RECEIVE) => pcie_throughput(1) * 1e3),
    nvml_query(
        QueryInterval::Minute,
        &[unlabelled(&ECC_ENABLED)],
        |nvml, device, values| {
            values[0] = f64::from(nvml.ecc_mode.query(device)?.0);
            Ok(())
        },
    ),
    nvml_query(QueryInterval::TenSeconds, &ECC_COUNTERS, ecc_errors),
];

/// One series for each bit, from the lowest.
static CLOCK_REASONS: [GpuSeriesSpec; 9] = [
    labelled(&CLOCKS_EVENT, &[("reason", "gpu_idle")]),
    labelled(&CLOCKS_EVENT, &[("reason", "applications_clocks_setting")]),
    labelled(&CLOCKS_EVENT, &[("reason", "sw_power_cap")]),
    labelled(&CLOCKS_EVENT, &[("reason", "hw_slowdown")]),
    labelled(&CLOCKS_EVENT, &[("reason", "sync_boost")]),
    labelled(&CLOCKS_EVENT, &[("reason", "sw_thermal_slowdown")]),
    labelled(&CLOCKS_EVENT, &[("reason", "hw_thermal_slowdown")]),
    labelled(&CLOCKS_EVENT, &[("reason", "hw_power_brake_slowdown")]),
    labelled(&CLOCKS_EVENT, &[("reason", "display_clock_setting")]),
];

static ECC_COUNTERS: [GpuSeriesSpec; 4] = [
    labelled(
        &ECC_ERRORS,
        &[("error", "corrected"), ("counter", "volatile")],
    ),
    labelled(
        &ECC_ERRORS,
        &[("error", "corrected"), ("counter", "aggregate")],
    ),
    labelled(
        &ECC_ERRORS,
        &[("error", "uncorrected"), ("counter", "volatile")],
    ),
    labelled(
        &ECC_ERRORS,
        &[("error", "uncorrected"), ("counter", "aggregate")],
    ),
];

fn percent(value: u32) -> f64 {
    f64::from(value) / 100.0
}

fn utilization(
    nvml: &Functions,
    device: NvmlDevice,
    values: &mut QueryValues,
) -> Result<(), NvmlError> {
    let answer = nvml.utilization.query(device)?;
    values[0] = percent(answer.gpu);
    values[1] = percent(answer.memory);
    values[2] = f64::from(answer.gpu);
    Ok(())
}

/// Queries the memory. The older function counts reserved memory as used.
fn memory(nvml: &Functions, device: NvmlDevice, values: &mut QueryValues) -> Result<(), NvmlError> {
    let (total, used, free, reserved) = match nvml.memory2.query_with(device, Memory2::request()) {
        Ok(memory) => (
            memory.total,
            memory.used,
            memory.free,
            memory.reserved as f64,
        ),
        Err(_) => {
            let memory = nvml.memory.query(device)?;
            (memory.total, memory.used, memory.free, f64::NAN)
        }
    };
    values[0] = total as f64;
    values[1] = used as f64;
    values[2] = free as f64;
    values[3] = reserved;
    values[4] = used as f64 / total as f64 * 100.0;
    Ok(())
}

fn bar1(nvml: &Functions, device: NvmlDevice, values: &mut QueryValues) -> Result<(), NvmlError> {
    let bar1 = nvml.bar1.query(device)?;
    values[0] = bar1.total as f64;
    values[1] = bar1.used as f64;
    Ok(())
}

fn power(nvml: &Functions, device: NvmlDevice, values: &mut QueryValues) -> Result<(), NvmlError> {
    let watts = f64::from(nvml.power.query(device)?) / 1000.0;
    values[..2].fill(watts);
    Ok(())
}

fn margin(nvml: &Functions, device: NvmlDevice, values: &mut QueryValues) -> Result<(), NvmlError> {
    values[0] = f64::from(nvml.margin.query_with(device, Margin::request())?.celsius);
    Ok(())
}

fn clock_events(
    nvml: &Functions,
    device: NvmlDevice,
    values: &mut QueryValues,
) -> Result<(), NvmlError> {
    let reasons = nvml.clock_events.query(device)?;
    for (bit, value) in values.iter_mut().enumerate() {
        *value = (reasons >> bit & 1) as f64;
    }
    Ok(())
}

fn ecc_errors(
    nvml: &Functions,
    device: NvmlDevice,
    values: &mut QueryValues,
) -> Result<(), NvmlError> {
    // Error type (0 corrected, 1 uncorrected) and counter (0 volatile, 1 aggregate).
    for (value, (error, counter)) in values.iter_mut().zip([(0, 0), (0, 1), (1, 0), (1, 1)]) {
        *value = nvml.ecc_errors.query(device, error, counter)? as f64;
    }
    Ok(())
}
