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

fn merged(answers: &[ChildAnswer], late: &[&str]) -> Result<SubtreePartials, String> {
    let late = late.iter().map(|name| (*name).to_owned()).collect();
    merge(
        TICKS.to_vec(),
        "root".to_owned(),
        vec![series(1.0)],
        answers,
        late,
    )
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
    let error = merged(&answers, &[]).expect_err("twice");
    assert!(error.contains("node x moved"), "{error}");
}

#[test]
fn an_older_child_answers_for_itself() {
    let answers = [answer("n1", 10.0, &[], &[])];
    let all = merged(&answers, &[]).expect("merged");
    assert_eq!(all.end.nodes, ["n1", "root"]);
}
