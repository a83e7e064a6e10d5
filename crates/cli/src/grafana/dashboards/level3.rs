use crate::grafana::dashboard::{Dashboard, Panel, Row, highest, rate, value};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "level-3",
    title: "Pegel / 3 GPUs, interconnects, energy",
    about: "GPUs, interconnects, energy, sensors, NUMA, memory errors, jobs by control group, parallel file systems. Rows of things that many nodes lack are closed; on a node without them the agent knows no such metric.",
    variables: &[],
    rows: &[
        Row::open("GPUs of any maker", GPUS),
        Row::closed("NVIDIA GPUs", NVIDIA),
        Row::closed("AMD and Intel GPUs", OTHER_GPUS),
        Row::closed("InfiniBand, RoCE, Omni-Path", INFINIBAND),
        Row::closed("Slingshot", SLINGSHOT),
        Row::closed("Energy of processors and memory (RAPL)", RAPL),
        Row::closed("Energy of Cray nodes", CRAY),
        Row::closed("Sensors", SENSORS),
        Row::closed("Processor frequency", FREQUENCY),
        Row::closed("NUMA", NUMA),
        Row::closed("Memory errors", EDAC),
        Row::open("Jobs and services, by control group", CGROUPS),
        Row::closed("Lustre", LUSTRE),
        Row::closed("NFS", NFS),
    ],
};

const GPUS: &[Panel] = &[
    Panel::new("Busy", "percent", &[value("DeviceUtilization", &["gpu"])])
        .third()
        .up_to(100.0)
        .about("An error here means that no node has a GPU that Pegel can read."),
    Panel::new(
        "Memory in use",
        "percent",
        &[value("DeviceMemoryUtilization", &["gpu"])],
    )
    .third()
    .up_to(100.0)
    .limits(90.0, 98.0),
    Panel::new("Power", "watt", &[value("DevicePowerUsage", &["gpu"])]).third(),
];

const NVIDIA: &[Panel] = &[
    Panel::new(
        "Busy",
        "percentunit",
        &[
            value("node_nvidia_gpu_utilization_ratio", &["gpu"]).named("kernels"),
            value("node_nvidia_memory_utilization_ratio", &["gpu"]).named("memory"),
        ],
    )
    .up_to(1.0),
    Panel::new(
        "Memory",
        "bytes",
        &[
            value("node_nvidia_memory_used_bytes", &["gpu"]).named("used"),
            value("node_nvidia_memory_total_bytes", &["gpu"]).named("installed"),
        ],
    ),
    Panel::new(
        "Power",
        "watt",
        &[
            value("node_nvidia_power_watts", &["gpu"]).named("drawn"),
            value("node_nvidia_power_limit_watts", &["gpu"]).named("allowed"),
        ],
    ),
    Panel::new("Temperature", "celsius", &[value("node_nvidia_temperature_celsius", &["gpu"])])
        .limits(80.0, 88.0),
    Panel::new("Clocks", "hertz", &[value("node_nvidia_clock_hertz", &["gpu", "clock"])]),
    Panel::new(
        "Why clocks are held down",
        "none",
        &[highest("node_nvidia_clocks_event", &["gpu", "reason"])],
    )
    .about("1 while the reason holds. gpu_idle is harmless; sw_power_cap and the thermal ones cost time."),
    Panel::new(
        "NVLink, received",
        "Bps",
        &[rate("node_nvidia_nvlink_receive_bytes_total", &["gpu"])],
    ),
    Panel::new(
        "NVLink, sent",
        "Bps",
        &[rate("node_nvidia_nvlink_transmit_bytes_total", &["gpu"])],
    ),
    Panel::new(
        "Memory errors",
        "short",
        &[value("node_nvidia_ecc_errors_total", &["gpu", "error", "counter"])],
    ),
    Panel::new("Last error of the driver (XID)", "none", &[highest("node_nvidia_xid_last", &["gpu"])])
        .about("0 if there was none while the agent ran."),
];

const OTHER_GPUS: &[Panel] = &[
    Panel::new(
        "Busy",
        "percentunit",
        &[value("node_gpu_busy_ratio", &["gpu"])],
    )
    .up_to(1.0),
    Panel::new(
        "Memory",
        "bytes",
        &[
            value("node_gpu_memory_used_bytes", &["gpu", "memory"]).named("used"),
            value("node_gpu_memory_total_bytes", &["gpu", "memory"]).named("installed"),
        ],
    ),
    Panel::new("Power", "watt", &[value("node_gpu_power_watts", &["gpu"])]),
    Panel::new(
        "Temperature",
        "celsius",
        &[value("node_gpu_temperature_celsius", &["gpu", "sensor"])],
    )
    .limits(85.0, 100.0),
    Panel::new(
        "Clocks",
        "hertz",
        &[value("node_gpu_clock_hertz", &["gpu", "clock"])],
    ),
];

const INFINIBAND: &[Panel] = &[
    Panel::new(
        "Received",
        "Bps",
        &[rate(
            "node_infiniband_port_data_received_bytes_total",
            &["device", "port"],
        )],
    ),
    Panel::new(
        "Sent",
        "Bps",
        &[rate(
            "node_infiniband_port_data_transmitted_bytes_total",
            &["device", "port"],
        )],
    ),
    Panel::new(
        "Packets",
        "pps",
        &[
            rate(
                "node_infiniband_port_packets_received_total",
                &["device", "port"],
            )
            .named("received"),
            rate(
                "node_infiniband_port_packets_transmitted_total",
                &["device", "port"],
            )
            .named("sent"),
        ],
    ),
    Panel::new(
        "Waiting to send",
        "cps",
        &[rate(
            "node_infiniband_port_transmit_wait_total",
            &["device", "port"],
        )],
    )
    .about("Ticks of the adapter in which there was data and no credit: congestion in the fabric."),
    Panel::new(
        "Errors",
        "cps",
        &[
            rate("node_infiniband_symbol_error_total", &["device", "port"]).named("symbols"),
            rate("node_infiniband_link_downed_total", &["device", "port"]).named("link went down"),
            rate(
                "node_infiniband_port_errors_received_total",
                &["device", "port"],
            )
            .named("received wrong"),
        ],
    ),
    Panel::new(
        "State",
        "none",
        &[value("node_infiniband_state_id", &["device", "port"])],
    )
    .about("4 is active, 1 is down."),
];

const SLINGSHOT: &[Panel] = &[
    Panel::new(
        "Received",
        "Bps",
        &[rate("node_cxi_hni_sts_rx_ok_octets_total", &["device"])],
    ),
    Panel::new(
        "Sent",
        "Bps",
        &[rate("node_cxi_hni_sts_tx_ok_octets_total", &["device"])],
    ),
    Panel::new(
        "Code words that could not be corrected",
        "cps",
        &[rate("node_cxi_hni_pcs_uncorrected_cw_total", &["device"])],
    ),
];

const RAPL: &[Panel] = &[
    Panel::new(
        "Packages",
        "watt",
        &[rate("node_rapl_package_joules_total", &["index"])],
    )
    .about(
        "Joules per second. The counters are for root by default: pegel doctor says what to do.",
    ),
    Panel::new(
        "Memory",
        "watt",
        &[rate("node_rapl_dram_joules_total", &["index"])],
    ),
];

const CRAY: &[Panel] = &[
    Panel::new(
        "Power",
        "watt",
        &[value("node_cray_power_watts", &["part"])],
    ),
    Panel::new(
        "Temperature",
        "celsius",
        &[value("node_cray_temperature_celsius", &["part"])],
    ),
];

const SENSORS: &[Panel] = &[
    Panel::new(
        "Temperatures",
        "celsius",
        &[value("node_hwmon_temp_celsius", &["chip", "sensor"])],
    )
    .limits(85.0, 95.0),
    Panel::new(
        "Fans",
        "rotrpm",
        &[value("node_hwmon_fan_rpm", &["chip", "sensor"])],
    ),
    Panel::new(
        "Power",
        "watt",
        &[value("node_hwmon_power_average_watt", &["chip", "sensor"])],
    ),
    Panel::new(
        "Thermal zones",
        "celsius",
        &[value("node_thermal_zone_temp", &["zone", "type"])],
    ),
];

const FREQUENCY: &[Panel] = &[
    Panel::new(
        "Frequency",
        "hertz",
        &[value("node_cpu_scaling_frequency_hertz", &["cpu"])],
    ),
    Panel::new(
        "Slowed down by heat",
        "cps",
        &[
            rate("node_cpu_core_throttles_total", &[]).named("cores"),
            rate("node_cpu_package_throttles_total", &[]).named("packages"),
        ],
    )
    .limits(0.1, 1.0),
];

const NUMA: &[Panel] = &[
    Panel::new(
        "Free memory",
        "bytes",
        &[value("node_memory_numa_MemFree", &["node"])],
    ),
    Panel::new(
        "Pages that had to come from another node",
        "cps",
        &[rate("node_memory_numa_numa_miss_total", &["node"])],
    ),
];

const EDAC: &[Panel] = &[
    Panel::new(
        "Corrected",
        "short",
        &[value("node_edac_correctable_errors_total", &["controller"])],
    )
    .about("Since boot. A few are usual; a number that grows means a module that fails."),
    Panel::new(
        "Not corrected",
        "short",
        &[value(
            "node_edac_uncorrectable_errors_total",
            &["controller"],
        )],
    )
    .limits(1.0, 2.0),
];

const CGROUPS: &[Panel] = &[
    Panel::new(
        "Processors used",
        "short",
        &[rate("node_cgroup_cpu_usage_seconds_total", &["cgroup"])],
    )
    .about("Processor seconds per second."),
    Panel::new(
        "Memory",
        "bytes",
        &[value("node_cgroup_memory_usage_bytes", &["cgroup"])],
    )
    .about("With the page cache."),
    Panel::new(
        "Held back by a limit",
        "percentunit",
        &[rate("node_cgroup_cpu_throttled_seconds_total", &["cgroup"])],
    ),
    Panel::new(
        "Killed for want of memory",
        "short",
        &[value("node_cgroup_memory_oom_kills_total", &["cgroup"])],
    )
    .limits(1.0, 2.0),
    Panel::new(
        "I/O",
        "Bps",
        &[
            rate("node_cgroup_io_read_bytes_total", &["cgroup"]).named("read"),
            rate("node_cgroup_io_written_bytes_total", &["cgroup"]).named("written"),
        ],
    ),
    Panel::new("Tasks", "short", &[value("node_cgroup_pids", &["cgroup"])]),
];

const LUSTRE: &[Panel] = &[
    Panel::new(
        "Traffic",
        "Bps",
        &[
            rate("node_lustre_read_bytes_total", &["fs"]).named("read"),
            rate("node_lustre_write_bytes_total", &["fs"]).named("written"),
        ],
    ),
    Panel::new(
        "Calls",
        "ops",
        &[rate("node_lustre_operations_total", &["fs", "operation"])],
    ),
];

const NFS: &[Panel] = &[
    Panel::new(
        "From and to servers",
        "Bps",
        &[
            rate("node_mountstats_nfs_total_read_bytes_total", &["export"]).named("read"),
            rate("node_mountstats_nfs_total_write_bytes_total", &["export"]).named("written"),
        ],
    ),
    Panel::new(
        "Calls",
        "ops",
        &[rate("node_nfs_requests_total", &["proto", "method"])],
    ),
    Panel::new(
        "Calls sent again",
        "cps",
        &[rate("node_nfs_rpc_retransmissions_total", &[])],
    ),
    Panel::new(
        "Time that requests took",
        "short",
        &[rate(
            "node_mountstats_nfs_operations_request_time_seconds_total",
            &["export"],
        )],
    )
    .about("Seconds per second: how many requests were in progress at a time."),
];
