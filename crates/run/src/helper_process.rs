//! Starts the helper process that counts.
//!
//! The program replaces `pegel run` itself (execve), so that its process ID, parent, group,
//! terminal, limits and exit status are what they would be without Pegel, and signals need no
//! forwarding. The helper is a grandchild whose parent has exited, so that the program has no child
//! that it did not create. It runs in a session of its own, so that signals of the terminal and of
//! the program's group do not reach it, and it holds none of the program's descriptors.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use libc::c_int;

/// The helper's first descriptor after the standard ones.
const LINK_FD: RawFd = 3;

/// One end of the socket between wrapper and helper, in use until the program starts.
#[derive(Debug)]
pub(crate) struct HelperLink(UnixStream);

impl HelperLink {
    /// Waits for a byte; None if the other end is closed.
    pub(crate) fn receive(&mut self) -> Option<u8> {
        let mut byte = [0];
        self.0.read_exact(&mut byte).ok()?;
        Some(byte[0])
    }

    pub(crate) fn send(&mut self, byte: u8) -> io::Result<()> {
        self.0.write_all(&[byte])
    }

    fn receive_number(&mut self) -> Option<i32> {
        let mut bytes = [0; 4];
        self.0.read_exact(&mut bytes).ok()?;
        Some(i32::from_le_bytes(bytes))
    }
}

/// Starts the helper, which runs `work` with the wrapper's process ID and its end of the link, then
/// exits. Returns the wrapper's end.
///
/// The caller must be single-threaded.
pub(crate) fn start_helper(
    keeps_stderr: bool,
    work: impl FnOnce(i32, HelperLink),
) -> io::Result<HelperLink> {
    let (ours, theirs) = UnixStream::pair()?;
    let wrapper = std::process::id().cast_signed();
    let mut ends = Some((ours, theirs));
    fork_detached(|| {
        let Some((_, theirs)) = ends.take() else {
            return;
        };
        let Some(mut link) = detach_from_program(theirs, keeps_stderr) else {
            return;
        };
        let own = std::process::id();
        let is_known = link.0.write_all(&own.to_le_bytes()).is_ok();
        if is_known && link.receive().is_some() {
            work(wrapper, link);
        }
    })?;
    let exited = || io::Error::other("the helper process exited immediately");
    let (ours, theirs) = ends.take().ok_or_else(exited)?;
    drop(theirs);
    let mut link = HelperLink(ours);
    let helper = link.receive_number().ok_or_else(exited)?;
    // With Yama's ptrace_scope 1 only ancestors may trace: permit the helper. Fails harmlessly on
    // kernels without Yama. SAFETY: passes integers only.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, helper as libc::c_ulong, 0, 0, 0) };
    link.send(0)?;
    Ok(link)
}

/// Starts a process that is not a child of this one, with its own session and descriptors. It runs
/// `work` and exits.
///
/// The caller must be single-threaded.
pub fn spawn_detached(work: impl FnOnce()) -> io::Result<()> {
    let (ours, theirs) = UnixStream::pair()?;
    fork_detached(|| {
        if let Some(link) = detach_from_program(theirs, false) {
            drop(link);
            default_signals();
            work();
        }
    })?;
    drop(ours);
    Ok(())
}

/// Runs `work` in a grandchild, whose parent has exited when this returns.
fn fork_detached(work: impl FnOnce()) -> io::Result<()> {
    // With SIGCHLD ignored the child leaves no trace: no signal, and no CPU time in the totals of
    // children.
    let before = set_child_action(libc::SIG_IGN);
    let was_reaper = set_subreaper(false);
    // SAFETY: the caller is single-threaded, so that the child may call any function.
    let child = unsafe { libc::fork() };
    if child == 0 {
        set_child_action(libc::SIG_DFL);
        // SAFETY: as above; the child exits with `_exit` and runs no destructor or handler of the
        // wrapper.
        if unsafe { libc::fork() } == 0 {
            work();
        }
        exit_now();
    }
    let failed = (child == -1).then(io::Error::last_os_error);
    if child > 0 {
        // With SIGCHLD ignored, waitpid returns an error once the child has exited.
        // SAFETY: a null status pointer is permitted.
        while unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } == -1
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
    set_subreaper(was_reaper);
    restore_child_action(&before);
    failed.map_or(Ok(()), Err)
}

fn exit_now() -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(0) }
}

/// Gives up everything inherited from the program: signals, session, descriptors, directory,
/// limits.
fn detach_from_program(link: UnixStream, keeps_stderr: bool) -> Option<HelperLink> {
    ignore_signals();
    // Cannot fail: a forked process is not a group leader.
    let _ = rustix::process::setsid();
    let null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .ok()?;
    dup_onto(null.as_raw_fd(), 0)?;
    dup_onto(null.as_raw_fd(), 1)?;
    if !keeps_stderr {
        dup_onto(null.as_raw_fd(), 2)?;
    }
    // The descriptors may themselves be LINK_FD: move the link above it first.
    let link = OwnedFd::from(link);
    let high = rustix::io::fcntl_dupfd_cloexec(&link, 10).ok()?;
    drop((null, link));
    dup_onto(high.as_raw_fd(), LINK_FD)?;
    drop(high);
    close_from(LINK_FD + 1);
    // Do not keep the file system of the working directory busy.
    let _ = std::env::set_current_dir("/");
    raise_limits();
    // SAFETY: LINK_FD was opened above and has no other owner.
    let link = unsafe { OwnedFd::from_raw_fd(LINK_FD) };
    Some(HelperLink(UnixStream::from(link)))
}

/// Closes the helper's standard error, so that it does not keep the program's terminal or pipes
/// open.
pub(crate) fn release_stderr() {
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = dup_onto(null.as_raw_fd(), 2);
    }
}

fn dup_onto(from: RawFd, to: RawFd) -> Option<()> {
    // SAFETY: called in the helper, which owns all its descriptors.
    (unsafe { libc::dup2(from, to) } != -1).then_some(())
}

fn close_from(first: RawFd) {
    // SAFETY: called in the helper, which uses no descriptor at or above `first` later.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if closed == -1 {
        for descriptor in first..1024 {
            // SAFETY: as above.
            unsafe { libc::close(descriptor) };
        }
    }
}

/// Ignores all signals: those that end or stop the program must not end or stop the helper.
fn ignore_signals() {
    for signal in 1..libc::SIGRTMAX() {
        // SAFETY: installs no handler; SIGKILL and SIGSTOP fail harmlessly.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // An ignored SIGCHLD would prevent waiting for traced threads.
    set_child_action(libc::SIG_DFL);
}

fn default_signals() {
    for signal in 1..libc::SIGRTMAX() {
        // SAFETY: installs no handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Raises the soft limits, which are meant for the program: CPU time, file size, memory,
/// descriptors.
fn raise_limits() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    for resource in [
        Resource::Cpu,
        Resource::Fsize,
        Resource::As,
        Resource::Nofile,
    ] {
        let mut limit = getrlimit(resource);
        limit.current = limit.maximum;
        let _ = setrlimit(resource, limit);
    }
}

fn set_child_action(handler: usize) -> libc::sigaction {
    // SAFETY: installs no handler; both structures are local and zero is valid for them.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        libc::sigaction(libc::SIGCHLD, &action, &mut before);
        before
    }
}

fn restore_child_action(before: &libc::sigaction) {
    // SAFETY: `before` was filled in by sigaction.
    unsafe { libc::sigaction(libc::SIGCHLD, before, std::ptr::null_mut()) };
}

/// Sets or clears the subreaper flag and returns its previous value. A subreaper would become the
/// helper's parent.
fn set_subreaper(is_set: bool) -> bool {
    let mut before: c_int = 0;
    // SAFETY: `before` is a local `int`, as the request expects.
    unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut before, 0, 0, 0) };
    if (before != 0) != is_set {
        let value = libc::c_ulong::from(is_set);
        // SAFETY: passes integers only.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, value, 0, 0, 0) };
    }
    before != 0
}
