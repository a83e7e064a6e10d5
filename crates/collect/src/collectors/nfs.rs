//! Requests of this node's NFS client, from `/proc/net/rpc/nfs`.

use pegel_metric::Family;

use super::rpc::{NFS2, NFS3, RpcColumn, RpcColumns, RpcLayout, RpcReadings};
use crate::families::families;
use crate::file_collector::open_file;
use crate::{CollectorEntry, Tier};

families! {
    PACKETS Counter 3 "node_nfs_packets_total" "" "Total number of packets exchanged with NFS servers, by transport.";
    CONNECTIONS Counter 3 "node_nfs_connections_total" "" "Total number of TCP connections to NFS servers.";
    RPCS Counter 3 "node_nfs_rpcs_total" "" "Total number of RPCs to NFS servers.";
    RETRANSMISSIONS Counter 3 "node_nfs_rpc_retransmissions_total" "" "Total number of RPC retransmissions.";
    REFRESHES Counter 3 "node_nfs_rpc_authentication_refreshes_total" "" "Total number of refreshes of RPC credentials.";
    REQUESTS Counter 3 "node_nfs_requests_total" "" "Total number of requests, by NFS version and procedure.";
}

const fn column(
    family: &'static Family,
    labels: &'static [(&'static str, &'static str)],
) -> Option<RpcColumn> {
    Some(RpcColumn { family, labels })
}

const fn procedures(proto: &'static str, names: &'static [&'static str]) -> RpcColumns {
    RpcColumns::Procedures {
        family: &REQUESTS,
        proto,
        names,
    }
}

static LAYOUT: RpcLayout = &[
    (
        b"net",
        RpcColumns::Named(&[
            None,
            column(&PACKETS, &[("protocol", "udp")]),
            column(&PACKETS, &[("protocol", "tcp")]),
            column(&CONNECTIONS, &[]),
        ]),
    ),
    (
        b"rpc",
        RpcColumns::Named(&[
            column(&RPCS, &[]),
            column(&RETRANSMISSIONS, &[]),
            column(&REFRESHES, &[]),
        ]),
    ),
    (b"proc2", procedures("2", NFS2)),
    (b"proc3", procedures("3", NFS3)),
    (b"proc4", procedures("4", NFS4)),
];

/// The procedures in the order of the kernel's client, which appends new ones.
#[rustfmt::skip]
const NFS4: &[&str] = &[
    "Null", "Read", "Write", "Commit", "Open", "OpenConfirm", "OpenNoattr", "OpenDowngrade",
    "Close", "Setattr", "FsInfo", "Renew", "SetClientID", "SetClientIDConfirm", "Lock", "Lockt",
    "Locku", "Access", "Getattr", "Lookup", "LookupRoot", "Remove", "Rename", "Link", "Symlink",
    "Create", "Pathconf", "StatFs", "ReadLink", "ReadDir", "ServerCaps", "DelegReturn", "GetACL",
    "SetACL", "FsLocations", "ReleaseLockowner", "Secinfo", "FsidPresent", "ExchangeID",
    "CreateSession", "DestroySession", "Sequence", "GetLeaseTime", "ReclaimComplete", "LayoutGet",
    "GetDeviceInfo", "LayoutCommit", "LayoutReturn", "SecinfoNoName", "TestStateID", "FreeStateID",
    "GetDeviceList", "BindConnToSession", "DestroyClientID", "Seek", "Allocate", "DeAllocate",
    "LayoutStats", "Clone", "Copy", "OffloadCancel", "Lookupp", "LayoutError", "CopyNotify",
    "Getxattr", "Setxattr", "Listxattrs", "Removexattr", "ReadPlus",
];

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("nfs", Tier::FiveSeconds, FAMILIES, |context| {
        open_file(context, "proc/net/rpc/nfs", RpcReadings::new(LAYOUT))
    });
