//! Tests of the model on the example nodes and on hand-made streams.

use super::fixture::{LARGE, NOW, SMALL};
use super::*;

fn listed(name: &str, kind: &str) -> SeriesInfo {
    SeriesInfo {
        name: name.to_owned(),
        doc: String::new(),
        kind: kind.to_owned(),
        unit: String::new(),
    }
}

fn reading(name: &str, ts: f64, value: f64) -> SeriesValue {
    SeriesValue {
        name: name.to_owned(),
        ts,
        value,
    }
}

#[test]
fn a_node_is_the_sum_of_its_cores() {
    let cpu = CpuUsage::from_model(&SMALL.model()).expect("two samples");
    assert_eq!(cpu.cores.len(), 2);
    // Core 0 is busy for a third of the time, core 1 for two; an eighth of that is waiting.
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-6, "{a} {b}");
    near(cpu.all.busy(), 0.4375);
    near(cpu.all.share(CpuMode::User), 0.25);
    near(cpu.cores[0].1.share(CpuMode::Idle), 2.0 / 3.0);
    assert_eq!(
        CpuUsage::from_model(&LARGE.model())
            .expect("samples")
            .cores
            .len(),
        256
    );
}

#[test]
fn used_memory_is_not_available_and_shared_memory_is_not_cache() {
    let memory = MemoryUsage::from_model(&LARGE.model()).expect("memory");
    let gib = |bytes: f64| bytes / f64::from(1 << 30);
    assert_eq!(gib(memory.used), 512.0 - 384.0);
    assert_eq!(gib(memory.cache), 4.0 + 290.0 + 10.0 - 24.0);
    assert_eq!((gib(memory.shared), gib(memory.free)), (24.0, 100.0));
    assert_eq!(
        (gib(memory.swap_used), gib(memory.swap_total)),
        (16.0, 64.0)
    );
    assert_eq!(MemoryUsage::from_model(&NodeModel::default()), None);
}

#[test]
fn kernels_without_mem_available_have_used_memory_too() {
    let mut model = NodeModel::new(0.5);
    let fields = [
        ("MemTotal", 100.0),
        ("MemFree", 10.0),
        ("Buffers", 5.0),
        ("Cached", 45.0),
        ("Shmem", 20.0),
    ];
    let name = |field: &str| format!("node_memory_{field}_bytes");
    model.set_series_list(
        fields
            .map(|(field, _)| listed(&name(field), "gauge"))
            .to_vec(),
    );
    model.apply_step(&fields.map(|(field, value)| reading(&name(field), NOW, value)));
    let memory = MemoryUsage::from_model(&model).expect("memory");
    assert_eq!((memory.used, memory.cache), (60.0, 30.0));
}

#[test]
fn file_systems_are_as_full_as_df_reports() {
    // 1000 GiB, of which 900 are free and 850 available: 50 are reserved for root.
    let filesystems = filesystems(&SMALL.model());
    let share = filesystems[0].used_share().expect("not empty");
    assert!((share - 100.0 / 950.0).abs() < 1e-12, "{share}");
    assert_eq!(FilesystemUsage::default().used_share(), None);
}

#[test]
fn devices_have_rates_and_a_stable_order() {
    let model = LARGE.model();
    let disks = disks(&model);
    assert_eq!((disks.len(), disks[3].name.as_str()), (30, "nvme3n1"));
    assert_eq!(disks[3].read_bytes, Some(3e6));
    assert_eq!(disks[3].reads, Some(300.0));
    let near = |a: Option<f64>, b: f64| assert!((a.expect("known") - b).abs() < 1e-9);
    near(disks[3].read_time, 1e-4);
    near(disks[3].write_time, 0.05);
    let interfaces = interfaces(&model);
    assert_eq!(interfaces.last().expect("six").name, "lo");
    assert_eq!(interfaces[1].received_bytes, Some(2.4e9));
    assert_eq!(interfaces[1].errors, Some(1.0));
    let gpus = gpus(&model);
    assert_eq!((gpus.len(), gpus[7].busy), (8, Some(1.0)));
    assert_eq!((gpus[7].model.as_str(), gpus[7].id.as_str()), ("H200", "7"));
}

#[test]
fn only_the_nodes_own_samples_advance_the_time() {
    let mut model = NodeModel::new(0.5);
    model.set_series_list(vec![listed("node_load1", "gauge"), listed("mine", "gauge")]);
    model.apply_step(&[
        reading("node_load1", NOW, 1.0),
        reading("mine", NOW + 500.0, 1.0),
    ]);
    assert_eq!(model.now(), Some(NOW));
    model.apply_step(&[reading("mine", NOW + 600.0, 2.0)]);
    assert_eq!(model.now(), Some(NOW));
}

#[test]
fn a_gap_in_the_stream_causes_no_spike() {
    let mut model = NodeModel::new(0.5);
    model.set_series_list(vec![listed("node_c_total", "counter")]);
    for step in 0..4 {
        let ts = NOW + f64::from(step) * 0.5;
        model.apply_step(&[reading("node_c_total", ts, ts - NOW)]);
    }
    let rate = |model: &NodeModel| model.rate(model.track("node_c_total").expect("listed"));
    assert_eq!(rate(&model), Some(1.0));
    // As after a suspension: the increase of an hour arrives at once.
    model.apply_step(&[reading("node_c_total", NOW + 3600.0, 3600.0)]);
    assert_eq!(rate(&model), None);
    model.apply_step(&[reading("node_c_total", NOW + 3600.5, 3600.5)]);
    assert_eq!(rate(&model), Some(1.0));
}

#[test]
fn a_clock_that_is_set_back_is_followed() {
    let mut model = NodeModel::new(0.5);
    model.set_series_list(vec![listed("node_c_total", "counter")]);
    model.apply_step(&[reading("node_c_total", NOW, 5.0)]);
    model.apply_step(&[reading("node_c_total", NOW - 3600.0, 6.0)]);
    assert_eq!(model.now(), Some(NOW - 3600.0));
    assert_eq!(model.value("node_c_total"), Some(6.0));
    model.apply_step(&[reading("node_c_total", NOW - 3599.0, 8.0)]);
    let track = model.track("node_c_total").expect("listed");
    assert_eq!(model.rate(track), Some(2.0));
}

#[test]
fn series_missing_from_the_list_are_removed() {
    let mut model = NodeModel::new(0.5);
    model.set_series_list(vec![listed("a", "gauge"), listed("b{x=\"1\"}", "gauge")]);
    assert!(!model.apply_step(&[reading("a", NOW, 1.0), reading("b{x=\"1\"}", NOW, 2.0)]));
    model.set_series_list(vec![listed("b{x=\"1\"}", "counter")]);
    assert!(model.track("a").is_none());
    let b = model.track("b{x=\"1\"}").expect("still listed");
    assert_eq!(b.last().map(|last| last.value), Some(2.0));
    assert!(b.is_counter(), "the kind may have become known");
    assert!(
        model.apply_step(&[reading("new", NOW, 1.0)]),
        "an unlisted series"
    );
}

#[test]
fn names_with_a_common_prefix_are_distinct() {
    let mut model = NodeModel::new(0.5);
    let names = ["a", "a{x=\"1\"}", "a{x=\"2\"}", "a_b", "a_b{x=\"1\"}", "aa"];
    model.set_series_list(names.map(|name| listed(name, "gauge")).to_vec());
    let found: Vec<&str> = model
        .tracks_named("a")
        .map(|track| track.series.text())
        .collect();
    assert_eq!(found, ["a", "a{x=\"1\"}", "a{x=\"2\"}"]);
}

#[test]
fn the_number_of_histories_is_bounded() {
    let mut model = LARGE.model();
    let texts: Vec<String> = model
        .tracks()
        .map(|track| track.series.text().to_owned())
        .collect();
    for texts in texts.chunks(100) {
        model.start_histories(texts);
        assert!(model.histories.len() <= HISTORIES_MAX);
        assert!(texts.iter().all(|text| model.history(text).is_some()));
        assert_eq!(
            model.start_histories(texts),
            Vec::<String>::new(),
            "requested once"
        );
    }
}

#[test]
fn all_other_names_belong_to_programs() {
    for name in [
        "node_load1",
        "pegel_threads",
        "cpu_percent",
        "DeviceUtilization{gpu=\"0\"}",
    ] {
        assert!(!is_program_series(name), "{name}");
    }
    for name in [
        "mpi_hits_total{call=\"MPI_Send\"}",
        "a.b",
        "strace_hits_total",
        "nodes",
    ] {
        assert!(is_program_series(name), "{name}");
    }
}

#[test]
fn calls_are_ordered_by_time_and_have_shares_of_their_kind() {
    let model = SMALL.model();
    let calls = calls(&model, CallSort::Time);
    let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "futex",
            "MPI_Waitall",
            "read",
            "MPI_Allreduce",
            "write",
            "MPI_Isend",
            "openat"
        ]
    );
    let share = |prefix: &str| -> f64 {
        let same_kind = calls.iter().filter(|call| call.key.starts_with(prefix));
        same_kind.filter_map(|call| call.share).sum()
    };
    assert!((share("mpi_") - 1.0).abs() < 1e-9);
    assert!((share("strace_") - 1.0).abs() < 1e-9);
    let near = |a: Option<f64>, b: f64| assert!((a.expect("known") - b).abs() < 1e-6);
    near(calls[0].time, 3.5);
    near(calls[6].errors, 3.0);
    assert_eq!(calls[0].bytes, None);
    let by_name = super::calls(&model, CallSort::Name);
    assert_eq!(by_name[0].name, "MPI_Allreduce");
}
