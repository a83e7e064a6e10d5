//! Metrics that node_exporter publishes by default, or that the dashboard Node Exporter Full
//! queries, and that Pegel omits or publishes differently, each with a reason. docs/metrics.md
//! shows both tables, and the tests reject any difference that is not listed here.

/// Prefixes of omitted metric names, and the reasons.
pub static OMITTED_METRICS: &[(&str, &str)] = &[
    (
        "go_",
        "Metrics of the Go runtime, which Pegel does not use. The agent's own metrics are `pegel_*`.",
    ),
    (
        "node_bcache_",
        "Internal metrics of a caching layer that compute nodes rarely have. Its devices are in `node_disk_*`.",
    ),
    (
        "node_btrfs_",
        "Internal allocation metrics of one file system, half of them by ioctl. Size and usage are in `node_filesystem_*`.",
    ),
    (
        "node_exporter_build_info",
        "Describes node_exporter itself. `pegel version` shows the version of Pegel.",
    ),
    (
        "node_fibrechannel_",
        "Such adapters are found in storage servers. The traffic of their disks is in `node_disk_*`.",
    ),
    (
        "node_interrupts_total",
        "One series per CPU and interrupt, tens of thousands on a large node; disabled by default in node_exporter too. `node_intr_total` is the sum.",
    ),
    (
        "node_ipvs_",
        "Metrics of the load balancer in the kernel, which compute nodes do not use.",
    ),
    (
        "node_scrape_collector_",
        "State and cost of collectors are in `pegel_collector_*` and in `/status`.",
    ),
    (
        "node_systemd_",
        "Requires D-Bus calls to systemd. `systemctl` and the journal provide more detail.",
    ),
    ("node_tape_", "Tape drives are found in backup servers."),
    (
        "node_tcp_connection_states",
        "Requires listing all connections each time; disabled by default in node_exporter too. `node_sockstat_TCP_alloc` and `node_netstat_Tcp_CurrEstab` are cheap.",
    ),
    (
        "node_textfile_",
        "Text files with metrics are not read; programs send their metrics to the agent.",
    ),
    (
        "node_time_zone_offset_seconds",
        "All times are UTC; nothing depends on the time zone of the node.",
    ),
    (
        "node_xfs_",
        "Internal metrics of one file system. Size and usage are in `node_filesystem_*`, traffic in `node_disk_*`.",
    ),
    (
        "node_zfs_",
        "Internal metrics of an out-of-tree file system. Size and usage are in `node_filesystem_*`.",
    ),
    (
        "process_",
        "Describes the node_exporter process. Those of the agent are `pegel_cpu_seconds_total`, `pegel_resident_memory_bytes`, `pegel_open_fds`.",
    ),
    ("promhttp_", "Describes the HTTP server of node_exporter."),
];

/// Prefixes of series that Pegel publishes with different content, and the reasons.
pub static DIVERGENT_METRICS: &[(&str, &str)] = &[
    (
        "node_dmi_info",
        "Serial numbers, asset tags and the unique ID of the machine are not published.",
    ),
    (
        "node_hwmon_humidity",
        "A ratio, converted from the kernel's thousandths of a percent; the value of node_exporter is a tenth of it.",
    ),
    (
        "node_network_speed_bytes",
        "Absent if the driver does not know the speed; node_exporter reports -125000.",
    ),
    (
        "node_nfs_requests_total",
        "Also includes methods of NFS 4.2 that node_exporter 1.5 does not know.",
    ),
    (
        "node_nfsd_requests_total",
        "Operations use the numbers of the protocol; node_exporter skips two of them and therefore shows Verify, Write and RelLockOwner with the counts of others.",
    ),
    (
        "node_power_supply_info",
        "The serial number is not published.",
    ),
];
