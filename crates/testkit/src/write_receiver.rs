//! A receiver of Prometheus' remote write that records what arrives, and fails on request.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use pegel_wire::remote_write::{SentLabels, WriteItem, WriteRequestV1, WriteRequestV2};

/// A fault: a request is not stored and confirmed as usual.
#[derive(Debug, Clone)]
pub enum WriteFault {
    /// Not stored; answered with a status and more header lines.
    Status(u16, &'static str),
    /// Stored, and the connection is closed without an answer.
    LostAnswer,
    /// Stored and confirmed after a while.
    Slow(Duration),
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct RecordedWrite {
    /// 1 or 2.
    pub version: u8,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Labels, and times and bits of values.
    pub series: Vec<(String, Vec<(i64, u64)>)>,
    pub is_stored: bool,
}

/// Samples by labels, in the order of their arrival: times, and bits of values.
pub type ArrivedSamples = BTreeMap<String, Vec<(i64, u64)>>;

#[derive(Debug, Default)]
struct ReceiverState {
    requests: Vec<RecordedWrite>,
    faults: VecDeque<WriteFault>,
}

/// The receiver, on a free port.
#[derive(Debug)]
pub struct WriteReceiver {
    pub url: String,
    state: Arc<Mutex<ReceiverState>>,
    is_down: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl WriteReceiver {
    pub fn start() -> WriteReceiver {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(Mutex::new(ReceiverState::default()));
        let (is_down, stop) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let shared = (state.clone(), is_down.clone(), stop.clone());
        let thread = thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (state, is_down, stop) = shared.clone();
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                thread::spawn(move || serve(stream, &state, &is_down));
            }
        });
        WriteReceiver {
            url: format!("http://{address}/api/v1/write"),
            state,
            is_down,
            stop,
            thread: Some(thread),
        }
    }

    /// Closes all connections without an answer while `is_down`.
    pub fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
    }

    /// Applies a fault to the next request that has none yet.
    pub fn fail_next(&self, fault: WriteFault) {
        self.state.lock().faults.push_back(fault);
    }

    /// Stores and confirms all further requests.
    pub fn clear_faults(&self) {
        self.state.lock().faults.clear();
    }

    pub fn requests(&self) -> Vec<RecordedWrite> {
        self.state.lock().requests.clone()
    }

    /// Returns the stored samples.
    pub fn samples(&self) -> ArrivedSamples {
        let mut samples = ArrivedSamples::new();
        for request in self.state.lock().requests.iter() {
            for (labels, list) in request.series.iter().filter(|_| request.is_stored) {
                samples.entry(labels.clone()).or_default().extend(list);
            }
        }
        samples
    }

    /// Returns the number of samples that were stored.
    pub fn sample_count(&self) -> usize {
        self.samples().values().map(Vec::len).sum()
    }
}

impl Drop for WriteReceiver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the accepting thread.
        let address = self.url.trim_start_matches("http://");
        let _ = TcpStream::connect(address.trim_end_matches("/api/v1/write"));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers the requests of one connection.
fn serve(stream: TcpStream, state: &Mutex<ReceiverState>, is_down: &AtomicBool) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
    let mut reader = BufReader::new(stream);
    while let Some(mut request) = read_request(&mut reader) {
        if is_down.load(Ordering::Relaxed) {
            return;
        }
        let mut locked = state.lock();
        let fault = locked.faults.pop_front();
        request.is_stored = !matches!(fault, Some(WriteFault::Status(..)));
        let count: usize = request
            .series
            .iter()
            .map(|(_, samples)| samples.len())
            .sum();
        let version = request.version;
        locked.requests.push(request);
        drop(locked);
        let written = match version {
            2 => format!("X-Prometheus-Remote-Write-Samples-Written: {count}\r\n"),
            _ => String::new(),
        };
        let answer = match fault {
            None => format!("HTTP/1.1 204 No Content\r\n{written}\r\n"),
            Some(WriteFault::Slow(time)) => {
                thread::sleep(time);
                format!("HTTP/1.1 204 No Content\r\n{written}\r\n")
            }
            Some(WriteFault::LostAnswer) => return,
            Some(WriteFault::Status(status, headers)) => {
                format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: 5\r\n\r\nfault")
            }
        };
        if reader.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<RecordedWrite> {
    let lines = reader.by_ref().lines().map_while(Result::ok);
    let lines: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let headers: BTreeMap<String, String> = { lines.iter() }
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    let message = snap::raw::Decoder::new().decompress_vec(&body);
    let message = message.expect("compressed with snappy");
    let is_v2 = headers["content-type"].contains("io.prometheus.write.v2.Request");
    let series = if is_v2 {
        series_v2(&message)
    } else {
        series_v1(&message)
    };
    Some(RecordedWrite {
        version: if is_v2 { 2 } else { 1 },
        headers,
        series,
        is_stored: false,
    })
}

fn series_v1(message: &[u8]) -> Vec<(String, Vec<(i64, u64)>)> {
    let mut found = Vec::new();
    for item in WriteRequestV1::new(message) {
        if let WriteItem::Series(series) = item.expect("valid") {
            let labels = text(&series.labels().expect("valid labels"));
            let samples = series.samples.map(|sample| sample.expect("valid"));
            let samples = samples.map(|sample| (sample.time, sample.value.to_bits()));
            found.push((labels, samples.collect()));
        }
    }
    found
}

fn series_v2(message: &[u8]) -> Vec<(String, Vec<(i64, u64)>)> {
    let request = WriteRequestV2::new(message).expect("valid");
    let mut found = Vec::new();
    let visited = request.visit_series(|series, references| {
        let labels = text(&request.labels(references).expect("valid labels"));
        let samples = series.samples.map(|sample| sample.expect("valid"));
        let samples = samples.map(|sample| (sample.time, sample.value.to_bits()));
        found.push((labels, samples.collect()));
        Ok(())
    });
    visited.expect("valid");
    found
}

/// Writes labels as `name{k="v",…}`.
fn text(labels: &SentLabels<'_>) -> String {
    let list = labels.labels.iter();
    let list: Vec<String> = list
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect();
    format!("{}{{{}}}", labels.name, list.join(","))
}
