//! Dashboard of level 2: the basics of each node.

use crate::grafana::dashboard::{Dashboard, DashboardRow, panel};

#[rustfmt::skip]
pub(super) const DASHBOARD: Dashboard = Dashboard {
    name: "level-2",
    title: "Pegel / 2 Nodes",
    description: "The basics of each node: CPUs, pressure, memory, disks, file systems, network. One line per node, without averaging.",
    variables: &[],
    rows: &[
        DashboardRow::expanded("Overview", &[
            panel("CPU usage now", "percent", &["cpu_percent"]).as_stat().with_max(100.0).with_thresholds(80.0, 95.0),
            panel("Memory usage now", "percent", &["used_RAM"]).as_stat().with_max(100.0).with_thresholds(80.0, 95.0),
            panel("Load average (1 min)", "short", &["node_load1"]).as_stat(),
            panel("Uptime", "s", &["node_uptime_seconds"]).as_stat(),
        ]),
        DashboardRow::expanded("CPUs", &[
            panel("CPU usage", "percent", &["cpu_percent"]).with_max(100.0).with_thresholds(80.0, 95.0),
            panel("CPU time by mode", "short", &["rate(node_cpu_seconds_total) by mode"])
                .with_description("CPU seconds per second, over all CPUs: 2 means that two of them were in this mode all the time."),
            panel("Load average", "short", &[
                "node_load1 as 1 min",
                "node_load15 as 15 min",
            ]),
            panel("Tasks, running and blocked", "short", &[
                "node_procs_running as running",
                "node_procs_blocked as blocked on I/O",
            ]),
            panel("Context switches and interrupts", "cps", &[
                "rate(node_context_switches_total) as switches",
                "rate(node_intr_total) as interrupts",
            ]),
            panel("New processes and threads", "cps", &["rate(node_forks_total)"]),
        ]),
        DashboardRow::expanded("Pressure", &[
            panel("Waiting for a CPU", "percentunit", &["rate(node_pressure_cpu_waiting_seconds_total) as some"])
                .third_width().with_thresholds(0.5, 0.9)
                .with_description("Fraction of time in which some runnable task waited for a CPU. Requires a kernel with pressure stall information."),
            panel("Waiting for I/O", "percentunit", &[
                "rate(node_pressure_io_waiting_seconds_total) as some",
                "rate(node_pressure_io_stalled_seconds_total) as all",
            ]).third_width().with_thresholds(0.2, 0.6),
            panel("Waiting for memory", "percentunit", &[
                "rate(node_pressure_memory_waiting_seconds_total) as some",
                "rate(node_pressure_memory_stalled_seconds_total) as all",
            ]).third_width().with_thresholds(0.05, 0.2),
        ]),
        DashboardRow::expanded("Memory", &[
            panel("Memory, available and installed", "bytes", &[
                "node_memory_MemAvailable_bytes as available",
                "node_memory_MemTotal_bytes as installed",
            ]),
            panel("Memory by use", "bytes", &[
                "node_memory_AnonPages_bytes as programs",
                "node_memory_Cached_bytes as page cache",
                "node_memory_Slab_bytes as kernel (slab)",
                "node_memory_Dirty_bytes as dirty",
            ]),
            panel("Swap space", "bytes", &[
                "node_memory_SwapTotal_bytes as size",
                "node_memory_SwapFree_bytes as free",
            ]).third_width(),
            panel("Page faults", "cps", &[
                "rate(node_vmstat_pgfault) as all",
                "rate(node_vmstat_pgmajfault) as major",
            ]).third_width(),
            panel("Swapping and OOM kills", "cps", &[
                "rate(node_vmstat_pswpin) as pages in",
                "rate(node_vmstat_pswpout) as pages out",
                "rate(node_vmstat_oom_kill) as OOM kills",
            ]).third_width().with_thresholds(100.0, 10_000.0),
        ]),
        DashboardRow::expanded("Disks", &[
            panel("Disk reads", "Bps", &["rate(node_disk_read_bytes_total) by device"]),
            panel("Disk writes", "Bps", &["rate(node_disk_written_bytes_total) by device"]),
            panel("Disk requests", "iops", &[
                "rate(node_disk_reads_completed_total) by device as read",
                "rate(node_disk_writes_completed_total) by device as write",
            ]),
            panel("Disk busy time", "percentunit", &["rate(node_disk_io_time_seconds_total) by device"])
                .with_max(1.0).with_thresholds(0.8, 0.95)
                .with_description("Fraction of time with requests in progress. A device that processes requests in parallel can be 100 % busy and still have capacity."),
        ]),
        DashboardRow::expanded("File systems", &[
            panel("File systems, available space", "bytes", &["node_filesystem_avail_bytes by mountpoint"]),
            panel("File systems, size", "bytes", &["node_filesystem_size_bytes by mountpoint"]),
            panel("File systems, free inodes", "short", &["node_filesystem_files_free by mountpoint"]),
            panel("File systems, read-only or not responding", "none", &[
                "max(node_filesystem_readonly) by mountpoint as read-only",
                "max(node_filesystem_device_error) by mountpoint as not responding",
            ])
                .with_thresholds(1.0, 1.0)
                .with_description("1 if true, else 0."),
        ]),
        DashboardRow::expanded("Network", &[
            panel("Network, received", "Bps", &["rate(node_network_receive_bytes_total) by device"]),
            panel("Network, sent", "Bps", &["rate(node_network_transmit_bytes_total) by device"]),
            panel("Network packets", "pps", &[
                "rate(node_network_receive_packets_total) by device as received",
                "rate(node_network_transmit_packets_total) by device as sent",
            ]),
            panel("Network errors and drops", "pps", &[
                "rate(node_network_receive_errs_total) by device as receive errors",
                "rate(node_network_receive_drop_total) by device as receive drops",
                "rate(node_network_transmit_errs_total) by device as transmit errors",
                "rate(node_network_transmit_drop_total) by device as transmit drops",
            ]).with_thresholds(1.0, 100.0),
            panel("TCP connections", "short", &["node_netstat_Tcp_CurrEstab as established"]),
            panel("TCP segments", "pps", &[
                "rate(node_netstat_Tcp_OutSegs) as sent",
                "rate(node_netstat_Tcp_RetransSegs) as retransmitted",
            ]),
        ]),
        DashboardRow::collapsed("Kernel", &[
            panel("Open files of the node", "short", &["node_filefd_allocated"]),
            panel("Threads of the node", "short", &["node_processes_threads"]),
            panel("Sockets in use", "short", &["node_sockstat_sockets_used"]),
            panel("Waiting in run queues", "short", &["rate(node_schedstat_waiting_seconds_total)"])
                .with_description("Seconds that tasks waited for a CPU, per second, over all CPUs."),
        ]),
    ],
};
