//! What node_exporter has by default, or the dashboard Node Exporter Full asks for, and we do not:
//! one reason each. docs/metrics.md shows both tables, and the tests allow nothing that is not here.

/// Names by their beginnings, and why they are left out.
pub static OMITTED_METRICS: &[(&str, &str)] = &[
    (
        "go_",
        "The runtime of a program in Go; ours has none. The agent's own figures are `pegel_*`.",
    ),
    (
        "node_bcache_",
        "Inner figures of one caching layer; compute nodes rarely have it. Its devices are in `node_disk_*`.",
    ),
    (
        "node_btrfs_",
        "Allocation inside one file system, half of it by ioctl; size and use are in `node_filesystem_*`.",
    ),
    (
        "node_exporter_build_info",
        "About that program. `pegel version` tells ours.",
    ),
    (
        "node_fibrechannel_",
        "Storage servers have such adapters; traffic of their disks is in `node_disk_*`.",
    ),
    (
        "node_interrupts_total",
        "One series per CPU and interrupt, tens of thousands on a large node; node_exporter leaves it off too. `node_intr_total` is the sum.",
    ),
    (
        "node_ipvs_",
        "Figures of a load balancer in the kernel, which no compute node is.",
    ),
    (
        "node_scrape_collector_",
        "State and cost of collectors are `pegel_collector_*` and in `/status`.",
    ),
    (
        "node_systemd_",
        "Needs a conversation with systemd over D-Bus; `systemctl` and the journal know more.",
    ),
    ("node_tape_", "Tape drives belong to backup servers."),
    (
        "node_tcp_connection_states",
        "Takes a list of all connections each time; node_exporter leaves it off too. `node_sockstat_TCP_alloc` and `node_netstat_Tcp_CurrEstab` are cheap.",
    ),
    (
        "node_textfile_",
        "Files with metrics in them are not read; programs send theirs to the agent.",
    ),
    (
        "node_time_zone_offset_seconds",
        "All our times are UTC, and nothing depends on the node's zone.",
    ),
    (
        "node_xfs_",
        "Inner figures of one file system; size and use are in `node_filesystem_*`, traffic in `node_disk_*`.",
    ),
    (
        "node_zfs_",
        "Inner figures of a file system outside the kernel; size and use are in `node_filesystem_*`.",
    ),
    (
        "process_",
        "About node_exporter's own process. The agent's is in `pegel_cpu_seconds_total`, `pegel_resident_memory_bytes`, `pegel_open_fds`.",
    ),
    ("promhttp_", "About node_exporter's own HTTP server."),
];

/// Series that we have too, by their beginnings, but not with the same content, and why.
pub static DIVERGENT_METRICS: &[(&str, &str)] = &[
    (
        "node_dmi_info",
        "Serial numbers, asset tags and the machine's unique id are not published.",
    ),
    (
        "node_hwmon_humidity",
        "A ratio, from thousandths of a percent as the kernel says; node_exporter's is a tenth of it.",
    ),
    (
        "node_network_speed_bytes",
        "Absent where the driver does not know the speed; node_exporter says -125000.",
    ),
    (
        "node_nfs_requests_total",
        "Methods of NFS 4.2 that node_exporter 1.5 does not know are there too.",
    ),
    (
        "node_nfsd_requests_total",
        "Operations by the protocol's own numbers; node_exporter skips two of them, so that it shows Verify, Write and RelLockOwner with the counts of others.",
    ),
    (
        "node_power_supply_info",
        "The serial number is not published.",
    ),
];
