//! Usage of disks, file systems and network interfaces.

use std::collections::BTreeMap;

use super::{NodeModel, SeriesTrack};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct DiskUsage {
    pub name: String,
    pub read_bytes: Option<f64>,
    pub written_bytes: Option<f64>,
    pub reads: Option<f64>,
    pub writes: Option<f64>,
    /// Mean seconds per read.
    pub read_time: Option<f64>,
    /// Mean seconds per write.
    pub write_time: Option<f64>,
    pub busy: Option<f64>,
    pub queue: Option<f64>,
    /// Bytes since boot.
    pub total: f64,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct FilesystemUsage {
    pub mountpoint: String,
    pub device: String,
    pub fs_type: String,
    pub size: f64,
    pub used: f64,
    pub available: f64,
    pub has_error: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct InterfaceUsage {
    pub name: String,
    pub received_bytes: Option<f64>,
    pub sent_bytes: Option<f64>,
    pub received_packets: Option<f64>,
    pub sent_packets: Option<f64>,
    /// Errors and drops per second.
    pub errors: Option<f64>,
    /// Link speed in bytes per second.
    pub speed: Option<f64>,
    pub is_up: Option<bool>,
    pub total: f64,
}

/// Returns the disks by bytes since boot, descending: a stable order.
pub fn disks(model: &NodeModel) -> Vec<DiskUsage> {
    let mut all: BTreeMap<String, DiskUsage> = BTreeMap::new();
    for track in model.tracks_named("node_disk_reads_completed_total") {
        let name = device(track);
        let family = |what: &str| format!("node_disk_{what}");
        let rate = |what: &str| track_with_label(model, &family(what), "device", &name);
        let rate = |what: &str| rate(what).and_then(|track| model.rate(track));
        let value = |what: &str| {
            track_with_label(model, &family(what), "device", &name)
                .and_then(SeriesTrack::last)
                .map(|last| last.value)
        };
        let (reads, writes) = (
            rate("reads_completed_total"),
            rate("writes_completed_total"),
        );
        let each = |time: Option<f64>, count: Option<f64>| {
            time.zip(count.filter(|count| *count > 0.0))
                .map(|(time, count)| time / count)
        };
        let disk = DiskUsage {
            read_bytes: rate("read_bytes_total"),
            written_bytes: rate("written_bytes_total"),
            reads,
            writes,
            read_time: each(rate("read_time_seconds_total"), reads),
            write_time: each(rate("write_time_seconds_total"), writes),
            busy: rate("io_time_seconds_total"),
            queue: value("io_now"),
            total: value("read_bytes_total").unwrap_or(0.0)
                + value("written_bytes_total").unwrap_or(0.0),
            name: name.clone(),
        };
        all.insert(name, disk);
    }
    let mut all: Vec<DiskUsage> = all.into_values().collect();
    all.sort_by(|a, b| b.total.total_cmp(&a.total));
    all
}

pub fn filesystems(model: &NodeModel) -> Vec<FilesystemUsage> {
    let value = |name: &str, labels: &str| {
        let text = format!("{name}{labels}");
        let last = model.track(&text).and_then(SeriesTrack::last);
        last.map(|last| last.value)
    };
    let mut all: Vec<FilesystemUsage> = model
        .tracks_named("node_filesystem_device_error")
        .map(|track| {
            let labels = track.series.labels_text();
            let label = |key| track.series.label(key).unwrap_or_default().into_owned();
            let size = value("node_filesystem_size_bytes", labels).unwrap_or(0.0);
            let free = value("node_filesystem_free_bytes", labels).unwrap_or(0.0);
            FilesystemUsage {
                mountpoint: label("mountpoint"),
                device: label("device"),
                fs_type: label("fstype"),
                size,
                used: (size - free).max(0.0),
                available: value("node_filesystem_avail_bytes", labels).unwrap_or(0.0),
                has_error: track.last().is_some_and(|last| last.value != 0.0),
            }
        })
        .collect();
    all.sort_by(|a, b| a.mountpoint.cmp(&b.mountpoint));
    all
}

/// Returns interfaces and InfiniBand ports by bytes since boot, descending, with the loopback interface last.
pub fn interfaces(model: &NodeModel) -> Vec<InterfaceUsage> {
    let mut all: Vec<InterfaceUsage> = model
        .tracks_named("node_network_receive_bytes_total")
        .map(|track| ethernet(model, track))
        .collect();
    all.extend(
        model
            .tracks_named("node_infiniband_port_data_received_bytes_total")
            .map(|track| infiniband(model, track)),
    );
    all.sort_by(|a, b| {
        (a.name == "lo", b.total)
            .partial_cmp(&(b.name == "lo", a.total))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    all
}

fn ethernet(model: &NodeModel, received: &SeriesTrack) -> InterfaceUsage {
    let name = device(received);
    let track =
        |what: &str| track_with_label(model, &format!("node_network_{what}"), "device", &name);
    let rate = |what: &str| track(what).and_then(|track| model.rate(track));
    let value = |what: &str| {
        track(what)
            .and_then(SeriesTrack::last)
            .map(|last| last.value)
    };
    InterfaceUsage {
        received_bytes: rate("receive_bytes_total"),
        sent_bytes: rate("transmit_bytes_total"),
        received_packets: rate("receive_packets_total"),
        sent_packets: rate("transmit_packets_total"),
        errors: [
            "receive_errs_total",
            "receive_drop_total",
            "transmit_errs_total",
            "transmit_drop_total",
        ]
        .into_iter()
        .filter_map(rate)
        .reduce(|a, b| a + b),
        speed: value("speed_bytes").filter(|speed| *speed > 0.0),
        // The kernel does not report the state of the loopback interface.
        is_up: value("up").filter(|_| name != "lo").map(|up| up != 0.0),
        total: value("receive_bytes_total").unwrap_or(0.0)
            + value("transmit_bytes_total").unwrap_or(0.0),
        name: name.clone(),
    }
}

fn infiniband(model: &NodeModel, received: &SeriesTrack) -> InterfaceUsage {
    let labels = received.series.labels_text();
    let track = |what: &str| model.track(&format!("node_infiniband_{what}{labels}"));
    let rate = |what: &str| track(what).and_then(|track| model.rate(track));
    let value = |what: &str| {
        track(what)
            .and_then(SeriesTrack::last)
            .map(|last| last.value)
    };
    let port = received.series.label("port").unwrap_or_default();
    InterfaceUsage {
        name: format!("{}:{port}", device(received)),
        received_bytes: rate("port_data_received_bytes_total"),
        sent_bytes: rate("port_data_transmitted_bytes_total"),
        received_packets: rate("port_packets_received_total"),
        sent_packets: rate("port_packets_transmitted_total"),
        errors: rate("port_errors_received_total"),
        speed: value("rate_bytes_per_second").filter(|speed| *speed > 0.0),
        is_up: value("state_id").map(|state| state >= 4.0),
        total: value("port_data_received_bytes_total").unwrap_or(0.0)
            + value("port_data_transmitted_bytes_total").unwrap_or(0.0),
    }
}

fn device(track: &SeriesTrack) -> String {
    track
        .series
        .label("device")
        .unwrap_or_default()
        .into_owned()
}

/// Returns the series of this name whose only label has this value.
pub fn track_with_label<'a>(
    model: &'a NodeModel,
    name: &str,
    key: &str,
    value: &str,
) -> Option<&'a SeriesTrack> {
    // Finds only values that need no escaping.
    let text = format!("{name}{{{key}=\"{value}\"}}");
    model.track(&text)
}
