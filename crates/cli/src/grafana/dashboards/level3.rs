//! Dashboard of level 3: GPUs, interconnects, energy, sensors, NUMA, cgroups, parallel file
//! systems.

use crate::grafana::dashboard::{Dashboard, DashboardRow, panel};

#[rustfmt::skip]
pub(super) const DASHBOARD: Dashboard = Dashboard {
    name: "level-3",
    title: "Pegel / 3 GPUs, interconnects, energy",
    description: "GPUs, interconnects, energy, sensors, NUMA, memory errors, jobs by cgroup, parallel file systems. Rows of hardware that many nodes lack are collapsed; without it, the agent has no such metrics.",
    variables: &[],
    rows: &[
        DashboardRow::expanded("GPUs of all vendors", &[
            panel("GPU busy", "percent", &["DeviceUtilization by gpu"]).third_width().with_max(100.0)
                .with_description("An error here means that no node has a GPU supported by Pegel."),
            panel("GPU memory usage", "percent", &["DeviceMemoryUtilization by gpu"])
                .third_width().with_max(100.0).with_thresholds(90.0, 98.0),
            panel("GPU power", "watt", &["DevicePowerUsage by gpu"]).third_width(),
        ]),
        DashboardRow::collapsed("NVIDIA GPUs", &[
            panel("NVIDIA GPU busy", "percentunit", &[
                "node_nvidia_gpu_utilization_ratio by gpu as kernels",
                "node_nvidia_memory_utilization_ratio by gpu as memory",
            ]).with_max(1.0),
            panel("NVIDIA GPU memory", "bytes", &[
                "node_nvidia_memory_used_bytes by gpu as used",
                "node_nvidia_memory_total_bytes by gpu as installed",
            ]),
            panel("NVIDIA GPU power", "watt", &[
                "node_nvidia_power_watts by gpu as usage",
                "node_nvidia_power_limit_watts by gpu as limit",
            ]),
            panel("NVIDIA GPU temperature", "celsius", &["node_nvidia_temperature_celsius by gpu"]).with_thresholds(80.0, 88.0),
            panel("NVIDIA GPU clocks", "hertz", &["node_nvidia_clock_hertz by gpu, clock"]),
            panel("NVIDIA GPU clock throttling reasons", "none", &["max(node_nvidia_clocks_event) by gpu, reason"])
                .with_description("1 while the reason is active. gpu_idle is harmless; sw_power_cap and thermal reasons reduce performance."),
            panel("NVLink, received", "Bps", &["rate(node_nvidia_nvlink_receive_bytes_total) by gpu"]),
            panel("NVLink, sent", "Bps", &["rate(node_nvidia_nvlink_transmit_bytes_total) by gpu"]),
            panel("NVIDIA GPU memory errors", "short", &["node_nvidia_ecc_errors_total by gpu, error, counter"])
                .with_thresholds(1.0, 100.0),
            panel("NVIDIA GPU last driver error (XID)", "none", &["max(node_nvidia_xid_last) by gpu"]).with_thresholds(1.0, 1.0)
                .with_description("0 if none occurred since the agent started."),
        ]),
        DashboardRow::collapsed("AMD and Intel GPUs", &[
            panel("AMD and Intel GPU busy", "percentunit", &["node_gpu_busy_ratio by gpu"]).with_max(1.0),
            panel("AMD and Intel GPU memory", "bytes", &[
                "node_gpu_memory_used_bytes by gpu, memory as used",
                "node_gpu_memory_total_bytes by gpu, memory as installed",
            ]),
            panel("AMD and Intel GPU power", "watt", &["node_gpu_power_watts by gpu"]),
            panel("AMD and Intel GPU temperature", "celsius", &["node_gpu_temperature_celsius by gpu, sensor"])
                .with_thresholds(85.0, 100.0),
            panel("AMD and Intel GPU clocks", "hertz", &["node_gpu_clock_hertz by gpu, clock"]),
        ]),
        DashboardRow::collapsed("InfiniBand, RoCE, Omni-Path", &[
            panel("InfiniBand received", "Bps", &["rate(node_infiniband_port_data_received_bytes_total) by device, port"]),
            panel("InfiniBand sent", "Bps", &["rate(node_infiniband_port_data_transmitted_bytes_total) by device, port"]),
            panel("InfiniBand packets", "pps", &[
                "rate(node_infiniband_port_packets_received_total) by device, port as received",
                "rate(node_infiniband_port_packets_transmitted_total) by device, port as sent",
            ]),
            panel("InfiniBand waiting to send", "cps", &["rate(node_infiniband_port_transmit_wait_total) by device, port"])
                .with_description("Adapter ticks with data to send but no credits: congestion in the fabric."),
            panel("InfiniBand errors", "cps", &[
                "rate(node_infiniband_symbol_error_total) by device, port as symbol errors",
                "rate(node_infiniband_link_downed_total) by device, port as link downed",
                "rate(node_infiniband_port_errors_received_total) by device, port as receive errors",
            ]).with_thresholds(0.1, 10.0),
            panel("InfiniBand state", "none", &["node_infiniband_state_id by device, port"])
                .with_description("4 is active, 1 is down."),
        ]),
        DashboardRow::collapsed("Slingshot", &[
            panel("Slingshot received", "Bps", &["rate(node_cxi_hni_sts_rx_ok_octets_total) by device"]),
            panel("Slingshot sent", "Bps", &["rate(node_cxi_hni_sts_tx_ok_octets_total) by device"]),
            panel("Slingshot uncorrected code words", "cps", &["rate(node_cxi_hni_pcs_uncorrected_cw_total) by device"])
                .with_thresholds(0.1, 10.0),
        ]),
        DashboardRow::collapsed("Energy of CPUs and memory (RAPL)", &[
            panel("Power of CPU packages", "watt", &["rate(node_rapl_package_joules_total) by index"])
                .with_description("Joules per second. By default only root can read the counters: see pegel doctor."),
            panel("Power of memory", "watt", &["rate(node_rapl_dram_joules_total) by index"]),
        ]),
        DashboardRow::collapsed("Energy of Cray nodes", &[
            panel("Cray node power", "watt", &["node_cray_power_watts by part"]),
            panel("Cray node temperature", "celsius", &["node_cray_temperature_celsius by part"]).with_thresholds(80.0, 90.0),
        ]),
        DashboardRow::collapsed("Sensors", &[
            panel("Temperatures, by sensor", "celsius", &["node_hwmon_temp_celsius by chip, sensor"]).with_thresholds(85.0, 95.0),
            panel("Fan speeds", "rotrpm", &["node_hwmon_fan_rpm by chip, sensor"]),
            panel("Power, by sensor", "watt", &["node_hwmon_power_average_watt by chip, sensor"]),
            panel("Thermal zones", "celsius", &["node_thermal_zone_temp by zone, type"]).with_thresholds(85.0, 95.0),
        ]),
        DashboardRow::collapsed("CPU frequency", &[
            panel("CPU frequency", "hertz", &["node_cpu_scaling_frequency_hertz by cpu"]),
            panel("CPU thermal throttling", "cps", &[
                "rate(node_cpu_core_throttles_total) as cores",
                "rate(node_cpu_package_throttles_total) as packages",
            ]).with_thresholds(0.1, 1.0),
        ]),
        DashboardRow::collapsed("NUMA", &[
            panel("NUMA free memory", "bytes", &["node_memory_numa_MemFree by node"]),
            panel("NUMA pages allocated on another node", "cps", &["rate(node_memory_numa_numa_miss_total) by node"]),
        ]),
        DashboardRow::collapsed("Memory errors", &[
            panel("Corrected memory errors", "short", &["node_edac_correctable_errors_total by controller"])
                .with_thresholds(100.0, 10_000.0)
                .with_description("Since boot. A few are normal; a growing number indicates a failing module."),
            panel("Uncorrected memory errors", "short", &["node_edac_uncorrectable_errors_total by controller"])
                .with_thresholds(1.0, 2.0),
        ]),
        DashboardRow::expanded("Jobs and services by cgroup", &[
            panel("Cgroup CPU usage", "short", &["rate(node_cgroup_cpu_usage_seconds_total) by cgroup"])
                .with_description("CPU seconds per second."),
            panel("Cgroup memory", "bytes", &["node_cgroup_memory_usage_bytes by cgroup"])
                .with_description("Includes the page cache."),
            panel("Cgroup CPU throttling", "percentunit", &["rate(node_cgroup_cpu_throttled_seconds_total) by cgroup"])
                .with_thresholds(0.1, 0.5),
            panel("Cgroup OOM kills", "short", &["node_cgroup_memory_oom_kills_total by cgroup"]).with_thresholds(1.0, 2.0),
            panel("Cgroup I/O", "Bps", &[
                "rate(node_cgroup_io_read_bytes_total) by cgroup as read",
                "rate(node_cgroup_io_written_bytes_total) by cgroup as written",
            ]),
            panel("Cgroup tasks", "short", &["node_cgroup_pids by cgroup"]),
        ]),
        DashboardRow::collapsed("Lustre", &[
            panel("Lustre traffic", "Bps", &[
                "rate(node_lustre_read_bytes_total) by fs as read",
                "rate(node_lustre_write_bytes_total) by fs as written",
            ]),
            panel("Lustre calls", "ops", &["rate(node_lustre_operations_total) by fs, operation"]),
        ]),
        DashboardRow::collapsed("NFS", &[
            panel("NFS data from and to servers", "Bps", &[
                "rate(node_mountstats_nfs_total_read_bytes_total) by export as read",
                "rate(node_mountstats_nfs_total_write_bytes_total) by export as written",
            ]),
            panel("NFS calls", "ops", &["rate(node_nfs_requests_total) by proto, method"]),
            panel("NFS retransmitted calls", "cps", &["rate(node_nfs_rpc_retransmissions_total)"]).with_thresholds(1.0, 10.0),
            panel("NFS request time", "short", &[
                "rate(node_mountstats_nfs_operations_request_time_seconds_total) by export",
            ])
                .with_description("Seconds per second: the mean number of requests in progress."),
        ]),
    ],
};
