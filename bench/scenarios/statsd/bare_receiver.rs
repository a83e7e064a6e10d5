//! The minimum cost of UNIX datagrams: a process that receives them like the agent, with the
//! credentials of the sender, and discards them. Its CPU time is the kernel's share, a lower bound
//! for any agent.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use pegel_testkit::{TempDir, eventually};

/// Same values as in the agent.
const BATCH: usize = 64;
const DATAGRAM_BYTES: usize = 64 * 1024;
const CONTROL_BYTES: usize = 32;
/// Argument that runs this program as the receiver.
const RECEIVE_FLAG: &str = "--receive-at";

pub(crate) struct BareReceiver {
    child: Child,
    pub path: PathBuf,
    _dir: TempDir,
}

impl BareReceiver {
    pub(crate) fn start() -> BareReceiver {
        let dir = TempDir::new();
        let path = dir.path().join("bare.sock");
        let this = std::env::current_exe().expect("a path");
        let child = Command::new(this).arg(RECEIVE_FLAG).arg(&path).spawn();
        let bare = BareReceiver {
            child: child.expect("started"),
            path,
            _dir: dir,
        };
        eventually("the bare receiver listens", || {
            bare.path.exists().then_some(()).ok_or("no socket")
        });
        bare
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for BareReceiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the path of the socket, if this process is the receiver.
pub(crate) fn socket_argument() -> Option<PathBuf> {
    let mut args = std::env::args_os();
    args.find(|arg| arg == OsStr::new(RECEIVE_FLAG))?;
    args.next().map(PathBuf::from)
}

/// Receives until the process is killed.
pub(crate) fn receive(path: &Path) -> io::Error {
    let socket = match UnixDatagram::bind(path) {
        Ok(socket) => socket,
        Err(error) => return error,
    };
    if let Err(error) = rustix::net::sockopt::set_socket_passcred(&socket, true) {
        return error.into();
    }
    let mut bytes = vec![0_u8; BATCH * DATAGRAM_BYTES];
    // Control messages must have the alignment of their header, eight bytes.
    let mut controls = vec![0_u64; BATCH * CONTROL_BYTES / 8];
    loop {
        // SAFETY: both types consist of integers and raw pointers, for which zero is a valid value.
        let (mut vectors, mut headers): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) = unsafe {
            (
                MaybeUninit::zeroed().assume_init(),
                MaybeUninit::zeroed().assume_init(),
            )
        };
        let buffers = bytes
            .chunks_exact_mut(DATAGRAM_BYTES)
            .zip(controls.chunks_exact_mut(CONTROL_BYTES / 8));
        for ((vector, header), (buffer, control)) in
            vectors.iter_mut().zip(&mut headers).zip(buffers)
        {
            vector.iov_base = buffer.as_mut_ptr().cast();
            vector.iov_len = buffer.len();
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = control.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL_BYTES as _;
        }
        // SAFETY: every header points to a data buffer and a control buffer of the lengths it
        // states; all buffers outlive the call, and no two headers share one. The loop above
        // upholds this.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_WAITFORONE as _,
                std::ptr::null_mut(),
            )
        };
        if count < 0 {
            return io::Error::last_os_error();
        }
    }
}
