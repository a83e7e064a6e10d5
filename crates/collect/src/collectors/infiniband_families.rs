//! What the counters of InfiniBand ports are called: by the kernel, and here as in node_exporter.

use pegel_metric::Family;

use crate::sheet::{counter, gauge};

/// How a counter becomes a base unit.
#[derive(Debug, Clone, Copy)]
pub(super) enum InfinibandUnit {
    One,
    /// The hardware counts words of four bytes.
    Words,
}

pub(super) static INFO: Family =
    gauge("node_infiniband_info", "", "What the adapter is; always 1.");
pub(super) static STATE: Family = gauge(
    "node_infiniband_state_id",
    "",
    "State of the port: 1 down, 2 initialising, 3 armed, 4 active, 5 active and deferred.",
);
pub(super) static PHYSICAL: Family = gauge(
    "node_infiniband_physical_state_id",
    "",
    "Physical state of the port: 1 sleep, 2 polling, 3 disabled, 4 training, 5 up, 6 recovering, 7 test.",
);
pub(super) static RATE: Family = gauge(
    "node_infiniband_rate_bytes_per_second",
    "bytes_per_second",
    "Rate of the port, in bytes per second.",
);
pub(super) static LIFESPAN: Family = gauge(
    "node_infiniband_lifespan_seconds",
    "seconds",
    "How old the hardware's counters may be, in seconds.",
);
pub(super) static OTHER: Family = counter(
    "node_infiniband_<key>_total",
    "",
    "The port's counter <key>.",
);
pub(super) static HW_OTHER: Family = counter(
    "node_infiniband_hw_<key>_total",
    "",
    "The driver's counter <key> of the port.",
);
pub(super) static DEVICE_OTHER: Family = counter(
    "node_infiniband_device_<key>_total",
    "",
    "The driver's counter <key> of the adapter.",
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
    PORT_RCV_DATA "port_rcv_data" "port_data_received_bytes" "bytes" Words "Data received, in bytes.";
    PORT_XMIT_DATA "port_xmit_data" "port_data_transmitted_bytes" "bytes" Words "Data sent, in bytes.";
    PORT_RCV_PACKETS "port_rcv_packets" "port_packets_received" "" One "Packets received, with those that had an error.";
    PORT_XMIT_PACKETS "port_xmit_packets" "port_packets_transmitted" "" One "Packets sent, with those that had an error.";
    PORT_RCV_ERRORS "port_rcv_errors" "port_errors_received" "" One "Packets received with an error.";
    PORT_RCV_CONSTRAINT_ERRORS "port_rcv_constraint_errors" "port_constraint_errors_received" "" One "Packets received by a switch port and discarded.";
    PORT_XMIT_CONSTRAINT_ERRORS "port_xmit_constraint_errors" "port_constraint_errors_transmitted" "" One "Packets that a switch port did not send.";
    PORT_XMIT_DISCARDS "port_xmit_discards" "port_discards_transmitted" "" One "Outgoing packets discarded because the port was down or congested.";
    PORT_RCV_DISCARDS "port_rcv_discards" "port_discards_received" "" One "Incoming packets discarded because the port was down or congested.";
    PORT_RCV_REMOTE_PHYSICAL_ERRORS "port_rcv_remote_physical_errors" "port_receive_remote_physical_errors" "" One "Packets received that were already marked as bad on the way.";
    PORT_RCV_SWITCH_RELAY_ERRORS "port_rcv_switch_relay_errors" "port_receive_switch_relay_errors" "" One "Packets that a switch could not forward.";
    PORT_XMIT_WAIT "port_xmit_wait" "port_transmit_wait" "" One "Ticks in which there was data to send and none could be sent.";
    MULTICAST_RCV_PACKETS "multicast_rcv_packets" "multicast_packets_received" "" One "Multicast packets received.";
    MULTICAST_XMIT_PACKETS "multicast_xmit_packets" "multicast_packets_transmitted" "" One "Multicast packets sent.";
    UNICAST_RCV_PACKETS "unicast_rcv_packets" "unicast_packets_received" "" One "Unicast packets received.";
    UNICAST_XMIT_PACKETS "unicast_xmit_packets" "unicast_packets_transmitted" "" One "Unicast packets sent.";
    LINK_DOWNED "link_downed" "link_downed" "" One "Times that the link went down because recovery failed.";
    LINK_ERROR_RECOVERY "link_error_recovery" "link_error_recovery" "" One "Times that the link recovered from an error.";
    LOCAL_LINK_INTEGRITY_ERRORS "local_link_integrity_errors" "local_link_integrity_errors" "" One "Times that local errors went beyond the threshold.";
    EXCESSIVE_BUFFER_OVERRUN_ERRORS "excessive_buffer_overrun_errors" "excessive_buffer_overrun_errors" "" One "Times that buffers overran for long.";
    SYMBOL_ERROR "symbol_error" "symbol_error" "" One "Minor errors on the physical lanes.";
    VL15_DROPPED "VL15_dropped" "vl15_dropped" "" One "Management packets dropped for lack of buffers.";
    ;
    HW_DUPLICATE_REQUEST "duplicate_request" "duplicate_requests_packets" "Requests received twice.";
    HW_IMPLIED_NAK_SEQ_ERR "implied_nak_seq_err" "implied_nak_seq_errors" "Acknowledgements that skipped an expected one.";
    HW_LOCAL_ACK_TIMEOUT_ERR "local_ack_timeout_err" "local_ack_timeout_errors" "Acknowledgement timers that ran out.";
    HW_NP_CNP_SENT "np_cnp_sent" "np_cnp_packets_sent" "Congestion notifications sent.";
    HW_NP_ECN_MARKED_ROCE_PACKETS "np_ecn_marked_roce_packets" "np_ecn_marked_roce_packets_received" "RoCE packets received that were marked as congested.";
    HW_OUT_OF_BUFFER "out_of_buffer" "out_of_buffer_drops" "Packets dropped for lack of receive buffers.";
    HW_OUT_OF_SEQUENCE "out_of_sequence" "out_of_sequence_packets_received" "Packets received out of order.";
    HW_PACKET_SEQ_ERR "packet_seq_err" "packet_sequence_errors" "Packets that the other side said were out of order.";
    HW_REQ_CQE_ERROR "req_cqe_error" "req_cqes_errors" "Requests completed with an error.";
    HW_REQ_CQE_FLUSH_ERROR "req_cqe_flush_error" "req_cqes_flush_errors" "Requests completed with an error because they were flushed.";
    HW_REQ_REMOTE_ACCESS_ERRORS "req_remote_access_errors" "req_remote_access_errors" "Remote access errors seen by the requester.";
    HW_REQ_REMOTE_INVALID_REQUEST "req_remote_invalid_request" "req_remote_invalid_request_errors" "Requests that the other side called invalid.";
    HW_RESP_CQE_ERROR "resp_cqe_error" "resp_cqes_errors" "Responses completed with an error.";
    HW_RESP_CQE_FLUSH_ERROR "resp_cqe_flush_error" "resp_cqes_flush_errors" "Responses completed with an error because they were flushed.";
    HW_RESP_LOCAL_LENGTH_ERROR "resp_local_length_error" "resp_local_length_errors" "Messages received that were longer than their buffer.";
    HW_RESP_REMOTE_ACCESS_ERRORS "resp_remote_access_errors" "resp_remote_access_errors" "Remote access errors seen by the responder.";
    HW_RNR_NAK_RETRY_ERR "rnr_nak_retry_err" "rnr_nak_retry_packets_received" "Times that the other side was not ready to receive.";
    HW_ROCE_ADP_RETRANS "roce_adp_retrans" "roce_adp_retransmits" "Adaptive retransmissions of RoCE traffic.";
    HW_ROCE_ADP_RETRANS_TO "roce_adp_retrans_to" "roce_adp_retransmits_timeout" "Timeouts of RoCE traffic with adaptive retransmission.";
    HW_ROCE_SLOW_RESTART "roce_slow_restart" "roce_slow_restart_used" "Times that slow restart was used.";
    HW_ROCE_SLOW_RESTART_CNPS "roce_slow_restart_cnps" "roce_slow_restart_cnps" "Congestion notifications sent by slow restart.";
    HW_ROCE_SLOW_RESTART_TRANS "roce_slow_restart_trans" "roce_slow_restart" "Times that slow restart began.";
    HW_RP_CNP_HANDLED "rp_cnp_handled" "rp_cnp_packets_handled" "Congestion notifications that slowed this port down.";
    HW_RP_CNP_IGNORED "rp_cnp_ignored" "rp_cnp_ignored_packets_received" "Congestion notifications that were ignored.";
    HW_RX_ATOMIC_REQUESTS "rx_atomic_requests" "rx_atomic_requests" "Atomic requests received.";
    HW_RX_DCT_CONNECT "rx_dct_connect" "rx_dct_connect_requests" "Connection requests received for dynamic transport.";
    HW_RX_ICRC_ENCAPSULATED "rx_icrc_encapsulated" "rx_icrc_encapsulated_errors" "RoCE packets received with a bad checksum.";
    HW_RX_READ_REQUESTS "rx_read_requests" "rx_read_requests" "Read requests received.";
    HW_RX_WRITE_REQUESTS "rx_write_requests" "rx_write_requests" "Write requests received.";
}
