//! Requests that are short, and expensive if every series is decoded and checked.

use std::sync::mpsc;
use std::time::Duration;

use pegel_store::StoreOptions;
use pegel_testkit::{TempDir, now_millis};

use super::*;
use crate::admission::AdmissionSettings;

const NAME: u8 = 1;
const STRANGER: &str = "uid 4000000001";

struct RemoteFixture {
    writer: RemoteWriter,
    sender: Arc<Sender>,
    _dir: TempDir,
}

impl RemoteFixture {
    fn new() -> RemoteFixture {
        let dir = TempDir::new();
        let store = Store::open(StoreOptions::new(dir.join("store"))).expect("a store");
        let settings = AdmissionSettings::for_tests();
        let admission = Arc::new(Admission::new(settings, store.ledger().clone()));
        RemoteFixture {
            sender: admission.sender(Input::RemoteWrite, STRANGER),
            writer: RemoteWriter::new(admission, store),
            _dir: dir,
        }
    }

    fn context(&self) -> RequestContext<'_> {
        RequestContext {
            writer: &self.writer,
            sender: &self.sender,
            own_instance: "",
            now: now_millis(),
            new_label_bytes: Cell::new(0),
        }
    }

    fn write(&self, message: &[u8]) -> Result<RemoteWriteResult, RemoteWriteError> {
        let message = RemoteMessage::V2(message);
        self.writer.write(&self.sender, message, "", now_millis())
    }
}

/// A field with bytes: its number and its length come first.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    push_varint(&mut out, bytes.len() as u64);
    out.extend(bytes);
    out
}

fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The symbols of a request of version 2.0. The first is empty, the second is `__name__`.
fn symbols(texts: &[&str]) -> Vec<u8> {
    let texts = ["", "__name__"].iter().chain(texts);
    texts.flat_map(|text| field(4, text.as_bytes())).collect()
}

fn series(references: &[u8], samples: usize) -> Vec<u8> {
    let mut time = vec![2 << 3];
    push_varint(&mut time, now_millis() as u64);
    let samples = std::iter::repeat_n(field(2, &time), samples).flatten();
    let series: Vec<u8> = field(1, references).into_iter().chain(samples).collect();
    field(5, &series)
}

#[test]
fn a_long_symbol_is_neither_read_nor_copied_for_each_series() {
    let f = RemoteFixture::new();
    let name = format!("node_{}", "x".repeat(4_000_000));
    let message = [symbols(&[&name]), series(&[NAME, 2], 1).repeat(2_000)].concat();
    let context = f.context();
    let collected = context.collect_v2(&message).expect("valid");
    assert_eq!(context.new_label_bytes.get(), 0, "no label was read");
    assert_eq!((collected.points.len(), collected.series), (0, 2_000));
    assert_eq!(collected.refused.count(), 2_000);
    let refused = collected.refused.to_string();
    assert!(refused.len() < 200, "{refused}");
    // The same as a label, and in version 1.0.
    let message = [
        symbols(&["m", &name]),
        series(&[NAME, 2, 3, 2, 2, 3], 1).repeat(100),
    ];
    let collected = context.collect_v2(&message.concat()).expect("valid");
    assert_eq!(collected.refused.count(), 100);
    let label = [field(1, b"__name__"), field(2, name.as_bytes())].concat();
    let sample = field(2, &[2 << 3, 1]);
    let message = field(1, &[field(1, &label), sample].concat());
    let collected = context.collect_v1(&message).expect("valid");
    assert_eq!(collected.refused.count(), 1);
    assert_eq!(context.new_label_bytes.get(), 0, "no label was read");
    assert_eq!(f.sender.series(), 0);
}

#[test]
fn refused_series_and_samples_and_their_labels_are_limited() {
    let f = RemoteFixture::new();
    let label = "v".repeat(16_000);
    let start = symbols(&["node_x", "k", &label, "m"]);
    // Belongs to the node, so that each is checked and refused.
    let refused = [NAME, 2, 3, 4];
    let write = |series: Vec<u8>| {
        let written = f.write(&[start.clone(), series].concat());
        written.map_err(|error| error.to_string())
    };
    let written = write(series(&refused, 1).repeat(8_000)).expect("written");
    assert_eq!((written.kept, written.refused.count()), (0, 8_000));
    let malformed = |what: &str| format!("malformed protobuf message: more than {what}");
    for (message, what) in [
        (
            series(&refused, 1).repeat(9_000),
            "134217728 bytes of labels of new series",
        ),
        (
            series(&[NAME, 5, 3, 3], 0).repeat(SAMPLES_MAX + 1),
            "100000 series",
        ),
        (series(&refused, SAMPLES_MAX + 1), "100000 samples"),
    ] {
        assert_eq!(write(message).expect_err(what), malformed(what));
    }
}

#[test]
fn series_are_admitted_while_others_use_the_cache() {
    let f = RemoteFixture::new();
    let context = f.context();
    let labels = SentLabels {
        name: "m",
        labels: vec![("k", "v")],
    };
    let key = f.writer.hasher.of_bytes(b"a key");
    let mut cache = context.cache();
    let place = context.place_of(&mut cache, key, || {
        // Another request with the same series is faster.
        let mut other = f.writer.cache.try_lock().expect("not in use");
        let admitted = context.admit(&labels)?;
        other.insert(key, admitted, context.now);
        context.admit(&labels)
    });
    assert_eq!((place.expect("admitted"), cache.len()), (0, 1));
    assert_eq!(f.sender.series(), 1, "charged once");
    let known = context.place_of(&mut cache, key, || unreachable!("known"));
    assert_eq!(known.expect("known"), 0);
}

#[test]
fn the_status_waits_for_no_request() {
    let f = RemoteFixture::new();
    let message = [symbols(&["m", "k", "v"]), series(&[NAME, 2, 3, 4], 1)].concat();
    assert_eq!(f.write(&message).expect("written").kept, 1);
    let (send, status) = mpsc::channel();
    std::thread::scope(|threads| {
        let in_use = (f.writer.cache.lock(), f.writer.metadata.lock());
        threads.spawn(|| send.send(f.writer.status()));
        let status = status.recv_timeout(Duration::from_secs(30));
        let status = status.expect("does not wait");
        assert_eq!((status.series, status.metadata), (1, 0));
        drop(in_use);
    });
}
