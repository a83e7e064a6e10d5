//! Dashboard of level 4: processes and protocols.

use crate::grafana::dashboard::{Dashboard, DashboardRow, panel};

#[rustfmt::skip]
pub(super) const DASHBOARD: Dashboard = Dashboard {
    name: "level-4",
    title: "Pegel / 4 Processes and protocols",
    description: "Processes with the highest usage, and protocol counters in detail. Requires agents at level 4.",
    variables: &[],
    rows: &[
        DashboardRow::expanded("Processes", &[
            panel("CPU usage of processes", "short", &["rate(node_process_cpu_seconds_total) by comm, pid"])
                .with_description("The ten processes with the highest usage; 1 is one full CPU."),
            panel("Memory of processes", "bytes", &["node_process_resident_memory_bytes by comm, pid"]),
            panel("Read and written by processes", "Bps", &[
                "rate(node_process_read_bytes_total) by comm, pid as read",
                "rate(node_process_written_bytes_total) by comm, pid as written",
            ])
                .with_description("From and to devices. Other users' processes require a privilege: see pegel doctor."),
            panel("Major page faults of processes", "cps", &["rate(node_process_major_page_faults_total) by comm, pid"]),
            panel("Threads of processes", "short", &["node_process_threads by comm, pid"]),
            panel("Context switches of processes", "cps", &["rate(node_process_context_switches_total) by comm, pid"]),
            panel("Number of processes", "short", &["node_processes_pids"]),
            panel("Processes by state", "short", &["node_processes_state by state"])
                .with_description("R: running, S: sleeping, D: uninterruptible wait, Z: zombie."),
        ]),
        DashboardRow::collapsed("Processes on NVIDIA GPUs", &[
            panel("GPU memory of processes", "bytes", &["node_nvidia_process_memory_bytes by gpu, pid, type"]),
        ]),
        DashboardRow::expanded("TCP", &[
            panel("TCP loss", "cps", &[
                "rate(node_netstat_TcpExt_TCPTimeouts) as timeouts",
                "rate(node_netstat_TcpExt_TCPLostRetransmit) as lost retransmissions",
                "rate(node_netstat_TcpExt_TCPSynRetrans) as SYN retransmissions",
            ]).with_thresholds(10.0, 1000.0),
            panel("TCP connections opened and reset", "cps", &[
                "rate(node_netstat_Tcp_ActiveOpens) as active opens",
                "rate(node_netstat_Tcp_PassiveOpens) as passive opens",
                "rate(node_netstat_Tcp_EstabResets) as reset",
                "rate(node_netstat_Tcp_AttemptFails) as failed",
            ]),
            panel("TCP memory and queues", "cps", &[
                "rate(node_netstat_TcpExt_TCPMemoryPressures) as memory pressure",
                "rate(node_netstat_TcpExt_TCPRcvQDrop) as receive queue full",
                "rate(node_netstat_TcpExt_TCPToZeroWindowAdv) as zero window",
            ]),
            panel("TCP reordering", "cps", &[
                "rate(node_netstat_TcpExt_TCPOFOQueue) as out of order",
                "rate(node_netstat_TcpExt_TCPSACKReneging) as SACK reneging",
            ]),
        ]),
        DashboardRow::expanded("UDP, IP and ICMP", &[
            panel("UDP datagrams", "pps", &[
                "rate(node_netstat_Udp_InDatagrams) as received",
                "rate(node_netstat_Udp_OutDatagrams) as sent",
            ]),
            panel("UDP errors", "pps", &[
                "rate(node_netstat_Udp_RcvbufErrors) as receive buffer full",
                "rate(node_netstat_Udp_SndbufErrors) as send buffer full",
                "rate(node_netstat_Udp_NoPorts) as no listener",
            ]).with_thresholds(1.0, 100.0),
            panel("IP packets", "pps", &[
                "rate(node_netstat_Ip_InReceives) as received",
                "rate(node_netstat_Ip_OutRequests) as sent",
                "rate(node_netstat_Ip_InDiscards) as discarded",
            ]),
            panel("ICMP messages", "pps", &[
                "rate(node_netstat_Icmp_InMsgs) as received",
                "rate(node_netstat_Icmp_OutMsgs) as sent",
            ]),
            panel("Network backlog per CPU", "short", &["node_softnet_backlog_len by cpu"]),
            panel("UDP queues", "bytes", &["node_udp_queues by ip, queue"]),
        ]),
        DashboardRow::collapsed("Connection tracking", &[
            panel("Tracked connections", "short", &[
                "node_nf_conntrack_entries as tracked",
                "node_nf_conntrack_entries_limit as limit",
            ]),
            panel("Connection tracking, drops and failures", "cps", &[
                "rate(node_nf_conntrack_stat_drop) as dropped",
                "rate(node_nf_conntrack_stat_insert_failed) as insert failed",
            ]).with_thresholds(1.0, 100.0),
        ]),
        DashboardRow::expanded("Memory management", &[
            panel("Pages scanned for reclaim", "cps", &[
                "rate(node_vmstat_pgscan_kswapd) as kswapd",
                "rate(node_vmstat_pgscan_direct) as direct",
            ]),
            panel("Compaction and huge pages", "cps", &[
                "rate(node_vmstat_compact_stall) as compaction stalls",
                "rate(node_vmstat_thp_fault_alloc) as huge pages allocated",
                "rate(node_vmstat_thp_fault_fallback) as huge page fallbacks",
            ]),
            panel("NUMA balancing", "cps", &[
                "rate(node_vmstat_numa_hint_faults) as hint faults",
                "rate(node_vmstat_numa_hint_faults_local) as local hint faults",
                "rate(node_vmstat_numa_pages_migrated) as pages migrated",
            ]),
            panel("Pages freed and activated", "cps", &[
                "rate(node_vmstat_pgfree) as freed",
                "rate(node_vmstat_pgactivate) as activated",
            ]),
        ]),
        DashboardRow::collapsed("Slingshot, detailed counters", &[
            panel("Slingshot retry timeouts", "cps", &["rate(node_cxi_pct_spt_timeouts_total) by device"]),
            panel("Slingshot unexpected messages", "cps", &["rate(node_cxi_lpe_net_match_overflow_0_total) by device"]),
        ]),
    ],
};
