! Rank 1 receives a message that is never sent; the others are in their second collective.
program hangs
  use mpi
  implicit none
  integer :: rank, error, status(MPI_STATUS_SIZE), half
  double precision :: datum, total
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  datum = rank
  call MPI_Comm_dup(MPI_COMM_WORLD, half, error)
  call MPI_Allreduce(datum, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, half, error)
  if (rank == 1) call MPI_Recv(datum, 1, MPI_DOUBLE_PRECISION, 0, 7, half, status, error)
  call MPI_Barrier(half, error)
  call MPI_Finalize(error)
end program
