//! One set of programs for all that is watched on a node.
//!
//! Whoever loads the programs first gives their descriptors to the others that ask, over a socket that the kernel names by
//! user. Programs run as long as somebody holds them, so that nobody depends on the one who loaded them; when that one ends,
//! the next to come loads a set of its own.

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
/// As many as the larger kind of set has.
const DESCRIPTORS_MAX: usize = MAP_COUNT + program_count(CallTiming::Measured);
/// Loading takes some milliseconds; whoever does it serves right after.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(2);

/// What became of looking for others.
#[derive(Debug)]
pub(super) enum SharedSetLookup {
    /// There is nobody: load the programs, and serve them here.
    NotLoaded(UnixListener),
    /// Somebody gave these, and a place in them.
    Shared(ProgramSet, u32),
    /// Load the programs for oneself.
    Unavailable,
}

/// What a set is made of. It changes with the programs and their maps, so that wrappers of other versions on the same node
/// do not take what they would not understand.
const FORMAT_VERSION: u32 = 3;

fn address(time: CallTiming) -> io::Result<SocketAddr> {
    let uid = rustix::process::geteuid().as_raw();
    let kind = match time {
        CallTiming::Measured => "",
        CallTiming::Ignored => ".untimed",
    };
    SocketAddr::from_abstract_name(format!("pegel-ebpf.{uid}.{FORMAT_VERSION}{kind}"))
}

/// Looks for somebody who has loaded the programs.
pub(super) fn find_shared_set(time: CallTiming) -> SharedSetLookup {
    let Ok(address) = address(time) else {
        return SharedSetLookup::Unavailable;
    };
    // The one who is asked may end just then: once more, and then for oneself.
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
    // Anybody could have taken the name.
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

/// The side of the one who loaded them.
#[derive(Debug)]
pub(super) struct SetServer {
    listener: UnixListener,
}

impl SetServer {
    pub(super) fn new(listener: UnixListener) -> SetServer {
        SetServer { listener }
    }

    /// Gives the set to all who wait for it.
    pub(super) fn serve(&self, set: &ProgramSet) {
        while let Ok((socket, _)) = self.listener.accept() {
            if !is_same_user(&socket) {
                continue;
            }
            // Whoever goes away does without.
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
