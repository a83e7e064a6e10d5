//! Usage of disks, file systems and network interfaces.

use super::{LabelledSeries, NodeModel, SeriesTrack};

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DiskUsage {
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
    /// The series of the bytes that were read, and of those that were written.
    pub series: [String; 2],
}

impl DiskUsage {
    /// Returns whether the device consists of other disks, which count the same bytes.
    pub(crate) fn is_composed(&self) -> bool {
        self.name.starts_with("dm-") || self.name.starts_with("md")
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct FilesystemUsage {
    pub mountpoint: String,
    pub fs_type: String,
    pub size: f64,
    pub used: f64,
    pub available: f64,
    pub has_error: bool,
}

impl FilesystemUsage {
    /// Returns the used fraction by the formula of `df`: blocks reserved for root count neither as
    /// used nor as available. `None` for an empty file system.
    pub(crate) fn used_share(&self) -> Option<f64> {
        let usable = self.used + self.available;
        (usable > 0.0).then(|| self.used / usable)
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct InterfaceUsage {
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
    /// The series of the received and of the sent bytes.
    pub series: [String; 2],
}

impl InterfaceUsage {
    /// Returns whether the interface carries bytes that leave the node and that no other interface
    /// counts: neither loopback nor a bridge, a bond or the end of a container's link.
    pub(crate) fn is_physical(&self) -> bool {
        const VIRTUAL: [&str; 10] = [
            "veth", "docker", "br-", "virbr", "cni", "flannel", "cali", "bond", "tun", "tap",
        ];
        let mut virtual_names = VIRTUAL.iter();
        self.name != "lo" && !virtual_names.any(|start| self.name.starts_with(start))
    }
}

/// Returns the disks by bytes since boot, descending: a stable order.
pub(crate) fn disks(model: &NodeModel) -> Vec<DiskUsage> {
    let tracks = model.tracks_named("node_disk_reads_completed_total");
    let mut all: Vec<DiskUsage> = tracks.map(|track| disk(model, track)).collect();
    all.sort_by(|a, b| b.total.total_cmp(&a.total));
    all
}

fn disk(model: &NodeModel, track: &SeriesTrack) -> DiskUsage {
    let series = model.labelled("node_disk_", track);
    let (reads, writes) = (
        series.rate("reads_completed_total"),
        series.rate("writes_completed_total"),
    );
    let each = |time: Option<f64>, count: Option<f64>| {
        time.zip(count.filter(|count| *count > 0.0))
            .map(|(time, count)| time / count)
    };
    DiskUsage {
        name: device(track),
        read_bytes: series.rate("read_bytes_total"),
        written_bytes: series.rate("written_bytes_total"),
        reads,
        writes,
        read_time: each(series.rate("read_time_seconds_total"), reads),
        write_time: each(series.rate("write_time_seconds_total"), writes),
        busy: series.rate("io_time_seconds_total"),
        queue: series.value("io_now"),
        total: sum(&series, ["read_bytes_total", "written_bytes_total"]),
        series: ["read_bytes_total", "written_bytes_total"].map(|suffix| series.text(suffix)),
    }
}

pub(crate) fn filesystems(model: &NodeModel) -> Vec<FilesystemUsage> {
    let mut all: Vec<FilesystemUsage> = model
        .tracks_named("node_filesystem_device_error")
        .map(|track| {
            let series = model.labelled("node_filesystem_", track);
            let label = |key| track.series.label(key).unwrap_or_default().into_owned();
            let size = series.value("size_bytes").unwrap_or(0.0);
            FilesystemUsage {
                mountpoint: label("mountpoint"),
                fs_type: label("fstype"),
                size,
                used: (size - series.value("free_bytes").unwrap_or(0.0)).max(0.0),
                available: series.value("avail_bytes").unwrap_or(0.0),
                has_error: track.last().is_some_and(|last| last.value != 0.0),
            }
        })
        .collect();
    all.sort_by(|a, b| a.mountpoint.cmp(&b.mountpoint));
    all
}

/// Returns interfaces and InfiniBand ports by bytes since boot, descending, with the loopback
/// interface last.
pub(crate) fn interfaces(model: &NodeModel) -> Vec<InterfaceUsage> {
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

fn ethernet(model: &NodeModel, track: &SeriesTrack) -> InterfaceUsage {
    let series = model.labelled("node_network_", track);
    let name = device(track);
    InterfaceUsage {
        received_bytes: series.rate("receive_bytes_total"),
        sent_bytes: series.rate("transmit_bytes_total"),
        received_packets: series.rate("receive_packets_total"),
        sent_packets: series.rate("transmit_packets_total"),
        errors: [
            "receive_errs_total",
            "receive_drop_total",
            "transmit_errs_total",
            "transmit_drop_total",
        ]
        .into_iter()
        .filter_map(|suffix| series.rate(suffix))
        .reduce(|a, b| a + b),
        speed: series.value("speed_bytes").filter(|speed| *speed > 0.0),
        // The kernel does not report the state of the loopback interface.
        is_up: series
            .value("up")
            .filter(|_| name != "lo")
            .map(|up| up != 0.0),
        total: sum(&series, ["receive_bytes_total", "transmit_bytes_total"]),
        series: ["receive_bytes_total", "transmit_bytes_total"].map(|suffix| series.text(suffix)),
        name,
    }
}

fn infiniband(model: &NodeModel, track: &SeriesTrack) -> InterfaceUsage {
    let series = model.labelled("node_infiniband_", track);
    let port = track.series.label("port").unwrap_or_default();
    let (received, sent) = (
        "port_data_received_bytes_total",
        "port_data_transmitted_bytes_total",
    );
    InterfaceUsage {
        name: format!("{}:{port}", device(track)),
        received_bytes: series.rate(received),
        sent_bytes: series.rate(sent),
        received_packets: series.rate("port_packets_received_total"),
        sent_packets: series.rate("port_packets_transmitted_total"),
        errors: series.rate("port_errors_received_total"),
        speed: series
            .value("rate_bytes_per_second")
            .filter(|speed| *speed > 0.0),
        is_up: series.value("state_id").map(|state| state >= 4.0),
        total: sum(&series, [received, sent]),
        series: [received, sent].map(|suffix| series.text(suffix)),
    }
}

fn sum(series: &LabelledSeries<'_>, suffixes: [&str; 2]) -> f64 {
    let values = suffixes.iter().filter_map(|suffix| series.value(suffix));
    values.sum()
}

fn device(track: &SeriesTrack) -> String {
    let label = track.series.label("device");
    label.unwrap_or_default().into_owned()
}
