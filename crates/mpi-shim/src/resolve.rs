//! Finds the real functions behind the wrappers, and information about loaded objects.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the MPI library, or of another preloaded tool; looked up at its first use.
#[derive(Debug)]
pub(crate) struct RealFunction {
    /// Ends with a NUL byte.
    name: &'static str,
    at: AtomicPtr<()>,
}

impl RealFunction {
    pub(crate) const fn new(name: &'static str) -> RealFunction {
        RealFunction {
            name,
            at: AtomicPtr::new(null_mut()),
        }
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> *const () {
        let at = self.at.load(Ordering::Acquire);
        if at.is_null() {
            return self.look_up();
        }
        at
    }

    /// Returns the function, or null before the first use.
    #[inline(always)]
    pub(crate) fn resolved(&self) -> *const () {
        self.at.load(Ordering::Acquire)
    }

    #[cold]
    fn look_up(&self) -> *const () {
        let name = CStr::from_bytes_with_nul(self.name.as_bytes()).unwrap_or(c"");
        let mut at = find_symbol(name).cast::<()>();
        if at.is_null() {
            at = missing as *mut ();
        }
        self.at.store(at, Ordering::Release);
        at
    }
}

/// Replaces a function that the library does not have. A program linked to the library cannot call
/// it; one that looks it up by name gets an error, MPI_ERR_OTHER or a similar one.
extern "C-unwind" fn missing() -> usize {
    16
}

/// Finds a symbol outside this library: the next one in load order, otherwise any, otherwise that
/// of the loaded object with MPI. The last case covers languages that load MPI locally
/// (RTLD_LOCAL), as Python does.
pub(crate) fn find_symbol(name: &CStr) -> *mut c_void {
    // SAFETY: `name` is a C string; the result is only compared and returned.
    unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        if !next.is_null() {
            return next;
        }
        let any = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        if !any.is_null() && !is_in_this_library(any) {
            return any;
        }
        match object_with_mpi() {
            object if object.is_null() => null_mut(),
            object => libc::dlsym(object, name.as_ptr()),
        }
    }
}

/// Finds data of the library. The program comes first: it may have been linked with a copy of its
/// own, which the library then uses as well.
pub(crate) fn find_data(name: &CStr) -> *mut c_void {
    // SAFETY: `name` is a C string; the result is only compared and returned.
    match unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } {
        at if at.is_null() => find_symbol(name),
        at => at,
    }
}

/// Returns the file that defines a function.
pub(crate) fn library_file(name: &CStr) -> Option<CString> {
    let file = symbol_info(find_symbol(name))?.dli_fname;
    if file.is_null() {
        return None;
    }
    // SAFETY: a C string owned by the dynamic linker; it is copied while the object is loaded.
    Some(unsafe { CStr::from_ptr(file) }.to_owned())
}

pub(crate) fn symbol_info(at: *const c_void) -> Option<libc::Dl_info> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr accepts any address, and `info` is large enough.
    let found = unsafe { libc::dladdr(at, info.as_mut_ptr()) };
    // SAFETY: zeroed above, which is valid, and filled in on success.
    (found != 0).then(|| unsafe { info.assume_init() })
}

fn is_in_this_library(at: *const c_void) -> bool {
    let own = symbol_info(missing as *const c_void);
    let other = symbol_info(at);
    matches!((own, other), (Some(own), Some(other)) if own.dli_fbase == other.dli_fbase)
}

/// Returns the handle of a loaded object that has `PMPI_Init`, itself or through a dependency. It
/// is never closed.
fn object_with_mpi() -> *mut c_void {
    static OBJECT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let known = OBJECT.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    let found = loaded_files().iter().find_map(|file| open_if_mpi(file));
    let found = found.unwrap_or(null_mut());
    OBJECT.store(found, Ordering::Release);
    found
}

fn open_if_mpi(file: &CStr) -> Option<*mut c_void> {
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    // SAFETY: RTLD_NOLOAD loads nothing and runs no code; the handle is closed or kept open.
    unsafe {
        let object = libc::dlopen(file.as_ptr(), flags);
        if object.is_null() {
            return None;
        }
        let init = libc::dlsym(object, c"PMPI_Init".as_ptr());
        if !init.is_null() && !is_in_this_library(init) {
            return Some(object);
        }
        libc::dlclose(object);
    }
    None
}

/// Returns the names of all loaded objects. They are collected first, because dlopen must not be
/// called during the walk.
fn loaded_files() -> Vec<CString> {
    let mut files: Vec<CString> = Vec::new();
    // SAFETY: `collect_name` receives this vector as its last argument.
    unsafe { libc::dl_iterate_phdr(Some(collect_name), (&raw mut files).cast()) };
    files
}

// SAFETY: called only by dl_iterate_phdr, with the vector of `loaded_files`.
unsafe extern "C" fn collect_name(
    object: *mut libc::dl_phdr_info,
    _: libc::size_t,
    files: *mut c_void,
) -> c_int {
    // SAFETY: both pointers are valid during this call; a name is null or a C string.
    unsafe {
        let name = (*object).dlpi_name;
        // The program itself has no name.
        if !name.is_null() && *name != 0 {
            (*files.cast::<Vec<CString>>()).push(CStr::from_ptr(name).to_owned());
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_found_and_what_is_not_is_missing() {
        assert!(!find_symbol(c"getpid").is_null());
        let absent = RealFunction::new("PMPI_No_such_function\0");
        assert!(absent.resolved().is_null());
        // The address is not compared: the compiler may place `missing` in the object more than
        // once.
        let first = absent.get();
        assert!(is_in_this_library(first.cast()));
        type Function = extern "C-unwind" fn() -> usize;
        // SAFETY: the only function of this library that `get` returns is `missing`.
        let called = unsafe { std::mem::transmute::<*const (), Function>(first) };
        assert_eq!(called(), 16);
        assert_eq!(absent.get(), first);
    }

    /// A type on the heap may be freed, and its address reused by another type.
    #[test]
    fn data_of_an_object_is_told_from_the_heap_and_the_stack() {
        static DATA: AtomicPtr<()> = AtomicPtr::new(null_mut());
        let (heap, stack) = (Box::new(1_u64), 1_u64);
        assert!(symbol_info((&raw const DATA).cast()).is_some());
        assert!(symbol_info((&raw const *heap).cast()).is_none());
        assert!(symbol_info((&raw const stack).cast()).is_none());
    }

    #[test]
    fn an_address_is_told_to_be_ours_or_not() {
        assert!(is_in_this_library(find_symbol as *const c_void));
        assert!(!is_in_this_library(find_symbol(c"getpid")));
        let libc = library_file(c"getpid").expect("from a file");
        assert!(loaded_files().contains(&libc), "{libc:?}");
    }
}
