//! Clients that break the rules of HTTP/2 at the address that serves all others.

use std::thread;

use pegel_testkit::http2_frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, frame, send_frames,
};
use pegel_testkit::{AgentAddress, now_seconds, resident_bytes};
use pegel_wire::otlp::messages::Message;

use super::requests::{EXPORT, call, framed, increase, last};
use crate::PEGEL;

/// The memory that all of them may cost together, in bytes.
const GROWTH_MAX: u64 = 64 << 20;

/// The headers of an export, with names from the static table.
fn export_headers() -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    // The authority, the path and the content type.
    for (name, value) in [
        (&[0x01_u8][..], "localhost"),
        (&[0x04], EXPORT),
        (&[0x0f, 0x10], "application/grpc"),
    ] {
        block.extend(name);
        block.push(value.len() as u8);
        block.extend(value.as_bytes());
    }
    block
}

/// Returns the frames of a client for 0, 1, ….
type NextFrames = Box<dyn FnMut(u32) -> Vec<u8> + Send>;

/// Clients that use streams.
fn stream_abuses() -> Vec<NextFrames> {
    let reset = |stream| frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
    let headers = |stream| frame(HEADERS, END_HEADERS, stream, &export_headers());
    vec![
        // Streams that are reset at once.
        Box::new(move |number| [headers(2 * number + 1), reset(2 * number + 1)].concat()),
        // Complete requests that are reset before they are answered.
        Box::new(move |number| {
            let stream = 2 * number + 1;
            let data = frame(DATA, END_STREAM, stream, &framed(b""));
            [headers(stream), data, reset(stream)].concat()
        }),
        // Streams that stay open, with bodies beyond all windows.
        Box::new(move |number| {
            let stream = 2 * number + 1;
            [headers(stream), frame(DATA, 0, stream, &[7; 16384])].concat()
        }),
        // A body of frames without data.
        Box::new(move |number| match number {
            0 => headers(1),
            _ => frame(DATA, 0, 1, b"").repeat(100),
        }),
    ]
}

/// Clients that use headers and frames of the connection.
fn connection_abuses() -> Vec<NextFrames> {
    let endless = || {
        let mut block = export_headers();
        // The length of a value that never arrives in full.
        block.extend([0x00, 1, b'x', 0x7f, 0x80, 0x7e]);
        frame(HEADERS, 0, 1, &block)
    };
    let table = |number: u32| {
        // A table of a gigabyte, and entries for it.
        let mut block = vec![0x3f, 0xe1, 0xff, 0xff, 0xff, 0x03];
        block.extend(export_headers());
        for at in 0..50_u8 {
            block.extend([0x40, 2, b'a' + at % 26, b'a' + at / 26, 100]);
            block.extend([b'x'; 100]);
        }
        frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &block)
    };
    vec![
        Box::new(move |number| match number {
            0 => endless(),
            _ => frame(CONTINUATION, 0, 1, &[b'x'; 16000]),
        }),
        Box::new(move |number| match number {
            0 => endless(),
            _ => frame(CONTINUATION, 0, 1, b"").repeat(100),
        }),
        Box::new(table),
        // Settings and pings that must be acknowledged.
        Box::new(|_| frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 1]).repeat(100)),
        Box::new(|_| frame(PING, 0, 0, &[1; 8]).repeat(100)),
        // Windows beyond their limit, and of streams that do not exist.
        Box::new(|number| {
            let window = 0x7fff_ffff_u32.to_be_bytes();
            frame(WINDOW_UPDATE, 0, number % 2 * 99, &window)
        }),
        // A window of zero bytes, so that no response can be sent.
        Box::new(|number| match number {
            0 => frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]),
            _ => {
                let stream = 2 * number - 1;
                let data = frame(DATA, END_STREAM, stream, &framed(b""));
                let headers = frame(HEADERS, END_HEADERS, stream, &export_headers());
                [headers, data].concat()
            }
        }),
    ]
}

#[test]
fn abuses_of_http2_cost_only_the_client() {
    let agent = PEGEL.agent().start();
    let AgentAddress::Tcp(address) = *agent.http() else {
        panic!("not TCP")
    };
    let second = now_seconds() as i64 - 10;
    let export = |amount: i64| {
        let body = framed(&increase(second + amount, amount).encode_to_vec());
        let answer = call(agent.http(), EXPORT, &[], body);
        assert_eq!(answer.header("grpc-status"), Some("0"));
    };
    export(1);
    let before = resident_bytes(agent.pid());
    let clients: Vec<_> = { stream_abuses().into_iter() }
        .chain(connection_abuses())
        .map(|next| thread::spawn(move || send_frames(address, next)))
        .collect();
    export(2);
    for client in clients {
        client.join().expect("it ends");
    }
    export(4);
    assert_eq!(last(&agent, "work_total"), Some(7.0));
    let grown = resident_bytes(agent.pid()).saturating_sub(before);
    assert!(grown < GROWTH_MAX, "{} MB more", grown >> 20);
    agent.assert_conserved();
    let log = agent.stderr();
    assert!(!log.contains("panic"), "{log}");
}
