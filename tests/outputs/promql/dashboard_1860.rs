//! The dashboard *Node Exporter Full* (1860): its metrics, and expressions of the forms that its
//! panels have.

use pegel_testkit::{eventually, fixture};

use super::query;
use crate::PEGEL;

/// The metrics that its panels select.
#[rustfmt::skip]
const METRICS: &[&str] = &[
    "node_arp_entries", "node_boot_time_seconds", "node_context_switches_total",
    "node_cooling_device_cur_state", "node_cooling_device_max_state",
    "node_cpu_guest_seconds_total", "node_cpu_scaling_frequency_hertz",
    "node_cpu_scaling_frequency_max_hertz", "node_cpu_scaling_frequency_min_hertz",
    "node_cpu_seconds_total", "node_disk_discard_time_seconds_total",
    "node_disk_discarded_sectors_total", "node_disk_discards_completed_total",
    "node_disk_discards_merged_total", "node_disk_flush_requests_time_seconds_total",
    "node_disk_flush_requests_total", "node_disk_io_now", "node_disk_io_time_seconds_total",
    "node_disk_io_time_weighted_seconds_total", "node_disk_read_bytes_total",
    "node_disk_read_time_seconds_total", "node_disk_reads_completed_total",
    "node_disk_reads_merged_total", "node_disk_write_time_seconds_total",
    "node_disk_writes_completed_total", "node_disk_writes_merged_total",
    "node_disk_written_bytes_total", "node_entropy_available_bits", "node_entropy_pool_size_bits",
    "node_filefd_allocated", "node_filefd_maximum", "node_filesystem_avail_bytes",
    "node_filesystem_device_error", "node_filesystem_files", "node_filesystem_files_free",
    "node_filesystem_free_bytes", "node_filesystem_readonly", "node_filesystem_size_bytes",
    "node_forks_total", "node_hwmon_chip_names", "node_hwmon_fan_min_rpm", "node_hwmon_fan_rpm",
    "node_hwmon_temp_celsius", "node_hwmon_temp_crit_alarm_celsius", "node_hwmon_temp_crit_celsius",
    "node_hwmon_temp_crit_hyst_celsius", "node_hwmon_temp_max_celsius", "node_interrupts_total",
    "node_intr_total", "node_kernel_hung_tasks", "node_load1", "node_load15", "node_load5",
    "node_memory_Active_anon_bytes", "node_memory_Active_bytes", "node_memory_Active_file_bytes",
    "node_memory_AnonHugePages_bytes", "node_memory_AnonPages_bytes", "node_memory_Buffers_bytes",
    "node_memory_Cached_bytes", "node_memory_CommitLimit_bytes", "node_memory_Committed_AS_bytes",
    "node_memory_DirectMap1G_bytes", "node_memory_DirectMap2M_bytes",
    "node_memory_DirectMap4k_bytes", "node_memory_Dirty_bytes",
    "node_memory_HardwareCorrupted_bytes", "node_memory_HugePages_Free",
    "node_memory_HugePages_Rsvd", "node_memory_HugePages_Surp", "node_memory_HugePages_Total",
    "node_memory_Hugepagesize_bytes", "node_memory_Inactive_anon_bytes",
    "node_memory_Inactive_bytes", "node_memory_Inactive_file_bytes",
    "node_memory_KernelStack_bytes", "node_memory_Mapped_bytes", "node_memory_MemAvailable_bytes",
    "node_memory_MemFree_bytes", "node_memory_MemTotal_bytes", "node_memory_Mlocked_bytes",
    "node_memory_NFS_Unstable_bytes", "node_memory_PageTables_bytes", "node_memory_Percpu_bytes",
    "node_memory_SReclaimable_bytes", "node_memory_SUnreclaim_bytes",
    "node_memory_ShmemHugePages_bytes", "node_memory_ShmemPmdMapped_bytes",
    "node_memory_Shmem_bytes", "node_memory_Slab_bytes", "node_memory_SwapCached_bytes",
    "node_memory_SwapFree_bytes", "node_memory_SwapTotal_bytes", "node_memory_Unevictable_bytes",
    "node_memory_VmallocChunk_bytes", "node_memory_VmallocTotal_bytes",
    "node_memory_VmallocUsed_bytes", "node_memory_WritebackTmp_bytes",
    "node_memory_Writeback_bytes", "node_memory_Zswap_bytes", "node_memory_Zswapped_bytes",
    "node_netstat_Icmp_InErrors", "node_netstat_Icmp_InMsgs", "node_netstat_Icmp_OutMsgs",
    "node_netstat_IpExt_InOctets", "node_netstat_IpExt_OutOctets",
    "node_netstat_TcpExt_ListenDrops", "node_netstat_TcpExt_ListenOverflows",
    "node_netstat_TcpExt_SyncookiesFailed", "node_netstat_TcpExt_SyncookiesRecv",
    "node_netstat_TcpExt_SyncookiesSent", "node_netstat_TcpExt_TCPOFOQueue",
    "node_netstat_TcpExt_TCPRcvQDrop", "node_netstat_TcpExt_TCPSynRetrans",
    "node_netstat_TcpExt_TCPTimeouts", "node_netstat_Tcp_ActiveOpens", "node_netstat_Tcp_CurrEstab",
    "node_netstat_Tcp_InErrs", "node_netstat_Tcp_InSegs", "node_netstat_Tcp_MaxConn",
    "node_netstat_Tcp_OutRsts", "node_netstat_Tcp_OutSegs", "node_netstat_Tcp_PassiveOpens",
    "node_netstat_Tcp_RetransSegs", "node_netstat_UdpLite_InErrors", "node_netstat_Udp_InDatagrams",
    "node_netstat_Udp_InErrors", "node_netstat_Udp_NoPorts", "node_netstat_Udp_OutDatagrams",
    "node_netstat_Udp_RcvbufErrors", "node_netstat_Udp_SndbufErrors", "node_network_carrier",
    "node_network_mtu_bytes", "node_network_receive_bytes_total",
    "node_network_receive_compressed_total", "node_network_receive_drop_total",
    "node_network_receive_errs_total", "node_network_receive_fifo_total",
    "node_network_receive_frame_total", "node_network_receive_multicast_total",
    "node_network_receive_nohandler_total", "node_network_receive_packets_total",
    "node_network_speed_bytes", "node_network_transmit_bytes_total",
    "node_network_transmit_carrier_total", "node_network_transmit_colls_total",
    "node_network_transmit_compressed_total", "node_network_transmit_drop_total",
    "node_network_transmit_errs_total", "node_network_transmit_fifo_total",
    "node_network_transmit_packets_total", "node_network_up", "node_nf_conntrack_entries",
    "node_nf_conntrack_entries_limit", "node_power_supply_online",
    "node_pressure_cpu_waiting_seconds_total", "node_pressure_io_stalled_seconds_total",
    "node_pressure_io_waiting_seconds_total", "node_pressure_irq_stalled_seconds_total",
    "node_pressure_memory_stalled_seconds_total", "node_pressure_memory_waiting_seconds_total",
    "node_processes_max_processes", "node_processes_max_threads", "node_processes_pids",
    "node_processes_state", "node_processes_threads", "node_procs_blocked", "node_procs_running",
    "node_schedstat_running_seconds_total", "node_schedstat_timeslices_total",
    "node_schedstat_waiting_seconds_total", "node_scrape_collector_duration_seconds",
    "node_scrape_collector_success", "node_sockstat_FRAG_inuse", "node_sockstat_FRAG_memory",
    "node_sockstat_RAW_inuse", "node_sockstat_TCP_alloc", "node_sockstat_TCP_inuse",
    "node_sockstat_TCP_mem", "node_sockstat_TCP_mem_bytes", "node_sockstat_TCP_orphan",
    "node_sockstat_TCP_tw", "node_sockstat_UDPLITE_inuse", "node_sockstat_UDP_inuse",
    "node_sockstat_UDP_mem", "node_sockstat_UDP_mem_bytes", "node_sockstat_sockets_used",
    "node_softnet_dropped_total", "node_softnet_flow_limit_count_total",
    "node_softnet_processed_total", "node_softnet_received_rps_total",
    "node_softnet_times_squeezed_total", "node_systemd_socket_accepted_connections_total",
    "node_systemd_socket_current_connections", "node_systemd_socket_refused_connections_total",
    "node_systemd_units", "node_tcp_connection_states", "node_textfile_scrape_error",
    "node_time_seconds", "node_timex_estimated_error_seconds",
    "node_timex_frequency_adjustment_ratio", "node_timex_loop_time_constant",
    "node_timex_maxerror_seconds", "node_timex_offset_seconds", "node_timex_pps_calibration_total",
    "node_timex_pps_error_total", "node_timex_pps_frequency_hertz", "node_timex_pps_jitter_seconds",
    "node_timex_pps_jitter_total", "node_timex_pps_shift_seconds",
    "node_timex_pps_stability_exceeded_total", "node_timex_pps_stability_hertz",
    "node_timex_sync_status", "node_timex_tai_offset_seconds", "node_timex_tick_seconds",
    "node_udp_queues", "node_uname_info", "node_vmstat_oom_kill", "node_vmstat_pgfault",
    "node_vmstat_pgmajfault", "node_vmstat_pgpgin", "node_vmstat_pgpgout", "node_vmstat_pswpin",
    "node_vmstat_pswpout", "process_cpu_seconds_total", "process_max_fds", "process_open_fds",
    "process_virtual_memory_bytes", "process_virtual_memory_max_bytes",
];

/// Expressions that combine metrics; `$n` stands for the matchers of the node.
const EXPRESSIONS: &[&str] = &[
    "100 * (1 - avg(rate(node_cpu_seconds_total{mode=\"idle\",$n}[1m])))",
    "avg(sum without(mode) (rate(node_cpu_seconds_total{$n, mode=~\".*irq\"}[1m])))",
    "count(count(node_cpu_seconds_total{$n}) by (cpu))",
    "scalar(node_load1{$n}) * 100 / count(count(node_cpu_seconds_total{$n}) by (cpu))",
    "sum(rate(node_cpu_seconds_total{mode=\"user\",$n}[1m])) / scalar(count(count(node_cpu_seconds_total{$n}) by (cpu)))",
    "clamp_min((1 - (node_memory_MemAvailable_bytes{$n} / node_memory_MemTotal_bytes{$n})) * 100, 0)",
    "(node_memory_SwapTotal_bytes{$n} > bool 0) * ((node_memory_SwapTotal_bytes{$n} - node_memory_SwapFree_bytes{$n}) / (node_memory_SwapTotal_bytes{$n})) * 100",
    "((node_filesystem_size_bytes{$n, device!~'rootfs'} - node_filesystem_avail_bytes{$n, device!~'rootfs'}) / node_filesystem_size_bytes{$n, device!~'rootfs'}) * 100",
    "rate(node_disk_read_bytes_total{$n,device=~\"[a-z]+|nvme[0-9]+n[0-9]+|mmcblk[0-9]+\"}[1m])",
    "(rate(node_disk_reads_completed_total{$n}[1m]) > bool 0) * (rate(node_disk_read_time_seconds_total{$n}[1m]) / rate(node_disk_reads_completed_total{$n}[1m]))",
    "rate(node_network_receive_bytes_total{$n}[1m])*8",
    "node_hwmon_temp_celsius{$n} * on(chip) group_left(chip_name) node_hwmon_chip_names{$n}",
    "sum by(instance) (rate(node_cpu_guest_seconds_total{$n}[1m])) / on(instance) group_left sum by (instance)((rate(node_cpu_seconds_total{$n}[1m]))) > 0",
    "node_time_seconds{$n} - node_boot_time_seconds{$n}",
];

/// Beginnings of names that the machine of the fixture does not have: the clock is no file, and
/// this sensor has no hysteresis.
const ABSENT: &[&str] = &["node_timex_", "node_hwmon_temp_crit_hyst_celsius"];

/// Returns whether a metric may be missing: docs/metrics.md explains what no agent has.
fn is_absent(metric: &str) -> bool {
    let omitted = pegel_collect::OMITTED_METRICS.iter();
    let mut starts = omitted
        .map(|(start, _)| *start)
        .chain(ABSENT.iter().copied());
    starts.any(|start| metric.starts_with(start))
}

#[test]
fn no_expression_of_dashboard_1860_is_an_error() {
    let agent = PEGEL
        .agent()
        .env("PEGEL_ROOT", fixture("basic"))
        // The numbers of processes are of level 4.
        .args(&["--node", "nid7", "--level", "4"])
        .start();
    let matchers =
        format!("instance=\"{}\",job=\"node\"", agent.http()).replace("127.0.0.1", "nid7");
    eventually("a rate", || {
        let result = query(&agent, "rate(node_cpu_seconds_total[1m])");
        let is_there = result.as_array().is_some_and(|list| !list.is_empty());
        is_there.then_some(()).ok_or(result)
    });
    for metric in METRICS {
        query(&agent, &format!("rate({metric}{{{matchers}}}[1m])"));
    }
    // Some collectors have their first sample later than others.
    eventually("every metric that this machine has", || {
        let is_missing = |metric: &&str| {
            let found = query(&agent, &format!("{metric}{{{matchers}}}"));
            found.as_array().is_none_or(Vec::is_empty)
        };
        let missing: Vec<&str> = METRICS.iter().copied().filter(is_missing).collect();
        let unexplained: Vec<&str> = missing
            .into_iter()
            .filter(|metric| !is_absent(metric))
            .collect();
        unexplained.is_empty().then_some(()).ok_or(unexplained)
    });
    for expression in EXPRESSIONS {
        query(&agent, &expression.replace("$n", &matchers));
    }
    for path in [
        "/api/v1/label/job/values?match[]=node_uname_info",
        "/api/v1/label/nodename/values?match[]=node_uname_info%7Bjob=%22node%22%7D",
        "/api/v1/label/instance/values?match[]=node_uname_info%7Bjob=%22node%22%7D",
    ] {
        let values = agent.get(path).json();
        assert_eq!(
            values["data"].as_array().map(Vec::len),
            Some(1),
            "{path}: {values}"
        );
    }
}
