//! Installs the library into a directory that the user owns, that others cannot write to, and from
//! which code can be loaded (no `noexec` mount).

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use pegel_lane::private_directory;
use rustix::mm::{MapFlags, ProtFlags};

use crate::{FILE_NAME, LIBRARY_VARIABLE, MPI_LIBRARY};

/// The reason why the library could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("{path}: not a directory that this user owns and others cannot write to", path = .0.display())]
    NotPrivate(PathBuf),
    #[error("{path}: LD_PRELOAD does not support paths with white space or a colon", path = .0.display())]
    NotPreloadable(PathBuf),
    #[error("{path}: {doing}", path = .path.display())]
    Io {
        path: PathBuf,
        doing: &'static str,
        #[source]
        source: io::Error,
    },
    #[error(
        "cannot install the MPI library: {reasons}; set {LIBRARY_VARIABLE} to the path of a copy"
    )]
    NoDirectory { reasons: String },
}

impl InstallError {
    fn io(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> InstallError {
        let path = path.to_owned();
        move |source| InstallError::Io {
            path,
            doing,
            source,
        }
    }
}

/// Returns the directories to try, best first: in memory, on the local disk, in the home directory.
pub(crate) fn candidates(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let base = |name: &str| {
        let path = PathBuf::from(variable(name)?);
        path.is_absolute().then_some(path)
    };
    let uid = rustix::process::geteuid().as_raw();
    let cache = base("XDG_CACHE_HOME").or_else(|| Some(base("HOME")?.join(".cache")));
    let run = base("XDG_RUNTIME_DIR").map(|path| path.join("pegel"));
    let tmp = PathBuf::from(format!("/tmp/pegel-{uid}"));
    let own_tmp = base("TMPDIR").map(|path| path.join(format!("pegel-{uid}")));
    let found = [
        run,
        Some(tmp),
        own_tmp,
        cache.map(|path| path.join("pegel")),
    ];
    found.into_iter().flatten().collect()
}

pub(crate) fn install_in_first(directories: &[PathBuf]) -> Result<PathBuf, InstallError> {
    let mut reasons = Vec::new();
    for directory in directories {
        match install_in(directory) {
            Ok(path) => return Ok(path),
            Err(InstallError::Io {
                path,
                doing,
                source,
            }) => reasons.push(format!("{}: {doing}: {source}", path.display())),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    let reasons = reasons.join("; ");
    Err(InstallError::NoDirectory { reasons })
}

/// Checks that the library named by the user exists and can be loaded.
pub(crate) fn check_named(path: PathBuf) -> Result<PathBuf, InstallError> {
    let path = check_preloadable(path)?;
    let file = File::open(&path).map_err(InstallError::io(&path, "cannot open the library"))?;
    check_executable(&file).map_err(InstallError::io(&path, "cannot map the library as code"))?;
    Ok(path)
}

/// Installs the library into a directory, which is created if necessary. An existing file is reused
/// if it is identical.
pub fn install_in(directory: &Path) -> Result<PathBuf, InstallError> {
    let path = check_preloadable(directory.join(FILE_NAME))?;
    // It may exist already; the checks below decide.
    let _ = DirBuilder::new().mode(0o700).create(directory);
    let about = fs::symlink_metadata(directory)
        .map_err(InstallError::io(directory, "cannot use the directory"))?;
    let uid = rustix::process::geteuid().as_raw();
    if private_directory::not_private_reason(&about, uid).is_some() {
        return Err(InstallError::NotPrivate(directory.to_owned()));
    }
    let file = match open_identical(&path) {
        Some(file) => file,
        None => write(directory, &path)
            .map_err(InstallError::io(directory, "cannot write the library"))?,
    };
    check_executable(&file).map_err(InstallError::io(
        directory,
        "cannot map code from this file system",
    ))?;
    Ok(path)
}

fn check_preloadable(path: PathBuf) -> Result<PathBuf, InstallError> {
    let separates = |byte: &u8| *byte == b':' || byte.is_ascii_whitespace();
    if path.as_os_str().as_bytes().iter().any(separates) {
        return Err(InstallError::NotPreloadable(path));
    }
    Ok(path)
}

fn open_identical(path: &Path) -> Option<File> {
    let mut file = File::open(path).ok()?;
    if file.metadata().ok()?.len() != MPI_LIBRARY.len() as u64 {
        return None;
    }
    let mut there = Vec::with_capacity(MPI_LIBRARY.len());
    file.read_to_end(&mut there).ok()?;
    (there == MPI_LIBRARY).then_some(file)
}

/// Writes the library under a temporary name and renames it: many ranks start at once, and none may
/// load a partial file.
fn write(directory: &Path, path: &Path) -> io::Result<File> {
    // Beyond this limit the kernel would end the process with SIGXFSZ.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
    if limit
        .current
        .is_some_and(|limit| limit < MPI_LIBRARY.len() as u64)
    {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    let temporary = directory.join(format!("{FILE_NAME}.{}", std::process::id()));
    let _ = fs::remove_file(&temporary);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o500)
        .open(&temporary)
        .and_then(|mut file| file.write_all(MPI_LIBRARY))
        .and_then(|()| fs::rename(&temporary, path))
        .and_then(|()| File::open(path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Maps the file as the dynamic linker will, to find out whether that is permitted.
fn check_executable(file: &File) -> io::Result<()> {
    const BYTES: usize = 4096;
    let rights = ProtFlags::READ | ProtFlags::EXEC;
    // SAFETY: a new mapping at an address chosen by the kernel; it is never accessed and is
    // unmapped at once.
    unsafe {
        let at = rustix::mm::mmap(
            std::ptr::null_mut(),
            BYTES,
            rights,
            MapFlags::PRIVATE,
            file,
            0,
        )?;
        rustix::mm::munmap(at, BYTES)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use pegel_testkit::TempDir;

    use super::*;

    #[test]
    fn a_library_is_put_there_once_and_mended() {
        let dir = TempDir::new();
        let own = dir.join("pegel");
        let path = install_in(&own).expect("a directory of our own");
        assert_eq!(fs::read(&path).expect("there"), MPI_LIBRARY);
        let first = fs::metadata(&path).expect("there").ino();
        assert_eq!(install_in(&own).expect("again"), path);
        assert_eq!(fs::metadata(&path).expect("there").ino(), first);

        fs::remove_file(&path).expect("ours");
        fs::write(&path, vec![0; MPI_LIBRARY.len()]).expect("ours");
        install_in(&own).expect("rewritten");
        assert_eq!(fs::read(&path).expect("there"), MPI_LIBRARY);
        assert_eq!(fs::read_dir(&own).expect("readable").count(), 1);
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_refused() {
        let dir = TempDir::new();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("ours");
        let error = install_in(dir.path()).expect_err("open to all");
        assert!(matches!(error, InstallError::NotPrivate(_)), "{error}");

        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).expect("ours");
        fs::create_dir(dir.join("real")).expect("a directory");
        symlink(dir.join("real"), dir.join("link")).expect("a link");
        let error = install_in(&dir.join("link")).expect_err("a link");
        assert!(matches!(error, InstallError::NotPrivate(_)), "{error}");

        let error = install_in(&dir.join("a b")).expect_err("a blank");
        assert!(matches!(error, InstallError::NotPreloadable(_)), "{error}");
    }

    #[test]
    fn the_next_place_is_tried_and_all_reasons_are_given() {
        let dir = TempDir::new();
        let (bad, good) = (dir.join("no/such/place"), dir.join("good"));
        let path = install_in_first(&[bad.clone(), good.clone()]).expect("the second");
        assert!(path.starts_with(&good));
        let error = install_in_first(&[bad]).expect_err("none").to_string();
        assert!(
            error.contains("no/such/place: cannot use the directory: No such"),
            "{error}"
        );
        assert!(
            error.ends_with("set PEGEL_MPI_LIBRARY to the path of a copy"),
            "{error}"
        );
    }

    #[test]
    fn places_come_from_the_environment() {
        let uid = rustix::process::geteuid().as_raw();
        let none = candidates(|_| None);
        assert_eq!(none, [PathBuf::from(format!("/tmp/pegel-{uid}"))]);
        let all = candidates(|name| Some(format!("/{name}").into()));
        let expected = [
            "/XDG_RUNTIME_DIR/pegel".to_owned(),
            format!("/tmp/pegel-{uid}"),
            format!("/TMPDIR/pegel-{uid}"),
            "/XDG_CACHE_HOME/pegel".to_owned(),
        ];
        assert_eq!(all, expected.map(PathBuf::from));
        assert_eq!(candidates(|_| Some("relative".into())), none);
    }

    #[test]
    fn a_named_library_must_be_there() {
        let dir = TempDir::new();
        let error = check_named(dir.join("none.so")).expect_err("absent");
        assert!(
            error
                .to_string()
                .ends_with("none.so: cannot open the library"),
            "{error}"
        );
        let path = install_in(&dir.join("pegel")).expect("ours");
        assert_eq!(check_named(path.clone()).expect("there"), path);
    }
}
