/* Hangs in the way that its argument names. Every rank first calls MPI_Bcast as collective #1 of MPI_COMM_WORLD. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static int rank, size;
static double datum, sum;

static void allreduce(MPI_Comm comm) {
    MPI_Allreduce(&datum, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
}

static void receive_forever(void) {
    MPI_Recv(&datum, 1, MPI_DOUBLE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void spin(void) {
    volatile unsigned long count = 0;
    for (;;) count++;
}

/* Rank 1 skips the barrier and waits for a message that is never sent. */
static void skip(void) {
    if (rank == 1) receive_forever();
    MPI_Barrier(MPI_COMM_WORLD);
}

static void stop(void) {
    allreduce(MPI_COMM_WORLD);
    if (rank == 1) raise(SIGSTOP);
    allreduce(MPI_COMM_WORLD);
}

/* Rank 1 waits for the end of a child in vfork, uninterruptible but for SIGKILL: its state is D. */
static void blocked(void) {
    allreduce(MPI_COMM_WORLD);
    if (rank == 1 && vfork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sleep(120);
        _exit(0);
    }
    allreduce(MPI_COMM_WORLD);
}

static void spins(void) {
    allreduce(MPI_COMM_WORLD);
    if (rank == 2) spin();
    allreduce(MPI_COMM_WORLD);
}

static void killed(void) {
    allreduce(MPI_COMM_WORLD);
    if (rank == 1) raise(SIGKILL);
    allreduce(MPI_COMM_WORLD);
}

static void order(void) {
    if (rank == 2)
        allreduce(MPI_COMM_WORLD);
    else
        MPI_Barrier(MPI_COMM_WORLD);
    receive_forever();
}

/* Two halves; in the second, rank 3 does not take part in the third collective. */
static void derived(void) {
    MPI_Comm half, copy;
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, 0, &half);
    MPI_Comm_dup(half, &copy);
    MPI_Comm_free(&half);
    allreduce(copy);
    MPI_Barrier(copy);
    if (rank == 3) pause();
    if (rank >= 2) allreduce(copy);
    receive_forever();
}

static void nonblocking(void) {
    MPI_Request requests[2];
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Irecv(&datum, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &requests[0]);
    if (rank == 0) pause();
    MPI_Iallreduce(&datum, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

/* Rank 0 does not start the operation a third time. */
static void persistent(void) {
#if MPI_VERSION >= 4
    MPI_Request request;
    MPI_Allreduce_init(&datum, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    for (int i = 0; i < 3; i++) {
        if (rank == 0 && i == 2) pause();
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
#endif
}

static void polls(void) {
    MPI_Request request;
    int flag = 0;
    if (rank == 1) receive_forever();
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    if (rank == 0) MPI_Wait(&request, MPI_STATUS_IGNORE);
    while (!flag) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
}

static void finalize(void) {
    if (rank == 1) pause();
}

/* Rank 0 computes between collectives, and the others wait for it. */
static void late(void) {
    for (int i = 0; i < 20; i++) {
        if (rank == 0) usleep(60000);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*hang)(void);
    } ways[] = {{"skip", skip},       {"stop", stop},           {"spin", spins},  {"kill", killed},   {"order", order},
                {"derived", derived}, {"nonblocking", nonblocking}, {"polls", polls}, {"finalize", finalize}, {"late", late},
                {"persistent", persistent}, {"blocked", blocked}};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Bcast(&datum, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (argc > 1 && strcmp(argv[1], ways[i].name) == 0) ways[i].hang();
    MPI_Finalize();
    return 0;
}
