//! Dashboard of level 2: the basics of each node.

use crate::grafana::dashboard::{Dashboard, DashboardPanel, DashboardRow, max_value, rate, value};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "level-2",
    title: "Pegel / 2 Nodes",
    description: "The basics of each node: CPUs, pressure, memory, disks, file systems, network. One line per node, without averaging.",
    variables: &[],
    rows: &[
        DashboardRow::expanded("Overview", OVERVIEW),
        DashboardRow::expanded("CPUs", CPUS),
        DashboardRow::expanded("Pressure", PRESSURE),
        DashboardRow::expanded("Memory", MEMORY),
        DashboardRow::expanded("Disks", DISKS),
        DashboardRow::expanded("File systems", FILE_SYSTEMS),
        DashboardRow::expanded("Network", NETWORK),
        DashboardRow::collapsed("Kernel", KERNEL),
    ],
};

const OVERVIEW: &[DashboardPanel] = &[
    DashboardPanel::new("CPU usage", "percent", &[value("cpu_percent", &[])])
        .as_stat()
        .with_max(100.0)
        .with_thresholds(80.0, 95.0),
    DashboardPanel::new("Memory usage", "percent", &[value("used_RAM", &[])])
        .as_stat()
        .with_max(100.0)
        .with_thresholds(80.0, 95.0),
    DashboardPanel::new("Load (1 min)", "short", &[value("node_load1", &[])]).as_stat(),
    DashboardPanel::new("Uptime", "s", &[value("node_uptime_seconds", &[])]).as_stat(),
];

const CPUS: &[DashboardPanel] = &[
    DashboardPanel::new("CPU usage", "percent", &[value("cpu_percent", &[])])
        .with_max(100.0)
        .with_thresholds(80.0, 95.0),
    DashboardPanel::new(
        "CPU time by mode",
        "short",
        &[rate("node_cpu_seconds_total", &["mode"])],
    )
    .with_description("CPU seconds per second, over all CPUs: 2 means that two of them were in this mode all the time."),
    DashboardPanel::new(
        "Load",
        "short",
        &[
            value("node_load1", &[]).with_legend("1 min"),
            value("node_load15", &[]).with_legend("15 min"),
        ],
    ),
    DashboardPanel::new(
        "Tasks",
        "short",
        &[
            value("node_procs_running", &[]).with_legend("running"),
            value("node_procs_blocked", &[]).with_legend("blocked on I/O"),
        ],
    ),
    DashboardPanel::new(
        "Context switches and interrupts",
        "cps",
        &[
            rate("node_context_switches_total", &[]).with_legend("switches"),
            rate("node_intr_total", &[]).with_legend("interrupts"),
        ],
    ),
    DashboardPanel::new("New processes and threads", "cps", &[rate("node_forks_total", &[])]),
];

const PRESSURE: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Waiting for a CPU",
        "percentunit",
        &[rate("node_pressure_cpu_waiting_seconds_total", &[]).with_legend("some")],
    )
    .third_width()
    .with_description("Fraction of time in which some runnable task waited for a CPU. Requires a kernel with pressure stall information."),
    DashboardPanel::new(
        "Waiting for I/O",
        "percentunit",
        &[
            rate("node_pressure_io_waiting_seconds_total", &[]).with_legend("some"),
            rate("node_pressure_io_stalled_seconds_total", &[]).with_legend("all"),
        ],
    )
    .third_width()
    .with_thresholds(0.2, 0.6),
    DashboardPanel::new(
        "Waiting for memory",
        "percentunit",
        &[
            rate("node_pressure_memory_waiting_seconds_total", &[]).with_legend("some"),
            rate("node_pressure_memory_stalled_seconds_total", &[]).with_legend("all"),
        ],
    )
    .third_width()
    .with_thresholds(0.05, 0.2),
];

const MEMORY: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Available and installed",
        "bytes",
        &[
            value("node_memory_MemAvailable_bytes", &[]).with_legend("available"),
            value("node_memory_MemTotal_bytes", &[]).with_legend("installed"),
        ],
    ),
    DashboardPanel::new(
        "Memory by use",
        "bytes",
        &[
            value("node_memory_AnonPages_bytes", &[]).with_legend("programs"),
            value("node_memory_Cached_bytes", &[]).with_legend("page cache"),
            value("node_memory_Slab_bytes", &[]).with_legend("kernel (slab)"),
            value("node_memory_Dirty_bytes", &[]).with_legend("dirty"),
        ],
    ),
    DashboardPanel::new(
        "Swap",
        "bytes",
        &[
            value("node_memory_SwapTotal_bytes", &[]).with_legend("size"),
            value("node_memory_SwapFree_bytes", &[]).with_legend("free"),
        ],
    )
    .third_width(),
    DashboardPanel::new(
        "Page faults",
        "cps",
        &[
            rate("node_vmstat_pgfault", &[]).with_legend("all"),
            rate("node_vmstat_pgmajfault", &[]).with_legend("major"),
        ],
    )
    .third_width(),
    DashboardPanel::new(
        "Swapping and OOM kills",
        "cps",
        &[
            rate("node_vmstat_pswpin", &[]).with_legend("pages in"),
            rate("node_vmstat_pswpout", &[]).with_legend("pages out"),
            rate("node_vmstat_oom_kill", &[]).with_legend("OOM kills"),
        ],
    )
    .third_width(),
];

const DISKS: &[DashboardPanel] = &[
    DashboardPanel::new("Read", "Bps", &[rate("node_disk_read_bytes_total", &["device"])]),
    DashboardPanel::new("Written", "Bps", &[rate("node_disk_written_bytes_total", &["device"])]),
    DashboardPanel::new(
        "Requests",
        "iops",
        &[
            rate("node_disk_reads_completed_total", &["device"]).with_legend("read"),
            rate("node_disk_writes_completed_total", &["device"]).with_legend("write"),
        ],
    ),
    DashboardPanel::new(
        "Busy",
        "percentunit",
        &[rate("node_disk_io_time_seconds_total", &["device"])],
    )
    .with_max(1.0)
    .with_thresholds(0.8, 0.95)
    .with_description("Fraction of time with requests in progress. A device that processes requests in parallel can be 100 % busy and still have capacity."),
];

const FILE_SYSTEMS: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Available space",
        "bytes",
        &[value("node_filesystem_avail_bytes", &["mountpoint"])],
    ),
    DashboardPanel::new(
        "Size",
        "bytes",
        &[value("node_filesystem_size_bytes", &["mountpoint"])],
    ),
    DashboardPanel::new(
        "Free inodes",
        "short",
        &[value("node_filesystem_files_free", &["mountpoint"])],
    ),
    DashboardPanel::new(
        "Read-only or not responding",
        "none",
        &[
            max_value("node_filesystem_readonly", &["mountpoint"]).with_legend("read-only"),
            max_value("node_filesystem_device_error", &["mountpoint"])
                .with_legend("not responding"),
        ],
    )
    .with_description("1 if true, else 0."),
];

const NETWORK: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Received",
        "Bps",
        &[rate("node_network_receive_bytes_total", &["device"])],
    ),
    DashboardPanel::new(
        "Sent",
        "Bps",
        &[rate("node_network_transmit_bytes_total", &["device"])],
    ),
    DashboardPanel::new(
        "Packets",
        "pps",
        &[
            rate("node_network_receive_packets_total", &["device"]).with_legend("received"),
            rate("node_network_transmit_packets_total", &["device"]).with_legend("sent"),
        ],
    ),
    DashboardPanel::new(
        "Errors and drops",
        "pps",
        &[
            rate("node_network_receive_errs_total", &["device"]).with_legend("receive errors"),
            rate("node_network_receive_drop_total", &["device"]).with_legend("receive drops"),
            rate("node_network_transmit_errs_total", &["device"]).with_legend("transmit errors"),
            rate("node_network_transmit_drop_total", &["device"]).with_legend("transmit drops"),
        ],
    ),
    DashboardPanel::new(
        "TCP connections",
        "short",
        &[value("node_netstat_Tcp_CurrEstab", &[]).with_legend("established")],
    ),
    DashboardPanel::new(
        "TCP segments",
        "pps",
        &[
            rate("node_netstat_Tcp_OutSegs", &[]).with_legend("sent"),
            rate("node_netstat_Tcp_RetransSegs", &[]).with_legend("retransmitted"),
        ],
    ),
];

const KERNEL: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Open files",
        "short",
        &[value("node_filefd_allocated", &[])],
    ),
    DashboardPanel::new("Threads", "short", &[value("node_processes_threads", &[])]),
    DashboardPanel::new(
        "Sockets",
        "short",
        &[value("node_sockstat_sockets_used", &[])],
    ),
    DashboardPanel::new(
        "Waiting in run queues",
        "short",
        &[rate("node_schedstat_waiting_seconds_total", &[])],
    )
    .with_description("Seconds that tasks waited for a CPU, per second, over all CPUs."),
];
