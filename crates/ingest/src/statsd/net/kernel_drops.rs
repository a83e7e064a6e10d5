//! Counts datagrams that the kernel dropped because the receive buffer was full.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use pegel_metric::DropReason;

use crate::admission::Admission;
use crate::senders::Sender;

/// Reads the drop count of one socket. The kernel's counter has 32 bits and may wrap.
#[derive(Debug)]
pub(crate) struct KernelDropCounter {
    socket: OwnedFd,
    sender: Arc<Sender>,
    last_count: u32,
}

/// The socket option and the index in its result, as fixed by linux/sock_diag.h.
const SO_MEMINFO: libc::c_int = 55;
const MEMINFO_WORDS: usize = 9;
const MEMINFO_DROPS: usize = 8;

impl KernelDropCounter {
    /// `sender` is the account for dropped datagrams, whose origin is unknown.
    pub(crate) fn new(
        socket: impl AsFd,
        sender: Arc<Sender>,
    ) -> std::io::Result<KernelDropCounter> {
        let socket = socket.as_fd().try_clone_to_owned()?;
        let seen = read_drop_count(&socket).unwrap_or(0);
        Ok(KernelDropCounter {
            socket,
            sender,
            last_count: seen,
        })
    }

    /// Adds the datagrams dropped since the last call. Each counts as one value received and
    /// dropped.
    pub(crate) fn record(&mut self, admission: &Admission) {
        let Some(now) = read_drop_count(&self.socket) else {
            return;
        };
        let count = u64::from(now.wrapping_sub(self.last_count));
        self.last_count = now;
        if count > 0 {
            admission.count_received(&self.sender, count);
            admission.count_dropped(&self.sender, DropReason::Kernel, count);
        }
    }
}

fn read_drop_count(socket: &OwnedFd) -> Option<u32> {
    let mut words = [0_u32; MEMINFO_WORDS];
    let mut length = size_of_val(&words) as libc::socklen_t;
    // SAFETY: the pointers refer to `words` and its length in bytes, and the kernel writes no more
    // than that.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MEMINFO,
            words.as_mut_ptr().cast(),
            &mut length,
        )
    };
    let is_whole = length as usize > MEMINFO_DROPS * size_of::<u32>();
    (result == 0 && is_whole).then_some(words[MEMINFO_DROPS])
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use pegel_metric::Input;

    use super::*;
    use crate::admission::AdmissionSettings;

    #[test]
    fn what_the_kernel_dropped_is_in_the_books() {
        let admission = Admission::new(AdmissionSettings::for_tests(), Arc::default());
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let sender = admission.sender(Input::Statsd, "kernel");
        let mut drops = KernelDropCounter::new(&socket, sender).expect("a descriptor");
        let from = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let to = socket.local_addr().expect("bound");
        const SENT: u64 = 3000;
        for _ in 0..SENT {
            from.send_to(&[b'x'; 1000], to)
                .expect("loopback accepts all");
        }
        drops.record(&admission);
        drops.record(&admission);
        socket.set_nonblocking(true).expect("a socket");
        let read = std::iter::from_fn(|| socket.recv(&mut [0; 2000]).ok()).count() as u64;
        let dropped = admission
            .ledger()
            .dropped_total(Input::Statsd, DropReason::Kernel);
        assert!(dropped > 0, "the buffer holds less than 3 MB");
        assert_eq!(read + dropped, SENT);
        assert_eq!(admission.ledger().received_total(Input::Statsd), dropped);
    }
}
