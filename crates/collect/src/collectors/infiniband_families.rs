//! The families of the collector `infiniband`: maps the kernel's counter names to those of
//! node_exporter.

use crate::families::families;

// With the directory and the file of each counter, and a factor: the kernel counts data in words of
// four bytes.
families! {
    sources: (&str, &str, f64);
    INFO Gauge 3 "node_infiniband_info" "" "Board, firmware version and type of the adapter; always 1.";
    STATE Gauge 3 "node_infiniband_state_id" "" "State of the port: 1 down, 2 initializing, 3 armed, 4 active, 5 active (deferred).";
    PHYSICAL Gauge 3 "node_infiniband_physical_state_id" "" "Physical state of the port: 1 sleep, 2 polling, 3 disabled, 4 training, 5 link up, 6 error recovery, 7 test.";
    RATE Gauge 3 "node_infiniband_rate_bytes_per_second" "bytes_per_second" "Maximum data rate of the port, in bytes per second.";
    LIFESPAN Gauge 3 "node_infiniband_lifespan_seconds" "seconds" "Maximum age of the hardware counters, in seconds.";
    OTHER Counter 3 "node_infiniband_<key>_total" "" "Counter <key> of the port.";
    HW_OTHER Counter 3 "node_infiniband_hw_<key>_total" "" "Hardware counter <key> of the port, reported by the driver.";
    DEVICE_OTHER Counter 3 "node_infiniband_device_<key>_total" "" "Hardware counter <key> of the adapter, reported by the driver.";
    PORT_RCV_DATA Counter 3 "node_infiniband_port_data_received_bytes_total" "bytes" "Total number of bytes received." <- ("counters", "port_rcv_data", 4.0);
    PORT_XMIT_DATA Counter 3 "node_infiniband_port_data_transmitted_bytes_total" "bytes" "Total number of bytes sent." <- ("counters", "port_xmit_data", 4.0);
    PORT_RCV_PACKETS Counter 3 "node_infiniband_port_packets_received_total" "" "Total number of packets received, including packets with errors." <- ("counters", "port_rcv_packets", 1.0);
    PORT_XMIT_PACKETS Counter 3 "node_infiniband_port_packets_transmitted_total" "" "Total number of packets sent, including packets with errors." <- ("counters", "port_xmit_packets", 1.0);
    PORT_RCV_ERRORS Counter 3 "node_infiniband_port_errors_received_total" "" "Total number of packets received with an error." <- ("counters", "port_rcv_errors", 1.0);
    PORT_RCV_CONSTRAINT_ERRORS Counter 3 "node_infiniband_port_constraint_errors_received_total" "" "Total number of packets received on the switch port and discarded." <- ("counters", "port_rcv_constraint_errors", 1.0);
    PORT_XMIT_CONSTRAINT_ERRORS Counter 3 "node_infiniband_port_constraint_errors_transmitted_total" "" "Total number of packets not sent from the switch port." <- ("counters", "port_xmit_constraint_errors", 1.0);
    PORT_XMIT_DISCARDS Counter 3 "node_infiniband_port_discards_transmitted_total" "" "Total number of outgoing packets discarded because the port was down or congested." <- ("counters", "port_xmit_discards", 1.0);
    PORT_RCV_DISCARDS Counter 3 "node_infiniband_port_discards_received_total" "" "Total number of incoming packets discarded because the port was down or congested." <- ("counters", "port_rcv_discards", 1.0);
    PORT_RCV_REMOTE_PHYSICAL_ERRORS Counter 3 "node_infiniband_port_receive_remote_physical_errors_total" "" "Total number of received packets that were marked as bad upstream." <- ("counters", "port_rcv_remote_physical_errors", 1.0);
    PORT_RCV_SWITCH_RELAY_ERRORS Counter 3 "node_infiniband_port_receive_switch_relay_errors_total" "" "Total number of received packets that the switch could not forward." <- ("counters", "port_rcv_switch_relay_errors", 1.0);
    PORT_XMIT_WAIT Counter 3 "node_infiniband_port_transmit_wait_total" "" "Total number of ticks in which data was waiting but could not be sent." <- ("counters", "port_xmit_wait", 1.0);
    MULTICAST_RCV_PACKETS Counter 3 "node_infiniband_multicast_packets_received_total" "" "Total number of multicast packets received." <- ("counters", "multicast_rcv_packets", 1.0);
    MULTICAST_XMIT_PACKETS Counter 3 "node_infiniband_multicast_packets_transmitted_total" "" "Total number of multicast packets sent." <- ("counters", "multicast_xmit_packets", 1.0);
    UNICAST_RCV_PACKETS Counter 3 "node_infiniband_unicast_packets_received_total" "" "Total number of unicast packets received." <- ("counters", "unicast_rcv_packets", 1.0);
    UNICAST_XMIT_PACKETS Counter 3 "node_infiniband_unicast_packets_transmitted_total" "" "Total number of unicast packets sent." <- ("counters", "unicast_xmit_packets", 1.0);
    LINK_DOWNED Counter 3 "node_infiniband_link_downed_total" "" "Total number of failed link error recoveries, after which the link went down." <- ("counters", "link_downed", 1.0);
    LINK_ERROR_RECOVERY Counter 3 "node_infiniband_link_error_recovery_total" "" "Total number of successful link error recoveries." <- ("counters", "link_error_recovery", 1.0);
    LOCAL_LINK_INTEGRITY_ERRORS Counter 3 "node_infiniband_local_link_integrity_errors_total" "" "Total number of times that local physical errors exceeded the threshold." <- ("counters", "local_link_integrity_errors", 1.0);
    EXCESSIVE_BUFFER_OVERRUN_ERRORS Counter 3 "node_infiniband_excessive_buffer_overrun_errors_total" "" "Total number of times that consecutive buffer overruns exceeded the threshold." <- ("counters", "excessive_buffer_overrun_errors", 1.0);
    SYMBOL_ERROR Counter 3 "node_infiniband_symbol_error_total" "" "Total number of minor link errors on the physical lanes." <- ("counters", "symbol_error", 1.0);
    VL15_DROPPED Counter 3 "node_infiniband_vl15_dropped_total" "" "Total number of management packets dropped for lack of buffers." <- ("counters", "VL15_dropped", 1.0);
    HW_DUPLICATE_REQUEST Counter 3 "node_infiniband_duplicate_requests_packets_total" "" "Total number of duplicate requests received." <- ("hw_counters", "duplicate_request", 1.0);
    HW_IMPLIED_NAK_SEQ_ERR Counter 3 "node_infiniband_implied_nak_seq_errors_total" "" "Total number of acknowledgements that skipped an expected one." <- ("hw_counters", "implied_nak_seq_err", 1.0);
    HW_LOCAL_ACK_TIMEOUT_ERR Counter 3 "node_infiniband_local_ack_timeout_errors_total" "" "Total number of expired acknowledgement timers." <- ("hw_counters", "local_ack_timeout_err", 1.0);
    HW_NP_CNP_SENT Counter 3 "node_infiniband_np_cnp_packets_sent_total" "" "Total number of congestion notification packets sent." <- ("hw_counters", "np_cnp_sent", 1.0);
    HW_NP_ECN_MARKED_ROCE_PACKETS Counter 3 "node_infiniband_np_ecn_marked_roce_packets_received_total" "" "Total number of RoCE packets received with a congestion mark." <- ("hw_counters", "np_ecn_marked_roce_packets", 1.0);
    HW_OUT_OF_BUFFER Counter 3 "node_infiniband_out_of_buffer_drops_total" "" "Total number of packets dropped for lack of receive buffers." <- ("hw_counters", "out_of_buffer", 1.0);
    HW_OUT_OF_SEQUENCE Counter 3 "node_infiniband_out_of_sequence_packets_received_total" "" "Total number of packets received out of order." <- ("hw_counters", "out_of_sequence", 1.0);
    HW_PACKET_SEQ_ERR Counter 3 "node_infiniband_packet_sequence_errors_total" "" "Total number of negative acknowledgements received for packets out of order." <- ("hw_counters", "packet_seq_err", 1.0);
    HW_REQ_CQE_ERROR Counter 3 "node_infiniband_req_cqes_errors_total" "" "Total number of requests completed with an error." <- ("hw_counters", "req_cqe_error", 1.0);
    HW_REQ_CQE_FLUSH_ERROR Counter 3 "node_infiniband_req_cqes_flush_errors_total" "" "Total number of requests flushed with an error." <- ("hw_counters", "req_cqe_flush_error", 1.0);
    HW_REQ_REMOTE_ACCESS_ERRORS Counter 3 "node_infiniband_req_remote_access_errors_total" "" "Total number of remote access errors detected by the requester." <- ("hw_counters", "req_remote_access_errors", 1.0);
    HW_REQ_REMOTE_INVALID_REQUEST Counter 3 "node_infiniband_req_remote_invalid_request_errors_total" "" "Total number of requests that the remote side rejected as invalid." <- ("hw_counters", "req_remote_invalid_request", 1.0);
    HW_RESP_CQE_ERROR Counter 3 "node_infiniband_resp_cqes_errors_total" "" "Total number of responses completed with an error." <- ("hw_counters", "resp_cqe_error", 1.0);
    HW_RESP_CQE_FLUSH_ERROR Counter 3 "node_infiniband_resp_cqes_flush_errors_total" "" "Total number of responses flushed with an error." <- ("hw_counters", "resp_cqe_flush_error", 1.0);
    HW_RESP_LOCAL_LENGTH_ERROR Counter 3 "node_infiniband_resp_local_length_errors_total" "" "Total number of received messages that exceeded their buffer." <- ("hw_counters", "resp_local_length_error", 1.0);
    HW_RESP_REMOTE_ACCESS_ERRORS Counter 3 "node_infiniband_resp_remote_access_errors_total" "" "Total number of remote access errors detected by the responder." <- ("hw_counters", "resp_remote_access_errors", 1.0);
    HW_RNR_NAK_RETRY_ERR Counter 3 "node_infiniband_rnr_nak_retry_packets_received_total" "" "Total number of negative acknowledgements received because the remote side was not ready." <- ("hw_counters", "rnr_nak_retry_err", 1.0);
    HW_ROCE_ADP_RETRANS Counter 3 "node_infiniband_roce_adp_retransmits_total" "" "Total number of adaptive retransmissions of RoCE traffic." <- ("hw_counters", "roce_adp_retrans", 1.0);
    HW_ROCE_ADP_RETRANS_TO Counter 3 "node_infiniband_roce_adp_retransmits_timeout_total" "" "Total number of timeouts of RoCE traffic with adaptive retransmission." <- ("hw_counters", "roce_adp_retrans_to", 1.0);
    HW_ROCE_SLOW_RESTART Counter 3 "node_infiniband_roce_slow_restart_used_total" "" "Total number of times that RoCE slow restart was used." <- ("hw_counters", "roce_slow_restart", 1.0);
    HW_ROCE_SLOW_RESTART_CNPS Counter 3 "node_infiniband_roce_slow_restart_cnps_total" "" "Total number of congestion notification packets sent by RoCE slow restart." <- ("hw_counters", "roce_slow_restart_cnps", 1.0);
    HW_ROCE_SLOW_RESTART_TRANS Counter 3 "node_infiniband_roce_slow_restart_total" "" "Total number of transitions to RoCE slow restart." <- ("hw_counters", "roce_slow_restart_trans", 1.0);
    HW_RP_CNP_HANDLED Counter 3 "node_infiniband_rp_cnp_packets_handled_total" "" "Total number of congestion notification packets that throttled this port." <- ("hw_counters", "rp_cnp_handled", 1.0);
    HW_RP_CNP_IGNORED Counter 3 "node_infiniband_rp_cnp_ignored_packets_received_total" "" "Total number of congestion notification packets received and ignored." <- ("hw_counters", "rp_cnp_ignored", 1.0);
    HW_RX_ATOMIC_REQUESTS Counter 3 "node_infiniband_rx_atomic_requests_total" "" "Total number of atomic requests received." <- ("hw_counters", "rx_atomic_requests", 1.0);
    HW_RX_DCT_CONNECT Counter 3 "node_infiniband_rx_dct_connect_requests_total" "" "Total number of connection requests received for dynamically connected transport." <- ("hw_counters", "rx_dct_connect", 1.0);
    HW_RX_ICRC_ENCAPSULATED Counter 3 "node_infiniband_rx_icrc_encapsulated_errors_total" "" "Total number of RoCE packets received with an invalid checksum." <- ("hw_counters", "rx_icrc_encapsulated", 1.0);
    HW_RX_READ_REQUESTS Counter 3 "node_infiniband_rx_read_requests_total" "" "Total number of read requests received." <- ("hw_counters", "rx_read_requests", 1.0);
    HW_RX_WRITE_REQUESTS Counter 3 "node_infiniband_rx_write_requests_total" "" "Total number of write requests received." <- ("hw_counters", "rx_write_requests", 1.0);
}
