//! The body of every wrapper, and the macro that defines wrappers from the rows of the table.
//!
//! A wrapper runs in the program's process on every MPI call. It must return exactly what the real
//! function returns, must not allocate, lock or make system calls after the first call of a name,
//! and must let unwinding pass through.

use crate::arguments::{Arguments, Width};
use crate::byte_rule::{ByteRule, CallScratch};
use crate::call::Call;
use crate::inside_flag;
use crate::resolve::RealFunction;
use crate::ticks;

/// Calls a function of the library with these arguments.
type Invoke<const N: usize> = fn(*const (), [usize; N]) -> usize;

/// Returns the real function if no initialisation is required; null otherwise, and the wrapper
/// calls [`first`].
#[inline(always)]
pub(crate) fn ready(call: &'static Call, real: &'static RealFunction) -> *const () {
    if call.is_open() && !ticks::uses_clock() {
        real.resolved()
    } else {
        std::ptr::null()
    }
}

/// The slow path: the first call of a name, and every call if the processor's counter is not
/// usable.
#[cold]
#[inline(never)]
pub(crate) fn first<R: ByteRule, W: Width, const N: usize>(
    call: &'static Call,
    real: &'static RealFunction,
    words: [usize; N],
    invoke: Invoke<N>,
) -> usize {
    let function = real.get();
    // Nested calls of the library create no series.
    if inside_flag::of_this_thread().get() {
        return invoke(function, words);
    }
    call.open();
    count::<R, W, N>(call, function, words, invoke, ticks::now)
}

/// Passes a call on, and counts it unless it is nested in another one.
///
/// Inlined: the rule is a constant of each wrapper, so that little code is left. No other function
/// is called before the real one, so that the arguments, some of which are on the stack, need not
/// be saved.
#[inline(always)]
pub(crate) fn count<R: ByteRule, W: Width, const N: usize>(
    call: &'static Call,
    function: *const (),
    mut words: [usize; N],
    invoke: impl Fn(*const (), [usize; N]) -> usize,
    now: impl Fn() -> u64,
) -> usize {
    let Some(active) = call.enter() else {
        return invoke(function, words);
    };
    if !R::TIMED {
        active.hit();
        return invoke(function, words);
    }
    let mut scratch = CallScratch::new();
    R::before(&mut words, &mut scratch);
    let begin = now();
    let result = invoke(function, words);
    let end = now();
    // The result is an `int`: the upper half of the register is undefined. 0 is MPI_SUCCESS in
    // every library.
    let bytes = match result as u32 {
        0 => R::after::<W>(&Arguments::new(&words), &scratch),
        _ => 0,
    };
    active.finish(bytes, begin, end);
    result
}

/// `Name arguments => rule;` defines `MPI_Name` and `PMPI_Name`; with `, c` also the functions with
/// large counts.
macro_rules! calls {
    ($($name:ident $arity:tt => $rule:ty $(, $large:ident)?;)*) => {
        /// Every function of this table, with the number of its arguments.
        pub(crate) const NAMES: &[(&str, usize)] = &[$(
            (concat!("MPI_", stringify!($name)), $arity),
            $((concat!("MPI_", stringify!($name), "_", stringify!($large)), $arity),)?
        )*];
        $(
            calls!(@both $arity $rule, Narrow, concat!("MPI_", stringify!($name)), concat!("PMPI_", stringify!($name)));
            $(calls!(@both $arity $rule, Wide, concat!("MPI_", stringify!($name), "_", stringify!($large)),
                concat!("PMPI_", stringify!($name), "_", stringify!($large)));)?
        )*
    };
    (@both $arity:tt $rule:ty, $width:ty, $name:expr, $profiled:expr) => {
        const _: () = {
            static CALL: $crate::call::Call = $crate::call::Call::new($name);
            calls!(@arity $arity $rule, $width, $name);
            calls!(@arity $arity $rule, $width, $profiled);
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
    (@one ($($word:ident)*) $rule:ty, $width:ty, $symbol:expr) => {
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
                let function = $crate::wrap::ready(&CALL, &REAL);
                if function.is_null() {
                    return $crate::wrap::first::<$rule, $width, _>(&CALL, &REAL, [$($word),*], invoke);
                }
                $crate::wrap::count::<$rule, $width, _>(&CALL, function, [$($word),*], invoke, $crate::ticks::count)
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
