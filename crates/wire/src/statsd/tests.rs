//! Lines of the statsd protocol: accepted forms, faults, and agreement of the quick and the full
//! parser.

use super::*;

fn all(datagram: &[u8]) -> Vec<Result<StatsdMessage<'_>, StatsdLineError>> {
    StatsdLines::new(datagram).collect()
}

fn one(line: &str) -> StatsdMetric<'_> {
    match all(line.as_bytes())[..] {
        [Ok(StatsdMessage::Metric(metric))] => metric,
        ref other => panic!("{line}: {other:?}"),
    }
}

fn fault(line: &[u8]) -> StatsdLineFault {
    match all(line)[..] {
        [Err(StatsdLineError { fault, at: 0 })] => fault,
        ref other => panic!("{:?}: {other:?}", String::from_utf8_lossy(line)),
    }
}

fn values(line: &str) -> Vec<f64> {
    one(line).values().map(|number| number.value).collect()
}

fn tags(line: &str) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("the parser checked it");
    one(line)
        .tags()
        .iter()
        .map(|(key, value)| (text(key), text(value)))
        .collect()
}

#[test]
fn every_type_is_known() {
    for kind in StatsdType::ALL {
        let line = format!("a.b:7|{}", kind.as_str());
        let metric = one(&line);
        assert_eq!(
            (metric.name, metric.kind, metric.weight),
            (&b"a.b"[..], kind, 1.0)
        );
        match kind {
            StatsdType::Set => assert_eq!(metric.member(), b"7"),
            _ => assert_eq!(values(&line), [7.0]),
        }
    }
}

#[test]
fn a_datagram_may_end_with_or_without_a_newline() {
    for datagram in [
        "a:1|c\nb:2|g",
        "a:1|c\nb:2|g\n",
        "a:1|c\r\nb:2|g\r\n",
        "\n\na:1|c\n\r\n\nb:2|g\n\n",
    ] {
        let names: Vec<&[u8]> = all(datagram.as_bytes())
            .into_iter()
            .map(|line| match line {
                Ok(StatsdMessage::Metric(metric)) => metric.name,
                other => panic!("{datagram:?}: {other:?}"),
            })
            .collect();
        assert_eq!(names, [b"a", b"b"], "{datagram:?}");
    }
    assert!(all(b"").is_empty() && all(b"\n").is_empty() && all(b"\r\n\n").is_empty());
}

#[test]
fn fields_may_come_in_any_order() {
    for line in [
        "a:1|c|@0.1|#k:v,bare|T1656581400|c:ci-83f|e:it-false|card:low",
        "a:1|c|card:low|T1656581400|#k:v,bare|c:ci-83f|@0.1|e:it-false",
    ] {
        let metric = one(line);
        assert_eq!((metric.weight, metric.time), (10.0, Some(1_656_581_400)));
        assert_eq!(
            tags(line),
            [("k".into(), "v".into()), ("bare".into(), "true".into())]
        );
    }
    assert!(one("a:1|c|#").tags().is_empty());
}

#[test]
fn values_may_be_packed() {
    assert_eq!(values("a:1:2.5:-3|ms"), [1.0, 2.5, -3.0]);
    assert_eq!(values("a:1:2|d|@0.5"), [1.0, 2.0]);
    assert!(one("a:1:2|h").is_packed() && !one("a:1|h").is_packed());
    let set = one("a:fe80::1|s");
    assert_eq!(
        (set.member(), set.is_packed(), set.values().count()),
        (&b"fe80::1"[..], false, 0)
    );
}

#[test]
fn a_gauge_says_whether_it_moves() {
    for (line, sign) in [
        ("g:1|g", NumberSign::None),
        ("g:+1|g", NumberSign::Plus),
        ("g:-1|g", NumberSign::Minus),
    ] {
        assert_eq!(one(line).first().sign, sign, "{line}");
    }
}

#[test]
fn every_malformed_line_is_refused_by_reason() {
    use StatsdLineFault::*;
    let table: &[(&[u8], StatsdLineFault)] = &[
        (b"\xff:1|c", Utf8),
        (b"a\0b:1|c", Control),
        (b"a:1|c\x07", Control),
        (b"a\xc2\x85b:1|c", Control),
        (b"a", NoColon),
        (b"a|c", NoColon),
        (b":1|c", NameEmpty),
        (b"a{b}:1|c", NameCharacter),
        (b"a|b:1|c", NameCharacter),
        (b"a:|c", Value(NumberFault::NotANumber)),
        (b"a:x|c", Value(NumberFault::NotANumber)),
        (b"a:1:x:3|ms", Value(NumberFault::NotANumber)),
        (b"a:1:|ms", Value(NumberFault::NotANumber)),
        (b"a:1e400|c", Value(NumberFault::NotFinite)),
        (b"a:NaN|g", Value(NumberFault::NotFinite)),
        (b"a:-inf|g", Value(NumberFault::NotFinite)),
        (b"a:|s", MemberEmpty),
        (b"a:1", NoType),
        (b"a:1|", UnknownType),
        (b"a:1|x", UnknownType),
        (b"a:1|cc", UnknownType),
        (b"a:1|c|@", Rate),
        (b"a:1|c|@0", Rate),
        (b"a:1|c|@-0.1", Rate),
        (b"a:1|c|@1.1", Rate),
        (b"a:1|c|@NaN", Rate),
        (b"a:1|c|@inf", Rate),
        (b"a:1|c|@1e-320", Rate),
        (b"a:1|c|@1e-300", Rate),
        (b"a:1|c|@0.00000099", Rate),
        (b"a:1|c|@0.1x", Rate),
        (b"a:1|c|#:v", Tag),
        (b"a:1|c|#a=b", Tag),
        (b"a:1|c|T", Time),
        (b"a:1|c|T1.5", Time),
        (b"a:1|c|T-1", Time),
        (b"a:1|c|", Field),
        (b"a:1|c|x", Field),
        (b"a:1|c|0.1", Field),
        (b"_e{9,9}:a|b", Event),
        (b"_sc|a|7", Check),
    ];
    for (line, expected) in table {
        assert_eq!(
            fault(line),
            *expected,
            "{:?}",
            String::from_utf8_lossy(line)
        );
        assert!(!expected.to_string().is_empty());
        let mut around = b"before:1|c\n".to_vec();
        around.extend_from_slice(line);
        around.extend_from_slice(b"\nafter:2|c");
        match all(&around)[..] {
            [
                Ok(StatsdMessage::Metric(before)),
                Err(error),
                Ok(StatsdMessage::Metric(after)),
            ] => {
                assert_eq!((before.name, after.name), (&b"before"[..], &b"after"[..]));
                assert_eq!(
                    error,
                    StatsdLineError {
                        fault: *expected,
                        at: 11
                    }
                );
            }
            ref other => panic!("{other:?}"),
        }
    }
}

#[test]
fn lengths_have_bounds() {
    let longest = "n".repeat(pegel_metric::NAME_BYTES_MAX);
    assert_eq!(one(&format!("{longest}:1|c")).name.len(), longest.len());
    assert_eq!(
        fault(format!("{longest}n:1|c").as_bytes()),
        StatsdLineFault::NameTooLong
    );
    assert_eq!(
        fault(format!("{longest}n:1e0|c").as_bytes()),
        StatsdLineFault::NameTooLong
    );
    let line = format!("a:{}|s", "m".repeat(LINE_BYTES_MAX));
    assert_eq!(fault(line.as_bytes()), StatsdLineFault::LineTooLong);
    let datagram = "a:1|c\n".repeat(10_922);
    assert_eq!(
        all(datagram.as_bytes())
            .iter()
            .filter(|line| line.is_ok())
            .count(),
        10_922
    );
}

#[test]
fn events_and_checks_are_told_apart() {
    match all("_e{1,2}:t|ü|p:low\n_sc|s|1\nm:1|c".as_bytes())[..] {
        [
            Ok(StatsdMessage::Event(event)),
            Ok(StatsdMessage::Check(check)),
            Ok(StatsdMessage::Metric(_)),
        ] => {
            assert_eq!((event.text, event.fields), ("ü".as_bytes(), &b"p:low"[..]));
            assert_eq!((check.name, check.status), (&b"s"[..], 1));
        }
        ref other => panic!("{other:?}"),
    }
}

/// The quick and the full parser must accept the same lines with the same results.
#[test]
fn short_lines_mean_the_same_either_way() {
    let pieces: &[&str] = &[
        "a",
        "b.c",
        ":",
        ":",
        "|",
        "|",
        "c",
        "g",
        "ms",
        "m",
        "s",
        "h",
        "1",
        "-2",
        "+3.5",
        "12345678901234567",
        "@0.1",
        "#x:y",
        ".",
        "e",
        "_sc",
        " ",
        "T5",
    ];
    let mut state = 0x1234_5678_9abc_def1_u64;
    for _ in 0..200_000 {
        let mut line = String::new();
        for _ in 0..7 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            line.push_str(pieces[(state % pieces.len() as u64) as usize]);
        }
        let long =
            line_parser::parse(line.as_bytes()).map_err(|fault| StatsdLineError { fault, at: 0 });
        assert_eq!(all(line.as_bytes()), [long], "{line}");
    }
}

/// Whatever the input, each line is counted once, and nothing panics.
#[test]
fn any_bytes_are_walked_to_their_end() {
    let mut state = 88_172_645_463_325_252_u64;
    let alphabet = b"a:1|c\n\r@#,T_e{}\xff\xc3\0.+-9s";
    for _ in 0..50_000 {
        let mut bytes = Vec::new();
        for _ in 0..24 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.push(alphabet[(state % alphabet.len() as u64) as usize]);
        }
        let is_blank = |line: &&[u8]| !matches!(line, [] | [b'\r']);
        let lines = bytes.split(|b| *b == b'\n').filter(is_blank).count();
        assert_eq!(
            all(&bytes).len(),
            lines,
            "{:?}",
            String::from_utf8_lossy(&bytes)
        );
    }
}
