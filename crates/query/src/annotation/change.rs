use std::collections::BTreeMap;

use pegel_metric::Millis;
use serde::Deserialize;

use super::Key;
use super::note::{Annotation, to_millis};
use crate::moment::parse_moment;
use crate::problem::Problem;
use crate::request::{Flag, Pairs, Text, Whole, parse_json};
use crate::zone::Zone;

/// What one annotation may take.
const NOTE_BYTES_MAX: usize = 16 << 10;
/// How many one bulk request may hold.
const BULK_MAX: usize = 1_000;

/// What a client says about an annotation.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Change {
    start_time: Option<Whole>,
    end_time: Option<Whole>,
    tsuid: Option<String>,
    description: Option<Text>,
    notes: Option<Text>,
    custom: Option<BTreeMap<String, Text>>,
}

impl Change {
    pub fn from_json(body: &[u8]) -> Result<Change, Problem> {
        parse_json(body)
    }

    /// A list of them.
    pub fn list(body: &[u8]) -> Result<Vec<Change>, Problem> {
        let list: Vec<Change> = parse_json(body)?;
        match list.len() {
            0 => Err(Problem::bad("No annotations were given")),
            1..=BULK_MAX => Ok(list),
            count => Err(Problem::large(format!(
                "{count} annotations; at most {BULK_MAX} are taken at once"
            ))),
        }
    }

    pub fn from_uri(pairs: &Pairs) -> Result<Change, Problem> {
        let text = |key| pairs.get(key).map(|text| Text(text.to_owned()));
        Ok(Change {
            start_time: pairs.number("start_time")?.map(Whole),
            end_time: pairs.number("end_time")?.map(Whole),
            tsuid: pairs.get("tsuid").map(str::to_owned),
            description: text("description"),
            notes: text("notes"),
            custom: None,
        })
    }

    /// Which annotation it is about.
    pub fn key(&self) -> Result<Key, Problem> {
        let missing =
            || Problem::bad("Missing start time").details("startTime, in seconds since 1970");
        let start = self.start_time.ok_or_else(missing)?.0;
        if !(1..=999_999_999_999_999).contains(&start) {
            return Err(Problem::bad(format!("Invalid start time: {start}")));
        }
        let tsuid = self.tsuid.as_deref().unwrap_or_default().trim();
        let is_name = tsuid.len() <= 256 && tsuid.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_name {
            return Err(Problem::bad(format!("Invalid tsuid: {tsuid:.64}"))
                .details("hexadecimal digits, as showTSUIDs shows them"));
        }
        Ok((tsuid.to_uppercase(), to_millis(start)))
    }

    /// What becomes of the old one.
    pub(super) fn apply(&self, old: Option<&Annotation>) -> Result<Annotation, Problem> {
        let (tsuid, _) = self.key()?;
        let mut note = old.cloned().unwrap_or(Annotation {
            tsuid,
            description: String::new(),
            notes: String::new(),
            custom: None,
            end_time: 0,
            start_time: self.start_time.unwrap_or_default().0,
        });
        if let Some(end) = self.end_time {
            let is_sane = (0..=999_999_999_999_999).contains(&end.0);
            if !is_sane || (end.0 > 0 && to_millis(end.0) < note.start()) {
                return Err(Problem::bad(format!("Invalid end time: {}", end.0)));
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
            let owned = |(key, value): (&String, &Text)| (key.clone(), value.0.clone());
            note.custom = Some(custom.iter().map(owned).collect());
        }
        match note.bytes() > NOTE_BYTES_MAX {
            true => Err(Problem::large(format!(
                "an annotation may have {NOTE_BYTES_MAX} bytes"
            ))),
            false => Ok(note),
        }
    }
}

/// Which annotations to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkDelete {
    pub tsuids: Vec<String>,
    /// Also those that concern all series.
    pub global: bool,
    pub start: Millis,
    pub end: Millis,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BulkBody {
    tsuids: Option<Vec<String>>,
    global: Option<Flag>,
    start_time: Option<Text>,
    end_time: Option<Text>,
}

impl BulkDelete {
    pub fn from_json(body: &[u8], now: Millis) -> Result<BulkDelete, Problem> {
        parse_json::<BulkBody>(body)?.check(now)
    }

    pub fn from_uri(pairs: &Pairs, now: Millis) -> Result<BulkDelete, Problem> {
        let text = |key| pairs.get(key).map(|text| Text(text.to_owned()));
        let ids = pairs
            .get("tsuids")
            .map(|ids| ids.split(',').map(str::to_owned).collect());
        let body = BulkBody {
            tsuids: ids,
            global: Some(Flag(pairs.flag("global"))),
            start_time: text("start_time"),
            end_time: text("end_time"),
        };
        body.check(now)
    }
}

impl BulkBody {
    fn check(self, now: Millis) -> Result<BulkDelete, Problem> {
        let moment = |text: Option<Text>| {
            let text = text.filter(|text| !text.0.is_empty());
            text.map(|text| parse_moment(&text.0, now, &Zone::utc()))
                .transpose()
        };
        let ids = self.tsuids.unwrap_or_default();
        let ids = ids.iter().map(|id| id.trim().to_uppercase());
        let bulk = BulkDelete {
            tsuids: ids.filter(|id| !id.is_empty()).collect(),
            global: self.global.is_some_and(|flag| flag.0),
            start: moment(self.start_time)?.ok_or_else(|| Problem::bad("Missing start time"))?,
            end: moment(self.end_time)?.unwrap_or(now),
        };
        match bulk.tsuids.is_empty() && !bulk.global {
            true => Err(Problem::bad(
                "Missing the TSUIDs or global annotations flag",
            )),
            false => Ok(bulk),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        let apply =
            |json: &str| Change::from_json(json.as_bytes()).and_then(|change| change.apply(None));
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
            (&large, 413, "an annotation may have 16384 bytes"),
        ] {
            let problem = apply(json).expect_err(message);
            assert_eq!(
                (problem.status(), problem.to_string().as_str()),
                (status, message)
            );
        }
        let bulk = BulkDelete::from_json(br#"{"startTime":"1d-ago"}"#, 1).expect_err("no ids");
        assert_eq!(
            bulk.to_string(),
            "Missing the TSUIDs or global annotations flag"
        );
    }

    #[test]
    fn both_forms_say_the_same() {
        let pairs = Pairs::from([
            ("start_time", "1h-ago"),
            ("tsuids", "0a, 0B"),
            ("end_time", "2000"),
        ]);
        let json = br#"{"startTime":"1h-ago","tsuids":["0a","0B"],"endTime":2000,"global":false}"#;
        let now = 3_601_000;
        let expected = BulkDelete {
            tsuids: vec!["0A".into(), "0B".into()],
            global: false,
            start: 1_000,
            end: 2_000_000,
        };
        assert_eq!(BulkDelete::from_uri(&pairs, now).expect("valid"), expected);
        assert_eq!(BulkDelete::from_json(json, now).expect("valid"), expected);
        let pairs = Pairs::from([("start_time", "1369141261"), ("description", "d")]);
        let change = Change::from_uri(&pairs).expect("valid");
        assert_eq!(
            change.key().expect("valid"),
            (String::new(), 1_369_141_261_000)
        );
    }
}
