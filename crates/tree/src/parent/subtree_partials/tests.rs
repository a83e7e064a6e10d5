use super::*;

const TICKS: [Millis; 2] = [1000, 2000];

fn series(value: f64) -> SelectedSeries {
    let cells = TICKS.map(|_| encode_partial(&Partial::of_gauge(value)));
    SelectedSeries {
        text: "load".to_owned(),
        kind: wire_kind(MetricKind::Gauge) as u32,
        times: encode_times(&TICKS).into(),
        partials: encode_partials(&cells).into(),
        ..SelectedSeries::default()
    }
}

fn answer(child: &str, value: f64, nodes: &[&str], late: &[&str]) -> ChildAnswer {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let mut writer = SelectWriter::new(1 << 20);
    writer.series(&series(value)).expect("room");
    let body = writer.finish(SelectEnd {
        late: names(late),
        nodes: names(nodes),
        ..SelectEnd::default()
    });
    ChildAnswer {
        child: child.to_owned(),
        is_parent: true,
        status: 200,
        body,
    }
}

fn merged(answers: &[ChildAnswer], late: &[&str]) -> Result<SubtreePartials, MergeError> {
    let mut all = merge(&MergeInput {
        ticks: TICKS.to_vec(),
        own: "root".to_owned(),
        local: vec![series(1.0)],
        answers: answers.to_vec(),
        answer_bytes_max: ANSWER_MEMORY_MAX,
        cells_max: CELLS_MAX,
    })?;
    let late = late.iter().map(|name| (*name).to_owned());
    let below = std::mem::take(&mut all.late_below);
    let late = late.chain(below.into_iter().map(|(node, _)| node));
    Ok(all.complete(late.collect()))
}

#[test]
fn a_node_that_moved_is_not_missing_at_its_former_parent() {
    let answers = [
        answer("m1", 10.0, &["m1"], &["x"]),
        answer("m2", 100.0, &["m2", "x"], &[]),
    ];
    let all = merged(&answers, &["x"]).expect("merged");
    assert_eq!(all.end.nodes, ["m1", "m2", "root", "x"]);
    assert!(all.end.late.is_empty(), "{:?}", all.end);
    let cells = &all.series["load"].cells;
    assert!(
        cells.iter().flatten().all(|cell| cell.sum == 111.0),
        "{cells:?}"
    );
    let answers = [answer("m1", 10.0, &["m1"], &["x"])];
    let all = merged(&answers, &["m2"]).expect("merged");
    assert_eq!(all.end.late, ["m2", "x"]);
    assert_eq!((all.end.answered, all.end.expected), (2, 4));
}

#[test]
fn a_node_that_two_children_include_is_not_counted_twice() {
    let answers = [
        answer("m1", 10.0, &["m1", "x"], &[]),
        answer("m2", 100.0, &["m2", "x"], &[]),
    ];
    let error = merged(&answers, &[]).expect_err("twice").to_string();
    assert_eq!(error, "node x is part of the answers of m1 and m2");
}

#[test]
fn an_older_child_answers_for_itself() {
    let answers = [answer("n1", 10.0, &[], &[])];
    let all = merged(&answers, &[]).expect("merged");
    assert_eq!(all.end.nodes, ["n1", "root"]);
}

/// Returns an answer with these series.
fn answer_of(child: &str, series: &[SelectedSeries]) -> ChildAnswer {
    let mut writer = SelectWriter::new(64 << 20);
    for series in series {
        writer.series(series).expect("room");
    }
    ChildAnswer {
        body: writer.finish(SelectEnd::default()),
        ..answer(child, 0.0, &[], &[])
    }
}

#[test]
fn a_malformed_answer_is_left_out_as_a_whole() {
    let broken = SelectedSeries {
        partials: vec![0xff; 8].into(),
        ..series(1.0)
    };
    let answers = [
        answer_of("bad", &[series(1e6), broken]),
        answer("n1", 10.0, &[], &[]),
    ];
    let all = merged(&answers, &[]).expect("merged");
    assert_eq!(all.end.nodes, ["n1", "root"]);
    assert_eq!(all.refused[0].0, "bad");
    let sums = all.series["load"].cells.iter().flatten();
    assert!(sums.into_iter().all(|cell| cell.sum == 11.0));
}

#[test]
fn the_memory_of_an_answer_is_limited() {
    // A sketch of 1024 buckets has 1 KiB on the wire and 16 KiB in memory.
    let mut wide = Partial {
        sketch: pegel_reduction::QuantileSketch::decode(&[2; 1024]).expect("a sketch"),
        ..Partial::default()
    };
    (wide.count, wide.sum, wide.min, wide.max) = (1024, 1.0, 1.0, 1.0);
    assert!(wide.is_consistent());
    let cells = TICKS.map(|_| encode_partial(&wide));
    let many = (0..20_000).map(|number| SelectedSeries {
        text: format!("s{number}"),
        partials: encode_partials(&cells).into(),
        ..series(0.0)
    });
    let many: Vec<SelectedSeries> = many.collect();
    let all = merged(&[answer_of("wide", &many)], &[]).expect("merged");
    assert!(all.refused[0].1.contains("memory"), "{:?}", all.refused);
    assert_eq!(all.series.len(), 1);
}

#[test]
fn one_child_leaves_room_for_the_series_of_others() {
    let named = |name: &str, count: usize| -> Vec<SelectedSeries> {
        let named = (0..count).map(|number| SelectedSeries {
            text: format!("{name}{number}"),
            ..series(1.0)
        });
        named.collect()
    };
    let answers = [
        answer_of("many", &named("m", SERIES_MAX)),
        answer_of("few", &named("f", 10)),
    ];
    let all = merged(&answers, &[]).expect("merged");
    assert!(all.series.contains_key("f9"));
    assert!(all.series.len() < SERIES_MAX && all.left_out > 0);
}
