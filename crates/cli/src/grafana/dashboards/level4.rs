//! Dashboard of level 4: processes and protocols.

use crate::grafana::dashboard::{Dashboard, DashboardPanel, DashboardRow, rate, value};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "level-4",
    title: "Pegel / 4 Processes and protocols",
    description: "Processes with the highest usage, and protocol counters in detail. Requires agents at level 4.",
    variables: &[],
    rows: &[
        DashboardRow::expanded("Processes", PROCESSES),
        DashboardRow::collapsed("Processes on NVIDIA GPUs", GPU_PROCESSES),
        DashboardRow::expanded("TCP", TCP),
        DashboardRow::expanded("UDP, IP and ICMP", OTHER_PROTOCOLS),
        DashboardRow::collapsed("Connection tracking", CONNTRACK),
        DashboardRow::expanded("Memory management", MEMORY),
        DashboardRow::collapsed("Slingshot, detailed counters", SLINGSHOT),
    ],
};

const PROCESSES: &[DashboardPanel] = &[
    DashboardPanel::new(
        "CPU usage",
        "short",
        &[rate("node_process_cpu_seconds_total", &["comm", "pid"])],
    )
    .with_description("The ten processes with the highest usage; 1 is one full CPU."),
    DashboardPanel::new(
        "Memory",
        "bytes",
        &[value(
            "node_process_resident_memory_bytes",
            &["comm", "pid"],
        )],
    ),
    DashboardPanel::new(
        "Read and written",
        "Bps",
        &[
            rate("node_process_read_bytes_total", &["comm", "pid"]).with_legend("read"),
            rate("node_process_written_bytes_total", &["comm", "pid"]).with_legend("written"),
        ],
    )
    .with_description(
        "From and to devices. Other users' processes require a privilege: see pegel doctor.",
    ),
    DashboardPanel::new(
        "Major page faults",
        "cps",
        &[rate(
            "node_process_major_page_faults_total",
            &["comm", "pid"],
        )],
    ),
    DashboardPanel::new(
        "Threads",
        "short",
        &[value("node_process_threads", &["comm", "pid"])],
    ),
    DashboardPanel::new(
        "Context switches",
        "cps",
        &[rate(
            "node_process_context_switches_total",
            &["comm", "pid"],
        )],
    ),
    DashboardPanel::new(
        "Number of processes",
        "short",
        &[value("node_processes_pids", &[])],
    ),
    DashboardPanel::new(
        "Processes by state",
        "short",
        &[value("node_processes_state", &["state"])],
    )
    .with_description("R: running, S: sleeping, D: uninterruptible wait, Z: zombie."),
];

const GPU_PROCESSES: &[DashboardPanel] = &[DashboardPanel::new(
    "GPU memory",
    "bytes",
    &[value(
        "node_nvidia_process_memory_bytes",
        &["gpu", "pid", "type"],
    )],
)];

const TCP: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Loss",
        "cps",
        &[
            rate("node_netstat_TcpExt_TCPTimeouts", &[]).with_legend("timeouts"),
            rate("node_netstat_TcpExt_TCPLostRetransmit", &[]).with_legend("lost retransmissions"),
            rate("node_netstat_TcpExt_TCPSynRetrans", &[]).with_legend("SYN retransmissions"),
        ],
    ),
    DashboardPanel::new(
        "Connections",
        "cps",
        &[
            rate("node_netstat_Tcp_ActiveOpens", &[]).with_legend("active opens"),
            rate("node_netstat_Tcp_PassiveOpens", &[]).with_legend("passive opens"),
            rate("node_netstat_Tcp_EstabResets", &[]).with_legend("reset"),
            rate("node_netstat_Tcp_AttemptFails", &[]).with_legend("failed"),
        ],
    ),
    DashboardPanel::new(
        "Memory and queues",
        "cps",
        &[
            rate("node_netstat_TcpExt_TCPMemoryPressures", &[]).with_legend("memory pressure"),
            rate("node_netstat_TcpExt_TCPRcvQDrop", &[]).with_legend("receive queue full"),
            rate("node_netstat_TcpExt_TCPToZeroWindowAdv", &[]).with_legend("zero window"),
        ],
    ),
    DashboardPanel::new(
        "Reordering",
        "cps",
        &[
            rate("node_netstat_TcpExt_TCPOFOQueue", &[]).with_legend("out of order"),
            rate("node_netstat_TcpExt_TCPSACKReneging", &[]).with_legend("SACK reneging"),
        ],
    ),
];

const OTHER_PROTOCOLS: &[DashboardPanel] = &[
    DashboardPanel::new(
        "UDP datagrams",
        "pps",
        &[
            rate("node_netstat_Udp_InDatagrams", &[]).with_legend("received"),
            rate("node_netstat_Udp_OutDatagrams", &[]).with_legend("sent"),
        ],
    ),
    DashboardPanel::new(
        "UDP errors",
        "pps",
        &[
            rate("node_netstat_Udp_RcvbufErrors", &[]).with_legend("receive buffer full"),
            rate("node_netstat_Udp_SndbufErrors", &[]).with_legend("send buffer full"),
            rate("node_netstat_Udp_NoPorts", &[]).with_legend("no listener"),
        ],
    ),
    DashboardPanel::new(
        "IP",
        "pps",
        &[
            rate("node_netstat_Ip_InReceives", &[]).with_legend("received"),
            rate("node_netstat_Ip_OutRequests", &[]).with_legend("sent"),
            rate("node_netstat_Ip_InDiscards", &[]).with_legend("discarded"),
        ],
    ),
    DashboardPanel::new(
        "ICMP",
        "pps",
        &[
            rate("node_netstat_Icmp_InMsgs", &[]).with_legend("received"),
            rate("node_netstat_Icmp_OutMsgs", &[]).with_legend("sent"),
        ],
    ),
    DashboardPanel::new(
        "Backlog per CPU",
        "short",
        &[value("node_softnet_backlog_len", &["cpu"])],
    ),
    DashboardPanel::new(
        "UDP queues",
        "bytes",
        &[value("node_udp_queues", &["ip", "queue"])],
    ),
];

const CONNTRACK: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Entries",
        "short",
        &[
            value("node_nf_conntrack_entries", &[]).with_legend("tracked"),
            value("node_nf_conntrack_entries_limit", &[]).with_legend("limit"),
        ],
    ),
    DashboardPanel::new(
        "Drops and failures",
        "cps",
        &[
            rate("node_nf_conntrack_stat_drop", &[]).with_legend("dropped"),
            rate("node_nf_conntrack_stat_insert_failed", &[]).with_legend("insert failed"),
        ],
    ),
];

const MEMORY: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Pages scanned for reclaim",
        "cps",
        &[
            rate("node_vmstat_pgscan_kswapd", &[]).with_legend("kswapd"),
            rate("node_vmstat_pgscan_direct", &[]).with_legend("direct"),
        ],
    ),
    DashboardPanel::new(
        "Compaction and huge pages",
        "cps",
        &[
            rate("node_vmstat_compact_stall", &[]).with_legend("compaction stalls"),
            rate("node_vmstat_thp_fault_alloc", &[]).with_legend("huge pages allocated"),
            rate("node_vmstat_thp_fault_fallback", &[]).with_legend("huge page fallbacks"),
        ],
    ),
    DashboardPanel::new(
        "NUMA balancing",
        "cps",
        &[
            rate("node_vmstat_numa_hint_faults", &[]).with_legend("hint faults"),
            rate("node_vmstat_numa_hint_faults_local", &[]).with_legend("local hint faults"),
            rate("node_vmstat_numa_pages_migrated", &[]).with_legend("pages migrated"),
        ],
    ),
    DashboardPanel::new(
        "Pages",
        "cps",
        &[
            rate("node_vmstat_pgfree", &[]).with_legend("freed"),
            rate("node_vmstat_pgactivate", &[]).with_legend("activated"),
        ],
    ),
];

const SLINGSHOT: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Retry timeouts",
        "cps",
        &[rate("node_cxi_pct_spt_timeouts_total", &["device"])],
    ),
    DashboardPanel::new(
        "Unexpected messages",
        "cps",
        &[rate("node_cxi_lpe_net_match_overflow_0_total", &["device"])],
    ),
];
