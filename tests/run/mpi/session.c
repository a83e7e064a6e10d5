/* MPI 4 without MPI_Init: a session, and a communicator made from it. */
#include "counted.h"

int main(void) {
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    int rank, sets;
    double datum = 1, sum;
    C(MPI_Session_init, 0, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    C(MPI_Session_get_num_psets, 0, session, MPI_INFO_NULL, &sets);
    C(MPI_Group_from_session_pset, 0, session, "mpi://WORLD", &group);
    C(MPI_Comm_create_from_group, 0, group, "a test", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    C(MPI_Group_free, 0, &group);
    C(MPI_Comm_rank, 0, comm, &rank);
    for (int i = 0; i < 10; i++) C(MPI_Allreduce_c, 8, &datum, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
    C(MPI_Comm_free, 0, &comm);
    C(MPI_Session_finalize, 0, &session);
    write_counts(rank);
    return 0;
}
