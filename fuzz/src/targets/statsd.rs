//! statsd lines: the fast path and the general path agree, tags keep their meaning, and no line is
//! lost.

use pegel_wire::statsd::{
    DecimalNumber, StatsdLines, StatsdMessage, StatsdMetric, StatsdType, TAGS_MAX,
};

use super::Target;

pub(super) const STATSD: Target = Target {
    name: "statsd",
    run: statsd,
    dictionary: &[
        b"|c",
        b"|C",
        b"|g",
        b"|ms",
        b"|h",
        b"|d",
        b"|s",
        b"|m",
        b"|@0.1",
        b"|#",
        b"|T1656581400",
        b"|c:",
        b"|e:",
        b"_e{1,1}:",
        b"_sc|",
        b":+1",
        b":-1",
        b"1e400",
        b"NaN",
        b"\r\n",
    ],
    seeds: || {
        [
            "jobs:1|c\nqueue:+2|g\nwait:1.5:2:3|ms|@0.1",
            "a.b:7|C|#k:v,bare,k:w|T1656581400|c:ci-1|e:it-false\r\n",
            "users:fe80::1|s\n_e{5,4}:title|text|p:low\n_sc|disk|2|m:full",
            "a:0.000001|d\nb:123456789012345|m\nc:1e-300|h\n",
            ":1|c\nbad\na:x|c\na:1|c|@2\n\n\n",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
    },
};

fn statsd(input: &[u8]) {
    let is_line = |line: &&[u8]| !matches!(line, [] | [b'\r']);
    let lines: Vec<&[u8]> = input.split(|b| *b == b'\n').filter(is_line).collect();
    let mut count = 0;
    for (found, line) in StatsdLines::new(input).zip(&lines) {
        count += 1;
        // A line parsed alone yields the same result as among others.
        let alone = StatsdLines::new(line)
            .next()
            .expect("a line that is not empty");
        assert_eq!(found.as_ref().ok(), alone.as_ref().ok());
        // A non-ASCII byte among the lines forces the others onto the general path.
        let mut long = line.to_vec();
        long.extend_from_slice("\n\u{fc}:1|c".as_bytes());
        let other = StatsdLines::new(&long).next().expect("the same line");
        match (&found, &other) {
            (Ok(one), Ok(other)) => assert_eq!(one, other),
            (Err(one), Err(other)) => assert_eq!(one.fault, other.fault),
            _ => panic!("{found:?} and {other:?}"),
        }
        if let Ok(StatsdMessage::Metric(metric)) = found {
            check(&metric);
        }
    }
    assert_eq!(
        (count, StatsdLines::new(input).count()),
        (lines.len(), lines.len())
    );
}

fn check(metric: &StatsdMetric<'_>) {
    assert!(!metric.name.is_empty() && metric.name.len() <= pegel_metric::NAME_BYTES_MAX);
    assert!(std::str::from_utf8(metric.name).is_ok_and(|name| !name.contains(char::is_control)));
    assert!(metric.weight >= 1.0 && metric.weight.is_finite());
    assert_eq!(
        metric.values().next().is_some(),
        metric.kind != StatsdType::Set
    );
    for DecimalNumber { value, .. } in metric.values() {
        assert!(value.is_finite());
    }
    assert!(metric.tags().iter().count() <= TAGS_MAX);
    let mut ordered = Vec::new();
    metric.tags().append_ordered(&mut ordered);
    if let Ok(same) = metric.tags().ordered() {
        assert_eq!(same, ordered);
    }
}
