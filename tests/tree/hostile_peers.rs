//! Peers without credentials: idle connections and abuses of HTTP/2 cost bounded memory, and
//! children attach meanwhile.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::hostile::HostileScene;
use crate::tree_agent::TreeAgent;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Returns a frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// POST http://a/pegel.tree.v1.Tree/Attach, with names from the static table.
fn attach_headers() -> Vec<u8> {
    let path = b"/pegel.tree.v1.Tree/Attach";
    let mut block = vec![0x83, 0x86, 0x01, 1, b'a', 0x04, path.len() as u8];
    block.extend(path);
    block
}

/// Sends the parts of an attack until the parent closes the connection, for 3 s at most.
fn abuse(address: SocketAddr, mut next: impl FnMut(u32) -> Vec<u8>) {
    let Ok(mut stream) = TcpStream::connect(address) else {
        return;
    };
    let second = Duration::from_secs(1);
    let _ = stream.set_write_timeout(Some(second));
    let _ = stream.set_read_timeout(Some(Duration::from_millis(1)));
    let hello = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    if stream.write_all(&hello).is_err() {
        return;
    }
    let began = std::time::Instant::now();
    let mut number = 0;
    while began.elapsed() < 3 * second && stream.write_all(&next(number)).is_ok() {
        number += 1;
        if number % 64 == 0 {
            // Without reading, the attack would end with the buffers of the kernel.
            let _ = stream.read(&mut [0; 65536]);
        }
    }
}

#[test]
fn abuses_of_http2_cost_only_the_peer() {
    let scene = HostileScene::new();
    let address = scene.address;
    let headers = attach_headers();
    let block = headers.clone();
    // Streams that are reset at once.
    abuse(address, move |number| {
        let stream = 2 * number + 1;
        [
            frame(HEADERS, END_HEADERS, stream, &block),
            frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()),
        ]
        .concat()
    });
    let block = headers.clone();
    // Streams that stay open, with bodies beyond all windows.
    abuse(address, move |number| {
        let stream = 2 * number + 1;
        [
            frame(HEADERS, END_HEADERS, stream, &block),
            frame(DATA, 0, stream, &[7; 16384]),
        ]
        .concat()
    });
    // Headers that do not end.
    let mut block = headers.clone();
    block.extend([0x00, 1, b'x', 0x7f, 0x80, 0x7e]);
    abuse(address, move |number| match number {
        0 => frame(HEADERS, 0, 1, &block),
        _ => frame(CONTINUATION, 0, 1, &[b'x'; 16000]),
    });
    // Settings and pings that must be acknowledged.
    abuse(address, |_| {
        frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 1]).repeat(100)
    });
    abuse(address, |_| frame(PING, 0, 0, &[1; 8]).repeat(100));
    // Windows beyond their limit, and of streams that do not exist.
    abuse(address, |number| {
        let window = 0x7fff_ffff_u32.to_be_bytes();
        frame(WINDOW_UPDATE, 0, number % 2 * 99, &window)
    });
    scene.expect_unharmed();
    let log = scene.head.agent().stderr();
    assert!(!log.contains("panic"), "{log}");
}

#[test]
fn children_attach_while_idle_peers_hold_all_the_places_they_get() {
    let scene = HostileScene::new();
    let is_over = Arc::new(AtomicBool::new(false));
    let peers: Vec<_> = (0..4)
        .map(|_| {
            let (address, is_over) = (scene.address, is_over.clone());
            thread::spawn(move || {
                let mut held: Vec<TcpStream> = Vec::new();
                // Bounded, should the test fail.
                for _ in 0..600 {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    // Connections that were closed are opened again.
                    held.retain(|stream| {
                        let _ = stream.set_nonblocking(true);
                        !matches!(stream.peek(&mut [0]), Ok(0))
                    });
                    while held.len() < 100 {
                        let timeout = Duration::from_millis(100);
                        match TcpStream::connect_timeout(&address, timeout) {
                            Ok(stream) => held.push(stream),
                            Err(_) => break,
                        }
                    }
                    thread::sleep(Duration::from_millis(100));
                }
            })
        })
        .collect();
    thread::sleep(Duration::from_secs(2));
    let second = TreeAgent::child("second", &[scene.address]);
    second.counter("hits_total").add(1);
    scene.head.all_up(&["good", "head", "second"]);
    scene.head.reduces("hits_total:sum", 8.0);
    is_over.store(true, Ordering::Relaxed);
    for peer in peers {
        peer.join().expect("it ends");
    }
}
