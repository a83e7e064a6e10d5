use crate::grafana::dashboard::{Dashboard, Panel, Row, highest, rate, value};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "level-2",
    title: "Pegel / 2 Nodes",
    about: "The basics of each node: processors, pressure, memory, disks, file systems, network. A line for each node, none averaged.",
    variables: &[],
    rows: &[
        Row::open("At a glance", GLANCE),
        Row::open("Processors", PROCESSORS),
        Row::open("Pressure", PRESSURE),
        Row::open("Memory", MEMORY),
        Row::open("Disks", DISKS),
        Row::open("File systems", FILE_SYSTEMS),
        Row::open("Network", NETWORK),
        Row::closed("Kernel", KERNEL),
    ],
};

const GLANCE: &[Panel] = &[
    Panel::new("Processors busy", "percent", &[value("cpu_percent", &[])])
        .figures()
        .up_to(100.0)
        .limits(80.0, 95.0),
    Panel::new("Memory in use", "percent", &[value("used_RAM", &[])])
        .figures()
        .up_to(100.0)
        .limits(80.0, 95.0),
    Panel::new("Load (1 min)", "short", &[value("node_load1", &[])]).figures(),
    Panel::new("Up for", "s", &[value("node_uptime_seconds", &[])]).figures(),
];

const PROCESSORS: &[Panel] = &[
    Panel::new("Processors busy", "percent", &[value("cpu_percent", &[])])
        .up_to(100.0)
        .limits(80.0, 95.0),
    Panel::new(
        "Processors in each mode",
        "short",
        &[rate("node_cpu_seconds_total", &["mode"])],
    )
    .about("Processor seconds per second, over all processors: 2 means that two of them were in this mode all the time."),
    Panel::new(
        "Load",
        "short",
        &[
            value("node_load1", &[]).named("1 min"),
            value("node_load15", &[]).named("15 min"),
        ],
    ),
    Panel::new(
        "Tasks",
        "short",
        &[
            value("node_procs_running", &[]).named("run"),
            value("node_procs_blocked", &[]).named("wait for I/O"),
        ],
    ),
    Panel::new(
        "Context switches and interrupts",
        "cps",
        &[
            rate("node_context_switches_total", &[]).named("switches"),
            rate("node_intr_total", &[]).named("interrupts"),
        ],
    ),
    Panel::new("New processes and threads", "cps", &[rate("node_forks_total", &[])]),
];

const PRESSURE: &[Panel] = &[
    Panel::new(
        "Waiting for a processor",
        "percentunit",
        &[rate("node_pressure_cpu_waiting_seconds_total", &[]).named("some")],
    )
    .third()
    .about("Share of time in which some task could have run and no processor was free. Needs a kernel with pressure stall information."),
    Panel::new(
        "Waiting for I/O",
        "percentunit",
        &[
            rate("node_pressure_io_waiting_seconds_total", &[]).named("some"),
            rate("node_pressure_io_stalled_seconds_total", &[]).named("all"),
        ],
    )
    .third()
    .limits(0.2, 0.6),
    Panel::new(
        "Waiting for memory",
        "percentunit",
        &[
            rate("node_pressure_memory_waiting_seconds_total", &[]).named("some"),
            rate("node_pressure_memory_stalled_seconds_total", &[]).named("all"),
        ],
    )
    .third()
    .limits(0.05, 0.2),
];

const MEMORY: &[Panel] = &[
    Panel::new(
        "Available and installed",
        "bytes",
        &[
            value("node_memory_MemAvailable_bytes", &[]).named("available"),
            value("node_memory_MemTotal_bytes", &[]).named("installed"),
        ],
    ),
    Panel::new(
        "What it is used for",
        "bytes",
        &[
            value("node_memory_AnonPages_bytes", &[]).named("programs"),
            value("node_memory_Cached_bytes", &[]).named("page cache"),
            value("node_memory_Slab_bytes", &[]).named("kernel (slab)"),
            value("node_memory_Dirty_bytes", &[]).named("to be written"),
        ],
    ),
    Panel::new(
        "Swap",
        "bytes",
        &[
            value("node_memory_SwapTotal_bytes", &[]).named("size"),
            value("node_memory_SwapFree_bytes", &[]).named("free"),
        ],
    )
    .third(),
    Panel::new(
        "Page faults",
        "cps",
        &[
            rate("node_vmstat_pgfault", &[]).named("all"),
            rate("node_vmstat_pgmajfault", &[]).named("from disk"),
        ],
    )
    .third(),
    Panel::new(
        "Swapping and killing",
        "cps",
        &[
            rate("node_vmstat_pswpin", &[]).named("pages in"),
            rate("node_vmstat_pswpout", &[]).named("pages out"),
            rate("node_vmstat_oom_kill", &[]).named("killed for want of memory"),
        ],
    )
    .third(),
];

const DISKS: &[Panel] = &[
    Panel::new("Read", "Bps", &[rate("node_disk_read_bytes_total", &["device"])]),
    Panel::new("Written", "Bps", &[rate("node_disk_written_bytes_total", &["device"])]),
    Panel::new(
        "Requests",
        "iops",
        &[
            rate("node_disk_reads_completed_total", &["device"]).named("read"),
            rate("node_disk_writes_completed_total", &["device"]).named("write"),
        ],
    ),
    Panel::new(
        "Busy",
        "percentunit",
        &[rate("node_disk_io_time_seconds_total", &["device"])],
    )
    .up_to(1.0)
    .limits(0.8, 0.95)
    .about("Share of time with requests in progress. A device that works on many at once can be busy all the time and still have room."),
];

const FILE_SYSTEMS: &[Panel] = &[
    Panel::new(
        "Room that is left",
        "bytes",
        &[value("node_filesystem_avail_bytes", &["mountpoint"])],
    ),
    Panel::new(
        "Size",
        "bytes",
        &[value("node_filesystem_size_bytes", &["mountpoint"])],
    ),
    Panel::new(
        "Free inodes",
        "short",
        &[value("node_filesystem_files_free", &["mountpoint"])],
    ),
    Panel::new(
        "Read-only, or without an answer",
        "none",
        &[
            highest("node_filesystem_readonly", &["mountpoint"]).named("read-only"),
            highest("node_filesystem_device_error", &["mountpoint"]).named("no answer"),
        ],
    )
    .about("1 if it is so, else 0."),
];

const NETWORK: &[Panel] = &[
    Panel::new(
        "Received",
        "Bps",
        &[rate("node_network_receive_bytes_total", &["device"])],
    ),
    Panel::new(
        "Sent",
        "Bps",
        &[rate("node_network_transmit_bytes_total", &["device"])],
    ),
    Panel::new(
        "Packets",
        "pps",
        &[
            rate("node_network_receive_packets_total", &["device"]).named("received"),
            rate("node_network_transmit_packets_total", &["device"]).named("sent"),
        ],
    ),
    Panel::new(
        "Errors and drops",
        "pps",
        &[
            rate("node_network_receive_errs_total", &["device"]).named("received wrong"),
            rate("node_network_receive_drop_total", &["device"]).named("received, dropped"),
            rate("node_network_transmit_errs_total", &["device"]).named("not sent"),
            rate("node_network_transmit_drop_total", &["device"]).named("to send, dropped"),
        ],
    ),
    Panel::new(
        "TCP connections",
        "short",
        &[value("node_netstat_Tcp_CurrEstab", &[]).named("established")],
    ),
    Panel::new(
        "TCP segments",
        "pps",
        &[
            rate("node_netstat_Tcp_OutSegs", &[]).named("sent"),
            rate("node_netstat_Tcp_RetransSegs", &[]).named("sent again"),
        ],
    ),
];

const KERNEL: &[Panel] = &[
    Panel::new(
        "Open files",
        "short",
        &[value("node_filefd_allocated", &[])],
    ),
    Panel::new("Threads", "short", &[value("node_processes_threads", &[])]),
    Panel::new(
        "Sockets",
        "short",
        &[value("node_sockstat_sockets_used", &[])],
    ),
    Panel::new(
        "Waiting in run queues",
        "short",
        &[rate("node_schedstat_waiting_seconds_total", &[])],
    )
    .about("Seconds that tasks waited for a processor, per second, over all processors."),
];
