/* Every family of calls, on two to four ranks. */
#include "counted.h"

enum { MOST = 4 };

static int rank, size, next, previous;
static MPI_Comm world;
static MPI_Datatype triple; /* three doubles, one left out: 24 bytes of data */
static double out[256], in[256];

static void point_to_point(void) {
    MPI_Status status;
    MPI_Request requests[4];
    MPI_Message message;
    int flag, index, done, indices[4], cancelled;
    /* More room than data: the received count matters, with and without a status. */
    C(MPI_Sendrecv, 8 * 5 + 8 * 5, out, 5, MPI_DOUBLE, next, 1, in, 50, MPI_DOUBLE, previous, 1, world, MPI_STATUS_IGNORE);
    C(MPI_Sendrecv, 24 * 2 + 24 * 2, out, 2, triple, next, 1, in, 50, MPI_DOUBLE, previous, 1, world, &status);
    C(MPI_Get_count, 0, &status, MPI_DOUBLE, &done);
    INSIST(done == 6 && status.MPI_SOURCE == previous && status.MPI_TAG == 1);
    C(MPI_Sendrecv_replace, 8 * 7 + 8 * 7, in, 7, MPI_DOUBLE, next, 2, previous, 2, world, MPI_STATUS_IGNORE);
    C(MPI_Sendrecv, 8 * 5 + 0, out, 5, MPI_DOUBLE, MPI_PROC_NULL, 1, in, 50, MPI_DOUBLE, MPI_PROC_NULL, 1, world, MPI_STATUS_IGNORE);

    if (rank == 0) {
        void *buffer = malloc(1 << 16);
        int bytes;
        C(MPI_Buffer_attach, 0, buffer, 1 << 16);
        C(MPI_Bsend, 4 * 3, out, 3, MPI_INT, 1, 3, world);
        C(MPI_Ssend, 4 * 3, out, 3, MPI_INT, 1, 3, world);
        C(MPI_Send, 0, NULL, 0, MPI_INT, 1, 3, world);
        C(MPI_Send, 24 * 2, out, 2, triple, 1, 3, world);
        I(MPI_Isend, 1 * 9, out, 9, MPI_CHAR, 1, 4, world);
        I(MPI_Ibsend, 1 * 9, out, 9, MPI_CHAR, 1, 4, world);
        I(MPI_Issend, 1 * 9, out, 9, MPI_CHAR, 1, 4, world);
        C(MPI_Buffer_detach, 0, &buffer, &bytes);
        C(MPI_Recv, 0, NULL, 0, MPI_INT, 1, 5, world, MPI_STATUS_IGNORE);
        C(MPI_Rsend, 2, out, 2, MPI_BYTE, 1, 6, world);
        I(MPI_Irsend, 2, out, 2, MPI_BYTE, 1, 6, world);
        C(MPI_Send, 40, out, 5, MPI_DOUBLE, 1, 7, world);
        C(MPI_Send, 40, out, 5, MPI_DOUBLE, 1, 7, world);
    } else if (rank == 1) {
        C(MPI_Probe, 0, 0, 3, world, &status);
        C(MPI_Recv, 12, in, 100, MPI_INT, 0, 3, world, &status);
        C(MPI_Recv, 12, in, 100, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, world, MPI_STATUS_IGNORE);
        C(MPI_Recv, 0, in, 100, MPI_INT, 0, 3, world, MPI_STATUS_IGNORE);
        C(MPI_Recv, 48, in, 4, triple, 0, 3, world, MPI_STATUS_IGNORE);
        /* A receive that does not block counts what it has room for. */
        for (int i = 0; i < 3; i++) I(MPI_Irecv, 20, in, 20, MPI_CHAR, 0, 4, world);
        C(MPI_Irecv, 2, in, 2, MPI_BYTE, 0, 6, world, &requests[0]);
        C(MPI_Irecv, 2, in + 1, 2, MPI_BYTE, 0, 6, world, &requests[1]);
        C(MPI_Send, 0, NULL, 0, MPI_INT, 0, 5, world);
        C(MPI_Waitall, 0, 2, requests, MPI_STATUSES_IGNORE);
        C(MPI_Mprobe, 0, 0, 7, world, &message, MPI_STATUS_IGNORE);
        C(MPI_Mrecv, 40, in, 60, MPI_DOUBLE, &message, MPI_STATUS_IGNORE);
        do C(MPI_Improbe, 0, 0, 7, world, &flag, &message, &status); while (!flag);
        I(MPI_Imrecv, 80, in, 10, MPI_DOUBLE, &message);
    }
    C(MPI_Iprobe, 0, MPI_ANY_SOURCE, 99, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
    INSIST(!flag);

    for (int i = 0; i < 4; i++) C(MPI_Irecv, 8, in + i, 1, MPI_DOUBLE, previous, i, world, &requests[i]);
    C(MPI_Request_get_status, 0, requests[0], &flag, MPI_STATUS_IGNORE);
    for (int i = 0; i < 4; i++) C(MPI_Send, 8, out + i, 1, MPI_DOUBLE, next, i, world);
    C(MPI_Waitany, 0, 4, requests, &index, MPI_STATUS_IGNORE);
    C(MPI_Waitsome, 0, 4, requests, &done, indices, MPI_STATUSES_IGNORE);
    do C(MPI_Testany, 0, 4, requests, &index, &flag, MPI_STATUS_IGNORE); while (!flag);
    do C(MPI_Testsome, 0, 4, requests, &done, indices, MPI_STATUSES_IGNORE); while (done == 0);
    do C(MPI_Testall, 0, 4, requests, &flag, MPI_STATUSES_IGNORE); while (!flag);
    C(MPI_Irecv, 8, in, 1, MPI_DOUBLE, 0, 77, MPI_COMM_SELF, &requests[0]);
    C(MPI_Cancel, 0, &requests[0]);
    do C(MPI_Test, 0, &requests[0], &flag, &status); while (!flag);
    C(MPI_Test_cancelled, 0, &status, &cancelled);
    INSIST(cancelled);
#if MPI_VERSION >= 4
    I(MPI_Isendrecv, 40 + 80, out, 5, MPI_DOUBLE, next, 1, in, 10, MPI_DOUBLE, previous, 1, world);
    I(MPI_Isendrecv_replace, 40 + 40, in, 5, MPI_DOUBLE, next, 1, previous, 1, world);
    C(MPI_Sendrecv_c, 40 + 40, out, 5, MPI_DOUBLE, next, 1, in, 50, MPI_DOUBLE, previous, 1, world, MPI_STATUS_IGNORE);
    MPI_Request request;
    C(MPI_Irecv_c, 80, in, 10, MPI_DOUBLE, previous, 8, world, &request);
    C(MPI_Send_c, 32, out, 4, MPI_DOUBLE, next, 8, world);
    C(MPI_Wait, 0, &request, MPI_STATUS_IGNORE);
    C(MPI_Isend_c, 32, out, 4, MPI_DOUBLE, next, 9, world, &request);
    C(MPI_Recv_c, 32, in, 40, MPI_DOUBLE, previous, 9, world, MPI_STATUS_IGNORE);
    C(MPI_Wait, 0, &request, MPI_STATUS_IGNORE);
#endif
}

static void persistent(void) {
    MPI_Request requests[2];
    C(MPI_Recv_init, 0, in, 20, MPI_DOUBLE, previous, 1, world, &requests[0]);
    C(MPI_Send_init, 0, out, 3, MPI_DOUBLE, next, 1, world, &requests[1]);
    for (int i = 0; i < 5; i++) {
        C(MPI_Startall, 160 + 24, 2, requests);
        C(MPI_Waitall, 0, 2, requests, MPI_STATUSES_IGNORE);
    }
    C(MPI_Request_free, 0, &requests[1]);
    /* The handle of the one that is gone may come again, with another size. */
    C(MPI_Ssend_init, 0, out, 4, triple, next, 1, world, &requests[1]);
    C(MPI_Start, 160, &requests[0]);
    C(MPI_Start, 96, &requests[1]);
    C(MPI_Waitall, 0, 2, requests, MPI_STATUSES_IGNORE);
    C(MPI_Request_free, 0, &requests[0]);
    C(MPI_Request_free, 0, &requests[1]);
    /* One that was not persistent. */
    C(MPI_Irecv, 8, in, 1, MPI_DOUBLE, MPI_PROC_NULL, 1, world, &requests[0]);
    C(MPI_Request_free, 0, &requests[0]);
#if MPI_VERSION >= 4
    P(MPI_Send_init_c, 8, out, 1, MPI_DOUBLE, MPI_PROC_NULL, 1, world);
    P(MPI_Bsend_init, 8, out, 1, MPI_DOUBLE, MPI_PROC_NULL, 1, world);
    P(MPI_Rsend_init, 8, out, 1, MPI_DOUBLE, MPI_PROC_NULL, 1, world);
    int flag;
    C(MPI_Psend_init, 0, out, 4, 2, MPI_DOUBLE, next, 5, world, MPI_INFO_NULL, &requests[0]);
    C(MPI_Precv_init, 0, in, 2, 4, MPI_DOUBLE, previous, 5, world, MPI_INFO_NULL, &requests[1]);
    C(MPI_Startall, 64 + 64, 2, requests);
    int list[] = {3};
    C(MPI_Pready, 0, 0, requests[0]);
    C(MPI_Pready_range, 0, 1, 2, requests[0]);
    C(MPI_Pready_list, 0, 1, list, requests[0]);
    C(MPI_Parrived, 0, requests[1], 0, &flag);
    C(MPI_Waitall, 0, 2, requests, MPI_STATUSES_IGNORE);
    C(MPI_Request_free, 0, &requests[0]);
    C(MPI_Request_free, 0, &requests[1]);
#endif
}

/* The blocking form, the one that does not block, and with MPI 4 the persistent one and those with large
   counts. Each takes the same arguments; arrays of counts are wider in the last. */
#if MPI_VERSION >= 4
#define ALL(Name, name, bytes, ...) \
    ALL_BUT_LARGE(Name, name, bytes, __VA_ARGS__); \
    LARGE(Name, name, bytes, __VA_ARGS__)
#define ALL_BUT_LARGE(Name, name, bytes, ...) \
    C(MPI_##Name, bytes, __VA_ARGS__); \
    I(MPI_I##name, bytes, __VA_ARGS__); \
    P(MPI_##Name##_init, bytes, __VA_ARGS__, MPI_INFO_NULL)
#define LARGE(Name, name, bytes, ...) \
    C(MPI_##Name##_c, bytes, __VA_ARGS__); \
    I(MPI_I##name##_c, bytes, __VA_ARGS__); \
    P(MPI_##Name##_init_c, bytes, __VA_ARGS__, MPI_INFO_NULL)
#else
#define ALL(Name, name, bytes, ...) \
    C(MPI_##Name, bytes, __VA_ARGS__); \
    I(MPI_I##name, bytes, __VA_ARGS__)
#define ALL_BUT_LARGE ALL
#define LARGE(...)
#endif

static void collectives(void) {
    int counts[MOST], ints[MOST], offsets[MOST], byte_offsets[MOST], total = 0;
    MPI_Datatype types[MOST];
    for (int i = 0; i < size; i++) {
        /* What goes from one rank to another depends on both, in the same way in both directions. */
        counts[i] = 1 + (rank + i) % 3;
        ints[i] = i + 1;
        offsets[i] = 4 * i;
        byte_offsets[i] = 32 * i;
        types[i] = (rank + i) % 2 ? MPI_DOUBLE : MPI_FLOAT;
        total += counts[i];
    }
    long long mixed = 0, rising = size * (size + 1) / 2;
    for (int i = 0; i < size; i++) mixed += counts[i] * ((rank + i) % 2 ? 8 : 4);

    C(MPI_Barrier, 0, world);
    I(MPI_Ibarrier, 0, world);
    ALL(Bcast, bcast, 8 * 10, out, 10, MPI_DOUBLE, 0, world);
    ALL(Bcast, bcast, 24 * 2, out, 2, triple, size - 1, world);
    ALL(Reduce, reduce, 8 * 3, out, in, 3, MPI_DOUBLE, MPI_SUM, 0, world);
    ALL(Allreduce, allreduce, 8 * 3, out, in, 3, MPI_DOUBLE, MPI_SUM, world);
    ALL(Allreduce, allreduce, 4 * 3, MPI_IN_PLACE, in, 3, MPI_INT, MPI_MAX, world);
    ALL(Scan, scan, 8 * 3, out, in, 3, MPI_DOUBLE, MPI_SUM, world);
    ALL(Exscan, exscan, 8 * 3, out, in, 3, MPI_DOUBLE, MPI_SUM, world);
    C(MPI_Reduce_local, 8 * 3, out, in, 3, MPI_DOUBLE, MPI_SUM);
    ALL_BUT_LARGE(Reduce_scatter, reduce_scatter, 8 * rising, out, in, ints, MPI_DOUBLE, MPI_SUM, world);
    ALL(Reduce_scatter_block, reduce_scatter_block, 8 * 2 * size, out, in, 2, MPI_DOUBLE, MPI_SUM, world);
    ALL(Gather, gather, 8 * 2, out, 2, MPI_DOUBLE, in, 2, MPI_DOUBLE, 1, world);
    /* The root's own part is in place; what others say of the receive buffer means nothing. */
    C(MPI_Gather, 8 * 2, rank == 1 ? MPI_IN_PLACE : out, 2, MPI_DOUBLE, rank == 1 ? in : NULL, 2,
      rank == 1 ? MPI_DOUBLE : MPI_DATATYPE_NULL, 1, world);
    ALL_BUT_LARGE(Gatherv, gatherv, 8 * (rank + 1), out, rank + 1, MPI_DOUBLE, in, ints, offsets, MPI_DOUBLE, 0, world);
    ALL_BUT_LARGE(Gatherv, gatherv, 8 * (rank + 1), rank == 0 ? MPI_IN_PLACE : out, rank + 1, MPI_DOUBLE, in, ints,
                  offsets, MPI_DOUBLE, 0, world);
    ALL(Scatter, scatter, rank == 1 ? 8 * 2 * size : 8 * 2, out, 2, MPI_DOUBLE, in, 2, MPI_DOUBLE, 1, world);
    C(MPI_Scatter, rank == 1 ? 8 * 2 * size : 8 * 2, rank == 1 ? out : NULL, 2,
      rank == 1 ? MPI_DOUBLE : MPI_DATATYPE_NULL, in, 2, MPI_DOUBLE, 1, world);
    ALL_BUT_LARGE(Scatterv, scatterv, rank == 0 ? 8 * rising : 8 * (rank + 1), out, ints, offsets, MPI_DOUBLE, in,
                  rank + 1, MPI_DOUBLE, 0, world);
    ALL(Allgather, allgather, 8 * 2, out, 2, MPI_DOUBLE, in, 2, MPI_DOUBLE, world);
    ALL(Allgather, allgather, 8 * 2, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, 2, MPI_DOUBLE, world);
    ALL_BUT_LARGE(Allgatherv, allgatherv, 8 * (rank + 1), out, rank + 1, MPI_DOUBLE, in, ints, offsets, MPI_DOUBLE, world);
    ALL_BUT_LARGE(Allgatherv, allgatherv, 8 * (rank + 1), MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, ints, offsets,
                  MPI_DOUBLE, world);
    ALL(Alltoall, alltoall, 8 * 2 * size, out, 2, MPI_DOUBLE, in, 2, MPI_DOUBLE, world);
    C(MPI_Alltoall, 8 * 2 * size, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, 2, MPI_DOUBLE, world);
    ALL_BUT_LARGE(Alltoallv, alltoallv, 8 * total, out, counts, offsets, MPI_DOUBLE, in, counts, offsets, MPI_DOUBLE, world);
    C(MPI_Alltoallv, 8 * total, MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, in, counts, offsets, MPI_DOUBLE, world);
    ALL_BUT_LARGE(Alltoallw, alltoallw, mixed, out, counts, byte_offsets, types, in, counts, byte_offsets, types, world);
#if MPI_VERSION >= 4
    MPI_Count wide[MOST], rising_counts[MOST];
    MPI_Aint far[MOST], far_bytes[MOST];
    for (int i = 0; i < size; i++) {
        wide[i] = counts[i];
        rising_counts[i] = ints[i];
        far[i] = offsets[i];
        far_bytes[i] = byte_offsets[i];
    }
    LARGE(Reduce_scatter, reduce_scatter, 8 * rising, out, in, rising_counts, MPI_DOUBLE, MPI_SUM, world);
    LARGE(Gatherv, gatherv, 8 * (rank + 1), out, rank + 1, MPI_DOUBLE, in, rising_counts, far, MPI_DOUBLE, 0, world);
    LARGE(Scatterv, scatterv, rank == 0 ? 8 * rising : 8 * (rank + 1), out, rising_counts, far, MPI_DOUBLE, in, rank + 1,
          MPI_DOUBLE, 0, world);
    LARGE(Allgatherv, allgatherv, 8 * (rank + 1), out, rank + 1, MPI_DOUBLE, in, rising_counts, far, MPI_DOUBLE, world);
    LARGE(Alltoallv, alltoallv, 8 * total, out, wide, far, MPI_DOUBLE, in, wide, far, MPI_DOUBLE, world);
    LARGE(Alltoallw, alltoallw, mixed, out, wide, far_bytes, types, in, wide, far_bytes, types, world);
    P(MPI_Barrier_init, 0, world, MPI_INFO_NULL);
#endif
}

static void neighbours(void) {
    /* Of two ranks each is the other's neighbour on both sides, and libraries differ in which part goes where. */
    int other = size > 2 ? 3 : 2;
    int dims[1] = {size}, periods[1] = {1}, counts[2] = {2, other}, swapped_counts[2] = {other, 2}, offsets[2] = {0, 8};
    MPI_Aint far[2] = {0, 64};
    MPI_Datatype other_type = size > 2 ? MPI_FLOAT : MPI_DOUBLE;
    MPI_Datatype types[2] = {MPI_DOUBLE, other_type}, swapped[2] = {other_type, MPI_DOUBLE};
    long long mixed = size > 2 ? 8 * 2 + 4 * 3 : 8 * 4;
    MPI_Comm ring, line;
    C(MPI_Cart_create, 0, world, 1, dims, periods, 0, &ring);
    ALL(Neighbor_allgather, neighbor_allgather, 8 * 3, out, 3, MPI_DOUBLE, in, 3, MPI_DOUBLE, ring);
    int threes[2] = {3, 3};
    ALL_BUT_LARGE(Neighbor_allgatherv, neighbor_allgatherv, 8 * 3, out, 3, MPI_DOUBLE, in, threes, offsets, MPI_DOUBLE, ring);
    ALL(Neighbor_alltoall, neighbor_alltoall, 8 * 3 * 2, out, 3, MPI_DOUBLE, in, 3, MPI_DOUBLE, ring);
    ALL_BUT_LARGE(Neighbor_alltoallv, neighbor_alltoallv, 8 * (2 + other), out, counts, offsets, MPI_DOUBLE, in, swapped_counts,
                  offsets, MPI_DOUBLE, ring);
    ALL_BUT_LARGE(Neighbor_alltoallw, neighbor_alltoallw, mixed, out, counts, far, types, in, swapped_counts, far,
                  swapped, ring);
    /* Each sends to the next, the last to nobody. */
    int has_next = rank + 1 < size, has_previous = rank > 0;
    C(MPI_Dist_graph_create_adjacent, 0, world, has_previous, &previous, MPI_UNWEIGHTED, has_next, &next, MPI_UNWEIGHTED,
      MPI_INFO_NULL, 0, &line);
    ALL(Neighbor_alltoall, neighbor_alltoall, 8 * 3 * has_next, out, 3, MPI_DOUBLE, in, 3, MPI_DOUBLE, line);
    C(MPI_Comm_free, 0, &line);
    C(MPI_Comm_free, 0, &ring);
    int index[MOST], edges[2 * MOST], at = 0;
    for (int i = 0; i < size; i++) {
        edges[at++] = (i + size - 1) % size;
        edges[at++] = (i + 1) % size;
        index[i] = at;
    }
    if (size > 2) {
        C(MPI_Graph_create, 0, world, size, index, edges, 0, &ring);
        C(MPI_Neighbor_alltoall, 8 * 3 * 2, out, 3, MPI_DOUBLE, in, 3, MPI_DOUBLE, ring);
        C(MPI_Comm_free, 0, &ring);
    }
}

/* Two groups: even and odd ranks. Rank 0 is the root, in its own group all others have no part. */
static void between_groups(void) {
    MPI_Comm half, both;
    int odd = rank % 2, others = odd ? (size + 1) / 2 : size / 2;
    int root = odd ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
    C(MPI_Comm_split, 0, world, odd, rank, &half);
    C(MPI_Intercomm_create, 0, half, 0, world, !odd, 1, &both);
    int has_part = odd || rank == 0;
    C(MPI_Bcast, has_part ? 8 * 3 : 0, out, 3, has_part ? MPI_DOUBLE : MPI_INT, root, both);
    C(MPI_Gather, odd ? 8 * 2 : rank == 0 ? 8 * 2 * others : 0, out, 2, MPI_DOUBLE, in, 2, MPI_DOUBLE, root, both);
    C(MPI_Scatter, odd ? 8 * 2 : rank == 0 ? 8 * 2 * others : 0, out, 2, MPI_DOUBLE, in, 2, MPI_DOUBLE, root, both);
    C(MPI_Alltoall, 8 * 2 * others, out, 2, MPI_DOUBLE, in, 2, MPI_DOUBLE, both);
    C(MPI_Allreduce, 8 * 2, out, in, 2, MPI_DOUBLE, MPI_SUM, both);
    MPI_Comm merged;
    C(MPI_Intercomm_merge, 0, both, odd, &merged);
    C(MPI_Comm_free, 0, &merged);
    C(MPI_Comm_disconnect, 0, &both);
    C(MPI_Comm_free, 0, &half);
}

static void one_sided(void) {
    MPI_Win window;
    double *memory;
    long one = 1, was, expected = 0;
    C(MPI_Win_allocate, 0, 64 * sizeof(double), 1, MPI_INFO_NULL, world, &memory, &window);
    C(MPI_Win_fence, 0, 0, window);
    C(MPI_Put, 8 * 3, out, 3, MPI_DOUBLE, next, 0, 3, MPI_DOUBLE, window);
    C(MPI_Win_fence, 0, 0, window);
    C(MPI_Get, 8 * 2, in, 2, MPI_DOUBLE, next, 0, 2, MPI_DOUBLE, window);
    C(MPI_Win_fence, 0, 0, window);
    C(MPI_Win_lock, 0, MPI_LOCK_SHARED, next, 0, window);
    C(MPI_Accumulate, 8 * 3, out, 3, MPI_DOUBLE, next, 0, 3, MPI_DOUBLE, MPI_SUM, window);
    C(MPI_Get_accumulate, 8 * 3, out, 3, MPI_DOUBLE, in, 3, MPI_DOUBLE, next, 0, 3, MPI_DOUBLE, MPI_SUM, window);
    C(MPI_Get_accumulate, 8 * 3, NULL, 0, MPI_DOUBLE, in, 3, MPI_DOUBLE, next, 0, 3, MPI_DOUBLE, MPI_NO_OP, window);
    C(MPI_Fetch_and_op, 8, &one, &was, MPI_LONG, next, 256, MPI_SUM, window);
    C(MPI_Compare_and_swap, 8, &one, &expected, &was, MPI_LONG, next, 264, window);
    C(MPI_Win_flush, 0, next, window);
    C(MPI_Win_flush_local, 0, next, window);
    C(MPI_Win_unlock, 0, next, window);
    C(MPI_Win_lock_all, 0, 0, window);
    I(MPI_Rput, 8 * 3, out, 3, MPI_DOUBLE, next, 0, 3, MPI_DOUBLE, window);
    I(MPI_Rget, 8 * 3, in, 3, MPI_DOUBLE, next, 0, 3, MPI_DOUBLE, window);
    I(MPI_Raccumulate, 8 * 3, out, 3, MPI_DOUBLE, next, 0, 3, MPI_DOUBLE, MPI_SUM, window);
    I(MPI_Rget_accumulate, 8 * 3, out, 3, MPI_DOUBLE, in, 3, MPI_DOUBLE, next, 0, 3, MPI_DOUBLE, MPI_SUM, window);
    C(MPI_Win_flush_all, 0, window);
    C(MPI_Win_flush_local_all, 0, window);
    C(MPI_Win_sync, 0, window);
    C(MPI_Win_unlock_all, 0, window);
#if MPI_VERSION >= 4
    C(MPI_Win_fence, 0, 0, window);
    C(MPI_Put_c, 8 * 3, out, 3, MPI_DOUBLE, next, 0, 3, MPI_DOUBLE, window);
    C(MPI_Win_fence, 0, 0, window);
#endif
    MPI_Group group, one_rank;
    C(MPI_Comm_group, 0, world, &group);
    C(MPI_Group_incl, 0, group, 1, &previous, &one_rank);
    C(MPI_Win_post, 0, one_rank, 0, window);
    C(MPI_Group_free, 0, &one_rank);
    C(MPI_Group_incl, 0, group, 1, &next, &one_rank);
    C(MPI_Win_start, 0, one_rank, 0, window);
    C(MPI_Put, 8, out, 1, MPI_DOUBLE, next, 0, 1, MPI_DOUBLE, window);
    C(MPI_Win_complete, 0, window);
    C(MPI_Win_wait, 0, window);
    C(MPI_Group_free, 0, &one_rank);
    C(MPI_Group_free, 0, &group);
    C(MPI_Win_free, 0, &window);
}

static void files(void) {
    MPI_File file;
    MPI_Offset length, here = 80 * rank;
    MPI_Request request;
    MPI_Status status;
    int done;
    C(MPI_File_open, 0, world, getenv("DATA"), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    C(MPI_File_set_view, 0, file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    C(MPI_File_write_at, 80, file, here, out, 10, MPI_DOUBLE, MPI_STATUS_IGNORE);
    C(MPI_File_write_at_all, 80, file, here, out, 10, MPI_DOUBLE, &status);
    C(MPI_Get_count, 0, &status, MPI_DOUBLE, &done);
    INSIST(done == 10);
    C(MPI_File_sync, 0, file);
    C(MPI_Barrier, 0, world);
    C(MPI_File_get_size, 0, file, &length);
    INSIST(length == 80 * size);
    C(MPI_File_read_at, 80, file, here, in, 10, MPI_DOUBLE, MPI_STATUS_IGNORE);
    C(MPI_File_read_at_all, 80, file, here, in, 10, MPI_DOUBLE, &status);
    /* Beyond the end nothing comes. */
    C(MPI_File_read_at, 40, file, 80 * size - 40, in, 10, MPI_DOUBLE, MPI_STATUS_IGNORE);
    C(MPI_File_read_at, 0, file, 80 * size, in, 10, MPI_DOUBLE, MPI_STATUS_IGNORE);
    C(MPI_File_seek, 0, file, here, MPI_SEEK_SET);
    C(MPI_File_read, 40, file, in, 5, MPI_DOUBLE, MPI_STATUS_IGNORE);
    C(MPI_File_write, 40, file, out, 5, MPI_DOUBLE, MPI_STATUS_IGNORE);
    C(MPI_File_seek, 0, file, here, MPI_SEEK_SET);
    C(MPI_File_read_all, 24, file, in, 1, triple, MPI_STATUS_IGNORE);
    C(MPI_File_write_all, 24, file, out, 1, triple, MPI_STATUS_IGNORE);
    C(MPI_File_iwrite_at, 80, file, here, out, 10, MPI_DOUBLE, &request);
    C(MPI_Wait, 0, &request, MPI_STATUS_IGNORE);
    C(MPI_File_iread_at, 80, file, here, in, 10, MPI_DOUBLE, &request);
    C(MPI_Wait, 0, &request, MPI_STATUS_IGNORE);
    C(MPI_File_write_at_all_begin, 80, file, here, out, 10, MPI_DOUBLE);
    C(MPI_File_write_at_all_end, 0, file, out, MPI_STATUS_IGNORE);
    C(MPI_File_read_at_all_begin, 80, file, here, in, 10, MPI_DOUBLE);
    C(MPI_File_read_at_all_end, 0, file, in, MPI_STATUS_IGNORE);
    C(MPI_File_seek_shared, 0, file, 0, MPI_SEEK_SET);
    C(MPI_File_write_shared, 8, file, out, 1, MPI_DOUBLE, MPI_STATUS_IGNORE);
    C(MPI_Barrier, 0, world);
    C(MPI_File_seek_shared, 0, file, 0, MPI_SEEK_SET);
    C(MPI_File_read_ordered, 16, file, in, 2, MPI_DOUBLE, MPI_STATUS_IGNORE);
#if MPI_VERSION >= 4
    C(MPI_File_write_at_c, 80, file, here, out, 10, MPI_DOUBLE, MPI_STATUS_IGNORE);
    C(MPI_File_read_at_c, 80, file, here, in, 10, MPI_DOUBLE, MPI_STATUS_IGNORE);
#endif
    C(MPI_File_close, 0, &file);
}

static void local(void) {
    char name[MPI_MAX_PROCESSOR_NAME > MPI_MAX_OBJECT_NAME ? MPI_MAX_PROCESSOR_NAME : MPI_MAX_OBJECT_NAME];
    char packed[256];
    int length, position = 0, flag, version, subversion;
    C(MPI_Pack, 8 * 4, out, 4, MPI_DOUBLE, packed, 256, &position, world);
    position = 0;
    C(MPI_Unpack, 8 * 4, packed, 256, &position, in, 4, MPI_DOUBLE, world);
    C(MPI_Get_processor_name, 0, name, &length);
    C(MPI_Get_version, 0, &version, &subversion);
    C(MPI_Comm_set_name, 0, world, "a name");
    C(MPI_Comm_get_name, 0, world, name, &length);
    INSIST(strcmp(name, "a name") == 0);
    C(MPI_Initialized, 0, &flag);
    INSIST(flag);
    MPI_Info info;
    C(MPI_Info_create, 0, &info);
    C(MPI_Info_set, 0, info, "key", "value");
    C(MPI_Info_free, 0, &info);
    /* Ten arguments and more go over the stack. */
    int sizes[2] = {4, 4}, kinds[2] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_BLOCK};
    int defaults[2] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG}, grid[2] = {size, 1};
    MPI_Datatype type;
    C(MPI_Type_create_darray, 0, size, rank, 2, sizes, kinds, defaults, grid, MPI_ORDER_C, MPI_INT, &type);
    C(MPI_Type_free, 0, &type);
    int a, b, c;
    C(MPI_Type_get_envelope, 0, MPI_INT, &a, &b, &c, &length);
}

int main(int argc, char **argv) {
    C(MPI_Init, 0, &argc, &argv);
    C(MPI_Comm_rank, 0, MPI_COMM_WORLD, &rank);
    C(MPI_Comm_size, 0, MPI_COMM_WORLD, &size);
    C(MPI_Comm_dup, 0, MPI_COMM_WORLD, &world);
    next = (rank + 1) % size;
    previous = (rank + size - 1) % size;
    int lengths[2] = {1, 2}, displacements[2] = {0, 2};
    C(MPI_Type_indexed, 0, 2, lengths, displacements, MPI_DOUBLE, &triple);
    C(MPI_Type_commit, 0, &triple);
    point_to_point();
    persistent();
    collectives();
    neighbours();
    between_groups();
    one_sided();
    files();
    local();
    C(MPI_Type_free, 0, &triple);
    C(MPI_Comm_free, 0, &world);
    FINALIZE();
    int flag;
    C(MPI_Finalized, 0, &flag);
    write_counts(rank);
    return 0;
}
