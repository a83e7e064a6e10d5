/* Four threads at once in MPI, at the level MPI_THREAD_MULTIPLE. */
#include <pthread.h>

#include "counted.h"

enum { THREADS = 4, CALLS = 20000 };

static void *calls(void *unused) {
    double datum = 0;
    int flag;
    (void)unused;
    for (int i = 0; i < CALLS; i++) {
        INSIST(MPI_Send(&datum, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, MPI_COMM_SELF) == MPI_SUCCESS);
        INSIST(MPI_Recv(&datum, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        INSIST(MPI_Initialized(&flag) == MPI_SUCCESS);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int provided, rank;
    pthread_t threads[THREADS];
    C(MPI_Init_thread, 0, &argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    INSIST(provided == MPI_THREAD_MULTIPLE);
    C(MPI_Comm_rank, 0, MPI_COMM_WORLD, &rank);
    for (int i = 0; i < THREADS; i++) INSIST(pthread_create(&threads[i], NULL, calls, NULL) == 0);
    for (int i = 0; i < THREADS; i++) INSIST(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < THREADS * CALLS; i++) {
        count("MPI_Send", 8);
        count("MPI_Recv", 0);
        count("MPI_Initialized", 0);
    }
    FINALIZE();
    write_counts(rank);
    return 0;
}
