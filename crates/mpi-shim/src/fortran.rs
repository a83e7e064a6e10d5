//! Support for Fortran beyond the wrappers of the C functions, which the Fortran bindings call.
//!
//! Some bindings query the library before they make the program's call, for example the size of a
//! communicator to convert an array. Such queries are told apart from the program's calls by their
//! return address, and are not counted. A few functions never reach C by name: they have wrappers
//! under their Fortran names.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::arguments::Narrow;
use crate::byte_rule::Local;
use crate::resolve::{self, RealFunction};
use crate::state_rule::Plain;
use crate::{call::Call, wrap};

/// File name prefixes of Fortran bindings: two of Open MPI, one each of MPICH, Intel MPI and MPI 5.
const BINDINGS: [&[u8]; 5] = [
    b"libmpi_mpifh",
    b"libmpi_usempi",
    b"libmpichf",
    b"libmpifort",
    b"libmpi_abi_f",
];

/// A cache by return address: the address, and in the lowest bit whether calls from there are
/// counted.
static CALLER_CACHE: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// Returns whether the call of `name` that returns to address `place` is the program's.
fn counts_call_from(name: &'static str, place: usize) -> bool {
    let place = place as u64;
    let known = CALLER_CACHE.get((place ^ place >> 8) as usize % CALLER_CACHE.len());
    let Some(known) = known else { return true };
    let verdict = known.load(Relaxed);
    if verdict >> 1 == place {
        return verdict & 1 == 1;
    }
    let wanted = look_up_caller(name, place as usize);
    known.store(place << 1 | u64::from(wanted), Relaxed);
    wanted
}

#[cold]
fn look_up_caller(name: &str, place: usize) -> bool {
    // The return address is after the call instruction, and possibly after the end of the function.
    let Some(about) = resolve::symbol_info((place - 1) as *const c_void) else {
        return true;
    };
    let text = |text: *const c_char| match text {
        text if text.is_null() => Vec::new(),
        // SAFETY: a C string owned by the dynamic linker; its object contains the caller and stays
        // loaded.
        text => unsafe { CStr::from_ptr(text) }
            .to_bytes()
            .to_ascii_lowercase(),
    };
    is_program_call(name, &text(about.dli_fname), &text(about.dli_sname))
}

/// Decides by the file and the function of the caller, both in lower case.
fn is_program_call(name: &str, file: &[u8], function: &[u8]) -> bool {
    let file = file.rsplit(|byte| *byte == b'/').next().unwrap_or(file);
    let is_binding = BINDINGS.iter().any(|start| file.starts_with(start));
    let own = name.trim_start_matches("MPI_").to_ascii_lowercase();
    let is_own = function
        .windows(own.len())
        .any(|part| part == own.as_bytes());
    !is_binding || function.is_empty() || is_own
}

/// Passes on a query with up to four arguments, all of which are passed in registers.
fn ask(call: &'static Call, real: &'static RealFunction, words: [usize; 4], place: usize) -> usize {
    let invoke = |real: *const (), [a, b, c, d]: [usize; 4]| {
        // SAFETY: by the table, a function of this name takes at most four words and returns one.
        unsafe {
            let real: extern "C-unwind" fn(usize, usize, usize, usize) -> usize =
                std::mem::transmute(real);
            real(a, b, c, d)
        }
    };
    if counts_call_from(call.name(), place) {
        wrap::first::<Local, Plain, Narrow, 4>(call, real, words, invoke)
    } else {
        invoke(real.get(), words)
    }
}

/// Defines wrappers that know their return address.
macro_rules! questions {
    ($($name:ident $arity:tt;)*) => {
        pub(crate) const QUESTIONS: &[(&str, usize)] =
            &[$((concat!("MPI_", stringify!($name)), $arity)),*];
        $(const _: () = {
            static CALL: Call = Call::new(concat!("MPI_", stringify!($name)));
            questions!(@one concat!("MPI_", stringify!($name)));
            questions!(@one concat!("PMPI_", stringify!($name)));
        };)*
    };
    (@one $symbol:expr) => {
        const _: () = {
            extern "C-unwind" fn inner(
                a: usize, b: usize, c: usize, d: usize, _: usize, place: usize,
            ) -> usize {
                static REAL: RealFunction = RealFunction::new(concat!($symbol, "\0"));
                ask(&CALL, &REAL, [a, b, c, d], place)
            }

            // SAFETY: replaces the MPI function of this name on purpose. Only the register of the
            // sixth argument is written, which the function does not have; `inner` returns to the
            // caller directly.
            #[unsafe(export_name = $symbol)]
            #[unsafe(naked)]
            extern "C-unwind" fn wrapper() {
                #[cfg(target_arch = "x86_64")]
                std::arch::naked_asm!("mov r9, [rsp]", "jmp {}", sym inner);
                #[cfg(target_arch = "aarch64")]
                std::arch::naked_asm!("mov x5, x30", "b {}", sym inner);
            }
        };
    };
}

questions! {
    Comm_size 2;
    Cartdim_get 2;
    Dist_graph_neighbors_count 4;
}

/// `Name lower UPPER arguments;` defines wrappers for all spellings that compilers generate from a
/// Fortran name. `ompi_` is called by Open MPI's module `mpi_f08`.
macro_rules! names {
    ($($name:ident $lower:ident $upper:ident $arity:tt;)*) => {$(
        const _: () = {
            static CALL: Call = Call::new(concat!("MPI_", stringify!($name)));
            names!(@arity $arity concat!("mpi_", stringify!($lower)));
            names!(@arity $arity concat!("mpi_", stringify!($lower), "_"));
            names!(@arity $arity concat!("mpi_", stringify!($lower), "__"));
            names!(@arity $arity concat!("MPI_", stringify!($upper)));
            names!(@arity $arity concat!("pmpi_", stringify!($lower), "_"));
            names!(@arity $arity concat!("mpi_", stringify!($lower), "_f08_"));
            names!(@arity $arity concat!("ompi_", stringify!($lower), "_f"));
        };
    )*};
    (@arity 3 $symbol:expr) => { wrap::calls!(@one (a b c) Local, Plain, Narrow, $symbol); };
    (@arity 4 $symbol:expr) => { wrap::calls!(@one (a b c d) Local, Plain, Narrow, $symbol); };
    (@arity 5 $symbol:expr) => { wrap::calls!(@one (a b c d e) Local, Plain, Narrow, $symbol); };
}

names! {
    Attr_get attr_get ATTR_GET 5;
    Attr_put attr_put ATTR_PUT 4;
    Comm_create_errhandler comm_create_errhandler COMM_CREATE_ERRHANDLER 3;
    Comm_create_keyval comm_create_keyval COMM_CREATE_KEYVAL 5;
    Comm_get_attr comm_get_attr COMM_GET_ATTR 5;
    Comm_set_attr comm_set_attr COMM_SET_ATTR 4;
    Errhandler_create errhandler_create ERRHANDLER_CREATE 3;
    File_create_errhandler file_create_errhandler FILE_CREATE_ERRHANDLER 3;
    Keyval_create keyval_create KEYVAL_CREATE 5;
    Type_create_keyval type_create_keyval TYPE_CREATE_KEYVAL 5;
    Type_get_attr type_get_attr TYPE_GET_ATTR 5;
    Type_match_size type_match_size TYPE_MATCH_SIZE 4;
    Type_set_attr type_set_attr TYPE_SET_ATTR 4;
    Win_create_errhandler win_create_errhandler WIN_CREATE_ERRHANDLER 3;
    Win_create_keyval win_create_keyval WIN_CREATE_KEYVAL 5;
    Win_get_attr win_get_attr WIN_GET_ATTR 5;
    Win_set_attr win_set_attr WIN_SET_ATTR 4;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_of_a_binding_is_told_from_one_of_the_program() {
        let ask = |file: &str, function: &str| {
            is_program_call("MPI_Comm_size", file.as_bytes(), function.as_bytes())
        };
        assert!(ask("/home/me/solver", "main"));
        assert!(ask("/home/me/libmpi_mpifh.d/solver", "alltoallv"));
        assert!(ask("/usr/lib/libmpi_mpifh.so.40", "ompi_comm_size_f"));
        assert!(!ask("/usr/lib/libmpi_mpifh.so.40", "ompi_alltoallv_f"));
        assert!(!ask("/usr/lib/libmpichfort.so.12", "mpi_alltoallw_"));
        // Without a function name the origin is not known.
        assert!(ask("/usr/lib/libmpifort.so.12", ""));
    }

    #[test]
    fn a_verdict_is_remembered_for_its_place() {
        let place = is_program_call as *const () as usize + 1;
        assert!(counts_call_from("MPI_Comm_size", place));
        assert!(counts_call_from("MPI_Comm_size", place));
        assert!(
            counts_call_from("MPI_Comm_size", 1),
            "an address in no object"
        );
    }
}
