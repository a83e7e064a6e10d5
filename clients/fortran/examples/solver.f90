! A small solver with metrics: Jacobi's method for a tridiagonal system.
!
!     gfortran pegel.f90 examples/solver.f90 $(pkg-config --libs pegel) -o solver
!     LD_LIBRARY_PATH=$(pkg-config --variable=libdir pegel) ./solver
program solver
  use, intrinsic :: iso_c_binding, only: c_double, c_int64_t, c_long, c_null_ptr, c_ptr
  use pegel
  implicit none
  integer, parameter :: n = 1000, steps = 50
  type(pegel_counter) :: iterations, refused
  type(pegel_float_counter) :: busy
  type(pegel_gauge) :: residual
  type(pegel_histogram) :: changes
  type(pegel_timer) :: timer
  type(pegel_point) :: history
  integer(c_int64_t) :: solve
  real(c_double) :: x(0:n + 1), next(0:n + 1), change
  integer(c_int64_t) :: begin_ms
  integer :: step, i
  interface
    ! Seconds since 1970.
    integer(c_long) function c_time(result_at) bind(c, name="time")
      import :: c_long, c_ptr
      type(c_ptr), value :: result_at
    end function
  end interface

  iterations = new_pegel_counter("fortran_iterations_total", help="Iterations of the solver.", labels="phase=solve")
  busy = new_pegel_float_counter("fortran_busy_seconds_total")
  residual = new_pegel_gauge("fortran_residual", help="What is left of the error.", aggregation=PEGEL_MAX)
  changes = new_pegel_histogram("fortran_change")
  timer = new_pegel_timer("fortran_step_seconds")
  history = new_pegel_point("fortran_residual_history")

  begin_ms = 1000_c_int64_t * c_time(c_null_ptr) - steps
  call pegel_mark("solver starts")
  solve = pegel_phase_begin("solve")
  x = 0
  next = 0
  do step = 1, steps
    call timer%start()
    do i = 1, n
      next(i) = (1 + x(i - 1) + x(i + 1)) / 2
    end do
    change = maxval(abs(next - x))
    x = next
    call timer%stop()
    call iterations%add(1)
    call busy%add(1d-6)
    call residual%set(change)
    call changes%record(change)
    ! Of several values in one millisecond only the first is kept, so each step has its own.
    call history%add(change, begin_ms + step)
  end do
  call pegel_phase_end("solve", solve)

  ! A handle that cannot be created does nothing.
  refused = new_pegel_counter("not{a}name")
  call refused%add(1)
  print "(i0, a, l1, a, l1, a, a)", steps, " steps, published: ", pegel_is_published(), &
    ", refused: ", .not. refused%is_valid(), ", ", pegel_error()
end program
