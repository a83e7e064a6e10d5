use prost::Message;

use crate::{
    SelectEnd, SelectFrameError, SelectPart, SelectReader, SelectTooLarge, SelectWriter,
    SelectedSeries, encode_times, encode_values, select_part,
};

fn series(number: i64) -> SelectedSeries {
    SelectedSeries {
        text: format!("series{{number=\"{number}\"}}"),
        times: encode_times(&[number, number + 1]).into(),
        values: encode_values(&[0.5, f64::NAN]).into(),
        ..SelectedSeries::default()
    }
}

fn end() -> SelectEnd {
    SelectEnd {
        answered: 3,
        expected: 4,
        late: vec!["n2".into()],
        nodes: vec!["n1".to_owned()],
    }
}

fn response() -> Vec<u8> {
    let mut writer = SelectWriter::new(10_000);
    for number in 0..5 {
        writer.series(&series(number)).expect("written");
    }
    assert!(!writer.is_empty());
    writer.finish(end()).into()
}

#[test]
fn a_response_reads_back() {
    let response = response();
    let parts: Result<Vec<SelectPart>, _> = SelectReader::new(&response).collect();
    let kinds = parts.expect("read").into_iter().map(|part| part.kind);
    let mut expected: Vec<_> = (0..5)
        .map(|number| Some(select_part::Kind::Series(series(number))))
        .collect();
    expected.push(Some(select_part::Kind::End(end())));
    assert_eq!(kinds.collect::<Vec<_>>(), expected);
}

#[test]
fn the_frames_are_those_of_whole_parts() {
    let part = SelectPart {
        kind: Some(select_part::Kind::Series(series(1))),
    };
    let part = part.encode_to_vec();
    let mut writer = SelectWriter::new(usize::MAX);
    writer.series(&series(1)).expect("written");
    assert_eq!(writer.len(), 4 + part.len());
    let response = writer.finish(SelectEnd::default());
    let length = (part.len() as u32).to_le_bytes();
    assert!(response.starts_with(&[&length[..], &part].concat()));
}

#[test]
fn a_truncated_response_is_an_error_at_every_length() {
    let response = response();
    for length in 0..response.len() {
        let parts: Vec<_> = SelectReader::new(&response[..length]).collect();
        let (last, others) = parts.split_last().expect("an error");
        assert_eq!(last, &Err(SelectFrameError::Truncated));
        assert!(others.iter().all(Result::is_ok));
    }
    let longer = [&response[..], &[0]].concat();
    let last = SelectReader::new(&longer).last();
    assert_eq!(last, Some(Err(SelectFrameError::TrailingBytes(1))));
}

#[test]
fn parts_of_later_versions_are_skipped() {
    let unknown = [2, 0, 0, 0, 0x7a, 0];
    let response = [&unknown[..], &response(), &[]].concat();
    assert_eq!(
        SelectReader::new(&response).filter(Result::is_ok).count(),
        6
    );
    let malformed = [1, 0, 0, 0, 0x0a];
    let parts: Vec<_> = SelectReader::new(&malformed).collect();
    assert!(matches!(parts[..], [Err(SelectFrameError::Malformed(_))]));
}

#[test]
fn a_response_stays_within_its_limit() {
    let mut complete = SelectWriter::new(usize::MAX);
    complete.series(&series(0)).expect("written");
    let limit = complete.len();
    let mut writer = SelectWriter::new(limit);
    assert_eq!(writer.series(&series(0)), Ok(()));
    assert_eq!(writer.series(&series(1)), Err(SelectTooLarge { limit }));
    assert_eq!(writer.len(), limit);
    let mut small = SelectWriter::new(limit - 1);
    assert!(small.series(&series(0)).is_err());
    // A caller may end the response with what fits.
    assert_eq!(SelectReader::new(&writer.finish(end())).count(), 2);
}
