//! What NFS clients asked of this node, from `/proc/net/rpc/nfsd`.

use pegel_metric::{Family, Kind};

use super::rpc::{NFS2, NFS3, RpcColumn, RpcColumns, RpcLayout, RpcReadings};
use crate::files::open_files;
use crate::procfile::Shape;
use crate::{Context, Entry, OpenError, Opened, Pace, Tier};

const fn counter(name: &'static str, unit: &'static str, help: &'static str) -> Family {
    Family::new(name, Kind::Counter, unit, 3, help)
}

static HITS: Family = counter(
    "node_nfsd_reply_cache_hits_total",
    "",
    "Repeated calls that were answered from the reply cache.",
);
static MISSES: Family = counter(
    "node_nfsd_reply_cache_misses_total",
    "",
    "Calls whose answers were put into the reply cache.",
);
static NOCACHE: Family = counter(
    "node_nfsd_reply_cache_nocache_total",
    "",
    "Calls whose answers need no reply cache.",
);
static STALE: Family = counter(
    "node_nfsd_file_handles_stale_total",
    "",
    "Calls with a handle of a file that is gone.",
);
static READ: Family = counter(
    "node_nfsd_disk_bytes_read_total",
    "",
    "Bytes read for clients.",
);
static WRITTEN: Family = counter(
    "node_nfsd_disk_bytes_written_total",
    "",
    "Bytes written for clients.",
);
static THREADS: Family = Family::new(
    "node_nfsd_server_threads",
    Kind::Gauge,
    "",
    3,
    "Kernel threads that serve NFS.",
);
static AHEAD: Family = Family::new(
    "node_nfsd_read_ahead_cache_size_blocks",
    Kind::Gauge,
    "",
    3,
    "Size of the read-ahead cache in blocks; kernels before 5.4.",
);
static AHEAD_MISSES: Family = counter(
    "node_nfsd_read_ahead_cache_not_found_total",
    "",
    "Blocks that were not in the read-ahead cache; kernels before 5.4.",
);
static PACKETS: Family = counter(
    "node_nfsd_packets_total",
    "",
    "Packets exchanged with NFS clients, by transport.",
);
static CONNECTIONS: Family = counter(
    "node_nfsd_connections_total",
    "",
    "TCP connections that NFS clients made.",
);
static RPCS: Family = counter("node_nfsd_server_rpcs_total", "", "Calls by NFS clients.");
static ERRORS: Family = counter(
    "node_nfsd_rpc_errors_total",
    "",
    "Calls that were refused, by reason: bad form, bad credentials, bad client.",
);
static REQUESTS: Family = counter(
    "node_nfsd_requests_total",
    "",
    "Calls by clients, by version of NFS and procedure or operation.",
);

const fn column(
    family: &'static Family,
    labels: &'static [(&'static str, &'static str)],
) -> Option<RpcColumn> {
    Some(RpcColumn { family, labels })
}

const fn plain(family: &'static Family) -> Option<RpcColumn> {
    column(family, &[])
}

const fn procedures(proto: &'static str, names: &'static [&'static str]) -> RpcColumns {
    RpcColumns::Procedures {
        family: &REQUESTS,
        proto,
        names,
    }
}

#[rustfmt::skip]
static LAYOUT: RpcLayout = &[
    (b"rc", RpcColumns::Named(&[plain(&HITS), plain(&MISSES), plain(&NOCACHE)])),
    (b"fh", RpcColumns::Named(&[plain(&STALE)])),
    (b"io", RpcColumns::Named(&[plain(&READ), plain(&WRITTEN)])),
    (b"th", RpcColumns::Named(&[plain(&THREADS)])),
    (b"ra", RpcColumns::Named(&[
        plain(&AHEAD), None, None, None, None, None, None, None, None, None, None, plain(&AHEAD_MISSES),
    ])),
    (b"net", RpcColumns::Named(&[
        None, column(&PACKETS, &[("proto", "udp")]), column(&PACKETS, &[("proto", "tcp")]), plain(&CONNECTIONS),
    ])),
    (b"rpc", RpcColumns::Named(&[
        plain(&RPCS), None, column(&ERRORS, &[("error", "fmt")]), column(&ERRORS, &[("error", "auth")]),
        column(&ERRORS, &[("error", "cInt")]),
    ])),
    (b"proc2", procedures("2", NFS2)),
    (b"proc3", procedures("3", NFS3)),
    (b"proc4ops", procedures("4", NFS4)),
];

/// By the numbers that the protocol gives to its operations. node_exporter skips 35 and 36, so that
/// its counts of the three after them are those of others.
#[rustfmt::skip]
const NFS4: &[&str] = &[
    "", "", "", "Access", "Close", "Commit", "Create", "DelegPurge", "DelegReturn", "GetAttr",
    "GetFH", "Link", "Lock", "Lockt", "Locku", "Lookup", "LookupRoot", "Nverify", "Open",
    "OpenAttr", "OpenConfirm", "OpenDgrd", "PutFH", "PutPubFH", "PutRootFH", "Read", "ReadDir",
    "ReadLink", "Remove", "Rename", "Renew", "RestoreFH", "SaveFH", "SecInfo", "SetAttr",
    "SetClientID", "SetClientIDConfirm", "Verify", "Write", "RelLockOwner",
];

pub static ENTRY: Entry = Entry {
    name: "nfsd",
    tier: Tier::FiveSeconds,
    pace: Pace::Here,
    level: 3,
    families: &[
        &HITS,
        &MISSES,
        &NOCACHE,
        &STALE,
        &READ,
        &WRITTEN,
        &THREADS,
        &AHEAD,
        &AHEAD_MISSES,
        &PACKETS,
        &CONNECTIONS,
        &RPCS,
        &ERRORS,
        &REQUESTS,
    ],
    open,
};

fn open(context: &Context) -> Result<Opened, OpenError> {
    let path = context.host.proc.join("net/rpc/nfsd");
    open_files([(path, Shape::Whole, RpcReadings::new(LAYOUT))])
}
