// An error handler that throws through MPI and through whoever stands before it; calls afterwards count again.
#include <mpi.h>

#include <cstdio>
#include <stdexcept>

static void handler(MPI_Comm *, int *, ...) { throw std::runtime_error("an error of MPI"); }

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Errhandler throwing;
    MPI_Comm_create_errhandler(handler, &throwing);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, throwing);
    double datum = 0;
    int caught = 0;
    for (int i = 0; i < 3; i++) {
        try {
            MPI_Send(&datum, 1, MPI_DOUBLE, 4711, 0, MPI_COMM_WORLD);
        } catch (const std::runtime_error &) {
            caught++;
        }
    }
    for (int i = 0; i < 5; i++) MPI_Send(&datum, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    std::printf("caught %d\n", caught);
    MPI_Finalize();
}
