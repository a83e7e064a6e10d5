//! `pegel record`: records are described, checked and printed without an agent.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use pegel_metric::MetricKind;
use pegel_record::{RecordBlock, RecordSamples, RecordWriter};
use pegel_testkit::{FinishedProcess, TempDir, isolate, need};

use crate::PEGEL;
use crate::fake_pegel::{finish, succeed};

const SUMMARY: &str = r#"{"workflow":"wf-7","task":"align","attempt":"1","node":"n1",
    "begin":1000,"end":9000,"task_end":8000,"exit_status":0,
    "peaks":{"memory_bytes":1048576,"cpu_seconds":3.5}}"#;

fn samples(second: i64) -> Vec<RecordSamples> {
    let one = |series: &str, kind, value: f64| RecordSamples {
        series: series.into(),
        kind,
        times: [second * 1000, second * 1000 + 500].into(),
        values: vec![value, value + 0.5],
    };
    vec![
        one("node_load1", MetricKind::Gauge, second as f64),
        one(
            r#"node_cpu_seconds_total{cpu="0",mode="idle"}"#,
            MetricKind::Counter,
            second as f64 * 10.0,
        ),
    ]
}

/// A snapshot, six blocks of samples and the end.
fn blocks() -> Vec<RecordBlock> {
    let mut writer = RecordWriter::default();
    let mut blocks = vec![writer.document(1000, r#"{"node":"n1","taken":"now"}"#)];
    for second in 1..=6 {
        blocks.extend(writer.samples(&samples(second)));
    }
    blocks.push(writer.autopsy(7000, r#"{"reason":"oom-kill"}"#));
    blocks.push(writer.end(9000, SUMMARY));
    blocks
}

/// Writes a record of two parts. The second has the blocks from `split` on.
fn write_record(dir: &TempDir, blocks: &[RecordBlock], split: usize) -> PathBuf {
    let folder = dir.join("wf-7/align/1");
    fs::create_dir_all(&folder).expect("created");
    let bytes = |blocks: &[RecordBlock]| -> Vec<u8> {
        blocks
            .iter()
            .flat_map(|block| block.bytes.clone())
            .collect()
    };
    fs::write(folder.join("record-00000.pgl"), bytes(&blocks[..split])).expect("written");
    fs::write(folder.join("record-00001.pgl"), bytes(&blocks[split..])).expect("written");
    folder
}

fn record(dir: &TempDir, args: &[&str]) -> FinishedProcess {
    finish(PEGEL.command(dir).arg("record").args(args))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_whole_record_is_described_and_checked() {
    let dir = TempDir::new();
    let folder = write_record(&dir, &blocks(), 4);
    let checked = record(&dir, &["check", text(&folder)]);
    assert_eq!(checked.code(), Some(0), "{checked}");
    assert!(checked.stdout.contains("9 blocks, no damage"), "{checked}");
    let info = record(&dir, &["info", "-f", "json", text(&folder)]);
    let info: serde_json::Value = serde_json::from_str(&info.stdout).expect("JSON");
    for (pointer, expected) in [
        ("/identity/task", "\"align\""),
        ("/identity/workflow", "\"wf-7\""),
        ("/node", "\"n1\""),
        ("/start", "1000"),
        ("/end", "6500"),
        ("/parts", "2"),
        ("/blocks/key/count", "1"),
        ("/blocks/samples/count", "5"),
        ("/series", "2"),
        ("/samples", "24"),
        ("/gap_count", "0"),
        ("/has_ended", "true"),
        ("/summary/exit_status", "0"),
        ("/autopsies/0/reason", "\"oom-kill\""),
    ] {
        let found = info.pointer(pointer).map(ToString::to_string);
        assert_eq!(found.as_deref(), Some(expected), "{pointer}: {info:#}");
    }
    let shown = record(&dir, &["info", text(&folder)]);
    for part in ["align", "n1", "1970-01-01 00:00:01Z", "clean", "oom-kill"] {
        assert!(shown.stdout.contains(part), "{part}: {shown}");
    }
}

#[test]
fn a_later_part_is_whole_without_the_earlier_ones() {
    let dir = TempDir::new();
    let mut writer = RecordWriter::default();
    let mut blocks = vec![writer.document(0, "{}")];
    blocks.extend(writer.samples(&samples(1)));
    blocks.extend(writer.samples(&samples(400)));
    let folder = write_record(&dir, &blocks, 2);
    let part = folder.join("record-00001.pgl");
    let checked = record(&dir, &["check", text(&part)]);
    assert_eq!(checked.code(), Some(0), "{checked}");
    assert!(checked.stdout.contains("it has no end"), "{checked}");
    // Without its first part the record is not whole.
    fs::remove_file(folder.join("record-00000.pgl")).expect("removed");
    fs::copy(&part, folder.join("record-00002.pgl")).expect("copied");
    let checked = record(&dir, &["check", text(&folder)]);
    assert_eq!(checked.code(), Some(1), "{checked}");
    assert!(
        checked.stdout.contains("blocks 0 to 1: missing"),
        "{checked}"
    );
    let repeated = "block 2 at record-00002.pgl, byte 0: repeated, ignored";
    assert!(checked.stdout.contains(repeated), "{checked}");
}

#[test]
fn damage_is_listed_block_by_block_and_the_rest_is_printed() {
    let dir = TempDir::new();
    let folder = write_record(&dir, &blocks(), 4);
    let part = folder.join("record-00001.pgl");
    let mut bytes = fs::read(&part).expect("read");
    // The body of its first block, number 4.
    bytes[50] ^= 1;
    bytes.truncate(bytes.len() - 3);
    fs::write(&part, &bytes).expect("written");
    let checked = record(&dir, &["check", text(&folder)]);
    assert_eq!(checked.code(), Some(1), "{checked}");
    for line in [
        "block 4 at record-00001.pgl, byte 0: wrong checksum of the body",
        "block 5 at record-00001.pgl",
        "samples depend on a missing or damaged block",
        "the record ends within a block",
    ] {
        assert!(checked.stdout.contains(line), "{line}: {checked}");
    }
    assert!(checked.stderr.contains("has no end"), "{checked}");
    let printed = record(&dir, &["cat", "--match", "load", text(&folder)]);
    assert_eq!(printed.code(), Some(0), "{printed}");
    assert_eq!(
        printed.stdout,
        "name,ts,value\nnode_load1,1,1\nnode_load1,1.5,1.5\nnode_load1,2,2\n\
         node_load1,2.5,2.5\nnode_load1,3,3\nnode_load1,3.5,3.5\n"
    );
    assert!(printed.stderr.contains("block 4 at"), "{printed}");
    let info = record(&dir, &["info", text(&folder)]);
    assert!(info.stdout.contains("blocks 4 to 6"), "{info}");
}

#[test]
fn samples_and_documents_are_printed_in_each_format() {
    let dir = TempDir::new();
    let folder = write_record(&dir, &blocks(), 4);
    let range = ["--start", "1970-01-01T00:00:02Z", "--end", "2.5"];
    let cat = |args: &[&str]| {
        let args = [&["cat"], args, &range[..], &[text(&folder)]].concat();
        let printed = record(&dir, &args);
        assert_eq!(printed.code(), Some(0), "{printed}");
        printed.stdout
    };
    assert_eq!(
        cat(&["-f", "jsonl", "--match", "{mode=\"idle\"}"]),
        "{\"name\":\"node_cpu_seconds_total{cpu=\\\"0\\\",mode=\\\"idle\\\"}\",\"ts\":2,\"value\":20}\n\
         {\"name\":\"node_cpu_seconds_total{cpu=\\\"0\\\",mode=\\\"idle\\\"}\",\"ts\":2.5,\"value\":20.5}\n"
    );
    assert_eq!(
        cat(&["-f", "openmetrics"]),
        "# TYPE node_cpu_seconds counter\n\
         node_cpu_seconds_total{cpu=\"0\",mode=\"idle\"} 20 2\n\
         node_cpu_seconds_total{cpu=\"0\",mode=\"idle\"} 20.5 2.5\n\
         # TYPE node_load1 gauge\nnode_load1 2 2\nnode_load1 2.5 2.5\n# EOF\n"
    );
    let documents = record(&dir, &["cat", "--documents", text(&folder)]).stdout;
    let documents: Vec<serde_json::Value> = documents
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let kinds: Vec<&str> = documents
        .iter()
        .filter_map(|one| one["kind"].as_str())
        .collect();
    assert_eq!(kinds, ["document", "autopsy", "end"]);
    assert_eq!(documents[2]["content"]["peaks"]["cpu_seconds"], 3.5);
    let nothing = record(&dir, &["cat", "--match", "nope", text(&folder)]);
    assert_eq!(nothing.code(), Some(4), "{nothing}");
}

#[test]
fn prometheus_imports_the_openmetrics_of_a_record() {
    let Some(promtool) = need("promtool") else {
        return;
    };
    let dir = TempDir::new();
    let folder = write_record(&dir, &blocks(), 4);
    let printed = record(&dir, &["cat", "-f", "openmetrics", text(&folder)]);
    fs::write(dir.join("record.om"), printed.stdout).expect("written");
    let imported = succeed(
        std::process::Command::new(&promtool)
            .args([
                "tsdb",
                "create-blocks-from",
                "openmetrics",
                "record.om",
                "blocks",
            ])
            .current_dir(dir.path()),
    );
    let count = fs::read_dir(dir.join("blocks")).expect("blocks").count();
    assert!(count > 0, "{imported}");
    // A store without a log: promtool expects the folder.
    fs::create_dir(dir.join("blocks/wal")).expect("created");
    let dumped = succeed(
        std::process::Command::new(&promtool)
            .args(["tsdb", "dump", "blocks"])
            .current_dir(dir.path()),
    );
    assert_eq!(dumped.stdout.matches("node_load1").count(), 12, "{dumped}");
}

#[test]
fn a_closed_pipe_ends_the_output_without_an_error() {
    let dir = TempDir::new();
    let mut writer = RecordWriter::default();
    let many: Vec<RecordSamples> = (0..100)
        .map(|number| RecordSamples {
            series: format!("series_{number}").into(),
            kind: MetricKind::Gauge,
            times: (0..1000).collect(),
            values: vec![0.5; 1000],
        })
        .collect();
    let folder = write_record(&dir, &writer.samples(&many), 1);
    for format in ["csv", "jsonl", "openmetrics"] {
        let line = format!(
            "set -o pipefail; '{PEGEL}' record cat -f {format} '{}' | head -n 1 >/dev/null",
            folder.display()
        );
        let mut shell = std::process::Command::new("bash");
        isolate(&mut shell, &dir);
        let finished = succeed(shell.args(["-c", &line]));
        assert_eq!(finished.stderr, "", "{finished}");
    }
}

#[test]
fn records_are_read_from_standard_input_and_urls() {
    let dir = TempDir::new();
    let folder = write_record(&dir, &blocks(), 4);
    let url = format!("file://{}", folder.display());
    let by_url = record(&dir, &["cat", &url]);
    let input: Vec<u8> = ["record-00000.pgl", "record-00001.pgl"]
        .iter()
        .flat_map(|name| fs::read(folder.join(name)).expect("read"))
        .collect();
    let mut child = PEGEL
        .command(&dir)
        .args(["record", "cat", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut stdin, &input).expect("written");
    drop(stdin);
    let by_pipe = child.wait_with_output().expect("ends");
    assert!(by_pipe.status.success());
    assert_eq!(by_url.stdout.as_bytes(), by_pipe.stdout);
    for (location, message) in [
        (
            "azblob://acct/c/wf?sig=planted",
            "a place has no query string",
        ),
        ("file://relative", "file:///DIR"),
        ("missing", "cannot read missing"),
        (".", "no record-NNNNN.pgl"),
    ] {
        let refused = record(&dir, &["info", location]);
        assert_ne!(refused.code(), Some(0), "{refused}");
        assert!(refused.stderr.contains(message), "{refused}");
        assert!(!refused.stderr.contains("planted"), "{refused}");
    }
}

#[test]
fn a_trace_has_a_line_for_each_record() {
    let dir = TempDir::new();
    let folder = write_record(&dir, &blocks(), 4);
    let other = dir.join("wf-7/abcdef01/1");
    fs::create_dir_all(&other).expect("created");
    fs::copy(
        folder.join("record-00000.pgl"),
        other.join("record-00000.pgl"),
    )
    .expect("copied");
    let work = dir.join("work/ab/cdef0123456789012345678901234567");
    fs::create_dir_all(&work).expect("created");
    fs::write(
        work.join(".command.run"),
        "#!/bin/bash\n### name: 'sort (1)'\n",
    )
    .expect("written");
    fs::write(work.join(".exitcode"), "137").expect("written");
    let traced = record(&dir, &["trace", "--raw", "--work", "work", "wf-7"]);
    assert_eq!(traced.code(), Some(0), "{traced}");
    let lines: Vec<Vec<&str>> = traced
        .stdout
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    assert_eq!(
        lines[0][..14],
        [
            "task_id",
            "hash",
            "native_id",
            "name",
            "status",
            "exit",
            "submit",
            "duration",
            "realtime",
            "%cpu",
            "peak_rss",
            "peak_vmem",
            "rchar",
            "wchar"
        ]
    );
    let by_name = |name: &str| {
        let mut lines = lines.iter().filter(|line| line[3] == name);
        lines.next().unwrap_or_else(|| panic!("{name}: {traced}"))
    };
    let whole = by_name("align");
    assert_eq!(whole[4..6], ["COMPLETED", "0"]);
    assert_eq!(whole[7..11], ["7000", "7000", "50.0", "1048576"]);
    let lost = by_name("sort (1)");
    assert_eq!(lost[1], "ab/cdef01");
    assert_eq!(lost[4..6], ["FAILED", "137"]);
}
