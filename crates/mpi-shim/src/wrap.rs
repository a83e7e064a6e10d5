//! The body of every wrapper, and the macro that defines wrappers from the rows of the table.
//!
//! A wrapper runs in the program's process on every MPI call. It must return exactly what the real
//! function returns, must not allocate, lock or make system calls after the first call of a name,
//! and must let unwinding pass through.

use std::sync::atomic::Ordering::Relaxed;

use pegel_lane::mpi_state::thread;

use crate::arguments::{Arguments, Width};
use crate::byte_rule::{ByteRule, CallScratch};
use crate::call::Call;
use crate::mpi_state::{self, EnteredCall};
use crate::resolve::RealFunction;
use crate::state_rule::StateRule;
use crate::{thread_words, ticks};

/// Calls a function of the library with these arguments.
type Invoke<const N: usize> = fn(*const (), [usize; N]) -> usize;

/// Returns the real function, and what the state rule looked up, if no preparation is required.
/// Otherwise the function is null, and the wrapper calls [`first`].
#[inline(always)]
pub(crate) fn ready<R: ByteRule, S: StateRule>(
    call: &'static Call,
    real: &'static RealFunction,
    words: &[usize],
) -> (*const (), u64) {
    if !call.is_open() {
        return (std::ptr::null(), 0);
    }
    if R::TIMED {
        let is_ready = !ticks::uses_clock() && mpi_state::is_ready(thread_words::of_this_thread());
        match S::look_up(words) {
            Some(found) if is_ready => return (real.resolved(), found),
            _ if !call.is_not_counted() => return (std::ptr::null(), 0),
            _ => {}
        }
    }
    (real.resolved(), 0)
}

/// The slow path: the first call of a name or of a thread, a communicator that is not known yet, a
/// wait while there are requests of collectives, and every call if the processor's counter is not
/// usable.
#[cold]
#[inline(never)]
pub(crate) fn first<R: ByteRule, S: StateRule, W: Width, const N: usize>(
    call: &'static Call,
    real: &'static RealFunction,
    words: [usize; N],
    invoke: Invoke<N>,
) -> usize {
    let function = real.get();
    // Nested calls of the library create no series.
    if thread_words::of_this_thread().is_inside() {
        return invoke(function, words);
    }
    call.open();
    let mut found = 0;
    if R::TIMED && !call.is_not_counted() {
        call.open_function();
        mpi_state::prepare_thread();
        // Calls that the library makes meanwhile are not the program's.
        let thread = thread_words::of_this_thread();
        thread.set_inside(true);
        found = S::prepare(&words);
        thread.set_inside(false);
    }
    count::<R, S, W, N>(call, function, words, invoke, ticks::now, (found, true))
}

/// Passes a call on, and counts it unless it is nested in another one.
///
/// Inlined: the rule is a constant of each wrapper, so that little code is left. No other function
/// is called before the real one, so that the arguments, some of which are on the stack, need not
/// be saved.
#[inline(always)]
pub(crate) fn count<R: ByteRule, S: StateRule, W: Width, const N: usize>(
    call: &'static Call,
    function: *const (),
    mut words: [usize; N],
    invoke: impl Fn(*const (), [usize; N]) -> usize,
    now: impl Fn() -> u64,
    (found, is_slow): (u64, bool),
) -> usize {
    let Some(active) = call.enter() else {
        return invoke(function, words);
    };
    if !R::TIMED {
        active.hit();
        return invoke(function, words);
    }
    let entry = active.thread_entry();
    let mut scratch = CallScratch::new();
    R::before(&mut words, &mut scratch);
    let begin = now();
    entry[thread::TICKS].store(begin, Relaxed);
    let saved = S::enter(entry, call.function(), &words, found, is_slow);
    let entered = EnteredCall(entry);
    let result = invoke(function, words);
    let end = now();
    if S::is_collective(&saved) {
        let sum = &entry[thread::COLLECTIVE_TICKS];
        let ticks = end.saturating_sub(begin);
        sum.store(sum.load(Relaxed).wrapping_add(ticks), Relaxed);
    }
    // The result is an `int`: the upper half of the register is undefined. 0 is MPI_SUCCESS in
    // every library.
    let bytes = match result as u32 {
        0 => {
            let bytes = R::after::<W>(&Arguments::new(&words), &scratch);
            S::after(call.function(), &words, &saved);
            bytes
        }
        _ => 0,
    };
    active.finish(bytes, begin, end);
    drop(entered);
    result
}

/// `Name arguments => rule: state;` defines `MPI_Name` and `PMPI_Name`; with `, c` also the
/// functions with large counts. Without a state rule, it is `Plain`.
macro_rules! calls {
    ($($name:ident $arity:tt => $rule:ty $(: $state:ty)? $(, $large:ident)?;)*) => {
        /// Every function of this table, with the number of its arguments.
        pub(crate) const NAMES: &[(&str, usize)] = &[$(
            (concat!("MPI_", stringify!($name)), $arity),
            $((concat!("MPI_", stringify!($name), "_", stringify!($large)), $arity),)?
        )*];
        $(calls!(@row $name $arity [$rule] [$($state)?] [$($large)?]);)*
    };
    (@row $name:ident $arity:tt [$rule:ty] [] $large:tt) => {
        calls!(@row $name $arity [$rule] [$crate::state_rule::Plain] $large);
    };
    (@row $name:ident $arity:tt [$rule:ty] [$state:ty] [$($large:ident)?]) => {
        calls!(@both $arity $rule, $state, Narrow, concat!("MPI_", stringify!($name)), concat!("PMPI_", stringify!($name)));
        $(calls!(@both $arity $rule, $state, Wide, concat!("MPI_", stringify!($name), "_", stringify!($large)),
            concat!("PMPI_", stringify!($name), "_", stringify!($large)));)?
    };
    (@both $arity:tt $rule:ty, $state:ty, $width:ty, $name:expr, $profiled:expr) => {
        const _: () = {
            static CALL: $crate::call::Call = $crate::call::Call::new($name);
            calls!(@arity $arity $rule, $state, $width, $name);
            calls!(@arity $arity $rule, $state, $width, $profiled);
        };
    };
    (@arity 0 $($rest:tt)*) => { calls!(@one () $($rest)*); };
    (@arity 1 $($rest:tt)*) => { calls!(@one (a) $($rest)*); };
    (@arity 2 $($rest:tt)*) => { calls!(@one (a b) $($rest)*); };
    (@arity 3 $($rest:tt)*) => { calls!(@one (a b c) $($rest)*); };
    (@arity 4 $($rest:tt)*) => { calls!(@one (a b c d) $($rest)*); };
    (@arity 5 $($rest:tt)*) => { calls!(@one (a b c d e) $($rest)*); };
    (@arity 6 $($rest:tt)*) => { calls!(@one (a b c d e f) $($rest)*); };
    (@arity 7 $($rest:tt)*) => { calls!(@one (a b c d e f g) $($rest)*); };
    (@arity 8 $($rest:tt)*) => { calls!(@one (a b c d e f g h) $($rest)*); };
    (@arity 9 $($rest:tt)*) => { calls!(@one (a b c d e f g h i) $($rest)*); };
    (@arity 10 $($rest:tt)*) => { calls!(@one (a b c d e f g h i j) $($rest)*); };
    (@arity 11 $($rest:tt)*) => { calls!(@one (a b c d e f g h i j k) $($rest)*); };
    (@arity 12 $($rest:tt)*) => { calls!(@one (a b c d e f g h i j k l) $($rest)*); };
    (@arity 13 $($rest:tt)*) => { calls!(@one (a b c d e f g h i j k l m) $($rest)*); };
    (@one ($($word:ident)*) $rule:ty, $state:ty, $width:ty, $symbol:expr) => {
        const _: () = {
            // Unwinding passes through: an error handler in C++ may throw.
            // SAFETY: replaces the MPI function of this name on purpose.
            #[unsafe(export_name = $symbol)]
            extern "C-unwind" fn wrapper($($word: usize),*) -> usize {
                static REAL: $crate::resolve::RealFunction = $crate::resolve::RealFunction::new(concat!($symbol, "\0"));
                let invoke = |real: *const (), words| {
                    let [$($word),*] = words;
                    // SAFETY: by the table, a function of this name takes this many words and
                    // returns one.
                    unsafe {
                        let real: extern "C-unwind" fn($($crate::wrap::word!($word)),*) -> usize =
                            std::mem::transmute(real);
                        real($($word),*)
                    }
                };
                let (function, found) = $crate::wrap::ready::<$rule, $state>(&CALL, &REAL, &[$($word),*]);
                if function.is_null() {
                    return $crate::wrap::first::<$rule, $state, $width, _>(&CALL, &REAL, [$($word),*], invoke);
                }
                let now = $crate::ticks::count;
                $crate::wrap::count::<$rule, $state, $width, _>(&CALL, function, [$($word),*], invoke, now, (found, false))
            }
        };
    };
}

/// The type of an argument, whatever its name.
macro_rules! word {
    ($name:ident) => {
        usize
    };
}

pub(crate) use {calls, word};
