//! Dashboard of level 3: GPUs, interconnects, energy, sensors, NUMA, cgroups, parallel file systems.

use crate::grafana::dashboard::{Dashboard, DashboardPanel, DashboardRow, max_value, rate, value};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "level-3",
    title: "Pegel / 3 GPUs, interconnects, energy",
    description: "GPUs, interconnects, energy, sensors, NUMA, memory errors, jobs by cgroup, parallel file systems. Rows of hardware that many nodes lack are collapsed; without it, the agent has no such metrics.",
    variables: &[],
    rows: &[
        DashboardRow::expanded("GPUs of all vendors", GPUS),
        DashboardRow::collapsed("NVIDIA GPUs", NVIDIA),
        DashboardRow::collapsed("AMD and Intel GPUs", OTHER_GPUS),
        DashboardRow::collapsed("InfiniBand, RoCE, Omni-Path", INFINIBAND),
        DashboardRow::collapsed("Slingshot", SLINGSHOT),
        DashboardRow::collapsed("Energy of CPUs and memory (RAPL)", RAPL),
        DashboardRow::collapsed("Energy of Cray nodes", CRAY),
        DashboardRow::collapsed("Sensors", SENSORS),
        DashboardRow::collapsed("CPU frequency", FREQUENCY),
        DashboardRow::collapsed("NUMA", NUMA),
        DashboardRow::collapsed("Memory errors", EDAC),
        DashboardRow::expanded("Jobs and services by cgroup", CGROUPS),
        DashboardRow::collapsed("Lustre", LUSTRE),
        DashboardRow::collapsed("NFS", NFS),
    ],
};

const GPUS: &[DashboardPanel] = &[
    DashboardPanel::new("Busy", "percent", &[value("DeviceUtilization", &["gpu"])])
        .third_width()
        .with_max(100.0)
        .with_description("An error here means that no node has a GPU supported by Pegel."),
    DashboardPanel::new(
        "Memory usage",
        "percent",
        &[value("DeviceMemoryUtilization", &["gpu"])],
    )
    .third_width()
    .with_max(100.0)
    .with_thresholds(90.0, 98.0),
    DashboardPanel::new("Power", "watt", &[value("DevicePowerUsage", &["gpu"])]).third_width(),
];

const NVIDIA: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Busy",
        "percentunit",
        &[
            value("node_nvidia_gpu_utilization_ratio", &["gpu"]).with_legend("kernels"),
            value("node_nvidia_memory_utilization_ratio", &["gpu"]).with_legend("memory"),
        ],
    )
    .with_max(1.0),
    DashboardPanel::new(
        "Memory",
        "bytes",
        &[
            value("node_nvidia_memory_used_bytes", &["gpu"]).with_legend("used"),
            value("node_nvidia_memory_total_bytes", &["gpu"]).with_legend("installed"),
        ],
    ),
    DashboardPanel::new(
        "Power",
        "watt",
        &[
            value("node_nvidia_power_watts", &["gpu"]).with_legend("usage"),
            value("node_nvidia_power_limit_watts", &["gpu"]).with_legend("limit"),
        ],
    ),
    DashboardPanel::new("Temperature", "celsius", &[value("node_nvidia_temperature_celsius", &["gpu"])])
        .with_thresholds(80.0, 88.0),
    DashboardPanel::new("Clocks", "hertz", &[value("node_nvidia_clock_hertz", &["gpu", "clock"])]),
    DashboardPanel::new(
        "Clock throttling reasons",
        "none",
        &[max_value("node_nvidia_clocks_event", &["gpu", "reason"])],
    )
    .with_description("1 while the reason is active. gpu_idle is harmless; sw_power_cap and thermal reasons reduce performance."),
    DashboardPanel::new(
        "NVLink, received",
        "Bps",
        &[rate("node_nvidia_nvlink_receive_bytes_total", &["gpu"])],
    ),
    DashboardPanel::new(
        "NVLink, sent",
        "Bps",
        &[rate("node_nvidia_nvlink_transmit_bytes_total", &["gpu"])],
    ),
    DashboardPanel::new(
        "Memory errors",
        "short",
        &[value("node_nvidia_ecc_errors_total", &["gpu", "error", "counter"])],
    ),
    DashboardPanel::new("Last driver error (XID)", "none", &[max_value("node_nvidia_xid_last", &["gpu"])])
        .with_description("0 if none occurred since the agent started."),
];

const OTHER_GPUS: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Busy",
        "percentunit",
        &[value("node_gpu_busy_ratio", &["gpu"])],
    )
    .with_max(1.0),
    DashboardPanel::new(
        "Memory",
        "bytes",
        &[
            value("node_gpu_memory_used_bytes", &["gpu", "memory"]).with_legend("used"),
            value("node_gpu_memory_total_bytes", &["gpu", "memory"]).with_legend("installed"),
        ],
    ),
    DashboardPanel::new("Power", "watt", &[value("node_gpu_power_watts", &["gpu"])]),
    DashboardPanel::new(
        "Temperature",
        "celsius",
        &[value("node_gpu_temperature_celsius", &["gpu", "sensor"])],
    )
    .with_thresholds(85.0, 100.0),
    DashboardPanel::new(
        "Clocks",
        "hertz",
        &[value("node_gpu_clock_hertz", &["gpu", "clock"])],
    ),
];

const INFINIBAND: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Received",
        "Bps",
        &[rate(
            "node_infiniband_port_data_received_bytes_total",
            &["device", "port"],
        )],
    ),
    DashboardPanel::new(
        "Sent",
        "Bps",
        &[rate(
            "node_infiniband_port_data_transmitted_bytes_total",
            &["device", "port"],
        )],
    ),
    DashboardPanel::new(
        "Packets",
        "pps",
        &[
            rate(
                "node_infiniband_port_packets_received_total",
                &["device", "port"],
            )
            .with_legend("received"),
            rate(
                "node_infiniband_port_packets_transmitted_total",
                &["device", "port"],
            )
            .with_legend("sent"),
        ],
    ),
    DashboardPanel::new(
        "Waiting to send",
        "cps",
        &[rate(
            "node_infiniband_port_transmit_wait_total",
            &["device", "port"],
        )],
    )
    .with_description("Adapter ticks with data to send but no credits: congestion in the fabric."),
    DashboardPanel::new(
        "Errors",
        "cps",
        &[
            rate("node_infiniband_symbol_error_total", &["device", "port"])
                .with_legend("symbol errors"),
            rate("node_infiniband_link_downed_total", &["device", "port"])
                .with_legend("link downed"),
            rate(
                "node_infiniband_port_errors_received_total",
                &["device", "port"],
            )
            .with_legend("receive errors"),
        ],
    ),
    DashboardPanel::new(
        "State",
        "none",
        &[value("node_infiniband_state_id", &["device", "port"])],
    )
    .with_description("4 is active, 1 is down."),
];

const SLINGSHOT: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Received",
        "Bps",
        &[rate("node_cxi_hni_sts_rx_ok_octets_total", &["device"])],
    ),
    DashboardPanel::new(
        "Sent",
        "Bps",
        &[rate("node_cxi_hni_sts_tx_ok_octets_total", &["device"])],
    ),
    DashboardPanel::new(
        "Uncorrected code words",
        "cps",
        &[rate("node_cxi_hni_pcs_uncorrected_cw_total", &["device"])],
    ),
];

const RAPL: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Packages",
        "watt",
        &[rate("node_rapl_package_joules_total", &["index"])],
    )
    .with_description(
        "Joules per second. By default only root can read the counters: see pegel doctor.",
    ),
    DashboardPanel::new(
        "Memory",
        "watt",
        &[rate("node_rapl_dram_joules_total", &["index"])],
    ),
];

const CRAY: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Power",
        "watt",
        &[value("node_cray_power_watts", &["part"])],
    ),
    DashboardPanel::new(
        "Temperature",
        "celsius",
        &[value("node_cray_temperature_celsius", &["part"])],
    ),
];

const SENSORS: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Temperatures",
        "celsius",
        &[value("node_hwmon_temp_celsius", &["chip", "sensor"])],
    )
    .with_thresholds(85.0, 95.0),
    DashboardPanel::new(
        "Fans",
        "rotrpm",
        &[value("node_hwmon_fan_rpm", &["chip", "sensor"])],
    ),
    DashboardPanel::new(
        "Power",
        "watt",
        &[value("node_hwmon_power_average_watt", &["chip", "sensor"])],
    ),
    DashboardPanel::new(
        "Thermal zones",
        "celsius",
        &[value("node_thermal_zone_temp", &["zone", "type"])],
    ),
];

const FREQUENCY: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Frequency",
        "hertz",
        &[value("node_cpu_scaling_frequency_hertz", &["cpu"])],
    ),
    DashboardPanel::new(
        "Thermal throttling",
        "cps",
        &[
            rate("node_cpu_core_throttles_total", &[]).with_legend("cores"),
            rate("node_cpu_package_throttles_total", &[]).with_legend("packages"),
        ],
    )
    .with_thresholds(0.1, 1.0),
];

const NUMA: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Free memory",
        "bytes",
        &[value("node_memory_numa_MemFree", &["node"])],
    ),
    DashboardPanel::new(
        "Pages allocated on another node",
        "cps",
        &[rate("node_memory_numa_numa_miss_total", &["node"])],
    ),
];

const EDAC: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Corrected",
        "short",
        &[value("node_edac_correctable_errors_total", &["controller"])],
    )
    .with_description("Since boot. A few are normal; a growing number indicates a failing module."),
    DashboardPanel::new(
        "Uncorrected",
        "short",
        &[value(
            "node_edac_uncorrectable_errors_total",
            &["controller"],
        )],
    )
    .with_thresholds(1.0, 2.0),
];

const CGROUPS: &[DashboardPanel] = &[
    DashboardPanel::new(
        "CPU usage",
        "short",
        &[rate("node_cgroup_cpu_usage_seconds_total", &["cgroup"])],
    )
    .with_description("CPU seconds per second."),
    DashboardPanel::new(
        "Memory",
        "bytes",
        &[value("node_cgroup_memory_usage_bytes", &["cgroup"])],
    )
    .with_description("Includes the page cache."),
    DashboardPanel::new(
        "CPU throttling",
        "percentunit",
        &[rate("node_cgroup_cpu_throttled_seconds_total", &["cgroup"])],
    ),
    DashboardPanel::new(
        "OOM kills",
        "short",
        &[value("node_cgroup_memory_oom_kills_total", &["cgroup"])],
    )
    .with_thresholds(1.0, 2.0),
    DashboardPanel::new(
        "I/O",
        "Bps",
        &[
            rate("node_cgroup_io_read_bytes_total", &["cgroup"]).with_legend("read"),
            rate("node_cgroup_io_written_bytes_total", &["cgroup"]).with_legend("written"),
        ],
    ),
    DashboardPanel::new("Tasks", "short", &[value("node_cgroup_pids", &["cgroup"])]),
];

const LUSTRE: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Traffic",
        "Bps",
        &[
            rate("node_lustre_read_bytes_total", &["fs"]).with_legend("read"),
            rate("node_lustre_write_bytes_total", &["fs"]).with_legend("written"),
        ],
    ),
    DashboardPanel::new(
        "Calls",
        "ops",
        &[rate("node_lustre_operations_total", &["fs", "operation"])],
    ),
];

const NFS: &[DashboardPanel] = &[
    DashboardPanel::new(
        "From and to servers",
        "Bps",
        &[
            rate("node_mountstats_nfs_total_read_bytes_total", &["export"]).with_legend("read"),
            rate("node_mountstats_nfs_total_write_bytes_total", &["export"]).with_legend("written"),
        ],
    ),
    DashboardPanel::new(
        "Calls",
        "ops",
        &[rate("node_nfs_requests_total", &["proto", "method"])],
    ),
    DashboardPanel::new(
        "Retransmitted calls",
        "cps",
        &[rate("node_nfs_rpc_retransmissions_total", &[])],
    ),
    DashboardPanel::new(
        "Request time",
        "short",
        &[rate(
            "node_mountstats_nfs_operations_request_time_seconds_total",
            &["export"],
        )],
    )
    .with_description("Seconds per second: the mean number of requests in progress."),
];
