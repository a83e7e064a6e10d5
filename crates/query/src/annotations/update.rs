//! Changes to annotations, parsed from JSON or from a URI.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use pegel_metric::Millis;
use serde::Deserialize;

use super::AnnotationKey;
use super::annotation::{Annotation, to_millis};
use super::mark::{ID_LABEL, KIND_LABEL, MarkKind, PhaseFilter};
use crate::error::OpentsdbError;
use crate::request::{LenientBool, LenientInt, LenientString, QueryParams, parse_json};
use crate::time_syntax::parse_time;

/// The maximum size of one annotation.
const ANNOTATION_BYTES_MAX: usize = 16 << 10;
/// The maximum number of annotations of one bulk request.
const BULK_MAX: usize = 1_000;

/// A request to create or change an annotation.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AnnotationUpdate {
    start_time: Option<LenientInt>,
    end_time: Option<LenientInt>,
    tsuid: Option<String>,
    description: Option<LenientString>,
    notes: Option<LenientString>,
    custom: Option<BTreeMap<String, LenientString>>,
}

impl AnnotationUpdate {
    pub fn from_json(body: &[u8]) -> Result<AnnotationUpdate, OpentsdbError> {
        parse_json(body)
    }

    /// Parses the list of a bulk request.
    pub fn list_from_json(body: &[u8]) -> Result<Vec<AnnotationUpdate>, OpentsdbError> {
        let list: Vec<AnnotationUpdate> = parse_json(body)?;
        match list.len() {
            0 => Err(OpentsdbError::bad_request("No annotations given")),
            1..=BULK_MAX => Ok(list),
            count => Err(OpentsdbError::too_large(format!(
                "{count} annotations; at most {BULK_MAX} are accepted in one request"
            ))),
        }
    }

    pub fn from_uri(pairs: &QueryParams) -> Result<AnnotationUpdate, OpentsdbError> {
        let text = |key| pairs.get(key).map(|text| LenientString(text.to_owned()));
        Ok(AnnotationUpdate {
            start_time: pairs.number("start_time")?.map(LenientInt),
            end_time: pairs.number("end_time")?.map(LenientInt),
            tsuid: pairs.get("tsuid").map(str::to_owned),
            description: text("description"),
            notes: text("notes"),
            custom: None,
        })
    }

    /// Returns a new mark or phase.
    pub fn of_mark(
        text: &str,
        notes: &str,
        start: Millis,
        labels: impl IntoIterator<Item = (String, String)>,
    ) -> AnnotationUpdate {
        let labels = labels.into_iter();
        AnnotationUpdate {
            start_time: Some(LenientInt(start)),
            description: Some(LenientString(text.to_owned())),
            notes: (!notes.is_empty()).then(|| LenientString(notes.to_owned())),
            custom: Some(
                labels
                    .map(|(key, value)| (key, LenientString(value)))
                    .collect(),
            ),
            ..AnnotationUpdate::default()
        }
    }

    /// Returns the end of a phase whose start is not known.
    pub fn of_phase_end(
        text: &str,
        end: Millis,
        labels: impl IntoIterator<Item = (String, String)>,
    ) -> AnnotationUpdate {
        AnnotationUpdate {
            start_time: None,
            end_time: Some(LenientInt(end)),
            ..AnnotationUpdate::of_mark(text, "", end, labels)
        }
    }

    /// Returns whether this is a mark or a phase. Those of single series are plain annotations.
    pub fn mark_kind(&self) -> Option<MarkKind> {
        let is_global = self.tsuid.as_deref().is_none_or(|id| id.trim().is_empty());
        MarkKind::from_name(self.label(KIND_LABEL).filter(|_| is_global)?)
    }

    fn label(&self, key: &str) -> Option<&str> {
        Some(self.custom.as_ref()?.get(key)?.0.as_str())
    }

    /// Sets a label of a mark or a phase; other annotations have only those of the client.
    pub fn set_mark_label(&mut self, key: &str, value: String) {
        if self.mark_kind().is_some()
            && let Some(custom) = &mut self.custom
        {
            custom.insert(key.to_owned(), LenientString(value));
        }
    }

    pub(super) fn mark_id(&self) -> Option<&str> {
        self.label(ID_LABEL).filter(|id| !id.is_empty())
    }

    /// Returns the running phases that this change ends: it has an end, but no start.
    pub(super) fn ended_phases(&self) -> Option<PhaseFilter<'_>> {
        let end = self.end_time.filter(|end| end.0 > 0)?;
        let is_end = self.start_time.is_none() && self.mark_kind() == Some(MarkKind::Phase);
        is_end.then(|| PhaseFilter {
            name: self.description.as_ref().map_or("", |text| &text.0),
            id: self.mark_id(),
            job: self.label("jobid"),
            started_until: to_millis(end.0),
        })
    }

    /// Sets the start that a mark got. Its end is not before it.
    pub(super) fn set_start(&mut self, start: Millis) {
        self.start_time = Some(LenientInt(start));
        if let Some(end) = &mut self.end_time
            && end.0 > 0
            && to_millis(end.0) < start
        {
            *end = LenientInt(start);
        }
    }

    /// Validates and returns the key of the annotation.
    pub fn key(&self) -> Result<AnnotationKey, OpentsdbError> {
        let missing = || {
            OpentsdbError::bad_request("Missing start time")
                .with_details("startTime, in seconds since 1970")
        };
        let start = self.start_time.ok_or_else(missing)?.0;
        if !(1..=999_999_999_999_999).contains(&start) {
            return Err(OpentsdbError::bad_request(format!(
                "Invalid start time: {start}"
            )));
        }
        let tsuid = self.tsuid.as_deref().unwrap_or_default().trim();
        let is_name = tsuid.len() <= 256 && tsuid.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_name {
            return Err(
                OpentsdbError::bad_request(format!("Invalid tsuid: {tsuid:.64}"))
                    .with_details("hexadecimal digits, as showTSUIDs shows them"),
            );
        }
        Ok((tsuid.to_uppercase(), to_millis(start)))
    }

    /// Applies the change to the old annotation, or to an empty one.
    pub(super) fn apply(&self, old: Option<&Annotation>) -> Result<Annotation, OpentsdbError> {
        let (tsuid, _) = self.key()?;
        let mut note = old.cloned().unwrap_or(Annotation {
            tsuid,
            description: String::new(),
            notes: String::new(),
            custom: None,
            end_time: 0,
            start_time: self.start_time.unwrap_or_default().0,
            writer: None,
        });
        if let Some(end) = self.end_time {
            let is_sane = (0..=999_999_999_999_999).contains(&end.0);
            if !is_sane || (end.0 > 0 && to_millis(end.0) < note.start()) {
                return Err(OpentsdbError::bad_request(format!(
                    "Invalid end time: {}",
                    end.0
                )));
            }
            note.end_time = end.0;
        }
        if let Some(text) = &self.description {
            note.description.clone_from(&text.0);
        }
        if let Some(text) = &self.notes {
            note.notes.clone_from(&text.0);
        }
        if let Some(custom) = &self.custom {
            let owned = |(key, value): (&String, &LenientString)| (key.clone(), value.0.clone());
            let custom = custom.iter().map(owned);
            match &mut note.custom {
                // The end of a phase keeps the labels of its start.
                Some(labels) if self.mark_kind().is_some() => labels.extend(custom),
                labels => *labels = Some(custom.collect()),
            }
        }
        if note.bytes() > ANNOTATION_BYTES_MAX {
            return Err(OpentsdbError::too_large(format!(
                "an annotation may have at most {ANNOTATION_BYTES_MAX} bytes"
            )));
        }
        Ok(note)
    }
}

/// The annotations to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnotationBulkDelete {
    pub tsuids: Vec<String>,
    /// Also delete global annotations.
    pub global: bool,
    pub start: Millis,
    pub end: Millis,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BulkDeleteBody {
    tsuids: Option<Vec<String>>,
    global: Option<LenientBool>,
    start_time: Option<LenientString>,
    end_time: Option<LenientString>,
}

impl AnnotationBulkDelete {
    pub fn from_json(body: &[u8], now: Millis) -> Result<AnnotationBulkDelete, OpentsdbError> {
        parse_json::<BulkDeleteBody>(body)?.check(now)
    }

    pub fn from_uri(
        pairs: &QueryParams,
        now: Millis,
    ) -> Result<AnnotationBulkDelete, OpentsdbError> {
        let text = |key| pairs.get(key).map(|text| LenientString(text.to_owned()));
        let ids = pairs
            .get("tsuids")
            .map(|ids| ids.split(',').map(str::to_owned).collect());
        let body = BulkDeleteBody {
            tsuids: ids,
            global: Some(LenientBool(pairs.flag("global"))),
            start_time: text("start_time"),
            end_time: text("end_time"),
        };
        body.check(now)
    }
}

impl BulkDeleteBody {
    fn check(self, now: Millis) -> Result<AnnotationBulkDelete, OpentsdbError> {
        let moment = |text: Option<LenientString>| {
            let text = text.filter(|text| !text.0.is_empty());
            text.map(|text| parse_time(&text.0, now, &TimeZone::UTC))
                .transpose()
        };
        let ids = self.tsuids.unwrap_or_default();
        let ids = ids.iter().map(|id| id.trim().to_uppercase());
        let bulk = AnnotationBulkDelete {
            tsuids: ids.filter(|id| !id.is_empty()).collect(),
            global: self.global.is_some_and(|flag| flag.0),
            start: moment(self.start_time)?
                .ok_or_else(|| OpentsdbError::bad_request("Missing start time"))?,
            end: moment(self.end_time)?.unwrap_or(now),
        };
        if bulk.tsuids.is_empty() && !bulk.global {
            return Err(OpentsdbError::bad_request(
                "Missing the TSUIDs or global annotations flag",
            ));
        }
        Ok(bulk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        let apply = |json: &str| {
            AnnotationUpdate::from_json(json.as_bytes()).and_then(|change| change.apply(None))
        };
        let large = format!(r#"{{"startTime":1,"notes":"{}"}}"#, "x".repeat(20_000));
        for (json, status, message) in [
            ("{}", 400, "Missing start time"),
            (r#"{"startTime":0}"#, 400, "Invalid start time: 0"),
            (
                r#"{"startTime":"x"}"#,
                400,
                "Unable to parse the given JSON",
            ),
            (
                r#"{"startTime":1,"tsuid":"../x"}"#,
                400,
                "Invalid tsuid: ../x",
            ),
            (
                r#"{"startTime":10,"endTime":9}"#,
                400,
                "Invalid end time: 9",
            ),
            (&large, 413, "an annotation may have at most 16384 bytes"),
        ] {
            let problem = apply(json).expect_err(message);
            assert_eq!(
                (problem.status(), problem.to_string().as_str()),
                (status, message)
            );
        }
        let bulk =
            AnnotationBulkDelete::from_json(br#"{"startTime":"1d-ago"}"#, 1).expect_err("no ids");
        assert_eq!(
            bulk.to_string(),
            "Missing the TSUIDs or global annotations flag"
        );
    }

    #[test]
    fn both_forms_say_the_same() {
        let pairs = QueryParams::from([
            ("start_time", "1h-ago"),
            ("tsuids", "0a, 0B"),
            ("end_time", "2000"),
        ]);
        let json = br#"{"startTime":"1h-ago","tsuids":["0a","0B"],"endTime":2000,"global":false}"#;
        let now = 3_601_000;
        let expected = AnnotationBulkDelete {
            tsuids: vec!["0A".into(), "0B".into()],
            global: false,
            start: 1_000,
            end: 2_000_000,
        };
        assert_eq!(
            AnnotationBulkDelete::from_uri(&pairs, now).expect("valid"),
            expected
        );
        assert_eq!(
            AnnotationBulkDelete::from_json(json, now).expect("valid"),
            expected
        );
        let pairs = QueryParams::from([("start_time", "1369141261"), ("description", "d")]);
        let change = AnnotationUpdate::from_uri(&pairs).expect("valid");
        assert_eq!(
            change.key().expect("valid"),
            (String::new(), 1_369_141_261_000)
        );
    }
}
