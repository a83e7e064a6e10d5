//! The charts of the node and of its devices, as pairs.

use super::charts::Chart;
use super::cpu::CPU_SERIES;
use super::memory::MEMORY_SERIES;
use super::theme::StyleRole;
use crate::top::app::TopApp;
use crate::top::model::{self, CpuUsage, DiskUsage, GpuUsage, InterfaceUsage};
use crate::top::units;

/// The most devices with charts, which bounds the histories to fetch.
const DEVICES_MAX: usize = 64;

fn percent_of_hundred(value: f64) -> String {
    units::percent(value / 100.0)
}

/// Returns the charts of the whole node: CPUs and memory, all disks, all networks, all GPUs.
pub(super) fn of_node(app: &TopApp) -> Vec<[Chart; 2]> {
    let model = &app.model;
    let mut pairs = vec![usage_pair(app)];
    let disks = model::disks(model);
    let disks: Vec<&DiskUsage> = disks.iter().filter(|disk| !disk.is_composed()).collect();
    if !disks.is_empty() {
        pairs.push(disk_pair("disks", &disks));
    }
    let interfaces = model::interfaces(model);
    let interfaces: Vec<&InterfaceUsage> = interfaces
        .iter()
        .filter(|interface| interface.is_physical())
        .collect();
    if !interfaces.is_empty() {
        pairs.push(network_pair("network", &interfaces));
    }
    let gpus = model::gpus(model);
    if !gpus.is_empty() {
        let gpus: Vec<&GpuUsage> = gpus.iter().collect();
        pairs.push(gpu_pair("GPUs", &gpus));
    }
    pairs
}

/// Returns the charts of all disks and all networks only.
pub(super) fn of_devices(app: &TopApp) -> Vec<[Chart; 2]> {
    of_node(app).into_iter().skip(1).take(2).collect()
}

pub(super) fn of_disks(app: &TopApp) -> Vec<[Chart; 2]> {
    let disks = model::disks(&app.model);
    let disks = disks.iter().take(DEVICES_MAX);
    disks.map(|disk| disk_pair(&disk.name, &[disk])).collect()
}

/// Returns the charts of the interfaces that are not known to be down.
pub(super) fn of_networks(app: &TopApp) -> Vec<[Chart; 2]> {
    model::interfaces(&app.model)
        .iter()
        .filter(|interface| interface.is_up != Some(false))
        .take(DEVICES_MAX)
        .map(|interface| network_pair(&interface.name, &[interface]))
        .collect()
}

pub(super) fn of_gpus(app: &TopApp) -> Vec<[Chart; 2]> {
    let gpus = model::gpus(&app.model);
    let gpus = gpus.iter().take(DEVICES_MAX);
    gpus.map(|gpu| gpu_pair(&format!("GPU {}", gpu.id), &[gpu]))
        .collect()
}

fn usage_pair(app: &TopApp) -> [Chart; 2] {
    let chart = |title: &str, series: &str, current, role| Chart {
        title: title.to_owned(),
        series: vec![series.to_owned()],
        current,
        top: Some(100.0),
        format: percent_of_hundred,
        role,
        is_mean: false,
    };
    let busy = CpuUsage::from_model(&app.model).map(|cpu| cpu.all.busy() * 100.0);
    let used = app.model.value(MEMORY_SERIES);
    [
        chart("cpu", CPU_SERIES, busy, StyleRole::Good),
        chart("memory", MEMORY_SERIES, used, StyleRole::Good),
    ]
}

fn disk_pair(name: &str, disks: &[&DiskUsage]) -> [Chart; 2] {
    let series = |index: usize| {
        let disks = disks.iter().take(DEVICES_MAX);
        disks.map(|disk| disk.series[index].clone()).collect()
    };
    [
        bytes_chart(
            format!("{name} read"),
            series(0),
            sum(disks, |disk| disk.read_bytes),
            StyleRole::Incoming,
        ),
        bytes_chart(
            format!("{name} written"),
            series(1),
            sum(disks, |disk| disk.written_bytes),
            StyleRole::Outgoing,
        ),
    ]
}

fn network_pair(name: &str, interfaces: &[&InterfaceUsage]) -> [Chart; 2] {
    let series = |index: usize| {
        let interfaces = interfaces.iter().take(DEVICES_MAX);
        interfaces.map(|one| one.series[index].clone()).collect()
    };
    [
        bytes_chart(
            format!("{name} received"),
            series(0),
            sum(interfaces, |one| one.received_bytes),
            StyleRole::Incoming,
        ),
        bytes_chart(
            format!("{name} sent"),
            series(1),
            sum(interfaces, |one| one.sent_bytes),
            StyleRole::Outgoing,
        ),
    ]
}

fn gpu_pair(name: &str, gpus: &[&GpuUsage]) -> [Chart; 2] {
    let busy = sum(gpus, |gpu| gpu.busy).map(|busy| busy / gpus.len() as f64);
    [
        Chart {
            title: format!("{name} busy"),
            series: gpus.iter().map(|gpu| gpu.busy_series.clone()).collect(),
            current: busy,
            top: Some(1.0),
            format: units::percent,
            role: StyleRole::Good,
            is_mean: true,
        },
        Chart {
            title: format!("{name} memory"),
            series: gpus.iter().map(|gpu| gpu.memory_series.clone()).collect(),
            current: sum(gpus, |gpu| gpu.memory_used),
            top: sum(gpus, |gpu| gpu.memory_total),
            format: units::bytes,
            role: StyleRole::Good,
            is_mean: false,
        },
    ]
}

fn bytes_chart(title: String, series: Vec<String>, current: Option<f64>, role: StyleRole) -> Chart {
    Chart {
        title,
        series,
        current,
        top: None,
        format: units::bytes_per_second,
        role,
        is_mean: false,
    }
}

fn sum<T>(devices: &[&T], value: impl Fn(&T) -> Option<f64>) -> Option<f64> {
    let values = devices.iter().filter_map(|device| value(device));
    values.reduce(|a, b| a + b)
}
