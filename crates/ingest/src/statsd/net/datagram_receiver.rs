//! Receives many datagrams with one system call.
//!
//! A sender over a UNIX socket may attach descriptors (`SCM_RIGHTS`). Each one that the kernel
//! installs takes an entry of the agent's descriptor table, so the control buffer has room for the
//! credentials only: the kernel closes descriptors that do not fit. Any that still arrive are
//! closed at once.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The most datagrams per call.
pub(crate) const DATAGRAMS_PER_CALL: usize = 64;
/// The largest datagram that is received whole: more than UDP can carry.
const DATAGRAM_BYTES: usize = 64 * 1024;
/// The size of one control message with credentials.
const CONTROL_BYTES: usize =
    // SAFETY: CMSG_SPACE computes a length from its argument and accesses no memory.
    unsafe { libc::CMSG_SPACE(size_of::<libc::ucred>() as libc::c_uint) } as usize;

/// The origin of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DatagramSource {
    Inet(SocketAddr),
    /// A process on this node, as verified by the kernel.
    Unix {
        pid: i32,
        uid: u32,
    },
    Unknown,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Datagram<'a> {
    pub bytes: &'a [u8],
    pub source: DatagramSource,
    /// Whether it was longer than the buffer.
    pub is_truncated: bool,
}

/// Control messages must be aligned like their header.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct ControlBuffer([u8; CONTROL_BYTES]);

/// Buffers for one call. A buffer that was never filled takes no physical memory.
pub(crate) struct DatagramReceiver {
    bytes: Vec<u8>,
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<ControlBuffer>,
    /// What the kernel returned in the last call: length, length of the address, of the control
    /// messages, flags.
    filled: Vec<(usize, usize, usize, i32)>,
}

impl std::fmt::Debug for DatagramReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatagramReceiver").finish_non_exhaustive()
    }
}

impl DatagramReceiver {
    pub(super) fn new() -> DatagramReceiver {
        // SAFETY: all zeros is a valid `sockaddr_storage`, of unspecified family.
        let name: libc::sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
        DatagramReceiver {
            bytes: vec![0; DATAGRAMS_PER_CALL * DATAGRAM_BYTES],
            names: vec![name; DATAGRAMS_PER_CALL],
            controls: vec![ControlBuffer([0; CONTROL_BYTES]); DATAGRAMS_PER_CALL],
            filled: Vec::with_capacity(DATAGRAMS_PER_CALL),
        }
    }

    /// Receives pending datagrams. `with_credentials`: for UNIX sockets; `wait`: until at least one
    /// arrives.
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        with_credentials: bool,
        wait: bool,
    ) -> io::Result<usize> {
        self.filled.clear();
        type Vectors = [libc::iovec; DATAGRAMS_PER_CALL];
        type Headers = [libc::mmsghdr; DATAGRAMS_PER_CALL];
        // SAFETY: `iovec` consists of integers and pointers, for which zero is valid.
        let mut vectors: Vectors = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: as above, for `mmsghdr`.
        let mut headers: Headers = unsafe { MaybeUninit::zeroed().assume_init() };
        let buffers = self.bytes.chunks_exact_mut(DATAGRAM_BYTES);
        let places = buffers.zip(&mut self.names).zip(&mut self.controls);
        for ((vector, header), ((buffer, name), control)) in
            vectors.iter_mut().zip(&mut headers).zip(places)
        {
            vector.iov_base = buffer.as_mut_ptr().cast();
            vector.iov_len = buffer.len();
            let header = &mut header.msg_hdr;
            header.msg_iov = vector;
            header.msg_iovlen = 1;
            if with_credentials {
                header.msg_control = control.0.as_mut_ptr().cast();
                header.msg_controllen = CONTROL_BYTES as _;
            } else {
                header.msg_name = std::ptr::from_mut(name).cast();
                header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            }
        }
        let flags = if wait {
            libc::MSG_WAITFORONE | libc::MSG_CMSG_CLOEXEC
        } else {
            libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC
        };
        // SAFETY: every header points to a buffer, an address and a control buffer of the lengths
        // it gives; all of them outlive the call, and no two headers share any.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                DATAGRAMS_PER_CALL as libc::c_uint,
                flags as _,
                std::ptr::null_mut(),
            )
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        for (header, buffer) in headers[..count].iter().zip(&self.controls) {
            let inner = &header.msg_hdr;
            // The type of this length differs between C libraries.
            #[allow(clippy::unnecessary_cast)]
            let control = inner.msg_controllen as usize;
            let name = inner.msg_namelen as usize;
            if with_credentials {
                close_descriptors(&buffer.0[..control.min(CONTROL_BYTES)]);
            }
            self.filled
                .push((header.msg_len as usize, name, control, inner.msg_flags));
        }
        Ok(count)
    }

    /// Iterates over the datagrams of the last call.
    pub(super) fn datagrams(&self) -> impl Iterator<Item = Datagram<'_>> {
        self.filled
            .iter()
            .enumerate()
            .map(|(at, &(length, name, control, flags))| {
                let start = at * DATAGRAM_BYTES;
                let from = match control {
                    0 => address(&self.names[at], name),
                    used => credentials(&self.controls[at].0[..used.min(CONTROL_BYTES)]),
                };
                Datagram {
                    bytes: &self.bytes[start..start + length.min(DATAGRAM_BYTES)],
                    source: from,
                    is_truncated: flags & libc::MSG_TRUNC != 0,
                }
            })
    }
}

fn address(name: &libc::sockaddr_storage, length: usize) -> DatagramSource {
    let family = libc::c_int::from(name.ss_family);
    if family == libc::AF_INET && length >= size_of::<libc::sockaddr_in>() {
        // SAFETY: the kernel wrote an address of this family, and `sockaddr_storage` is large and
        // aligned enough.
        let name = unsafe { &*std::ptr::from_ref(name).cast::<libc::sockaddr_in>() };
        let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
        DatagramSource::Inet(SocketAddr::new(IpAddr::V4(ip), u16::from_be(name.sin_port)))
    } else if family == libc::AF_INET6 && length >= size_of::<libc::sockaddr_in6>() {
        // SAFETY: as above.
        let name = unsafe { &*std::ptr::from_ref(name).cast::<libc::sockaddr_in6>() };
        let ip = IpAddr::V6(Ipv6Addr::from(name.sin6_addr.s6_addr)).to_canonical();
        DatagramSource::Inet(SocketAddr::new(ip, u16::from_be(name.sin6_port)))
    } else {
        DatagramSource::Unknown
    }
}

/// Returns level, kind and payload of the only control message that fits.
fn control_message(control: &[u8]) -> Option<(i32, i32, &[u8])> {
    // The length comes first and has the size of a pointer; level and kind follow.
    let start = size_of::<libc::cmsghdr>();
    let (header, payload) = control.split_at_checked(start)?;
    Some((word(header, start - 8)?, word(header, start - 4)?, payload))
}

fn word(bytes: &[u8], at: usize) -> Option<i32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(i32::from_ne_bytes(*word))
}

/// Reads pid and uid of the sender, as verified by the kernel.
fn credentials(control: &[u8]) -> DatagramSource {
    let sender = match control_message(control) {
        Some((libc::SOL_SOCKET, libc::SCM_CREDENTIALS, payload)) => {
            word(payload, 0).zip(word(payload, 4))
        }
        _ => None,
    };
    sender.map_or(DatagramSource::Unknown, |(pid, uid)| DatagramSource::Unix {
        pid,
        uid: uid as u32,
    })
}

/// Closes descriptors that arrived in place of credentials. That happens only on a socket without
/// `SO_PASSCRED`.
fn close_descriptors(control: &[u8]) {
    let Some((libc::SOL_SOCKET, libc::SCM_RIGHTS, payload)) = control_message(control) else {
        return;
    };
    for bytes in payload.chunks_exact(size_of::<libc::c_int>()) {
        if let Some(descriptor) = word(bytes, 0) {
            // SAFETY: the kernel installed this descriptor for this process in the call that wrote
            // the message; each message is read once, and nothing else uses the number.
            drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn many_datagrams_come_with_one_call() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = UdpSocket::bind(address) else {
                continue; // A machine without IPv6.
            };
            let from = UdpSocket::bind(address).expect("a free port");
            let to = socket.local_addr().expect("bound");
            for number in 0..3_u8 {
                from.send_to(&[number; 5], to).expect("sent");
            }
            from.send_to(&[9; 60_000], to).expect("sent");
            let mut receiver = DatagramReceiver::new();
            assert_eq!(
                receiver
                    .receive(socket.as_fd(), false, false)
                    .expect("four datagrams"),
                4
            );
            let all: Vec<Datagram<'_>> = receiver.datagrams().collect();
            assert_eq!(
                all.iter().map(|d| d.bytes.len()).collect::<Vec<_>>(),
                [5, 5, 5, 60_000]
            );
            let sender = DatagramSource::Inet(from.local_addr().expect("bound"));
            assert!(
                all.iter().all(|d| d.source == sender && !d.is_truncated),
                "{all:?}"
            );
            let error = receiver
                .receive(socket.as_fd(), false, false)
                .expect_err("nothing left");
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            assert_eq!(receiver.datagrams().count(), 0);
        }
    }

    #[test]
    fn the_kernel_says_who_sent_over_a_unix_socket() {
        let (one, other) = UnixDatagram::pair().expect("a pair");
        rustix::net::sockopt::set_socket_passcred(&one, true).expect("an option of UNIX sockets");
        other.send(b"a:1|c").expect("sent");
        other.send(&[b'x'; 100_000]).expect("sent");
        let mut receiver = DatagramReceiver::new();
        assert_eq!(
            receiver
                .receive(one.as_fd(), true, true)
                .expect("two datagrams"),
            2
        );
        let all: Vec<Datagram<'_>> = receiver.datagrams().collect();
        let us = DatagramSource::Unix {
            pid: std::process::id() as i32,
            uid: rustix::process::getuid().as_raw(),
        };
        assert_eq!(
            (all[0].source, all[0].bytes, all[0].is_truncated),
            (us, &b"a:1|c"[..], false)
        );
        assert_eq!(
            (all[1].source, all[1].bytes.len(), all[1].is_truncated),
            (us, DATAGRAM_BYTES, true)
        );
    }

    /// Returns whether a descriptor of this process still holds the writing end of a pipe.
    fn is_open_elsewhere(reader: &io::PipeReader) -> bool {
        use std::io::Read;
        rustix::io::ioctl_fionbio(reader, true).expect("a pipe");
        // End of file: no writer is left. Would block: some descriptor still holds it open.
        (&*reader).read(&mut [0]).is_err()
    }

    fn send_with_descriptors(socket: &UnixDatagram, descriptors: &[BorrowedFd<'_>]) {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
        let line = [io::IoSlice::new(b"a:1|c")];
        sendmsg(socket, &line, &mut control, SendFlags::empty()).expect("sent");
    }

    #[test]
    fn descriptors_that_come_with_a_datagram_are_closed() {
        for asks_for_credentials in [true, false] {
            let (one, other) = UnixDatagram::pair().expect("a pair");
            rustix::net::sockopt::set_socket_passcred(&one, asks_for_credentials)
                .expect("an option of UNIX sockets");
            let (reader, writer) = io::pipe().expect("a pipe");
            send_with_descriptors(&other, &[writer.as_fd(); 8]);
            drop(writer);
            let mut receiver = DatagramReceiver::new();
            let count = receiver.receive(one.as_fd(), true, true).expect("one");
            assert_eq!(count, 1);
            assert_eq!(
                receiver
                    .datagrams()
                    .next()
                    .map(|d| d.source != DatagramSource::Unknown),
                Some(asks_for_credentials)
            );
            assert!(!is_open_elsewhere(&reader), "{asks_for_credentials}");
        }
    }
}
