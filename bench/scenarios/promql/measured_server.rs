//! A server whose CPU time per query is measured.

use pegel_bench::{PeerKind, PeerStore, process_cpu_time, resident_mb};
use pegel_metric::Millis;
use pegel_testkit::{AgentAddress, AgentProcess, get};

/// The number of queries per figure: garbage collectors run between queries, and their time
/// counts, too.
const QUERIES_PER_FIGURE: u32 = 10;

/// A query as the path of a request.
pub(crate) struct BenchQuery {
    path: String,
}

impl BenchQuery {
    pub(crate) fn range(
        expression: &str,
        (start, end): (Millis, Millis),
        step: Millis,
    ) -> BenchQuery {
        let (start, end, step) = (seconds(start), seconds(end), seconds(step));
        let times = format!("start={start}&end={end}&step={step}");
        BenchQuery::new("query_range", expression, &times)
    }

    pub(crate) fn instant(expression: &str, time: Millis) -> BenchQuery {
        BenchQuery::new("query", expression, &format!("time={}", seconds(time)))
    }

    /// `nocache` is for VictoriaMetrics, which keeps results otherwise.
    fn new(endpoint: &str, expression: &str, times: &str) -> BenchQuery {
        let mut query = expression.replace(' ', "+");
        for (character, escaped) in [("[", "%5B"), ("]", "%5D")] {
            query = query.replace(character, escaped);
        }
        BenchQuery {
            path: format!("/api/v1/{endpoint}?query={query}&{times}&nocache=1"),
        }
    }
}

fn seconds(time: Millis) -> f64 {
    time as f64 / 1e3
}

pub(crate) struct MeasuredServer {
    pub name: &'static str,
    address: AgentAddress,
    pid: u32,
}

impl MeasuredServer {
    pub(crate) fn of_agent(agent: &AgentProcess) -> MeasuredServer {
        MeasuredServer {
            name: "Pegel",
            address: agent.http().clone(),
            pid: agent.pid(),
        }
    }

    pub(crate) fn of_peer(peer: &PeerStore) -> MeasuredServer {
        MeasuredServer {
            name: peer.name(),
            address: peer.address(),
            pid: peer.pid(),
        }
    }

    pub(crate) fn resident_mb(&self) -> f64 {
        resident_mb(self.pid)
    }

    /// Returns the CPU time of the process per query, in milliseconds.
    pub(crate) fn cpu_ms(&self, query: &BenchQuery) -> f64 {
        let before = process_cpu_time(self.pid);
        for _ in 0..QUERIES_PER_FIGURE {
            self.send(query);
        }
        let used = process_cpu_time(self.pid).saturating_sub(before);
        used.as_secs_f64() * 1e3 / f64::from(QUERIES_PER_FIGURE)
    }

    /// Returns the values of the answer, sorted, as its series may be in any order.
    pub(crate) fn answer(&self, query: &BenchQuery) -> Vec<f64> {
        let json = self.send(query).json();
        let result = json["data"]["result"].as_array().expect("a list of series");
        assert!(!result.is_empty(), "{} has no data", self.name);
        let points = result.iter().flat_map(|series| {
            let points = series["values"].as_array().cloned();
            points.unwrap_or_else(|| vec![series["value"].clone()])
        });
        let mut values: Vec<f64> = points
            .map(|point| point[1].as_str().and_then(|text| text.parse().ok()))
            .map(|value| value.expect("a number"))
            .collect();
        values.sort_by(f64::total_cmp);
        values
    }

    fn send(&self, query: &BenchQuery) -> pegel_testkit::TestResponse {
        let answer = get(&self.address, &query.path).expect("an answer");
        assert_eq!(answer.status, 200, "{}: {}", self.name, answer.text());
        answer
    }
}

/// Checks that a peer computed the same. VictoriaMetrics does not extrapolate rates and computes
/// them from the first sample of a series on: only its median is compared.
pub(crate) fn assert_same_values(here: &[f64], theirs: &[f64], peer: &str, query: &BenchQuery) {
    let is_close = |a: f64, b: f64, tolerance: f64| {
        (a - b).abs() <= tolerance * a.abs().max(b.abs()).max(1e-6)
    };
    let is_same = if peer == PeerKind::VictoriaMetrics.name() {
        is_close(here[here.len() / 2], theirs[theirs.len() / 2], 0.1)
    } else {
        let mut pairs = here.iter().zip(theirs);
        here.len() == theirs.len() && pairs.all(|(a, b)| is_close(*a, *b, 1e-9))
    };
    assert!(is_same, "{peer} has other values: {}", query.path);
}
