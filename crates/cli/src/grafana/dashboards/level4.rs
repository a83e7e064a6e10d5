use crate::grafana::dashboard::{Dashboard, Panel, Row, rate, value};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "level-4",
    title: "Pegel / 4 Processes and protocols",
    about: "Processes that use most, and protocols in detail. Only agents at level 4 keep this.",
    variables: &[],
    rows: &[
        Row::open("Processes", PROCESSES),
        Row::closed("Processes on NVIDIA GPUs", GPU_PROCESSES),
        Row::open("TCP", TCP),
        Row::open("UDP, IP and ICMP", OTHER_PROTOCOLS),
        Row::closed("Connection tracking", CONNTRACK),
        Row::open("Memory management", MEMORY),
        Row::closed("Slingshot, all counters", SLINGSHOT),
    ],
};

const PROCESSES: &[Panel] = &[
    Panel::new(
        "Processors used",
        "short",
        &[rate("node_process_cpu_seconds_total", &["comm", "pid"])],
    )
    .about("The ten processes that used most; 1 is one processor all the time."),
    Panel::new(
        "Memory",
        "bytes",
        &[value(
            "node_process_resident_memory_bytes",
            &["comm", "pid"],
        )],
    ),
    Panel::new(
        "Read and written",
        "Bps",
        &[
            rate("node_process_read_bytes_total", &["comm", "pid"]).named("read"),
            rate("node_process_written_bytes_total", &["comm", "pid"]).named("written"),
        ],
    )
    .about(
        "From and to devices. Other users' processes need a privilege: pegel doctor says which.",
    ),
    Panel::new(
        "Page faults from disk",
        "cps",
        &[rate(
            "node_process_major_page_faults_total",
            &["comm", "pid"],
        )],
    ),
    Panel::new(
        "Threads",
        "short",
        &[value("node_process_threads", &["comm", "pid"])],
    ),
    Panel::new(
        "Context switches",
        "cps",
        &[rate(
            "node_process_context_switches_total",
            &["comm", "pid"],
        )],
    ),
    Panel::new("How many", "short", &[value("node_processes_pids", &[])]),
    Panel::new(
        "By state",
        "short",
        &[value("node_processes_state", &["state"])],
    )
    .about("R runs, S sleeps, D waits for a device, Z is dead and not yet collected."),
];

const GPU_PROCESSES: &[Panel] = &[Panel::new(
    "GPU memory",
    "bytes",
    &[value(
        "node_nvidia_process_memory_bytes",
        &["gpu", "pid", "type"],
    )],
)];

const TCP: &[Panel] = &[
    Panel::new(
        "Loss",
        "cps",
        &[
            rate("node_netstat_TcpExt_TCPTimeouts", &[]).named("timeouts"),
            rate("node_netstat_TcpExt_TCPLostRetransmit", &[]).named("lost again"),
            rate("node_netstat_TcpExt_TCPSynRetrans", &[]).named("connection tried again"),
        ],
    ),
    Panel::new(
        "Connections",
        "cps",
        &[
            rate("node_netstat_Tcp_ActiveOpens", &[]).named("opened here"),
            rate("node_netstat_Tcp_PassiveOpens", &[]).named("accepted"),
            rate("node_netstat_Tcp_EstabResets", &[]).named("reset"),
            rate("node_netstat_Tcp_AttemptFails", &[]).named("failed"),
        ],
    ),
    Panel::new(
        "Memory and queues",
        "cps",
        &[
            rate("node_netstat_TcpExt_TCPMemoryPressures", &[]).named("short of memory"),
            rate("node_netstat_TcpExt_TCPRcvQDrop", &[]).named("receive queue full"),
            rate("node_netstat_TcpExt_TCPToZeroWindowAdv", &[]).named("window closed"),
        ],
    ),
    Panel::new(
        "Order",
        "cps",
        &[
            rate("node_netstat_TcpExt_TCPOFOQueue", &[]).named("out of order"),
            rate("node_netstat_TcpExt_TCPSACKReneging", &[]).named("SACK taken back"),
        ],
    ),
];

const OTHER_PROTOCOLS: &[Panel] = &[
    Panel::new(
        "UDP datagrams",
        "pps",
        &[
            rate("node_netstat_Udp_InDatagrams", &[]).named("received"),
            rate("node_netstat_Udp_OutDatagrams", &[]).named("sent"),
        ],
    ),
    Panel::new(
        "UDP errors",
        "pps",
        &[
            rate("node_netstat_Udp_RcvbufErrors", &[]).named("receive buffer full"),
            rate("node_netstat_Udp_SndbufErrors", &[]).named("send buffer full"),
            rate("node_netstat_Udp_NoPorts", &[]).named("nobody listened"),
        ],
    ),
    Panel::new(
        "IP",
        "pps",
        &[
            rate("node_netstat_Ip_InReceives", &[]).named("received"),
            rate("node_netstat_Ip_OutRequests", &[]).named("sent"),
            rate("node_netstat_Ip_InDiscards", &[]).named("discarded"),
        ],
    ),
    Panel::new(
        "ICMP",
        "pps",
        &[
            rate("node_netstat_Icmp_InMsgs", &[]).named("received"),
            rate("node_netstat_Icmp_OutMsgs", &[]).named("sent"),
        ],
    ),
    Panel::new(
        "Backlog of each processor",
        "short",
        &[value("node_softnet_backlog_len", &["cpu"])],
    ),
    Panel::new(
        "UDP queues",
        "bytes",
        &[value("node_udp_queues", &["ip", "queue"])],
    ),
];

const CONNTRACK: &[Panel] = &[
    Panel::new(
        "Entries",
        "short",
        &[
            value("node_nf_conntrack_entries", &[]).named("tracked"),
            value("node_nf_conntrack_entries_limit", &[]).named("limit"),
        ],
    ),
    Panel::new(
        "Lost",
        "cps",
        &[
            rate("node_nf_conntrack_stat_drop", &[]).named("dropped"),
            rate("node_nf_conntrack_stat_insert_failed", &[]).named("not added"),
        ],
    ),
];

const MEMORY: &[Panel] = &[
    Panel::new(
        "Searched for free pages",
        "cps",
        &[
            rate("node_vmstat_pgscan_kswapd", &[]).named("beforehand"),
            rate("node_vmstat_pgscan_direct", &[]).named("while a program waited"),
        ],
    ),
    Panel::new(
        "Compaction and huge pages",
        "cps",
        &[
            rate("node_vmstat_compact_stall", &[]).named("waited for compaction"),
            rate("node_vmstat_thp_fault_alloc", &[]).named("huge pages given"),
            rate("node_vmstat_thp_fault_fallback", &[]).named("no huge page"),
        ],
    ),
    Panel::new(
        "NUMA balancing",
        "cps",
        &[
            rate("node_vmstat_numa_hint_faults", &[]).named("samples"),
            rate("node_vmstat_numa_hint_faults_local", &[]).named("samples, local"),
            rate("node_vmstat_numa_pages_migrated", &[]).named("pages moved"),
        ],
    ),
    Panel::new(
        "Pages",
        "cps",
        &[
            rate("node_vmstat_pgfree", &[]).named("freed"),
            rate("node_vmstat_pgactivate", &[]).named("used again"),
        ],
    ),
];

const SLINGSHOT: &[Panel] = &[
    Panel::new(
        "Retry timeouts",
        "cps",
        &[rate("node_cxi_pct_spt_timeouts_total", &["device"])],
    ),
    Panel::new(
        "Unexpected messages",
        "cps",
        &[rate("node_cxi_lpe_net_match_overflow_0_total", &["device"])],
    ),
];
