//! Responses of `/api/v1/query` with a range vector: `{"status","data":{"resultType":"matrix",…}}`.
//!
//! They are parsed while they arrive, sample by sample, and are never in memory as a whole.
//! Prometheus and Thanos leave out stale markers; VictoriaMetrics returns them as NaN, and stores
//! no other NaN.

use std::fmt;
use std::io::Read;

use pegel_metric::{Millis, STALE_NAN};
use pegel_query::promql::LabelSet;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::answer::{AnswerBuilder, AnswerError};

/// The most labels of a series.
const LABELS_MAX: usize = 256;
/// The most bytes of a warning that is passed on.
const WARNING_BYTES_MAX: usize = 300;

/// The fields of a response besides its data.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AnswerNotes {
    pub is_success: bool,
    pub error: Option<String>,
    /// Why the engine could not read everything.
    pub partial: Option<String>,
}

/// Reads a response with samples. `nan_is_stale` is true for VictoriaMetrics.
pub(crate) fn read_matrix(
    body: impl Read,
    nan_is_stale: bool,
    builder: &mut AnswerBuilder<'_>,
) -> Result<AnswerNotes, AnswerError> {
    let mut failure = None;
    let data = MatrixData {
        builder,
        nan_is_stale,
        failure: &mut failure,
    };
    let notes = read_notes(body, data);
    match failure {
        Some(failure) => Err(failure),
        None => notes,
    }
}

/// Parses a response; `data` parses its field `data`.
pub(crate) fn read_notes<D>(body: impl Read, data: D) -> Result<AnswerNotes, AnswerError>
where
    D: for<'a> DeserializeSeed<'a, Value = ()>,
{
    let mut json = serde_json::Deserializer::from_reader(body);
    let response = ResponseSeed { data: Some(data) };
    let malformed = |error: serde_json::Error| AnswerError::malformed(error.to_string());
    let notes = response.deserialize(&mut json).map_err(malformed)?;
    json.end().map_err(malformed)?;
    if !notes.is_success {
        let error = notes
            .error
            .as_deref()
            .unwrap_or("the status is not \"success\"");
        return Err(AnswerError::malformed(error));
    }
    Ok(notes)
}

/// The members of a response.
struct ResponseSeed<D> {
    data: Option<D>,
}

impl<'de, D: DeserializeSeed<'de, Value = ()>> DeserializeSeed<'de> for ResponseSeed<D> {
    type Value = AnswerNotes;

    fn deserialize<T: Deserializer<'de>>(self, json: T) -> Result<AnswerNotes, T::Error> {
        json.deserialize_map(self)
    }
}

impl<'de, D: DeserializeSeed<'de, Value = ()>> Visitor<'de> for ResponseSeed<D> {
    type Value = AnswerNotes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a response of Prometheus' API")
    }

    fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<AnswerNotes, M::Error> {
        let mut notes = AnswerNotes::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "status" => notes.is_success = map.next_value::<String>()? == "success",
                "error" => notes.error = Some(shortened(map.next_value()?)),
                "isPartial" => {
                    if map.next_value::<bool>()? && notes.partial.is_none() {
                        notes.partial = Some("the engine answered in part".to_owned());
                    }
                }
                "warnings" => {
                    let first = map.next_value_seed(FirstText)?;
                    notes.partial = first.map(shortened).or(notes.partial);
                }
                "data" => match self.data.take() {
                    Some(data) => map.next_value_seed(data)?,
                    None => return Err(Error::custom("duplicate field data")),
                },
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(notes)
    }
}

fn shortened(mut text: String) -> String {
    let mut end = WARNING_BYTES_MAX.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// The first text of a list, which may be null.
struct FirstText;

impl<'de> DeserializeSeed<'de> for FirstText {
    type Value = Option<String>;

    fn deserialize<T: Deserializer<'de>>(self, json: T) -> Result<Option<String>, T::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FirstText {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of texts")
    }

    fn visit_unit<E: Error>(self) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Option<String>, S::Error> {
        let first = list.next_element::<String>()?;
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(first)
    }
}

/// The field `data`. `failure` is the error of the builder, which serde turns into a text.
struct MatrixData<'b, 'a> {
    builder: &'b mut AnswerBuilder<'a>,
    nan_is_stale: bool,
    failure: &'b mut Option<AnswerError>,
}

impl MatrixData<'_, '_> {
    fn checked<E: Error>(&mut self, result: Result<(), AnswerError>) -> Result<(), E> {
        result.map_err(|error| {
            let text = E::custom(format!("{error:?}"));
            *self.failure = Some(error);
            text
        })
    }
}

impl<'de> DeserializeSeed<'de> for MatrixData<'_, '_> {
    type Value = ();

    fn deserialize<T: Deserializer<'de>>(self, json: T) -> Result<(), T::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MatrixData<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a matrix")
    }

    fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<(), M::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "resultType" => {
                    let kind = map.next_value::<String>()?;
                    if kind != "matrix" {
                        return Err(Error::custom(format!("a {kind:?} instead of a matrix")));
                    }
                }
                "result" => map.next_value_seed(SeriesList(&mut self))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

struct SeriesList<'s, 'b, 'a>(&'s mut MatrixData<'b, 'a>);
struct OneSeries<'s, 'b, 'a>(&'s mut MatrixData<'b, 'a>);
struct SampleList<'s, 'b, 'a>(&'s mut MatrixData<'b, 'a>);
struct OneSample;

impl<'de> DeserializeSeed<'de> for SeriesList<'_, '_, '_> {
    type Value = ();

    fn deserialize<T: Deserializer<'de>>(self, json: T) -> Result<(), T::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for SeriesList<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of series")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        while list.next_element_seed(OneSeries(self.0))?.is_some() {}
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for OneSeries<'_, '_, '_> {
    type Value = ();

    fn deserialize<T: Deserializer<'de>>(self, json: T) -> Result<(), T::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for OneSeries<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a series")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let mut labels = None;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "metric" => labels = Some(map.next_value_seed(LabelMap)?),
                "values" => map.next_value_seed(SampleList(self.0))?,
                "histograms" => {
                    return Err(Error::custom("native histograms are not supported"));
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let labels = labels.ok_or_else(|| Error::missing_field("metric"))?;
        let ended = self.0.builder.end_series(labels);
        self.0.checked(ended)
    }
}

impl<'de> DeserializeSeed<'de> for SampleList<'_, '_, '_> {
    type Value = ();

    fn deserialize<T: Deserializer<'de>>(self, json: T) -> Result<(), T::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for SampleList<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of samples")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        while let Some((time, value)) = list.next_element_seed(OneSample)? {
            let value = match value.is_nan() && self.0.nan_is_stale {
                true => STALE_NAN,
                false => value,
            };
            let added = self.0.builder.sample(time, value);
            self.0.checked(added)?;
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for OneSample {
    type Value = (Millis, f64);

    fn deserialize<T: Deserializer<'de>>(self, json: T) -> Result<(Millis, f64), T::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for OneSample {
    type Value = (Millis, f64);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time in seconds and a value as text")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut pair: S) -> Result<(Millis, f64), S::Error> {
        let missing = || Error::custom("a sample without time and value");
        let seconds: f64 = pair.next_element()?.ok_or_else(missing)?;
        let value = pair.next_element_seed(NumberText)?.ok_or_else(missing)?;
        if pair.next_element::<IgnoredAny>()?.is_some() {
            return Err(missing());
        }
        let millis = (seconds * 1_000.0).round();
        // Exact up to 2^53.
        if millis.is_nan() || millis.abs() >= 9e15 {
            return Err(Error::custom(format!("the time {seconds} is out of range")));
        }
        Ok((millis as Millis, value))
    }
}

/// A number that is written as text.
struct NumberText;

impl<'de> DeserializeSeed<'de> for NumberText {
    type Value = f64;

    fn deserialize<T: Deserializer<'de>>(self, json: T) -> Result<f64, T::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for NumberText {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number as text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
        text.parse()
            .map_err(|_| E::custom(format!("{text:?} is not a number")))
    }
}

/// The labels of a series.
pub(crate) struct LabelMap;

impl<'de> DeserializeSeed<'de> for LabelMap {
    type Value = LabelSet;

    fn deserialize<T: Deserializer<'de>>(self, json: T) -> Result<LabelSet, T::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for LabelMap {
    type Value = LabelSet;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("labels")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<LabelSet, M::Error> {
        let mut labels: Vec<(String, String)> = Vec::new();
        while let Some(label) = map.next_entry()? {
            if labels.len() == LABELS_MAX {
                return Err(Error::custom(format!("more than {LABELS_MAX} labels")));
            }
            labels.push(label);
        }
        Ok(LabelSet::new(labels))
    }
}

#[cfg(test)]
mod tests {
    use pegel_metric::is_stale;

    use super::*;
    use crate::answer::tests::with_builder;

    fn read(
        text: &str,
        nan_is_stale: bool,
    ) -> Result<(AnswerNotes, Vec<pegel_query::HistorySeries>), AnswerError> {
        with_builder(10_000, |builder| {
            read_matrix(text.as_bytes(), nan_is_stale, builder)
        })
    }

    fn response(values: &str) -> String {
        format!(
            r#"{{"status":"success","data":{{"resultType":"matrix","result":[{{"metric":
            {{"__name__":"m","instance":"n1"}},"values":[{values}]}}]}}}}"#
        )
    }

    #[test]
    fn samples_are_read_exactly() {
        let text = response(r#"[1,"0.1"],[1.001,"NaN"],[1.5,"+Inf"],[2,"-4e-07"]"#);
        let (notes, series) = read(&text, false).expect("valid");
        assert_eq!(notes.partial, None);
        assert_eq!(series[0].times, [1_000, 1_001, 1_500, 2_000]);
        assert_eq!(series[0].values[0].to_bits(), 0.1f64.to_bits());
        assert!(series[0].values[1].is_nan() && !is_stale(series[0].values[1]));
        assert_eq!(series[0].values[2..], [f64::INFINITY, -4e-7]);
        let (_, series) = read(&text, true).expect("valid");
        assert!(is_stale(series[0].values[1]));
    }

    #[test]
    fn partial_answers_are_noticed() {
        let with = |field: &str| response("").replace("\"status\"", &format!("{field},\"status\""));
        let partial = |field: &str| read(&with(field), false).expect("valid").0.partial;
        assert_eq!(
            partial(r#""warnings":["no store","x"]"#).as_deref(),
            Some("no store")
        );
        assert_eq!(partial(r#""warnings":null"#), None);
        assert_eq!(partial(r#""warnings":[]"#), None);
        assert!(partial(r#""isPartial":true"#).is_some());
        assert_eq!(partial(r#""isPartial":false,"infos":["x"]"#), None);
    }

    #[test]
    fn malformed_answers_are_refused() {
        let valid = response(r#"[1,"1"]"#);
        read(&valid, false).expect("valid");
        for wrong in [
            String::new(),
            "[]".to_owned(),
            "<html>".to_owned(),
            valid[..valid.len() - 1].to_owned(),
            valid.clone() + "{}",
            valid.replace("success", "error"),
            valid.replace("matrix", "vector"),
            valid.replace("\"instance\"", "\"other\""),
            valid.replace("\"metric\"", "\"other\""),
            valid.replace("\"values\"", "\"histograms\""),
            response(r#"[1,1]"#),
            response(r#"[1,"x"]"#),
            response(r#"[1]"#),
            response(r#"[1,"1",2]"#),
            response(r#"[1e300,"1"]"#),
            response(r#"[3,"1"]"#),
        ] {
            let result = read(&wrong, false);
            assert!(
                matches!(result, Err(AnswerError::Malformed(_))),
                "{wrong}: {result:?}"
            );
        }
        let many: Vec<String> = (0..900).map(|at| format!("[1.{at:03},\"1\"]")).collect();
        let result = read(&response(&many.join(",")), false);
        assert_eq!(result.map(drop), Err(AnswerError::TooLarge));
    }
}
