//! A shared library that is opened at run time and may be missing.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// Exists while the driver is loaded.
const KERNEL_MODULE: &str = "/sys/module/nvidia";

/// An open library. It is never closed, because another thread may still be in a call.
#[derive(Debug)]
pub(super) struct DynamicLibrary {
    path: PathBuf,
    handle: NonNull<c_void>,
}

impl DynamicLibrary {
    /// Opens a library. Returns `Ok(None)` if there is no such file, and the loader's message for
    /// any other error. A path without a slash is searched in the loader's directories.
    pub(super) fn open(path: &Path) -> Result<Option<DynamicLibrary>, String> {
        let Ok(name) = CString::new(path.as_os_str().as_bytes()) else {
            return Ok(None);
        };
        // SAFETY: `name` is NUL-terminated. Opening a library runs its constructors; the
        // administrator who installed the driver vouches for them.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if let Some(handle) = NonNull::new(handle) {
            let path = path.to_owned();
            return Ok(Some(DynamicLibrary { path, handle }));
        }
        let reason = dl_error();
        let has_slash = path.as_os_str().as_bytes().contains(&b'/');
        let is_missing = if has_slash {
            !path.exists()
        } else {
            // The loader's message for any file that it cannot find. A static program has no
            // loader; on a node without the driver it misses nothing.
            reason.contains("cannot open shared object file")
                || cfg!(target_feature = "crt-static") && !Path::new(KERNEL_MODULE).exists()
        };
        if is_missing { Ok(None) } else { Err(reason) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the first of these functions that the library has.
    ///
    /// # Safety
    ///
    /// `F` must be a function pointer type, and the library's symbols of these names must have its
    /// signature.
    pub(super) unsafe fn function<F: Copy>(&self, names: &[&CStr]) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        names.iter().find_map(|name| {
            // SAFETY: the handle is open and never closed, and the name is NUL-terminated.
            let found = NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })?;
            // SAFETY: both types have the size of a pointer (asserted above); the caller guarantees
            // the signature.
            Some(unsafe { std::mem::transmute_copy::<NonNull<c_void>, F>(&found) })
        })
    }
}

fn dl_error() -> String {
    // SAFETY: dlerror may be called at any time. It returns null or a NUL-terminated text that is
    // valid until this thread's next call.
    let text = unsafe {
        let text = libc::dlerror();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    text.unwrap_or_else(|| "cannot open the library".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_open_missing_or_invalid() {
        for missing in ["libpegel-no-such.so.1", "/nonexistent/libnvidia-ml.so.1"] {
            assert!(matches!(DynamicLibrary::open(Path::new(missing)), Ok(None)));
        }
        let broken =
            DynamicLibrary::open(Path::new("/proc/self/status")).expect_err("not a library");
        assert!(broken.contains("/proc/self/status"), "{broken}");
        let library = DynamicLibrary::open(Path::new("libc.so.6")).expect("opens");
        let library = library.expect("is there");
        // SAFETY: getpid has this signature.
        let found = unsafe {
            library.function::<unsafe extern "C" fn() -> i32>(&[c"no_such_function", c"getpid"])
        };
        // SAFETY: getpid takes no arguments and may be called at any time.
        let pid = unsafe { found.expect("is there")() };
        assert_eq!(pid, std::process::id() as i32);
    }
}
