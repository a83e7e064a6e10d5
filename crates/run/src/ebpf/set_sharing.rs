//! Shares one set of programs between all wrappers of a user on a node.
//!
//! The first wrapper loads the programs and serves their descriptors to the others over an abstract
//! socket named after the user. The programs run as long as any process holds their descriptors, so
//! that no wrapper depends on the loader; after the loader has exited, the next wrapper loads a new
//! set.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt,
};

use super::CallTiming;
use super::program_set::{ProgramSet, program_count};
use super::programs::BpfMaps;

const MAP_COUNT: usize = 3;
/// The number of descriptors of the larger kind of set.
const DESCRIPTORS_MAX: usize = MAP_COUNT + program_count(CallTiming::Measured);
/// Loading takes some milliseconds; the loader serves right after.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(2);

/// The result of looking for a shared set.
#[derive(Debug)]
pub(super) enum SharedSetLookup {
    /// No wrapper has loaded a set: load one and serve it on this socket.
    NotLoaded(UnixListener),
    /// A set of another wrapper, and a slot in it.
    Shared(ProgramSet, u32),
    /// Sharing failed: load a set without serving it.
    Unavailable,
}

/// The version of the programs and maps. Must change with them, so that wrappers of different
/// versions on the same node do not share sets.
const FORMAT_VERSION: u32 = 4;

fn address(time: CallTiming) -> io::Result<SocketAddr> {
    let uid = rustix::process::geteuid().as_raw();
    let kind = match time {
        CallTiming::Measured => "",
        CallTiming::Ignored => ".untimed",
    };
    SocketAddr::from_abstract_name(format!("pegel-ebpf.{uid}.{FORMAT_VERSION}{kind}"))
}

/// Looks for a set loaded by another wrapper.
pub(super) fn find_shared_set(time: CallTiming) -> SharedSetLookup {
    let Ok(address) = address(time) else {
        return SharedSetLookup::Unavailable;
    };
    // The loader may exit in between: retry once.
    for _ in 0..2 {
        match UnixListener::bind_addr(&address) {
            Ok(listener) if listener.set_nonblocking(true).is_ok() => {
                return SharedSetLookup::NotLoaded(listener);
            }
            Ok(_) => return SharedSetLookup::Unavailable,
            Err(_) => {}
        }
        if let Ok((set, slot)) = receive_set(&address, time) {
            return SharedSetLookup::Shared(set, slot);
        }
    }
    SharedSetLookup::Unavailable
}

fn is_same_user(socket: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid == own)
}

fn receive_set(address: &SocketAddr, time: CallTiming) -> io::Result<(ProgramSet, u32)> {
    let broken = || io::Error::from(io::ErrorKind::InvalidData);
    let socket = UnixStream::connect_addr(address)?;
    // Any user can bind the name.
    if !is_same_user(&socket) {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    socket.set_read_timeout(Some(RECEIVE_TIMEOUT))?;
    let mut slot = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut slot)];
    let received = recvmsg(&socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            descriptors.extend(more);
        }
    }
    if received.bytes != slot.len() || descriptors.len() != MAP_COUNT + program_count(time) {
        return Err(broken());
    }
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or_else(broken);
    let maps = BpfMaps {
        tasks: next()?,
        tables: next()?,
        slots: next()?,
    };
    let links = descriptors.collect();
    Ok((ProgramSet::new(maps, links), u32::from_ne_bytes(slot)))
}

/// The loader's side: serves the set.
#[derive(Debug)]
pub(super) struct SetServer {
    listener: UnixListener,
}

impl SetServer {
    pub(super) fn new(listener: UnixListener) -> SetServer {
        SetServer { listener }
    }

    /// Sends the set to all waiting wrappers. Never blocks.
    pub(super) fn serve(&self, set: &ProgramSet) {
        while let Ok((socket, _)) = self.listener.accept() {
            if !is_same_user(&socket) {
                continue;
            }
            // Errors are ignored: the wrapper may have exited.
            let _ = send_set(&socket, set, set.take_slot());
        }
    }
}

impl AsFd for SetServer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

fn send_set(socket: &UnixStream, set: &ProgramSet, slot: u32) -> io::Result<()> {
    let maps = [&set.maps.tasks, &set.maps.tables, &set.maps.slots];
    let descriptors: Vec<BorrowedFd<'_>> = maps
        .into_iter()
        .chain(&set.links)
        .map(AsFd::as_fd)
        .collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let slot = slot.to_ne_bytes();
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(&slot)], &mut control, flags)?;
    Ok(())
}
