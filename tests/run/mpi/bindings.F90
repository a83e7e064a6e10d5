! The same calls through each of the three Fortran bindings: compiled with -DBINDING=1 (mpif.h), 2 (module
! mpi) or 3 (module mpi_f08). Every rank makes each call as often as the test expects.
program bindings
#if BINDING == 3
  use mpi_f08
  implicit none
  type(MPI_Request) :: requests(2)
  type(MPI_Status) :: status
  type(MPI_Datatype) :: triple
  type(MPI_File) :: file
  type(MPI_Comm) :: world, ring
#else
#if BINDING == 2
  use mpi
  implicit none
#else
  implicit none
  include 'mpif.h'
#endif
  integer :: requests(2), status(MPI_STATUS_SIZE), triple, file, world, ring
#endif
  double precision :: out(100), in(100), began
  real :: reals(6)
  integer :: rank, size, next, previous, length, ierror, i, received
  integer :: counts(8), offsets(8), numbers(5)
  character(len=MPI_MAX_PROCESSOR_NAME) :: host
  character(len=MPI_MAX_OBJECT_NAME) :: name
  character(len=1000) :: path
  integer(kind=MPI_OFFSET_KIND) :: place
  integer(kind=MPI_ADDRESS_KIND) :: largest
  integer :: sizes(1), places(1)
  logical :: wraps(1), is_set

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierror)
  call MPI_Comm_dup(MPI_COMM_WORLD, world, ierror)
  began = MPI_Wtime()
  next = mod(rank + 1, size)
  previous = mod(rank + size - 1, size)
  out = rank

  call MPI_Irecv(in, 10, MPI_DOUBLE_PRECISION, previous, 1, world, requests(1), ierror)
  call MPI_Isend(out, 10, MPI_DOUBLE_PRECISION, next, 1, world, requests(2), ierror)
  call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierror)
  if (in(10) /= previous) error stop 'a wrong number came'
  call MPI_Isend(out, 10, MPI_DOUBLE_PRECISION, next, 2, world, requests(1), ierror)
  call MPI_Recv(in, 100, MPI_DOUBLE_PRECISION, previous, 2, world, MPI_STATUS_IGNORE, ierror)
  call MPI_Wait(requests(1), MPI_STATUS_IGNORE, ierror)
  call MPI_Isend(out, 7, MPI_DOUBLE_PRECISION, next, 3, world, requests(1), ierror)
  call MPI_Recv(in, 100, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, MPI_ANY_TAG, world, status, ierror)
  call MPI_Wait(requests(1), MPI_STATUS_IGNORE, ierror)
  call MPI_Get_count(status, MPI_DOUBLE_PRECISION, received, ierror)
  if (received /= 7) error stop 'a wrong status came'

  numbers = rank
  call MPI_Bcast(numbers, 5, MPI_INTEGER, 0, world, ierror)
  if (numbers(5) /= 0) error stop 'a wrong broadcast came'
  call MPI_Type_contiguous(3, MPI_REAL, triple, ierror)
  call MPI_Type_commit(triple, ierror)
  call MPI_Bcast(reals, 2, triple, 0, world, ierror)
  call MPI_Type_free(triple, ierror)
  in(1:3) = 1
  call MPI_Allreduce(MPI_IN_PLACE, in, 3, MPI_DOUBLE_PRECISION, MPI_SUM, world, ierror)
  if (in(3) /= size) error stop 'a wrong sum came'
  do i = 1, size
    counts(i) = 2
    offsets(i) = 2 * (i - 1)
  end do
  call MPI_Alltoallv(out, counts, offsets, MPI_DOUBLE_PRECISION, in, counts, offsets, MPI_DOUBLE_PRECISION, world, ierror)
  call MPI_Barrier(world, ierror)

  ! Texts have hidden lengths behind the other arguments.
  call MPI_Get_processor_name(host, length, ierror)
  if (len_trim(host) /= length) error stop 'a wrong host name came'
  call MPI_Comm_set_name(world, 'grid  ', ierror)
  name = repeat('x', MPI_MAX_OBJECT_NAME)
  call MPI_Comm_get_name(world, name, length, ierror)
  if (name /= 'grid' .or. length /= 4) error stop 'a wrong name came'
  call get_environment_variable('DATA', path)
  call MPI_File_open(world, trim(path), MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file, ierror)
  place = 80 * rank
  call MPI_File_write_at(file, place, out, 10, MPI_DOUBLE_PRECISION, MPI_STATUS_IGNORE, ierror)
  call MPI_File_read_at(file, place, in, 10, MPI_DOUBLE_PRECISION, status, ierror)
  if (in(10) /= rank) error stop 'a wrong number was read'
  call MPI_File_close(file, ierror)

  call MPI_Comm_get_attr(world, MPI_TAG_UB, largest, is_set, ierror)
  if (.not. is_set .or. largest < 32767) error stop 'a wrong attribute came'
  sizes(1) = size
  wraps(1) = .true.
  places(1) = size + 1
  call MPI_Cart_create(world, 1, sizes, wraps, .false., ring, ierror)
  call MPI_Cart_rank(ring, places, received, ierror)
  if (received /= 1) error stop 'a wrong rank came'
  call MPI_Comm_free(ring, ierror)
  call MPI_Comm_free(world, ierror)
  call MPI_Finalize(ierror)
end program bindings
