//! Requests to this node's NFS server, from `/proc/net/rpc/nfsd`.

use pegel_metric::Family;

use super::rpc::{NFS2, NFS3, RpcColumn, RpcColumns, RpcLayout, RpcReadings};
use crate::families::families;
use crate::file_collector::open_file;
use crate::{CollectorEntry, Tier};

families! {
    HITS Counter 3 "node_nfsd_reply_cache_hits_total" "" "Total number of retransmitted requests answered from the reply cache.";
    MISSES Counter 3 "node_nfsd_reply_cache_misses_total" "" "Total number of requests whose replies were added to the reply cache.";
    NOCACHE Counter 3 "node_nfsd_reply_cache_nocache_total" "" "Total number of requests that need no reply cache.";
    STALE Counter 3 "node_nfsd_file_handles_stale_total" "" "Total number of requests with a stale file handle.";
    READ Counter 3 "node_nfsd_disk_bytes_read_total" "" "Total number of bytes read for clients.";
    WRITTEN Counter 3 "node_nfsd_disk_bytes_written_total" "" "Total number of bytes written for clients.";
    THREADS Gauge 3 "node_nfsd_server_threads" "" "Number of kernel threads that serve NFS.";
    AHEAD Gauge 3 "node_nfsd_read_ahead_cache_size_blocks" "" "Size of the read-ahead cache in blocks; only kernels before 5.4.";
    AHEAD_MISSES Counter 3 "node_nfsd_read_ahead_cache_not_found_total" "" "Total number of blocks not found in the read-ahead cache; only kernels before 5.4.";
    PACKETS Counter 3 "node_nfsd_packets_total" "" "Total number of packets exchanged with NFS clients, by transport.";
    CONNECTIONS Counter 3 "node_nfsd_connections_total" "" "Total number of TCP connections from NFS clients.";
    RPCS Counter 3 "node_nfsd_server_rpcs_total" "" "Total number of RPCs from NFS clients.";
    ERRORS Counter 3 "node_nfsd_rpc_errors_total" "" "Total number of rejected RPCs, by error: malformed, bad credentials, bad client.";
    REQUESTS Counter 3 "node_nfsd_requests_total" "" "Total number of requests, by NFS version and procedure or operation.";
}

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

/// The operations by their number in the protocol. node_exporter skips 35 and 36, so its counts of
/// the next three belong to other operations.
#[rustfmt::skip]
const NFS4: &[&str] = &[
    "", "", "", "Access", "Close", "Commit", "Create", "DelegPurge", "DelegReturn", "GetAttr",
    "GetFH", "Link", "Lock", "Lockt", "Locku", "Lookup", "LookupRoot", "Nverify", "Open",
    "OpenAttr", "OpenConfirm", "OpenDgrd", "PutFH", "PutPubFH", "PutRootFH", "Read", "ReadDir",
    "ReadLink", "Remove", "Rename", "Renew", "RestoreFH", "SaveFH", "SecInfo", "SetAttr",
    "SetClientID", "SetClientIDConfirm", "Verify", "Write", "RelLockOwner",
];

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("nfsd", Tier::FiveSeconds, FAMILIES, |context| {
        open_file(context, "proc/net/rpc/nfsd", RpcReadings::new(LAYOUT))
    });
