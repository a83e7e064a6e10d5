//! Frames of HTTP/2 for clients that do not follow its rules.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
/// Flags of a frame.
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long frames are sent.
const ABUSE_TIME: Duration = Duration::from_secs(3);

/// Returns a frame of HTTP/2.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Sends the frames that `next` returns for 0, 1, … until the server closes the connection, for 3 s
/// at most.
pub fn send_frames(address: SocketAddr, mut next: impl FnMut(u32) -> Vec<u8>) {
    let Ok(mut stream) = TcpStream::connect(address) else {
        return;
    };
    let _ = stream.set_write_timeout(Some(Duration::from_secs(1)));
    let _ = stream.set_read_timeout(Some(Duration::from_millis(1)));
    let hello = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    if stream.write_all(&hello).is_err() {
        return;
    }
    let began = Instant::now();
    let mut number = 0;
    while began.elapsed() < ABUSE_TIME && stream.write_all(&next(number)).is_ok() {
        number += 1;
        if number % 64 == 0 {
            // Without reading, the attack would end with the buffers of the kernel.
            let _ = stream.read(&mut [0; 65536]);
        }
    }
}
