//! AMD and Intel GPUs, from `/sys/class/drm`; no vendor library is needed.
//!
//! Runs on a thread of its own. Files that a driver does not have are absent series.

use crate::dynamic_series::SeriesWriter;
use crate::families::families;
use crate::proc_parse::ProcParseError;
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SysfsWalk, open_walk};
use crate::{CollectorEntry, Tier};

families! {
    INFO Gauge 3 "node_gpu_info" "" "Vendor, device ID and unique ID of the GPU; always 1.";
    BUSY Gauge 3 "node_gpu_busy_ratio" "ratio" "Share of time in which the GPU was busy.";
    MEMORY_BUSY Gauge 3 "node_gpu_memory_busy_ratio" "ratio" "Share of time in which the memory of the GPU was busy.";
    MEMORY_TOTAL Gauge 3 "node_gpu_memory_total_bytes" "bytes" "Size of the GPU's own memory (vram) or of the system memory that it may use (gtt), in bytes.";
    MEMORY_USED Gauge 3 "node_gpu_memory_used_bytes" "bytes" "Memory in use by the GPU, in bytes.";
    POWER Gauge 3 "node_gpu_power_watts" "watts" "Power drawn by the GPU, in watts.";
    POWER_CAP Gauge 3 "node_gpu_power_cap_watts" "watts" "Power cap of the GPU, in watts.";
    ENERGY Counter 3 "node_gpu_energy_joules_total" "joules" "Total energy used since the driver was loaded, in joules.";
    TEMPERATURE Gauge 3 "node_gpu_temperature_celsius" "celsius" "Temperature at a sensor of the GPU, in degrees Celsius.";
    CLOCK Gauge 3 "node_gpu_clock_hertz" "hertz" "Clock frequency of a domain of the GPU, in hertz.";
    CLOCK_MAX Gauge 3 "node_gpu_clock_max_hertz" "hertz" "Maximum clock frequency of a domain of the GPU, in hertz.";
    FAN Gauge 3 "node_gpu_fan_rpm" "rpm" "Fan speed, in revolutions per minute.";
    SLEEP Counter 3 "node_gpu_rc6_seconds_total" "seconds" "Total time that the Intel GPU spent in the sleep state RC6, in seconds.";
    DRAGON_BUSY Gauge 3 "DeviceUtilization" "" "Share of time in which the GPU was busy, in percent; Dragon's name.";
    DRAGON_MEMORY Gauge 3 "DeviceMemoryUtilization" "" "Share of the GPU's memory in use, in percent; Dragon's name.";
    DRAGON_POWER Gauge 3 "DevicePowerUsage" "" "Power drawn by the GPU, in watts; Dragon's name.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::threaded("gpu", Tier::Fast, FAMILIES, |context| {
        open_walk(context, "sys/class/drm", DrmCards)
    });

#[derive(Debug)]
struct DrmCards;

impl SysfsWalk for DrmCards {
    fn walk(&mut self, class: &SysfsDir, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
        for (number, card) in class.numbered_subdirs("card") {
            let Some(device) = card.subdir("device") else {
                continue;
            };
            let gpu = format!("card{number}");
            put.set_current_path(card.path());
            match device.text("vendor").as_deref() {
                Some("0x1002") => walk_amd(&gpu, &device, put)?,
                Some("0x8086") => walk_intel(&gpu, &card, &device, put)?,
                _ => {}
            }
        }
        Ok(())
    }
}

fn set_info(
    gpu: &str,
    vendor: &str,
    device: &SysfsDir,
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    let text = |name| device.text(name).unwrap_or_default();
    let (model, id) = (text("device"), text("unique_id"));
    let labels = [
        ("device_id", &*model),
        ("gpu", gpu),
        ("unique_id", &*id),
        ("vendor", vendor),
    ];
    put.set(&INFO, &labels, 1.0)
}

fn walk_amd(
    gpu: &str,
    device: &SysfsDir,
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    set_info(gpu, "amd", device, put)?;
    let of_gpu = [("gpu", gpu)];
    let busy = device.number("gpu_busy_percent");
    put.set_if_some(&BUSY, &of_gpu, busy.map(|percent| percent / 100.0))?;
    put.set_if_some(&DRAGON_BUSY, &of_gpu, busy)?;
    let busy = device.number("mem_busy_percent");
    put.set_if_some(&MEMORY_BUSY, &of_gpu, busy.map(|percent| percent / 100.0))?;
    for memory in ["vram", "gtt"] {
        let labels = [("gpu", gpu), ("memory", memory)];
        let total = device.number(&format!("mem_info_{memory}_total"));
        let used = device.number(&format!("mem_info_{memory}_used"));
        put.set_if_some(&MEMORY_TOTAL, &labels, total)?;
        put.set_if_some(&MEMORY_USED, &labels, used)?;
        if let (Some(total), Some(used), "vram") = (total, used, memory)
            && total > 0.0
        {
            put.set(&DRAGON_MEMORY, &of_gpu, used / total * 100.0)?;
        }
    }
    walk_hwmon(gpu, device, put)
}

/// Reads the hwmon chip of the GPU, which both drivers provide.
fn walk_hwmon(
    gpu: &str,
    device: &SysfsDir,
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    let Some(hwmon) = device.subdir("hwmon") else {
        return Ok(());
    };
    let of_gpu = [("gpu", gpu)];
    for (_, chip) in hwmon.numbered_subdirs("hwmon") {
        let micro = |name| chip.number(name).map(|value| value / 1e6);
        // Newer cards have only the instantaneous power.
        let power = micro("power1_average").or_else(|| micro("power1_input"));
        put.set_if_some(&POWER, &of_gpu, power)?;
        put.set_if_some(&DRAGON_POWER, &of_gpu, power)?;
        let cap = micro("power1_cap").or_else(|| micro("power1_max"));
        put.set_if_some(&POWER_CAP, &of_gpu, cap)?;
        put.set_if_some(&ENERGY, &of_gpu, micro("energy1_input"))?;
        put.set_if_some(&FAN, &of_gpu, chip.number("fan1_input"))?;
        for number in 1..=4 {
            let label = |kind: &str| {
                let label = chip.text(&format!("{kind}{number}_label"));
                label.unwrap_or_else(|| format!("{kind}{number}"))
            };
            if let Some(value) = chip.number(&format!("temp{number}_input")) {
                let labels = [("gpu", gpu), ("sensor", &*label("temp"))];
                put.set(&TEMPERATURE, &labels, value / 1e3)?;
            }
            if let Some(value) = chip.number(&format!("freq{number}_input")) {
                put.set(&CLOCK, &[("clock", &label("freq")), ("gpu", gpu)], value)?;
            }
        }
    }
    Ok(())
}

fn walk_intel(
    gpu: &str,
    card: &SysfsDir,
    device: &SysfsDir,
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    set_info(gpu, "intel", device, put)?;
    let mut is_found = false;
    if let Some(tiles) = card.subdir("gt") {
        for (number, tile) in tiles.numbered_subdirs("gt") {
            is_found = true;
            let name = format!("gt{number}");
            let labels = [("clock", &*name), ("gpu", gpu)];
            let hertz = |name| tile.number(name).map(|mega| mega * 1e6);
            put.set_if_some(&CLOCK, &labels, hertz("rps_act_freq_mhz"))?;
            put.set_if_some(&CLOCK_MAX, &labels, hertz("rps_max_freq_mhz"))?;
            let slept = tile.number("rc6_residency_ms").map(|value| value / 1e3);
            put.set_if_some(&SLEEP, &[("gpu", gpu), ("gt", &name)], slept)?;
        }
    }
    if !is_found {
        // Kernels before 5.18 support a single tile.
        let labels = [("clock", "gt0"), ("gpu", gpu)];
        let hertz = |name| card.number(name).map(|mega| mega * 1e6);
        put.set_if_some(&CLOCK, &labels, hertz("gt_act_freq_mhz"))?;
        put.set_if_some(&CLOCK_MAX, &labels, hertz("gt_max_freq_mhz"))?;
        let slept = card
            .number("power/rc6_residency_ms")
            .map(|value| value / 1e3);
        put.set_if_some(&SLEEP, &[("gpu", gpu), ("gt", "gt0")], slept)?;
    }
    walk_hwmon(gpu, device, put)
}
