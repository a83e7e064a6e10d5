//! The families of the collector `infiniband`: maps the kernel's counter names to those of node_exporter.

use pegel_metric::Family;

use crate::dynamic_series::{counter, gauge};

/// The unit of a counter, and its conversion to a base unit.
#[derive(Debug, Clone, Copy)]
pub(super) enum InfinibandUnit {
    One,
    /// Words of four bytes.
    Words,
}

pub(super) static INFO: Family = gauge(
    "node_infiniband_info",
    "",
    "Board, firmware version and type of the adapter; always 1.",
);
pub(super) static STATE: Family = gauge(
    "node_infiniband_state_id",
    "",
    "State of the port: 1 down, 2 initializing, 3 armed, 4 active, 5 active (deferred).",
);
pub(super) static PHYSICAL: Family = gauge(
    "node_infiniband_physical_state_id",
    "",
    "Physical state of the port: 1 sleep, 2 polling, 3 disabled, 4 training, 5 link up, 6 error recovery, 7 test.",
);
pub(super) static RATE: Family = gauge(
    "node_infiniband_rate_bytes_per_second",
    "bytes_per_second",
    "Maximum data rate of the port, in bytes per second.",
);
pub(super) static LIFESPAN: Family = gauge(
    "node_infiniband_lifespan_seconds",
    "seconds",
    "Maximum age of the hardware counters, in seconds.",
);
pub(super) static OTHER: Family = counter(
    "node_infiniband_<key>_total",
    "",
    "Counter <key> of the port.",
);
pub(super) static HW_OTHER: Family = counter(
    "node_infiniband_hw_<key>_total",
    "",
    "Hardware counter <key> of the port, reported by the driver.",
);
pub(super) static DEVICE_OTHER: Family = counter(
    "node_infiniband_device_<key>_total",
    "",
    "Hardware counter <key> of the adapter, reported by the driver.",
);

macro_rules! counters {
    (
        $($static:ident $file:literal $name:literal $unit:literal $scale:ident $help:literal;)*
        ; $($hw:ident $hw_file:literal $hw_name:literal $hw_help:literal;)*
    ) => {
        $(static $static: Family =
            counter(concat!("node_infiniband_", $name, "_total"), $unit, $help);)*
        $(static $hw: Family =
            counter(concat!("node_infiniband_", $hw_name, "_total"), "", $hw_help);)*
        /// The files of `counters`.
        pub(super) static COUNTERS: &[(&Family, &str, InfinibandUnit)] =
            &[$((&$static, $file, InfinibandUnit::$scale)),*];
        /// The files of `hw_counters`.
        pub(super) static HW_COUNTERS: &[(&Family, &str)] = &[$((&$hw, $hw_file)),*];
        pub(super) static ALL: &[&Family] = &[
            &INFO, &STATE, &PHYSICAL, &RATE, &LIFESPAN, &OTHER, &HW_OTHER, &DEVICE_OTHER,
            $(&$static,)* $(&$hw,)*
        ];
    };
}

counters! {
    PORT_RCV_DATA "port_rcv_data" "port_data_received_bytes" "bytes" Words "Total number of bytes received.";
    PORT_XMIT_DATA "port_xmit_data" "port_data_transmitted_bytes" "bytes" Words "Total number of bytes sent.";
    PORT_RCV_PACKETS "port_rcv_packets" "port_packets_received" "" One "Total number of packets received, including packets with errors.";
    PORT_XMIT_PACKETS "port_xmit_packets" "port_packets_transmitted" "" One "Total number of packets sent, including packets with errors.";
    PORT_RCV_ERRORS "port_rcv_errors" "port_errors_received" "" One "Total number of packets received with an error.";
    PORT_RCV_CONSTRAINT_ERRORS "port_rcv_constraint_errors" "port_constraint_errors_received" "" One "Total number of packets received on the switch port and discarded.";
    PORT_XMIT_CONSTRAINT_ERRORS "port_xmit_constraint_errors" "port_constraint_errors_transmitted" "" One "Total number of packets not sent from the switch port.";
    PORT_XMIT_DISCARDS "port_xmit_discards" "port_discards_transmitted" "" One "Total number of outgoing packets discarded because the port was down or congested.";
    PORT_RCV_DISCARDS "port_rcv_discards" "port_discards_received" "" One "Total number of incoming packets discarded because the port was down or congested.";
    PORT_RCV_REMOTE_PHYSICAL_ERRORS "port_rcv_remote_physical_errors" "port_receive_remote_physical_errors" "" One "Total number of received packets that were marked as bad upstream.";
    PORT_RCV_SWITCH_RELAY_ERRORS "port_rcv_switch_relay_errors" "port_receive_switch_relay_errors" "" One "Total number of received packets that the switch could not forward.";
    PORT_XMIT_WAIT "port_xmit_wait" "port_transmit_wait" "" One "Total number of ticks in which data was waiting but could not be sent.";
    MULTICAST_RCV_PACKETS "multicast_rcv_packets" "multicast_packets_received" "" One "Total number of multicast packets received.";
    MULTICAST_XMIT_PACKETS "multicast_xmit_packets" "multicast_packets_transmitted" "" One "Total number of multicast packets sent.";
    UNICAST_RCV_PACKETS "unicast_rcv_packets" "unicast_packets_received" "" One "Total number of unicast packets received.";
    UNICAST_XMIT_PACKETS "unicast_xmit_packets" "unicast_packets_transmitted" "" One "Total number of unicast packets sent.";
    LINK_DOWNED "link_downed" "link_downed" "" One "Total number of failed link error recoveries, after which the link went down.";
    LINK_ERROR_RECOVERY "link_error_recovery" "link_error_recovery" "" One "Total number of successful link error recoveries.";
    LOCAL_LINK_INTEGRITY_ERRORS "local_link_integrity_errors" "local_link_integrity_errors" "" One "Total number of times that local physical errors exceeded the threshold.";
    EXCESSIVE_BUFFER_OVERRUN_ERRORS "excessive_buffer_overrun_errors" "excessive_buffer_overrun_errors" "" One "Total number of times that consecutive buffer overruns exceeded the threshold.";
    SYMBOL_ERROR "symbol_error" "symbol_error" "" One "Total number of minor link errors on the physical lanes.";
    VL15_DROPPED "VL15_dropped" "vl15_dropped" "" One "Total number of management packets dropped for lack of buffers.";
    ;
    HW_DUPLICATE_REQUEST "duplicate_request" "duplicate_requests_packets" "Total number of duplicate requests received.";
    HW_IMPLIED_NAK_SEQ_ERR "implied_nak_seq_err" "implied_nak_seq_errors" "Total number of acknowledgements that skipped an expected one.";
    HW_LOCAL_ACK_TIMEOUT_ERR "local_ack_timeout_err" "local_ack_timeout_errors" "Total number of expired acknowledgement timers.";
    HW_NP_CNP_SENT "np_cnp_sent" "np_cnp_packets_sent" "Total number of congestion notification packets sent.";
    HW_NP_ECN_MARKED_ROCE_PACKETS "np_ecn_marked_roce_packets" "np_ecn_marked_roce_packets_received" "Total number of RoCE packets received with a congestion mark.";
    HW_OUT_OF_BUFFER "out_of_buffer" "out_of_buffer_drops" "Total number of packets dropped for lack of receive buffers.";
    HW_OUT_OF_SEQUENCE "out_of_sequence" "out_of_sequence_packets_received" "Total number of packets received out of order.";
    HW_PACKET_SEQ_ERR "packet_seq_err" "packet_sequence_errors" "Total number of negative acknowledgements received for packets out of order.";
    HW_REQ_CQE_ERROR "req_cqe_error" "req_cqes_errors" "Total number of requests completed with an error.";
    HW_REQ_CQE_FLUSH_ERROR "req_cqe_flush_error" "req_cqes_flush_errors" "Total number of requests flushed with an error.";
    HW_REQ_REMOTE_ACCESS_ERRORS "req_remote_access_errors" "req_remote_access_errors" "Total number of remote access errors detected by the requester.";
    HW_REQ_REMOTE_INVALID_REQUEST "req_remote_invalid_request" "req_remote_invalid_request_errors" "Total number of requests that the remote side rejected as invalid.";
    HW_RESP_CQE_ERROR "resp_cqe_error" "resp_cqes_errors" "Total number of responses completed with an error.";
    HW_RESP_CQE_FLUSH_ERROR "resp_cqe_flush_error" "resp_cqes_flush_errors" "Total number of responses flushed with an error.";
    HW_RESP_LOCAL_LENGTH_ERROR "resp_local_length_error" "resp_local_length_errors" "Total number of received messages that exceeded their buffer.";
    HW_RESP_REMOTE_ACCESS_ERRORS "resp_remote_access_errors" "resp_remote_access_errors" "Total number of remote access errors detected by the responder.";
    HW_RNR_NAK_RETRY_ERR "rnr_nak_retry_err" "rnr_nak_retry_packets_received" "Total number of negative acknowledgements received because the remote side was not ready.";
    HW_ROCE_ADP_RETRANS "roce_adp_retrans" "roce_adp_retransmits" "Total number of adaptive retransmissions of RoCE traffic.";
    HW_ROCE_ADP_RETRANS_TO "roce_adp_retrans_to" "roce_adp_retransmits_timeout" "Total number of timeouts of RoCE traffic with adaptive retransmission.";
    HW_ROCE_SLOW_RESTART "roce_slow_restart" "roce_slow_restart_used" "Total number of times that RoCE slow restart was used.";
    HW_ROCE_SLOW_RESTART_CNPS "roce_slow_restart_cnps" "roce_slow_restart_cnps" "Total number of congestion notification packets sent by RoCE slow restart.";
    HW_ROCE_SLOW_RESTART_TRANS "roce_slow_restart_trans" "roce_slow_restart" "Total number of transitions to RoCE slow restart.";
    HW_RP_CNP_HANDLED "rp_cnp_handled" "rp_cnp_packets_handled" "Total number of congestion notification packets that throttled this port.";
    HW_RP_CNP_IGNORED "rp_cnp_ignored" "rp_cnp_ignored_packets_received" "Total number of congestion notification packets received and ignored.";
    HW_RX_ATOMIC_REQUESTS "rx_atomic_requests" "rx_atomic_requests" "Total number of atomic requests received.";
    HW_RX_DCT_CONNECT "rx_dct_connect" "rx_dct_connect_requests" "Total number of connection requests received for dynamically connected transport.";
    HW_RX_ICRC_ENCAPSULATED "rx_icrc_encapsulated" "rx_icrc_encapsulated_errors" "Total number of RoCE packets received with an invalid checksum.";
    HW_RX_READ_REQUESTS "rx_read_requests" "rx_read_requests" "Total number of read requests received.";
    HW_RX_WRITE_REQUESTS "rx_write_requests" "rx_write_requests" "Total number of write requests received.";
}
