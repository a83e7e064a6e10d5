//! The process that counts.
//!
//! The program takes the place of `pegel run` itself, so that its number, parent, group, terminal, limits and exit status
//! are what they would be without us, and signals need no forwarding. Whoever counts is a process beside it: a
//! grandchild whose parent has ended, so that the program finds no child that it did not make; in a session of its own,
//! so that neither the terminal nor the program's group signals reach it; and with none of the program's descriptors.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use libc::c_int;

/// The helper's first descriptor behind the standard ones.
const LINK_FD: RawFd = 3;

/// The wrapper's and the helper's ends of what they say to each other before the program starts.
#[derive(Debug)]
pub(crate) struct HelperLink(UnixStream);

impl HelperLink {
    /// Waits for a byte; None when the other side is gone.
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

/// Starts the helper, which does `work` with the wrapper's number and its end of the link, and ends. Returns the wrapper's
/// end.
///
/// The caller must have no other thread.
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
    let gone = || io::Error::other("the process that counts ended at once");
    let (ours, theirs) = ends.take().ok_or_else(gone)?;
    drop(theirs);
    let mut link = HelperLink(ours);
    let helper = link.receive_number().ok_or_else(gone)?;
    // Where only parents may trace their children, this one must be allowed. Elsewhere the kernel does not know it.
    // SAFETY: tells the kernel a number.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, helper as libc::c_ulong, 0, 0, 0) };
    link.send(0)?;
    Ok(link)
}

/// Starts a process that is no child of this one, in a session and with descriptors of its own, which does `work` and ends.
///
/// The caller must have no other thread.
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

/// Does `work` in a grandchild whose parent is gone when this returns.
fn fork_detached(work: impl FnOnce()) -> io::Result<()> {
    // A child that nobody waits for leaves no trace: no signal, no CPU time of children.
    let before = set_child_action(libc::SIG_IGN);
    let was_reaper = set_subreaper(false);
    // SAFETY: this process has one thread, so that its child may do anything.
    let child = unsafe { libc::fork() };
    if child == 0 {
        set_child_action(libc::SIG_DFL);
        // SAFETY: as above; the child leaves without running anything of the wrapper's.
        if unsafe { libc::fork() } == 0 {
            work();
        }
        exit_now();
    }
    let failed = (child == -1).then(io::Error::last_os_error);
    if child > 0 {
        // Nothing to learn: with SIGCHLD ignored it returns when the child is gone.
        // SAFETY: waits for our own child and asks for no status.
        while unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } == -1
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
    set_subreaper(was_reaper);
    restore_child_action(&before);
    failed.map_or(Ok(()), Err)
}

fn exit_now() -> ! {
    // SAFETY: ends this process at once.
    unsafe { libc::_exit(0) }
}

/// Away from everything that is the program's.
fn detach_from_program(link: UnixStream, keeps_stderr: bool) -> Option<HelperLink> {
    ignore_signals();
    // It cannot be the leader of a group yet.
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
    // Both may have that number themselves.
    let link = OwnedFd::from(link);
    let high = rustix::io::fcntl_dupfd_cloexec(&link, 10).ok()?;
    drop((null, link));
    dup_onto(high.as_raw_fd(), LINK_FD)?;
    drop(high);
    close_from(LINK_FD + 1);
    // A directory in use cannot be unmounted.
    let _ = std::env::set_current_dir("/");
    raise_limits();
    // SAFETY: the descriptor was made just now, and nobody else has it.
    let link = unsafe { OwnedFd::from_raw_fd(LINK_FD) };
    Some(HelperLink(UnixStream::from(link)))
}

/// The program's terminal and pipes must not stay open for the helper's sake.
pub(crate) fn release_stderr() {
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = dup_onto(null.as_raw_fd(), 2);
    }
}

fn dup_onto(from: RawFd, to: RawFd) -> Option<()> {
    // SAFETY: in the helper, whose descriptors are all ours.
    (unsafe { libc::dup2(from, to) } != -1).then_some(())
}

fn close_from(first: RawFd) {
    // SAFETY: in the helper: nothing that is used later is at or above `first`.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if closed == -1 {
        for descriptor in first..1024 {
            // SAFETY: as above.
            unsafe { libc::close(descriptor) };
        }
    }
}

/// What ends or stops the program must not end or stop the one that counts it.
fn ignore_signals() {
    for signal in 1..libc::SIGRTMAX() {
        // SAFETY: no handler is involved; signals that cannot be ignored are an error that does no harm.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // Traced threads that end are waited for, which an ignored SIGCHLD would prevent.
    set_child_action(libc::SIG_DFL);
}

fn default_signals() {
    for signal in 1..libc::SIGRTMAX() {
        // SAFETY: no handler is involved.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// The program's limits are not meant for us: CPU time, file size.
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
    // SAFETY: an action without a handler; both structures are ours.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        libc::sigaction(libc::SIGCHLD, &action, &mut before);
        before
    }
}

fn restore_child_action(before: &libc::sigaction) {
    // SAFETY: what sigaction gave before.
    unsafe { libc::sigaction(libc::SIGCHLD, before, std::ptr::null_mut()) };
}

/// A process to which orphans below it come would get the helper for a child. Returns what it was.
fn set_subreaper(is_set: bool) -> bool {
    let mut before: c_int = 0;
    // SAFETY: writes a number that is ours.
    unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut before, 0, 0, 0) };
    if (before != 0) != is_set {
        let value = libc::c_ulong::from(is_set);
        // SAFETY: sets a flag of this process.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, value, 0, 0, 0) };
    }
    before != 0
}
