/* Makes a few calls and prints what they gave; with the argument "abort" it ends by MPI_Abort. */
#include "counted.h"

int main(int argc, char **argv) {
    int rank, size, length;
    double datum = 1, sum;
    char name[MPI_MAX_OBJECT_NAME];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 10; i++) MPI_Send(&datum, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    MPI_Allreduce(&datum, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_get_name(MPI_COMM_WORLD, name, &length);
    if (rank == 0) printf("%d ranks, sum %g, %s\n", size, sum, name);
    fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "abort") == 0) MPI_Abort(MPI_COMM_WORLD, 3);
    MPI_Finalize();
    return 0;
}
