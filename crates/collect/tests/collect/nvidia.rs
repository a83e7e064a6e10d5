//! NVIDIA GPUs through a stand-in for the driver's library, which is compiled here from
//! `tests/fixtures/nvml/`. It returns the values of a real card.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{TestClock, machine, open, repository};
use pegel_collect::{
    CollectSettings, CollectorSet, CollectorSettings, CollectorState, CollectorStatus, Host,
    REGISTRY,
};
use pegel_metric::{Input, Level, Tick, format_value};

const SECOND: Duration = Duration::from_secs(1);

/// A node with a driver that the test controls; removed on drop.
struct NvidiaNode {
    dir: PathBuf,
    clock: Arc<TestClock>,
    set: CollectorSet,
    tick: Tick,
}

impl NvidiaNode {
    /// `flags` are compiler flags; `words` set the initial behaviour of the stand-in.
    fn new(name: &str, level: Level, flags: &[&str], words: &str) -> NvidiaNode {
        let dir = directory(name);
        fs::write(dir.join("control"), words).expect("write");
        compile(&dir, "tests/fixtures/nvml/fake.c", flags);
        NvidiaNode::with(dir.clone(), &dir.join("libnvidia-ml.so.1"), level)
    }

    fn with(dir: PathBuf, library: &Path, level: Level) -> NvidiaNode {
        let host = Host {
            nvml: vec![library.to_owned()],
            ..machine(&dir)
        };
        let clock = TestClock::at(1_000_000);
        // Passes run only when the test requests one.
        let mut settings = CollectSettings {
            rate: Duration::from_secs(3600),
            ..CollectSettings::default()
        };
        for entry in REGISTRY.iter().filter(|entry| entry.name != "nvidia") {
            let off = CollectorSettings {
                enabled: Some(false),
                rate: None,
            };
            settings.collectors.insert(entry.name.to_owned(), off);
        }
        let set = open(&settings, host, level, &clock);
        let mut node = NvidiaNode {
            dir,
            clock,
            set,
            tick: Tick::new(Input::Collect),
        };
        node.pass(Duration::ZERO);
        node
    }

    fn set_control(&self, words: &str) {
        fs::write(self.dir.join("control"), words).expect("write");
    }

    fn pass(&mut self, after: Duration) {
        self.clock.advance(after);
        self.set.wait_for_threaded(Duration::from_secs(60));
        self.set.sample_all(0, &mut self.tick);
    }

    fn status(&self) -> CollectorStatus {
        let mut status = self.set.status().into_iter();
        status
            .find(|status| status.name == "nvidia")
            .expect("known")
    }

    /// Returns the present series: `name{…} value`.
    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for row in self.tick.rows() {
            for (index, series) in row.members.series.iter().enumerate() {
                if row.is_present(index) {
                    let mut line = format!("{series} ");
                    format_value(&mut line, row.values[index]);
                    lines.push(line);
                }
            }
        }
        lines
    }

    fn value(&self, series: &str) -> Option<String> {
        let lines = self.lines();
        let value = lines.iter().find_map(|line| line.strip_prefix(series));
        value.map(|value| value.trim_start().to_owned())
    }

    fn gpu_series_count(&self, gpu: usize) -> usize {
        let label = format!("gpu=\"{gpu}\"");
        self.lines()
            .iter()
            .filter(|line| line.contains(&label))
            .count()
    }

    #[track_caller]
    fn fails_with(&self, end: &str) {
        let status = self.status();
        assert_eq!(status.state, CollectorState::Failed, "{status:?}");
        let error = status.error.expect("a reason");
        assert!(error.ends_with(end), "{error}");
    }
}

impl Drop for NvidiaNode {
    fn drop(&mut self) {
        // A pass that hangs must not block the test thread.
        self.set_control("");
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn directory(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("pegel-nvidia-{}-{name}", std::process::id()));
    fs::create_dir_all(&dir).expect("create");
    dir
}

fn compile(dir: &Path, source: &str, flags: &[&str]) {
    let control = format!("-DCONTROL=\"{}\"", dir.join("control").display());
    let output = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1"])
        .args(["-shared", "-fPIC", "-fvisibility=hidden", &control])
        .args(flags)
        .arg(repository().join(source))
        .arg("-o")
        .arg(dir.join("libnvidia-ml.so.1"))
        .output()
        .expect("cc, which rustc needs as well");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn a_real_card_gives_the_golden_text() {
    let node = NvidiaNode::new("golden", 4, &[], "");
    assert_eq!(
        node.status().state,
        CollectorState::Active,
        "{:?}",
        node.status()
    );
    compare(&node, "tests/golden/collect/h200/nvidia.txt");
}

#[test]
fn a_busy_card_in_parts_gives_the_golden_text() {
    let node = NvidiaNode::new("busy", 4, &[], "busy\nmig\nlinks\nxid 0 79\n");
    compare(&node, "tests/golden/collect/h200/nvidia_busy.txt");
}

fn compare(node: &NvidiaNode, golden: &str) {
    let found = node.lines().join("\n") + "\n";
    let path = repository().join(golden);
    if std::env::var_os("PEGEL_BLESS").is_some() {
        fs::write(&path, &found).expect("write");
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "PEGEL_BLESS=1 accepts what was found");
}

/// Returns the text of an element, by the names of the enclosing elements.
fn element<'a>(xml: &'a str, path: &str) -> &'a str {
    path.split('/').fold(xml, |part, name| {
        let (_, rest) = part.split_once(&format!("<{name}>")).expect(name);
        rest.split_once(&format!("</{name}>")).expect(name).0
    })
}

#[test]
fn the_figures_are_those_that_nvidia_smi_showed_of_the_card() {
    let xml = fs::read_to_string(repository().join("tests/fixtures/nvml/nvidia-smi.xml"));
    let xml = xml.expect("the recording");
    let node = NvidiaNode::new("smi", 3, &[], "");
    // The factor converts between the units, and the tolerance covers rounding.
    for (name, path, scale, rounding) in [
        ("gpu_utilization_ratio", "utilization/gpu_util", 0.01, 0.0),
        (
            "memory_total_bytes",
            "fb_memory_usage/total",
            1048576.0,
            0.0,
        ),
        ("memory_used_bytes", "fb_memory_usage/used", 1048576.0, 0.0),
        (
            "memory_reserved_bytes",
            "fb_memory_usage/reserved",
            1048576.0,
            1048576.0,
        ),
        (
            "memory_free_bytes",
            "fb_memory_usage/free",
            1048576.0,
            1048576.0,
        ),
        (
            "bar1_memory_used_bytes",
            "bar1_memory_usage/used",
            1048576.0,
            1048576.0,
        ),
        (
            "power_watts",
            "gpu_power_readings/average_power_draw",
            1.0,
            0.0,
        ),
        (
            "power_instant_watts",
            "gpu_power_readings/instant_power_draw",
            1.0,
            0.0,
        ),
        (
            "memory_power_watts",
            "gpu_memory_power_readings/average_power_draw",
            1.0,
            0.0,
        ),
        (
            "power_limit_watts",
            "gpu_power_readings/current_power_limit",
            1.0,
            0.0,
        ),
        ("temperature_celsius", "temperature/gpu_temp", 1.0, 0.0),
        (
            "memory_temperature_celsius",
            "temperature/memory_temp",
            1.0,
            0.0,
        ),
        (
            "temperature_margin_celsius",
            "temperature/gpu_temp_tlimit",
            1.0,
            0.0,
        ),
        (
            "pcie_link_generation",
            "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
            1.0,
            0.0,
        ),
        (
            "pcie_link_width",
            "pci/pci_gpu_link_info/link_widths/current_link_width",
            1.0,
            0.0,
        ),
        ("pcie_transmit_bytes_per_second", "pci/tx_util", 1000.0, 0.0),
        ("pcie_receive_bytes_per_second", "pci/rx_util", 1000.0, 0.0),
    ] {
        let shown = element(&xml, path).trim_end_matches(|c: char| !c.is_ascii_digit());
        let shown: f64 = shown.parse().expect(path);
        let found = node.value(&format!("node_nvidia_{name}{{gpu=\"0\"}}"));
        let found: f64 = found.expect(name).parse().expect(name);
        assert!(
            (found - shown * scale).abs() <= rounding,
            "{name}: {found}, {shown}"
        );
    }
    for (clock, shown) in [
        ("graphics", "graphics"),
        ("sm", "sm"),
        ("memory", "mem"),
        ("video", "video"),
    ] {
        let found = node.value(&format!(
            "node_nvidia_clock_hertz{{clock=\"{clock}\",gpu=\"0\"}}"
        ));
        let shown = element(&xml, &format!("clocks/{shown}_clock"));
        assert_eq!(found, Some(shown.replace(" MHz", "000000")), "{clock}");
    }
    let info = node
        .lines()
        .into_iter()
        .find(|line| line.starts_with("node_nvidia_info"));
    for path in [
        "driver_version",
        "cuda_version",
        "product_name",
        "uuid",
        "vbios_version",
        "pci/pci_bus_id",
    ] {
        let shown = element(&xml, path);
        assert!(
            info.as_ref()
                .is_some_and(|info| info.contains(&format!("\"{shown}\""))),
            "{shown}: {info:?}"
        );
    }
}

#[test]
fn every_series_belongs_to_a_family_that_the_entry_lists() {
    let node = NvidiaNode::new("families", 4, &[], "busy\nmig\nlinks\nxid 0 79\n");
    let entry = REGISTRY
        .iter()
        .find(|entry| entry.name == "nvidia")
        .expect("known");
    for row in node.tick.rows() {
        for series in &row.members.series {
            let family = series.family();
            let is_listed = entry.families.iter().any(|listed| **listed == **family);
            assert!(is_listed, "{series}");
            assert!(family.help.ends_with('.'), "{series}: {}", family.help);
            let stem = family.name.strip_suffix("_total").unwrap_or(&family.name);
            assert!(
                stem.ends_with(&*family.unit),
                "{series} is not named by its unit"
            );
        }
    }
}

#[test]
fn eight_gpus_are_read_and_a_lost_one_fails_alone_by_name() {
    let mut node = NvidiaNode::new("eight", 3, &["-DGPUS=8"], "");
    assert_eq!(node.status().state, CollectorState::Active);
    let each = node.gpu_series_count(0);
    assert!(each > 60, "{each}");
    assert!(
        (0..8).all(|gpu| node.gpu_series_count(gpu) == each),
        "{:?}",
        node.lines()
    );

    node.set_control("lost 3\n");
    node.pass(SECOND);
    node.fails_with("GPU 3 (GPU-00000000-0000-0000-0000-000000000004): the GPU fell off the bus");
    assert_eq!(
        node.value("node_nvidia_up{gpu=\"3\"}").as_deref(),
        Some("0")
    );
    assert_eq!(node.gpu_series_count(3), 1, "nothing old is shown");
    assert_eq!(node.gpu_series_count(7), each, "the others go on");
    assert_eq!(node.status().failures, 1);

    node.set_control("");
    node.pass(SECOND);
    assert_eq!(
        node.gpu_series_count(3),
        1,
        "it is looked for once a minute"
    );
    node.pass(60 * SECOND);
    assert_eq!(
        node.status().state,
        CollectorState::Active,
        "{:?}",
        node.status()
    );
    assert_eq!(node.gpu_series_count(3), each);
    let members = node.tick.rows()[0].members.series.len();
    let mut texts: Vec<&str> = node.tick.rows()[0]
        .members
        .series
        .iter()
        .map(|s| s.text())
        .collect();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), members, "no series stands in the list twice");
}

#[test]
fn the_only_gpu_lost_is_a_failure_and_it_recovers_by_itself() {
    let mut node = NvidiaNode::new("only", 3, &[], "");
    let before = node.lines();
    node.set_control("lost 0\n");
    node.pass(SECOND);
    node.fails_with("GPU 0 (GPU-00000000-0000-0000-0000-000000000001): the GPU fell off the bus");
    assert_eq!(node.lines(), Vec::<String>::new());
    node.set_control("");
    node.pass(6 * SECOND);
    assert_eq!(
        node.status().state,
        CollectorState::Active,
        "{:?}",
        node.status()
    );
    assert_eq!(node.lines(), before);
}

#[test]
fn unsupported_values_are_absent_and_retried_after_a_minute() {
    let mut node = NvidiaNode::new("unsupported", 3, &[], "unsupported\n");
    let series = "node_nvidia_gpu_utilization_ratio{gpu=\"0\"}";
    let fan = "node_nvidia_fan_speed_ratio{gpu=\"0\"}";
    assert_eq!(
        node.status().state,
        CollectorState::Active,
        "it is no failure"
    );
    assert_eq!((node.value(series), node.value(fan)), (None, None));
    assert!(node.value("node_nvidia_power_watts{gpu=\"0\"}").is_some());
    node.set_control("");
    node.pass(59 * SECOND);
    assert_eq!(node.value(series), None);
    node.pass(SECOND);
    assert_eq!(node.value(series).as_deref(), Some("0"));
}

#[test]
fn a_call_that_hangs_fails_the_collector_until_it_comes_back() {
    let mut node = NvidiaNode::new("hang", 3, &[], "");
    node.set_control("hang\n");
    node.set.wait_for_threaded(Duration::from_millis(200));
    node.clock.advance(6 * SECOND);
    node.set.sample_all(0, &mut node.tick);
    node.fails_with("GPU 0 (GPU-00000000-0000-0000-0000-000000000001) did not respond within 5s");
    assert_eq!(node.lines(), Vec::<String>::new(), "nothing old is shown");
    node.set_control("");
    node.pass(SECOND);
    assert_eq!(
        node.status().state,
        CollectorState::Active,
        "{:?}",
        node.status()
    );
    assert_eq!(
        node.value("node_nvidia_up{gpu=\"0\"}").as_deref(),
        Some("1")
    );
}

#[test]
fn an_old_driver_gives_what_it_has() {
    let node = NvidiaNode::new("old", 4, &["-DOLD"], "");
    assert_eq!(
        node.status().state,
        CollectorState::Active,
        "{:?}",
        node.status()
    );
    let value = |name: &str| node.value(&format!("{name}{{gpu=\"0\"}}"));
    assert_eq!(value("node_nvidia_power_watts").as_deref(), Some("123.45"));
    assert_eq!(
        value("node_nvidia_memory_used_bytes").as_deref(),
        Some("644939776")
    );
    for newer in [
        "memory_reserved_bytes",
        "temperature_margin_celsius",
        "processes",
        "xid_last",
    ] {
        assert_eq!(value(&format!("node_nvidia_{newer}")), None);
    }
    let idle = "node_nvidia_clocks_event{gpu=\"0\",reason=\"gpu_idle\"}";
    assert_eq!(
        node.value(idle).as_deref(),
        Some("0"),
        "under its older name"
    );
    assert!(
        node.lines()
            .iter()
            .any(|line| line.contains("cuda=\"13.0\""))
    );
}

#[test]
fn a_node_without_library_driver_or_gpu_is_quiet() {
    for words in ["no-driver\n", "none\n"] {
        let mut node = NvidiaNode::new(&words[..4], 3, &[], words);
        let status = node.status();
        assert_eq!((status.state, status.error), (CollectorState::Absent, None));
        assert!(node.lines().is_empty());
        node.set_control("");
        node.pass(61 * SECOND);
        node.pass(SECOND);
        assert_eq!(
            node.status().state,
            CollectorState::Active,
            "it was looked for again"
        );
    }
    let dir = directory("missing");
    let library = dir.join("libnvidia-ml.so.1");
    let node = NvidiaNode::with(dir, &library, 3);
    let status = node.status();
    assert_eq!((status.state, status.error), (CollectorState::Absent, None));
    assert_eq!(status.looked_for, Some(library.display().to_string()));
}

#[test]
fn other_libraries_are_refused_with_a_reason() {
    let dir = directory("not-nvml");
    fs::write(
        dir.join("empty.c"),
        "int other(void);\nint other(void) { return 1; }\n",
    )
    .expect("write");
    compile(&dir, dir.join("empty.c").to_str().expect("text"), &[]);
    let library = dir.join("libnvidia-ml.so.1");
    let node = NvidiaNode::with(dir, &library, 3);
    node.fails_with("libnvidia-ml.so.1: not the NVML library: missing symbol nvmlInit_v2");

    let dir = directory("text");
    let library = dir.join("libnvidia-ml.so.1");
    fs::write(
        &library,
        "a text that is long enough for the loader to look at\n".repeat(9),
    )
    .expect("write");
    NvidiaNode::with(dir, &library, 3).fails_with("invalid ELF header");

    let node = NvidiaNode::new("mismatch", 3, &[], "mismatch\n");
    node.fails_with("libnvidia-ml.so.1: the versions of library and driver differ");
}

#[test]
fn processes_parts_links_and_errors_have_their_own_series() {
    let mut node = NvidiaNode::new("parts", 4, &[], "busy\nmig\nlinks\n");
    let lines = node.lines();
    for expected in [
        "node_nvidia_processes{gpu=\"0\"} 2",
        "node_nvidia_process_memory_bytes{gpu=\"0\",pid=\"422\",type=\"compute\"} 1547698176",
        "node_nvidia_process_memory_bytes{gpu=\"0\",pid=\"423\",type=\"compute\"} 3095396352",
        "node_nvidia_mig_enabled{gpu=\"0\"} 1",
        "node_nvidia_mig_info{compute_instance=\"0\",gpu=\"0\",gpu_instance=\"10\",mig=\"1\",uuid=\"MIG-0-2\"} 1",
        "node_nvidia_mig_multiprocessors{gpu=\"0\",mig=\"0\"} 32",
        "node_nvidia_mig_memory_total_bytes{gpu=\"0\",mig=\"1\"} 37688705024",
        "node_nvidia_nvlink_up{gpu=\"0\",link=\"0\"} 1",
        "node_nvidia_nvlink_up{gpu=\"0\",link=\"1\"} 0",
        "node_nvidia_nvlink_transmit_bytes_total{gpu=\"0\",link=\"0\"} 141312000",
        "node_nvidia_nvlink_receive_bytes_total{gpu=\"0\",link=\"1\"} 142337024",
        "node_nvidia_nvlink_errors_total{error=\"crc_flit\",gpu=\"0\",link=\"1\"} 12",
        "node_nvidia_xid_last{gpu=\"0\"} 0",
    ] {
        assert!(
            lines.iter().any(|line| line == expected),
            "{expected}: {lines:#?}"
        );
    }
    let crc_data = "node_nvidia_nvlink_errors_total{error=\"crc_data\"";
    assert!(
        !lines.iter().any(|line| line.starts_with(crc_data)),
        "not supported"
    );

    node.set_control("xid 0 79\n");
    node.pass(5 * SECOND);
    node.set_control("xid 0 31\n");
    node.pass(5 * SECOND);
    let value = |series: &str| node.value(series);
    assert_eq!(
        value("node_nvidia_xid_last{gpu=\"0\"}").as_deref(),
        Some("31")
    );
    let first = "node_nvidia_xid_errors_total{gpu=\"0\",xid=\"79\"}";
    assert_eq!(value(first).as_deref(), Some("1"));
    assert_eq!(
        value("node_nvidia_processes{gpu=\"0\"}").as_deref(),
        Some("0")
    );
    assert_eq!(
        value("node_nvidia_mig_enabled{gpu=\"0\"}").as_deref(),
        Some("0")
    );
    let gone = ["process_memory", "mig_info", "mig_memory", "nvlink"];
    let is_gone = |line: &String| !gone.iter().any(|name| line.contains(name));
    assert!(node.lines().iter().all(is_gone), "{:#?}", node.lines());
}

#[test]
fn below_level_four_processes_are_only_counted() {
    let node = NvidiaNode::new("level", 3, &[], "busy\n");
    assert_eq!(
        node.value("node_nvidia_processes{gpu=\"0\"}").as_deref(),
        Some("2")
    );
    assert!(!node.lines().iter().any(|line| line.contains("pid=")));
}
