//! Usage of GPUs: NVIDIA's as reported by NVML, others as reported by the kernel.

use std::collections::BTreeMap;

use super::{NodeModel, SeriesTrack};

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct GpuUsage {
    /// The value of the label `gpu`.
    pub id: String,
    pub model: String,
    pub busy: Option<f64>,
    pub memory_busy: Option<f64>,
    pub memory_used: Option<f64>,
    pub memory_total: Option<f64>,
    pub power: Option<f64>,
    pub power_limit: Option<f64>,
    pub temperature: Option<f64>,
    pub clock: Option<f64>,
    /// The series whose histories are drawn.
    pub busy_series: String,
    pub memory_series: String,
}

pub(crate) fn gpus(model: &NodeModel) -> Vec<GpuUsage> {
    let mut all = by_gpu(model, "node_nvidia_info", nvidia_gpu);
    all.extend(by_gpu(model, "node_gpu_info", kernel_gpu));
    all
}

/// Returns one entry per value of the label `gpu`, in numeric order.
fn by_gpu(
    model: &NodeModel,
    info: &str,
    read: fn(&NodeModel, &SeriesTrack, String) -> GpuUsage,
) -> Vec<GpuUsage> {
    let mut all = BTreeMap::new();
    for track in model.tracks_named(info) {
        let id = label(track, "gpu");
        let order = (id.parse::<u32>().unwrap_or(u32::MAX), id.clone());
        all.insert(order, read(model, track, id));
    }
    all.into_values().collect()
}

fn nvidia_gpu(model: &NodeModel, info: &SeriesTrack, id: String) -> GpuUsage {
    let value = |what: &str| model.value(&format!("node_nvidia_{what}{{gpu=\"{id}\"}}"));
    let clock = format!("node_nvidia_clock_hertz{{clock=\"sm\",gpu=\"{id}\"}}");
    GpuUsage {
        model: label(info, "name").trim_start_matches("NVIDIA ").to_owned(),
        busy: value("gpu_utilization_ratio"),
        memory_busy: value("memory_utilization_ratio"),
        memory_used: value("memory_used_bytes"),
        memory_total: value("memory_total_bytes"),
        power: value("power_watts"),
        power_limit: value("power_limit_watts"),
        temperature: value("temperature_celsius"),
        clock: model.value(&clock),
        busy_series: format!("node_nvidia_gpu_utilization_ratio{{gpu=\"{id}\"}}"),
        memory_series: format!("node_nvidia_memory_used_bytes{{gpu=\"{id}\"}}"),
        id,
    }
}

fn kernel_gpu(model: &NodeModel, info: &SeriesTrack, id: String) -> GpuUsage {
    let value = |what: &str| model.value(&format!("node_gpu_{what}{{gpu=\"{id}\"}}"));
    let memory = |what: &str| {
        let text = format!("node_gpu_memory_{what}_bytes{{gpu=\"{id}\",memory=\"vram\"}}");
        model.value(&text)
    };
    // The highest of all sensors, whose names differ between cards; the same for clocks.
    let highest = |name: &str| {
        model
            .tracks_named(name)
            .filter(|track| track.series.label("gpu").as_deref() == Some(&id))
            .filter_map(|track| track.last().map(|last| last.value))
            .reduce(f64::max)
    };
    GpuUsage {
        model: format!("{} {}", label(info, "vendor"), label(info, "device_id")),
        busy: value("busy_ratio"),
        memory_busy: value("memory_busy_ratio"),
        memory_used: memory("used"),
        memory_total: memory("total"),
        // Intel's cards report energy only.
        power: value("power_watts").or_else(|| {
            let energy = format!("node_gpu_energy_joules_total{{gpu=\"{id}\"}}");
            model.track(&energy).and_then(|track| model.rate(track))
        }),
        power_limit: value("power_cap_watts"),
        temperature: highest("node_gpu_temperature_celsius"),
        clock: highest("node_gpu_clock_hertz"),
        busy_series: format!("node_gpu_busy_ratio{{gpu=\"{id}\"}}"),
        memory_series: format!("node_gpu_memory_used_bytes{{gpu=\"{id}\",memory=\"vram\"}}"),
        id,
    }
}

fn label(track: &SeriesTrack, key: &str) -> String {
    track.series.label(key).unwrap_or_default().into_owned()
}
