//! Peers without credentials: idle connections and abuses of HTTP/2 cost bounded memory, and
//! children attach meanwhile.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pegel_testkit::http2_frames::{
    CONTINUATION, DATA, END_HEADERS, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame,
    send_frames,
};

use crate::hostile::HostileScene;
use crate::tree_agent::TreeAgent;

/// POST http://a/pegel.tree.v1.Tree/Attach, with names from the static table.
fn attach_headers() -> Vec<u8> {
    let path = b"/pegel.tree.v1.Tree/Attach";
    let mut block = vec![0x83, 0x86, 0x01, 1, b'a', 0x04, path.len() as u8];
    block.extend(path);
    block
}

#[test]
fn abuses_of_http2_cost_only_the_peer() {
    let scene = HostileScene::new();
    let address = scene.address;
    let headers = attach_headers();
    let block = headers.clone();
    // Streams that are reset at once.
    send_frames(address, move |number| {
        let stream = 2 * number + 1;
        [
            frame(HEADERS, END_HEADERS, stream, &block),
            frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()),
        ]
        .concat()
    });
    let block = headers.clone();
    // Streams that stay open, with bodies beyond all windows.
    send_frames(address, move |number| {
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
    send_frames(address, move |number| match number {
        0 => frame(HEADERS, 0, 1, &block),
        _ => frame(CONTINUATION, 0, 1, &[b'x'; 16000]),
    });
    // Settings and pings that must be acknowledged.
    send_frames(address, |_| {
        frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 1]).repeat(100)
    });
    send_frames(address, |_| frame(PING, 0, 0, &[1; 8]).repeat(100));
    // Windows beyond their limit, and of streams that do not exist.
    send_frames(address, |number| {
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
