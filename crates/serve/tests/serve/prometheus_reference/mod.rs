//! The same samples in a real Prometheus 3 and here, and the same queries to both: values, labels,
//! order where it is defined, and errors must be equal.
//!
//! The samples have gaps, resets, stale markers, NaN and infinities. Expressions are written
//! (`written.rs`) and generated (`generated.rs`); each is evaluated at times on and off samples and
//! over a range.

mod comparison;
mod generated;
mod remote_write;
mod samples;
mod written;

use std::time::Duration;

use pegel_metric::Millis;
use pegel_testkit::{
    AgentAddress, PrometheusProcess, Rng, TestResponse, eventually, get, need_peer, post,
};
use serde_json::Value;

use crate::support::{TestServer, now};

use comparison::difference;
use samples::reference_samples;

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// A query: the path and its parameters.
struct ComparedQuery {
    path: &'static str,
    parameters: Vec<(&'static str, String)>,
}

impl ComparedQuery {
    fn instant(expression: &str, time: Millis) -> ComparedQuery {
        let parameters = vec![("query", expression.to_owned()), ("time", seconds(time))];
        ComparedQuery {
            path: "/api/v1/query",
            parameters,
        }
    }

    fn range(expression: &str, (start, end, step): (Millis, Millis, Millis)) -> ComparedQuery {
        ComparedQuery {
            path: "/api/v1/query_range",
            parameters: vec![
                ("query", expression.to_owned()),
                ("start", seconds(start)),
                ("end", seconds(end)),
                ("step", seconds(step)),
            ],
        }
    }

    fn send(&self, address: &AgentAddress) -> (u16, Value) {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(&self.parameters);
        let form = form.finish();
        let response: TestResponse =
            post(address, self.path, &[FORM], form.as_bytes()).expect("an answer");
        (response.status, response.json())
    }
}

fn seconds(time: Millis) -> String {
    format!("{}.{:03}", time / 1_000, time % 1_000)
}

/// Starts Prometheus, which accepts samples by remote write.
fn start_prometheus() -> Option<PrometheusProcess> {
    let program = need_peer("prometheus/usr/bin/prometheus")?;
    let prometheus = PrometheusProcess::start(&program, |home| {
        std::fs::write(home.join("config.yml"), "").expect("written");
        [
            "--config.file=config.yml",
            "--storage.tsdb.path=data",
            "--web.enable-remote-write-receiver",
            "--enable-feature=promql-experimental-functions",
            "--log.level=info",
        ]
        .map(str::to_owned)
        .to_vec()
    });
    eventually("Prometheus is ready", || {
        match get(&prometheus.address, "/-/ready") {
            Ok(response) if response.status == 200 => Ok(()),
            other => Err(other.map(|response| response.status)),
        }
    });
    Some(prometheus)
}

#[test]
fn expressions_have_the_results_of_prometheus() {
    let Some(prometheus) = start_prometheus() else {
        return;
    };
    let mut rng = Rng::from_env();
    let begin = (now() / 60_000 - 55) * 60_000;
    let samples = reference_samples(begin, &mut rng);
    let end = begin + samples::LENGTH;
    eventually("Prometheus accepts samples", || {
        remote_write::send(&prometheus.address, &samples)
    });
    let server = TestServer::with(|settings| {
        settings.promql.timeout = pegel_config::TimeSpan::seconds(30);
        settings.request_time = Duration::from_secs(60);
    });
    samples::store(&server.store, &samples);
    let agent = AgentAddress::Tcp(server.tcp());

    let mut queries = Vec::new();
    let mut expressions = written::expressions();
    expressions.extend((0..1_000).map(|_| generated::expression(&mut rng)));
    for expression in &expressions {
        let on_a_sample = begin + rng.between(1..240) * 10_000;
        let off_samples = begin + rng.between(0..samples::LENGTH + 400_000);
        let step = *rng.pick(&[7_000, 10_000, 30_000, 61_500]);
        let start = begin + rng.between(-60..200) * 5_000;
        let range = (start, (start + 40 * step).min(end + 400_000), step);
        queries.push(ComparedQuery::instant(expression, on_a_sample));
        queries.push(ComparedQuery::instant(expression, off_samples));
        queries.push(ComparedQuery::range(expression, range));
    }
    let mut differences = Vec::new();
    let mut with_data = 0;
    for query in &queries {
        let expected = query.send(&prometheus.address);
        let found = query.send(&agent);
        let results = expected.1["data"]["result"].as_array();
        with_data += usize::from(results.is_some_and(|list| !list.is_empty()));
        if let Some(difference) = difference(&query.parameters[0].1, &expected, &found) {
            differences.push(format!("{:?}\n  {difference}", query.parameters));
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {} queries differ:\n{}",
        differences.len(),
        queries.len(),
        differences[..differences.len().min(20)].join("\n")
    );
    assert!(expressions.len() >= 1_200, "{}", expressions.len());
    // Most queries select something: empty results would be equal for no good reason.
    assert!(
        with_data * 2 > queries.len(),
        "{with_data} of {}",
        queries.len()
    );
}

#[test]
fn expressions_have_the_syntax_tree_and_the_form_of_prometheus() {
    let Some(prometheus) = start_prometheus() else {
        return;
    };
    let server = TestServer::new();
    let agent = AgentAddress::Tcp(server.tcp());
    let mut rng = Rng::from_env();
    let mut expressions = written::expressions();
    expressions.extend((0..100).map(|_| generated::expression(&mut rng)));
    let mut differences = Vec::new();
    for (path, expression) in ["/api/v1/parse_query", "/api/v1/format_query"]
        .iter()
        .flat_map(|path| expressions.iter().map(move |expression| (path, expression)))
    {
        let parameters = vec![("query", expression.clone())];
        let query = ComparedQuery { path, parameters };
        let (expected, found) = (query.send(&prometheus.address), query.send(&agent));
        // The parser writes infinity without its sign, and indents subqueries.
        let data = |body: &Value| match body["data"].as_str() {
            Some(text) => text.replace("+Inf", "Inf").split_whitespace().collect(),
            None => body["data"].to_string(),
        };
        let is_equal = expected.0 == found.0 && data(&expected.1) == data(&found.1);
        if !is_equal {
            differences.push(format!("{expression}\n  {}\n  {}", expected.1, found.1));
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {} differ:\n{}",
        differences.len(),
        expressions.len(),
        differences[..differences.len().min(20)].join("\n")
    );
}
