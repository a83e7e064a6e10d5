! Metrics of your program, for the Pegel agent on its node: a module over the C library.
!
!     use pegel
!     type(pegel_counter) :: iterations
!     iterations = new_pegel_counter("solver_iterations_total", help="Iterations", labels="phase=solve")
!     call iterations%add(1)
!
!     gfortran pegel.f90 solver.f90 $(pkg-config --libs pegel) -o solver
!
! Create a handle once and keep it. An update is a few atomic instructions in shared memory. It never
! fails; a handle that could not be created does nothing, and pegel_error() has the reason. Threads may
! update the same handle. See pegel.h for the details.
module pegel
  use, intrinsic :: iso_c_binding, only: c_associated, c_char, c_double, c_f_pointer, c_int, c_int64_t, &
    c_null_char, c_null_ptr, c_ptr, c_size_t
  implicit none
  private

  ! How the values of one gauge in several programs are combined.
  integer, parameter, public :: PEGEL_LAST = 0, PEGEL_MIN = 1, PEGEL_MAX = 2, PEGEL_SUM = 3

  public :: new_pegel_counter, new_pegel_float_counter, new_pegel_gauge, new_pegel_histogram
  public :: new_pegel_timer, new_pegel_point
  public :: pegel_mark, pegel_phase_begin, pegel_phase_end, pegel_marks_lost
  public :: pegel_statsd_start, pegel_statsd_switch, pegel_statsd_flush, pegel_statsd_errors
  public :: pegel_is_published, pegel_error, pegel_version

  ! A whole number that only grows.
  type, public :: pegel_counter
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure, private :: counter_add_int32, counter_add_int64
    generic :: add => counter_add_int32, counter_add_int64
    procedure :: is_valid => counter_is_valid
  end type

  ! A floating point number that only grows: seconds, joules.
  type, public :: pegel_float_counter
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: add => float_counter_add
    procedure :: is_valid => float_counter_is_valid
  end type

  ! A number that goes up and down.
  type, public :: pegel_gauge
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: set => gauge_set
    procedure :: change => gauge_change
    procedure :: is_valid => gauge_is_valid
  end type

  ! The distribution of a size.
  type, public :: pegel_histogram
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: record => histogram_record
    procedure :: is_valid => histogram_is_valid
  end type

  ! The duration of an operation, in seconds. Each timer measures one operation at a time.
  type, public :: pegel_timer
    private
    type(c_ptr) :: handle = c_null_ptr
    integer(c_int64_t) :: since = 0
  contains
    procedure :: start => timer_start
    procedure :: stop => timer_stop
    procedure :: record => timer_record
    procedure :: is_valid => timer_is_valid
  end type

  ! Single values with their own timestamps, in milliseconds since 1970; now if there is none.
  type, public :: pegel_point
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: add => point_add
    procedure :: is_valid => point_is_valid
  end type

  interface
    function c_counter_new(name, help, labels) result(handle) bind(c, name="pegel_counter_new")
      import :: c_char, c_ptr
      character(kind=c_char), intent(in) :: name(*), help(*), labels(*)
      type(c_ptr) :: handle
    end function
    function c_float_counter_new(name, help, labels) result(handle) bind(c, name="pegel_float_counter_new")
      import :: c_char, c_ptr
      character(kind=c_char), intent(in) :: name(*), help(*), labels(*)
      type(c_ptr) :: handle
    end function
    function c_gauge_new(name, help, labels, aggregation) result(handle) bind(c, name="pegel_gauge_new")
      import :: c_char, c_int, c_ptr
      character(kind=c_char), intent(in) :: name(*), help(*), labels(*)
      integer(c_int), value :: aggregation
      type(c_ptr) :: handle
    end function
    function c_histogram_new(name, help, labels) result(handle) bind(c, name="pegel_histogram_new")
      import :: c_char, c_ptr
      character(kind=c_char), intent(in) :: name(*), help(*), labels(*)
      type(c_ptr) :: handle
    end function
    function c_timer_new(name, help, labels) result(handle) bind(c, name="pegel_timer_new")
      import :: c_char, c_ptr
      character(kind=c_char), intent(in) :: name(*), help(*), labels(*)
      type(c_ptr) :: handle
    end function
    function c_point_new(name, help, labels) result(handle) bind(c, name="pegel_point_new")
      import :: c_char, c_ptr
      character(kind=c_char), intent(in) :: name(*), help(*), labels(*)
      type(c_ptr) :: handle
    end function
    subroutine c_add(handle, amount) bind(c, name="pegel_add")
      import :: c_int64_t, c_ptr
      type(c_ptr), value :: handle
      ! The library ignores amounts of 2**63 and more: negative ones here.
      integer(c_int64_t), value :: amount
    end subroutine
    subroutine c_add_float(handle, amount) bind(c, name="pegel_add_float")
      import :: c_double, c_ptr
      type(c_ptr), value :: handle
      real(c_double), value :: amount
    end subroutine
    subroutine c_set(handle, number) bind(c, name="pegel_set")
      import :: c_double, c_ptr
      type(c_ptr), value :: handle
      real(c_double), value :: number
    end subroutine
    subroutine c_change(handle, by) bind(c, name="pegel_change")
      import :: c_double, c_ptr
      type(c_ptr), value :: handle
      real(c_double), value :: by
    end subroutine
    subroutine c_record(handle, number) bind(c, name="pegel_record")
      import :: c_double, c_ptr
      type(c_ptr), value :: handle
      real(c_double), value :: number
    end subroutine
    subroutine c_record_seconds(handle, seconds) bind(c, name="pegel_record_seconds")
      import :: c_double, c_ptr
      type(c_ptr), value :: handle
      real(c_double), value :: seconds
    end subroutine
    function c_start() result(now) bind(c, name="pegel_start")
      import :: c_int64_t
      integer(c_int64_t) :: now
    end function
    subroutine c_stop(handle, since) bind(c, name="pegel_stop")
      import :: c_int64_t, c_ptr
      type(c_ptr), value :: handle
      integer(c_int64_t), value :: since
    end subroutine
    subroutine c_point_add(handle, number) bind(c, name="pegel_point_add")
      import :: c_double, c_ptr
      type(c_ptr), value :: handle
      real(c_double), value :: number
    end subroutine
    subroutine c_point_add_at(handle, number, time_ms) bind(c, name="pegel_point_add_at")
      import :: c_double, c_int64_t, c_ptr
      type(c_ptr), value :: handle
      real(c_double), value :: number
      integer(c_int64_t), value :: time_ms
    end subroutine
    subroutine c_mark(text) bind(c, name="pegel_mark")
      import :: c_char
      character(kind=c_char), intent(in) :: text(*)
    end subroutine
    function c_phase_begin(name) result(number) bind(c, name="pegel_phase_begin")
      import :: c_char, c_int64_t
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t) :: number
    end function
    subroutine c_phase_end(name, number) bind(c, name="pegel_phase_end")
      import :: c_char, c_int64_t
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: number
    end subroutine
    ! The number of marks that reached no agent.
    function pegel_marks_lost() result(number) bind(c, name="pegel_marks_lost")
      import :: c_int64_t
      integer(c_int64_t) :: number
    end function
    function c_statsd_start(address) result(status) bind(c, name="pegel_statsd_start")
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: address(*)
      integer(c_int) :: status
    end function
    subroutine c_statsd_switch(pattern, on) bind(c, name="pegel_statsd_switch")
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: pattern(*)
      integer(c_int), value :: on
    end subroutine
    ! Sends changed values to the statsd server now.
    subroutine pegel_statsd_flush() bind(c, name="pegel_statsd_flush")
    end subroutine
    ! The number of datagrams that could not be sent.
    function pegel_statsd_errors() result(number) bind(c, name="pegel_statsd_errors")
      import :: c_int64_t
      integer(c_int64_t) :: number
    end function
    function c_is_published() result(flag) bind(c, name="pegel_is_published")
      import :: c_int
      integer(c_int) :: flag
    end function
    function c_error() result(text) bind(c, name="pegel_error")
      import :: c_ptr
      type(c_ptr) :: text
    end function
    function c_version() result(text) bind(c, name="pegel_version")
      import :: c_ptr
      type(c_ptr) :: text
    end function
    function c_strlen(text) result(length) bind(c, name="strlen")
      import :: c_ptr, c_size_t
      type(c_ptr), value :: text
      integer(c_size_t) :: length
    end function
  end interface

contains

  function new_pegel_counter(name, help, labels) result(counter)
    character(*), intent(in) :: name
    character(*), intent(in), optional :: help, labels
    type(pegel_counter) :: counter
    counter%handle = c_counter_new(c_text(name), c_text(help), c_text(labels))
  end function

  function new_pegel_float_counter(name, help, labels) result(counter)
    character(*), intent(in) :: name
    character(*), intent(in), optional :: help, labels
    type(pegel_float_counter) :: counter
    counter%handle = c_float_counter_new(c_text(name), c_text(help), c_text(labels))
  end function

  function new_pegel_gauge(name, help, labels, aggregation) result(gauge)
    character(*), intent(in) :: name
    character(*), intent(in), optional :: help, labels
    integer, intent(in), optional :: aggregation
    type(pegel_gauge) :: gauge
    integer(c_int) :: way
    way = PEGEL_LAST
    if (present(aggregation)) way = int(aggregation, c_int)
    gauge%handle = c_gauge_new(c_text(name), c_text(help), c_text(labels), way)
  end function

  function new_pegel_histogram(name, help, labels) result(histogram)
    character(*), intent(in) :: name
    character(*), intent(in), optional :: help, labels
    type(pegel_histogram) :: histogram
    histogram%handle = c_histogram_new(c_text(name), c_text(help), c_text(labels))
  end function

  function new_pegel_timer(name, help, labels) result(timer)
    character(*), intent(in) :: name
    character(*), intent(in), optional :: help, labels
    type(pegel_timer) :: timer
    timer%handle = c_timer_new(c_text(name), c_text(help), c_text(labels))
  end function

  function new_pegel_point(name, help, labels) result(point)
    character(*), intent(in) :: name
    character(*), intent(in), optional :: help, labels
    type(pegel_point) :: point
    point%handle = c_point_new(c_text(name), c_text(help), c_text(labels))
  end function

  subroutine counter_add_int32(self, amount)
    class(pegel_counter), intent(in) :: self
    integer(c_int), intent(in) :: amount
    call c_add(self%handle, int(amount, c_int64_t))
  end subroutine

  subroutine counter_add_int64(self, amount)
    class(pegel_counter), intent(in) :: self
    integer(c_int64_t), intent(in) :: amount
    call c_add(self%handle, amount)
  end subroutine

  subroutine float_counter_add(self, amount)
    class(pegel_float_counter), intent(in) :: self
    real(c_double), intent(in) :: amount
    call c_add_float(self%handle, amount)
  end subroutine

  subroutine gauge_set(self, number)
    class(pegel_gauge), intent(in) :: self
    real(c_double), intent(in) :: number
    call c_set(self%handle, number)
  end subroutine

  subroutine gauge_change(self, by)
    class(pegel_gauge), intent(in) :: self
    real(c_double), intent(in) :: by
    call c_change(self%handle, by)
  end subroutine

  subroutine histogram_record(self, number)
    class(pegel_histogram), intent(in) :: self
    real(c_double), intent(in) :: number
    call c_record(self%handle, number)
  end subroutine

  subroutine timer_start(self)
    class(pegel_timer), intent(inout) :: self
    self%since = c_start()
  end subroutine

  subroutine timer_stop(self)
    class(pegel_timer), intent(inout) :: self
    if (self%since /= 0) call c_stop(self%handle, self%since)
    self%since = 0
  end subroutine

  ! Records a duration in seconds that was measured elsewhere.
  subroutine timer_record(self, seconds)
    class(pegel_timer), intent(in) :: self
    real(c_double), intent(in) :: seconds
    call c_record_seconds(self%handle, seconds)
  end subroutine

  subroutine point_add(self, number, time_ms)
    class(pegel_point), intent(in) :: self
    real(c_double), intent(in) :: number
    integer(c_int64_t), intent(in), optional :: time_ms
    if (present(time_ms)) then
      call c_point_add_at(self%handle, number, time_ms)
    else
      call c_point_add(self%handle, number)
    end if
  end subroutine

  logical function counter_is_valid(self)
    class(pegel_counter), intent(in) :: self
    counter_is_valid = c_associated(self%handle)
  end function

  logical function float_counter_is_valid(self)
    class(pegel_float_counter), intent(in) :: self
    float_counter_is_valid = c_associated(self%handle)
  end function

  logical function gauge_is_valid(self)
    class(pegel_gauge), intent(in) :: self
    gauge_is_valid = c_associated(self%handle)
  end function

  logical function histogram_is_valid(self)
    class(pegel_histogram), intent(in) :: self
    histogram_is_valid = c_associated(self%handle)
  end function

  logical function timer_is_valid(self)
    class(pegel_timer), intent(in) :: self
    timer_is_valid = c_associated(self%handle)
  end function

  logical function point_is_valid(self)
    class(pegel_point), intent(in) :: self
    point_is_valid = c_associated(self%handle)
  end function

  ! Sets a mark, which every chart shows.
  subroutine pegel_mark(text)
    character(*), intent(in) :: text
    call c_mark(c_text(text))
  end subroutine

  ! Begins a phase; returns the number with which pegel_phase_end ends it.
  function pegel_phase_begin(name) result(number)
    character(*), intent(in) :: name
    integer(c_int64_t) :: number
    number = c_phase_begin(c_text(name))
  end function

  subroutine pegel_phase_end(name, number)
    character(*), intent(in) :: name
    integer(c_int64_t), intent(in) :: number
    call c_phase_end(c_text(name), number)
  end subroutine

  ! Sends the values to another statsd server as well: "HOST:PORT". False: pegel_error() has the reason.
  logical function pegel_statsd_start(address)
    character(*), intent(in) :: address
    pegel_statsd_start = c_statsd_start(c_text(address)) == 0
  end function

  subroutine pegel_statsd_switch(pattern, on)
    character(*), intent(in) :: pattern
    logical, intent(in) :: on
    call c_statsd_switch(c_text(pattern), merge(1_c_int, 0_c_int, on))
  end subroutine

  ! Whether an agent can read what this program counts.
  logical function pegel_is_published()
    pegel_is_published = c_is_published() /= 0
  end function

  ! The reason why the last series of this thread was not created; empty if it was.
  function pegel_error() result(text)
    character(:), allocatable :: text
    text = f_text(c_error())
  end function

  function pegel_version() result(text)
    character(:), allocatable :: text
    text = f_text(c_version())
  end function

  ! A text for C, without the blanks at its end; empty if it is absent.
  function c_text(text) result(bytes)
    character(*), intent(in), optional :: text
    character(kind=c_char), allocatable :: bytes(:)
    integer :: at, length
    length = 0
    if (present(text)) length = len_trim(text)
    allocate (bytes(length + 1))
    do at = 1, length
      bytes(at) = text(at:at)
    end do
    bytes(length + 1) = c_null_char
  end function

  function f_text(pointer) result(text)
    type(c_ptr), intent(in) :: pointer
    character(:), allocatable :: text
    character(kind=c_char), pointer :: bytes(:)
    integer :: at, length
    length = int(c_strlen(pointer))
    allocate (character(length) :: text)
    call c_f_pointer(pointer, bytes, [length])
    do at = 1, length
      text(at:at) = bytes(at)
    end do
  end function

end module
