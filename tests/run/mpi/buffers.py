"""Calls of mpi4py, which loads MPI for itself alone."""
from array import array

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
out, room = array("d", [rank] * 10), array("d", [0] * 100)
request = comm.Isend([out, MPI.DOUBLE], (rank + 1) % size, 1)
comm.Recv([room, MPI.DOUBLE], (rank - 1) % size, 1)
request.Wait()
assert room[9] == (rank - 1) % size
for _ in range(5):
    comm.Allreduce(MPI.IN_PLACE, [room, 3, MPI.DOUBLE])
comm.Bcast([out, MPI.DOUBLE], 0)
assert out[0] == 0
comm.Alltoallv([out, [2] * size, MPI.DOUBLE], [room, [2] * size, MPI.DOUBLE])
comm.Barrier()
# An object travels in calls of mpi4py's own choice.
assert comm.allgather({"rank": rank})[size - 1] == {"rank": size - 1}
