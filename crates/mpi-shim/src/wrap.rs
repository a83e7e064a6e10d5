//! What every wrapper does, and the macro that makes wrappers from rows of the table.

use crate::arguments::{Arguments, Width};
use crate::byte_rule::{ByteRule, CallScratch};
use crate::call::Call;
use crate::inside_flag;
use crate::resolve::RealFunction;
use crate::ticks;

/// Calls a function of the library with these words.
type Invoke<const N: usize> = fn(*const (), [usize; N]) -> usize;

/// The real function where nothing has to be done before it is called; null otherwise, and then comes [`first`].
#[inline(always)]
pub(crate) fn ready(call: &'static Call, real: &'static RealFunction) -> *const () {
    match call.is_open() && !ticks::uses_clock() {
        true => real.resolved(),
        false => std::ptr::null(),
    }
}

/// The first call of a name; and every call where the processor's counter is of no use.
#[cold]
#[inline(never)]
pub(crate) fn first<R: ByteRule, W: Width, const N: usize>(
    call: &'static Call,
    real: &'static RealFunction,
    words: [usize; N],
    invoke: Invoke<N>,
) -> usize {
    let function = real.get();
    // What the library calls within a call gets no series.
    if inside_flag::of_this_thread().get() {
        return invoke(function, words);
    }
    call.open();
    count::<R, W, N>(call, function, words, invoke, ticks::now)
}

/// Passes a call on, and counts it if it is not made from within another one.
///
/// Inlined: the rule is known for each wrapper, so that little of this is left. Nothing else is called before the real
/// function, so that the arguments, most of which come over the stack, do not have to be saved.
#[inline(always)]
pub(crate) fn count<R: ByteRule, W: Width, const N: usize>(
    call: &'static Call,
    function: *const (),
    mut words: [usize; N],
    invoke: impl Fn(*const (), [usize; N]) -> usize,
    now: impl Fn() -> u64,
) -> usize {
    let Some(visit) = call.enter() else {
        return invoke(function, words);
    };
    if !R::TIMED {
        visit.hit();
        return invoke(function, words);
    }
    let mut own = CallScratch::new();
    R::before(&mut words, &mut own);
    let begin = now();
    let result = invoke(function, words);
    let end = now();
    // An `int`: what stands above it in the register means nothing. 0 is MPI_SUCCESS everywhere.
    let bytes = match result as u32 {
        0 => R::after::<W>(&Arguments::new(&words), &own),
        _ => 0,
    };
    visit.finish(bytes, begin, end);
    result
}

/// `Name arguments => rule;` makes `MPI_Name` and `PMPI_Name`; with `, c` also the forms with large counts.
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
            // SAFETY: the name is MPI's on purpose.
            #[unsafe(export_name = $symbol)]
            extern "C-unwind" fn wrapper($($word: usize),*) -> usize {
                static REAL: $crate::resolve::RealFunction = $crate::resolve::RealFunction::new(concat!($symbol, "\0"));
                let invoke = |real: *const (), words| {
                    let [$($word),*] = words;
                    // SAFETY: a function of this name takes so many words, and returns one.
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
