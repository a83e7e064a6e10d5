//! Memory usage and pressure stall information.

use super::NodeModel;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MemoryUsage {
    pub total: f64,
    /// Memory not available to new programs: total − available, as `free` computes it.
    pub used: f64,
    /// Shared memory and files on a tmpfs, a part of `used`.
    pub shared: f64,
    /// Page cache, buffers and reclaimable slabs, without shared memory.
    pub cache: f64,
    /// Memory without any use.
    pub free: f64,
    pub swap_total: f64,
    pub swap_used: f64,
}

impl MemoryUsage {
    pub(crate) fn from_model(model: &NodeModel) -> Option<MemoryUsage> {
        let value = |name: &str| model.value(&format!("node_memory_{name}_bytes"));
        let total = value("MemTotal").filter(|total| *total > 0.0)?;
        let free = value("MemFree")?;
        let known = |name: &str| value(name).unwrap_or(0.0);
        let shared = known("Shmem");
        // The kernel counts shared memory as cache, although it cannot reclaim it.
        let page_cache = (known("Buffers") + known("Cached") - shared).max(0.0);
        // Kernels before 3.14 have no MemAvailable.
        let available = value("MemAvailable").unwrap_or(free + page_cache);
        let swap_total = value("SwapTotal").unwrap_or(0.0);
        Some(MemoryUsage {
            total,
            used: (total - available).max(0.0),
            shared,
            cache: page_cache + known("SReclaimable"),
            free,
            swap_total,
            swap_used: (swap_total - value("SwapFree").unwrap_or(swap_total)).max(0.0),
        })
    }
}

/// The fraction of time in which some tasks, and in which all tasks, waited for a resource.
pub(crate) struct PressureStall {
    pub resource: &'static str,
    pub some: Option<f64>,
    pub full: Option<f64>,
    pub some_series: String,
    pub full_series: String,
}

pub(crate) fn pressure(model: &NodeModel) -> Vec<PressureStall> {
    let all = ["cpu", "memory", "io", "irq"].map(|resource| {
        let name = |what| format!("node_pressure_{resource}_{what}_seconds_total");
        let (some_series, full_series) = (name("waiting"), name("stalled"));
        // A counter is read slightly after the clock, so that the share may exceed one.
        let share = |series: &str| {
            let track = model.track(series)?;
            model.rate(track).map(|share| share.min(1.0))
        };
        PressureStall {
            resource,
            some: share(&some_series),
            full: share(&full_series),
            some_series,
            full_series,
        }
    });
    all.into_iter()
        .filter(|one| {
            model.track(&one.some_series).is_some() || model.track(&one.full_series).is_some()
        })
        .collect()
}
