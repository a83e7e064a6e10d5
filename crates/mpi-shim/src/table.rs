//! The wrapped functions of MPI 3.1, 4.0 and 4.1: name, number of arguments, rule of the bytes,
//! rule of the state. Names and numbers are facts of the standard; a test compares them with the
//! installed headers and libraries.

use crate::arguments::{Narrow, Wide};
use crate::byte_rule::*;
use crate::collective::*;
use crate::request_rule::*;
use crate::state_rule::*;
use crate::threads::{Initialise, SessionInit};
use crate::wrap::calls;

calls! {
    // Point to point.
    Send 6 => Posted<1, 2>: Peer<3, 4, 5>, c; Bsend 6 => Posted<1, 2>: Peer<3, 4, 5>, c;
    Ssend 6 => Posted<1, 2>: Peer<3, 4, 5>, c; Rsend 6 => Posted<1, 2>: Peer<3, 4, 5>, c; Isend 7 => Posted<1, 2>, c;
    Ibsend 7 => Posted<1, 2>, c; Issend 7 => Posted<1, 2>, c; Irsend 7 => Posted<1, 2>, c; Irecv 7 => Posted<1, 2>, c;
    Imrecv 5 => Posted<1, 2>, c; Recv 7 => Received<2, 6>: Peer<3, 4, 5>, c; Mrecv 5 => Received<2, 4>, c;
    Sendrecv 12 => Exchanged<11>: Peer<8, 9, 10>, c; Sendrecv_replace 9 => Exchanged<8>: Peer<5, 6, 7>, c;
    Isendrecv 12 => Both<1, 2, 6, 7>, c; Isendrecv_replace 9 => Both<1, 2, 1, 2>, c; Probe 4 => Timed: Peer<0, 1, 2>;
    Iprobe 5 => Timed; Mprobe 5 => Timed: Peer<0, 1, 2>; Improbe 6 => Timed; Cancel 1 => Timed;
    Buffer_attach 2 => Timed, c; Buffer_detach 2 => Timed, c; Buffer_flush 0 => Timed; Buffer_iflush 1 => Timed;
    Comm_attach_buffer 3 => Timed, c; Comm_detach_buffer 3 => Timed, c; Comm_flush_buffer 1 => Timed;
    Comm_iflush_buffer 2 => Timed; Session_attach_buffer 3 => Timed, c; Session_detach_buffer 3 => Timed, c;
    Session_flush_buffer 1 => Timed; Session_iflush_buffer 2 => Timed;

    // Waiting and testing.
    Wait 2 => Timed: Waits<0, ONE>; Waitall 3 => Timed: Waits<1, 0>; Waitany 4 => Timed: Waits<1, 0>;
    Waitsome 5 => Timed: Waits<1, 0>; Test 3 => Timed: Waits<0, ONE>; Testall 4 => Timed: Waits<1, 0>;
    Testany 5 => Timed: Waits<1, 0>; Testsome 5 => Timed: Waits<1, 0>; Request_get_status 3 => Timed;
    Request_get_status_all 4 => Timed; Request_get_status_any 5 => Timed; Request_get_status_some 5 => Timed;
    Grequest_complete 1 => Timed;

    // Persistent and partitioned.
    Send_init 7 => Prepared<Posted<1, 2>>, c; Bsend_init 7 => Prepared<Posted<1, 2>>, c;
    Ssend_init 7 => Prepared<Posted<1, 2>>, c; Rsend_init 7 => Prepared<Posted<1, 2>>, c;
    Recv_init 7 => Prepared<Posted<1, 2>>, c; Psend_init 9 => Prepared<Partitioned>;
    Precv_init 9 => Prepared<Partitioned>; Barrier_init 3 => Prepared<Timed>: Begins<0>;
    Bcast_init 7 => Prepared<Rooted<1, 2, 3>>: Begins<4>, c;
    Reduce_init 9 => Prepared<Rooted<2, 3, 5>>: Begins<6>, c;
    Allreduce_init 8 => Prepared<Posted<2, 3>>: Begins<5>, c; Scan_init 8 => Prepared<Posted<2, 3>>: Begins<5>, c;
    Exscan_init 8 => Prepared<Posted<2, 3>>: Begins<5>, c;
    Reduce_scatter_init 8 => Prepared<ReduceScatter>: Begins<5>, c;
    Reduce_scatter_block_init 8 => Prepared<ReduceScatterBlock>: Begins<5>, c;
    Gather_init 10 => Prepared<Gather>: Begins<7>, c; Gatherv_init 11 => Prepared<Gatherv>: Begins<8>, c;
    Scatter_init 10 => Prepared<Scatter>: Begins<7>, c; Scatterv_init 11 => Prepared<Scatterv>: Begins<8>, c;
    Allgather_init 9 => Prepared<Allgather>: Begins<6>, c;
    Allgatherv_init 10 => Prepared<Allgatherv>: Begins<7>, c; Alltoall_init 9 => Prepared<Alltoall>: Begins<6>, c;
    Alltoallv_init 11 => Prepared<Alltoallv>: Begins<8>, c; Alltoallw_init 11 => Prepared<Alltoallw>: Begins<8>, c;
    Neighbor_allgather_init 9 => Prepared<Posted<1, 2>>: Begins<6>, c;
    Neighbor_allgatherv_init 10 => Prepared<Posted<1, 2>>: Begins<7>, c;
    Neighbor_alltoall_init 9 => Prepared<NeighborAlltoall>: Begins<6>, c;
    Neighbor_alltoallv_init 11 => Prepared<NeighborAlltoallv>: Begins<8>, c;
    Neighbor_alltoallw_init 11 => Prepared<NeighborAlltoallw>: Begins<8>, c; Start 1 => Start: Starts<0, ONE>;
    Startall 2 => Startall: Starts<1, 0>; Request_free 1 => RequestFree; Pready 2 => Timed; Pready_list 3 => Timed;
    Pready_range 3 => Timed; Parrived 3 => Timed;

    // Collectives.
    Barrier 1 => Timed: On<0>; Ibarrier 2 => Timed: Begins<0>; Bcast 5 => Rooted<1, 2, 3>: On<4>, c;
    Ibcast 6 => Rooted<1, 2, 3>: Begins<4>, c; Reduce 7 => Rooted<2, 3, 5>: On<6>, c;
    Ireduce 8 => Rooted<2, 3, 5>: Begins<6>, c; Allreduce 6 => Posted<2, 3>: On<5>, c;
    Iallreduce 7 => Posted<2, 3>: Begins<5>, c; Scan 6 => Posted<2, 3>: On<5>, c;
    Iscan 7 => Posted<2, 3>: Begins<5>, c; Exscan 6 => Posted<2, 3>: On<5>, c; Iexscan 7 => Posted<2, 3>: Begins<5>, c;
    Reduce_local 5 => Posted<2, 3>, c; Reduce_scatter 6 => ReduceScatter: On<5>, c;
    Ireduce_scatter 7 => ReduceScatter: Begins<5>, c; Reduce_scatter_block 6 => ReduceScatterBlock: On<5>, c;
    Ireduce_scatter_block 7 => ReduceScatterBlock: Begins<5>, c; Gather 8 => Gather: On<7>, c;
    Igather 9 => Gather: Begins<7>, c; Gatherv 9 => Gatherv: On<8>, c; Igatherv 10 => Gatherv: Begins<8>, c;
    Scatter 8 => Scatter: On<7>, c; Iscatter 9 => Scatter: Begins<7>, c; Scatterv 9 => Scatterv: On<8>, c;
    Iscatterv 10 => Scatterv: Begins<8>, c; Allgather 7 => Allgather: On<6>, c;
    Iallgather 8 => Allgather: Begins<6>, c; Allgatherv 8 => Allgatherv: On<7>, c;
    Iallgatherv 9 => Allgatherv: Begins<7>, c; Alltoall 7 => Alltoall: On<6>, c; Ialltoall 8 => Alltoall: Begins<6>, c;
    Alltoallv 9 => Alltoallv: On<8>, c; Ialltoallv 10 => Alltoallv: Begins<8>, c; Alltoallw 9 => Alltoallw: On<8>, c;
    Ialltoallw 10 => Alltoallw: Begins<8>, c;

    // Neighbourhood collectives.
    Neighbor_allgather 7 => Posted<1, 2>: On<6>, c; Ineighbor_allgather 8 => Posted<1, 2>: Begins<6>, c;
    Neighbor_allgatherv 8 => Posted<1, 2>: On<7>, c; Ineighbor_allgatherv 9 => Posted<1, 2>: Begins<7>, c;
    Neighbor_alltoall 7 => NeighborAlltoall: On<6>, c; Ineighbor_alltoall 8 => NeighborAlltoall: Begins<6>, c;
    Neighbor_alltoallv 9 => NeighborAlltoallv: On<8>, c; Ineighbor_alltoallv 10 => NeighborAlltoallv: Begins<8>, c;
    Neighbor_alltoallw 9 => NeighborAlltoallw: On<8>, c; Ineighbor_alltoallw 10 => NeighborAlltoallw: Begins<8>, c;

    // One-sided.
    Put 8 => Posted<1, 2>, c; Rput 9 => Posted<1, 2>, c; Get 8 => Posted<1, 2>, c; Rget 9 => Posted<1, 2>, c;
    // With MPI_NO_OP the origin arguments of MPI_Get_accumulate are not significant; the target's
    // always are.
    Accumulate 9 => Posted<1, 2>, c; Raccumulate 10 => Posted<1, 2>, c; Get_accumulate 12 => Posted<8, 9>, c;
    Rget_accumulate 13 => Posted<8, 9>, c; Fetch_and_op 7 => OneElement<2>; Compare_and_swap 7 => OneElement<3>;
    Win_allocate 6 => Timed: On<3>, c; Win_allocate_shared 6 => Timed: On<3>, c; Win_create 6 => Timed: On<4>, c;
    Win_create_dynamic 3 => Timed: On<1>; Win_attach 3 => Timed; Win_detach 2 => Timed; Win_free 1 => Timed;
    Win_fence 2 => Timed; Win_start 3 => Timed; Win_complete 1 => Timed; Win_post 3 => Timed; Win_wait 1 => Timed;
    Win_test 2 => Timed; Win_lock 4 => Timed; Win_lock_all 2 => Timed; Win_unlock 2 => Timed;
    Win_unlock_all 1 => Timed; Win_flush 2 => Timed; Win_flush_all 1 => Timed; Win_flush_local 2 => Timed;
    Win_flush_local_all 1 => Timed; Win_sync 1 => Timed;

    // Files.
    File_read 5 => Received<3, 4>, c; File_read_all 5 => Received<3, 4>, c; File_read_shared 5 => Received<3, 4>, c;
    File_read_ordered 5 => Received<3, 4>, c; File_read_at 6 => Received<4, 5>, c;
    File_read_at_all 6 => Received<4, 5>, c; File_write 5 => Posted<2, 3>, c; File_write_all 5 => Posted<2, 3>, c;
    File_write_shared 5 => Posted<2, 3>, c; File_write_ordered 5 => Posted<2, 3>, c; File_iread 5 => Posted<2, 3>, c;
    File_iread_all 5 => Posted<2, 3>, c; File_iread_shared 5 => Posted<2, 3>, c; File_iwrite 5 => Posted<2, 3>, c;
    File_iwrite_all 5 => Posted<2, 3>, c; File_iwrite_shared 5 => Posted<2, 3>, c;
    File_read_all_begin 4 => Posted<2, 3>, c; File_read_ordered_begin 4 => Posted<2, 3>, c;
    File_write_all_begin 4 => Posted<2, 3>, c; File_write_ordered_begin 4 => Posted<2, 3>, c;
    File_write_at 6 => Posted<3, 4>, c; File_write_at_all 6 => Posted<3, 4>, c; File_iread_at 6 => Posted<3, 4>, c;
    File_iread_at_all 6 => Posted<3, 4>, c; File_iwrite_at 6 => Posted<3, 4>, c;
    File_iwrite_at_all 6 => Posted<3, 4>, c; File_read_at_all_begin 5 => Posted<3, 4>, c;
    File_write_at_all_begin 5 => Posted<3, 4>, c; File_read_all_end 3 => Timed; File_read_at_all_end 3 => Timed;
    File_read_ordered_end 3 => Timed; File_write_all_end 3 => Timed; File_write_at_all_end 3 => Timed;
    File_write_ordered_end 3 => Timed; File_open 5 => Timed: On<0>; File_close 1 => Timed; File_delete 2 => Timed;
    File_preallocate 2 => Timed; File_set_size 2 => Timed; File_get_size 2 => Timed; File_set_view 6 => Timed;
    File_seek 3 => Timed; File_seek_shared 3 => Timed; File_get_position_shared 2 => Timed; File_sync 1 => Timed;
    File_set_atomicity 2 => Timed; File_set_info 2 => Timed;

    // Packing.
    Pack 7 => Posted<1, 2>, c; Pack_external 7 => Posted<2, 3>, c; Unpack 7 => Posted<4, 5>, c;
    Unpack_external 7 => Posted<5, 6>, c;

    // Initialisation, finalisation, and collective management calls.
    Init 2 => Initialise: Initialises; Init_thread 4 => Initialise: Initialises; Finalize 0 => Timed: Finalizes;
    Session_init 3 => SessionInit; Session_finalize 1 => Timed; Abort 2 => Local; Comm_accept 5 => Timed: On<3>;
    Comm_connect 5 => Timed: On<3>; Comm_disconnect 1 => Timed: Frees; Comm_join 2 => Timed;
    Comm_spawn 8 => Timed: On<5>; Comm_spawn_multiple 9 => Timed: On<6>; Comm_create 3 => Timed: Creates<0, 2>;
    Comm_create_group 4 => Timed; Comm_create_from_group 5 => Timed; Comm_dup 2 => Timed: Creates<0, 1>;
    Comm_dup_with_info 3 => Timed: Creates<0, 2>; Comm_idup 3 => Timed: Begins<0>;
    Comm_idup_with_info 4 => Timed: Begins<0>; Comm_split 4 => Timed: Creates<0, 3>;
    Comm_split_type 5 => Timed: Creates<0, 4>; Comm_free 1 => Timed: Frees; Intercomm_create 6 => Timed: On<0>;
    Intercomm_create_from_groups 8 => Timed; Intercomm_merge 3 => Timed: Creates<0, 2>;
    Cart_create 6 => Timed: Creates<0, 5>; Cart_sub 3 => Timed: Creates<0, 2>; Graph_create 6 => Timed: Creates<0, 5>;
    Dist_graph_create 9 => Timed: Creates<0, 8>; Dist_graph_create_adjacent 10 => Timed: Creates<0, 9>;
    Open_port 2 => Timed; Close_port 1 => Timed; Publish_name 3 => Timed; Unpublish_name 3 => Timed;
    Lookup_name 3 => Timed;

    // All others query or set: counted without time and bytes.
    Add_error_class 1 => Local; Add_error_code 2 => Local; Add_error_string 2 => Local; Address 2 => Local;
    Alloc_mem 3 => Local; Attr_delete 2 => Local; Attr_get 4 => Local; Attr_put 3 => Local; Cart_coords 4 => Local;
    Cart_get 5 => Local; Cart_map 5 => Local; Cart_rank 3 => Local; Cart_shift 5 => Local;
    Comm_call_errhandler 2 => Local; Comm_compare 3 => Local; Comm_create_errhandler 2 => Local;
    Comm_create_keyval 4 => Local; Comm_delete_attr 2 => Local; Comm_free_keyval 1 => Local; Comm_get_attr 4 => Local;
    Comm_get_errhandler 2 => Local; Comm_get_info 2 => Local; Comm_get_name 3 => Local; Comm_get_parent 1 => Local;
    Comm_group 2 => Local; Comm_rank 2 => Local; Comm_remote_group 2 => Local; Comm_remote_size 2 => Local;
    Comm_set_attr 3 => Local; Comm_set_errhandler 2 => Local; Comm_set_info 2 => Local; Comm_set_name 2 => Local;
    Comm_test_inter 2 => Local; Dims_create 3 => Local; Dist_graph_neighbors 7 => Local; Errhandler_create 2 => Local;
    Errhandler_free 1 => Local; Errhandler_get 2 => Local; Errhandler_set 2 => Local; Error_class 2 => Local;
    Error_string 3 => Local; File_call_errhandler 2 => Local; File_create_errhandler 2 => Local;
    File_get_amode 2 => Local; File_get_atomicity 2 => Local; File_get_byte_offset 3 => Local;
    File_get_errhandler 2 => Local; File_get_group 2 => Local; File_get_info 2 => Local; File_get_position 2 => Local;
    File_get_type_extent 3 => Local, c; File_get_view 5 => Local; File_set_errhandler 2 => Local; Finalized 1 => Local;
    Free_mem 1 => Local; Get_address 2 => Local; Get_count 3 => Local, c; Get_elements 3 => Local, c;
    Get_elements_x 3 => Local; Get_hw_resource_info 1 => Local; Get_library_version 2 => Local;
    Get_processor_name 2 => Local; Get_version 2 => Local; Graph_get 5 => Local; Graph_map 5 => Local;
    Graph_neighbors 4 => Local; Graph_neighbors_count 3 => Local; Graphdims_get 3 => Local; Grequest_start 5 => Local;
    Group_compare 3 => Local; Group_difference 3 => Local; Group_excl 4 => Local; Group_free 1 => Local;
    Group_from_session_pset 3 => Local; Group_incl 4 => Local; Group_intersection 3 => Local;
    Group_range_excl 4 => Local; Group_range_incl 4 => Local; Group_rank 2 => Local; Group_size 2 => Local;
    Group_translate_ranks 5 => Local; Group_union 3 => Local; Info_create 1 => Local; Info_create_env 3 => Local;
    Info_delete 2 => Local; Info_dup 2 => Local; Info_free 1 => Local; Info_get 5 => Local; Info_get_nkeys 2 => Local;
    Info_get_nthkey 3 => Local; Info_get_string 5 => Local; Info_get_valuelen 4 => Local; Info_set 3 => Local;
    Initialized 1 => Local; Is_thread_main 1 => Local; Keyval_create 4 => Local; Keyval_free 1 => Local;
    Op_commutative 2 => Local; Op_create 3 => Local, c; Op_free 1 => Local; Pack_external_size 4 => Local, c;
    Pack_size 4 => Local, c; Query_thread 1 => Local; Register_datarep 5 => Local, c; Remove_error_class 1 => Local;
    Remove_error_code 1 => Local; Remove_error_string 1 => Local; Session_call_errhandler 2 => Local;
    Session_create_errhandler 2 => Local; Session_get_errhandler 2 => Local; Session_get_info 2 => Local;
    Session_get_nth_pset 5 => Local; Session_get_num_psets 3 => Local; Session_get_pset_info 3 => Local;
    Session_set_errhandler 2 => Local; Status_get_error 2 => Local; Status_get_source 2 => Local;
    Status_get_tag 2 => Local; Status_set_cancelled 2 => Local; Status_set_elements 3 => Local;
    Status_set_elements_x 3 => Local; Status_set_error 2 => Local; Status_set_source 2 => Local;
    Status_set_tag 2 => Local; Test_cancelled 2 => Local; Topo_test 2 => Local; Type_commit 1 => Local;
    Type_contiguous 3 => Local, c; Type_create_darray 10 => Local, c; Type_create_f90_complex 3 => Local;
    Type_create_f90_integer 2 => Local; Type_create_f90_real 3 => Local; Type_create_hindexed 5 => Local, c;
    Type_create_hindexed_block 5 => Local, c; Type_create_hvector 5 => Local, c;
    Type_create_indexed_block 5 => Local, c; Type_create_keyval 4 => Local; Type_create_resized 4 => Local, c;
    Type_create_struct 5 => Local, c; Type_create_subarray 7 => Local, c; Type_delete_attr 2 => Local;
    Type_dup 2 => Local; Type_extent 2 => Local; Type_free 1 => Local; Type_free_keyval 1 => Local;
    Type_get_attr 4 => Local; Type_get_contents 7 => Local; Type_get_envelope 5 => Local;
    Type_get_extent 3 => Local, c; Type_get_extent_x 3 => Local; Type_get_name 3 => Local;
    Type_get_true_extent 3 => Local, c; Type_get_true_extent_x 3 => Local; Type_get_value_index 3 => Local;
    Type_hindexed 5 => Local; Type_hvector 5 => Local; Type_indexed 5 => Local, c; Type_lb 2 => Local;
    Type_match_size 3 => Local; Type_set_attr 3 => Local; Type_set_name 2 => Local; Type_size 2 => Local, c;
    Type_size_x 2 => Local; Type_struct 5 => Local; Type_ub 2 => Local; Type_vector 5 => Local, c;
    Win_call_errhandler 2 => Local; Win_create_errhandler 2 => Local; Win_create_keyval 4 => Local;
    Win_delete_attr 2 => Local; Win_free_keyval 1 => Local; Win_get_attr 4 => Local; Win_get_errhandler 2 => Local;
    Win_get_group 2 => Local; Win_get_info 2 => Local; Win_get_name 3 => Local; Win_set_attr 3 => Local;
    Win_set_errhandler 2 => Local; Win_set_info 2 => Local; Win_set_name 2 => Local; Win_shared_query 5 => Local, c;
    Type_get_contents_c 9 => Local; Type_get_envelope_c 6 => Local;
}
