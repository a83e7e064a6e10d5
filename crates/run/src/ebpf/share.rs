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

use super::Time;
use super::programs::Maps;
use super::set::{Set, programs_of};

const MAPS: usize = 3;
/// As many as the larger kind of set has.
const DESCRIPTORS_MAX: usize = MAPS + programs_of(Time::Measured);
/// Loading takes some milliseconds; whoever does it serves right after.
const WAIT: Duration = Duration::from_secs(2);

/// What became of looking for others.
#[derive(Debug)]
pub(super) enum Found {
    /// There is nobody: load the programs, and serve them here.
    Nobody(UnixListener),
    /// Somebody gave these, and a place in them.
    Set(Set, u32),
    /// Load the programs for oneself.
    NoUse,
}

/// What a set is made of. It changes with the programs and their maps, so that wrappers of other versions on the same node
/// do not take what they would not understand.
const FORM: u32 = 3;

fn address(time: Time) -> io::Result<SocketAddr> {
    let uid = rustix::process::geteuid().as_raw();
    let kind = match time {
        Time::Measured => "",
        Time::Ignored => ".untimed",
    };
    SocketAddr::from_abstract_name(format!("pegel-ebpf.{uid}.{FORM}{kind}"))
}

/// Looks for somebody who has loaded the programs.
pub(super) fn find(time: Time) -> Found {
    let Ok(address) = address(time) else {
        return Found::NoUse;
    };
    // The one who is asked may end just then: once more, and then for oneself.
    for _ in 0..2 {
        match UnixListener::bind_addr(&address) {
            Ok(listener) if listener.set_nonblocking(true).is_ok() => {
                return Found::Nobody(listener);
            }
            Ok(_) => return Found::NoUse,
            Err(_) => {}
        }
        if let Ok((set, slot)) = ask(&address, time) {
            return Found::Set(set, slot);
        }
    }
    Found::NoUse
}

fn is_own(socket: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid == own)
}

fn ask(address: &SocketAddr, time: Time) -> io::Result<(Set, u32)> {
    let broken = || io::Error::from(io::ErrorKind::InvalidData);
    let socket = UnixStream::connect_addr(address)?;
    // Anybody could have taken the name.
    if !is_own(&socket) {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    socket.set_read_timeout(Some(WAIT))?;
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
    if received.bytes != slot.len() || descriptors.len() != MAPS + programs_of(time) {
        return Err(broken());
    }
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or_else(broken);
    let maps = Maps {
        tasks: next()?,
        tables: next()?,
        slots: next()?,
    };
    let links = descriptors.collect();
    Ok((Set::new(maps, links), u32::from_ne_bytes(slot)))
}

/// The side of the one who loaded them.
#[derive(Debug)]
pub(super) struct Server {
    listener: UnixListener,
}

impl Server {
    pub(super) fn new(listener: UnixListener) -> Server {
        Server { listener }
    }

    /// Gives the set to all who wait for it.
    pub(super) fn serve(&self, set: &Set) {
        while let Ok((socket, _)) = self.listener.accept() {
            if !is_own(&socket) {
                continue;
            }
            // Whoever goes away does without.
            let _ = give(&socket, set, set.take_slot());
        }
    }
}

impl AsFd for Server {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

fn give(socket: &UnixStream, set: &Set, slot: u32) -> io::Result<()> {
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
