//! Reads the database files of Dragon's telemetry, and ours, for `pegel view`: `datapoints` with a
//! row per point or, in files of older versions, `metrics` with a row per series.
//!
//! A copy is read: SQLite may create files beside the one that it opens.

use std::fs;
use std::path::Path;

use anyhow::Context;
use pegel_agent::SampleImport;
use pegel_metric::Millis;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use crate::output;

/// Rows of metric, timestamp, value and tags.
const POINTS: &str = "SELECT metric, timestamp, value, tags FROM datapoints ORDER BY timestamp";
const SERIES: &str =
    "SELECT m.metric, d.key, d.value, m.tags FROM metrics AS m, json_each(m.dps) AS d";
/// The longest text of a row that is read.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Writes the samples of a database file to a new store.
pub(super) fn import_database(database: &Path, store: &Path) -> anyhow::Result<()> {
    let copy = store.with_extension("db");
    let copied = fs::copy(database, &copy).and_then(|_| fs::create_dir_all(store));
    copied.with_context(|| format!("cannot copy {}", database.display()))?;
    let imported = import(&copy, store);
    let _ = fs::remove_file(&copy);
    let refused = imported.with_context(|| format!("cannot read {}", database.display()))?;
    if refused > 0 {
        output::print_message(&format!(
            "pegel: {}: {refused} malformed points are not shown",
            database.display()
        ));
    }
    Ok(())
}

fn import(database: &Path, store: &Path) -> anyhow::Result<u64> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(database, flags)?;
    let has_points = database.query_row("SELECT 1 FROM datapoints LIMIT 1", [], |_| Ok(()));
    let query = match has_points {
        Ok(()) => POINTS,
        Err(_) => SERIES,
    };
    let mut import = SampleImport::create(store)?;
    let mut statement = database.prepare(query)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let point = || {
            let time = milliseconds(row.get_ref(1).ok()?)?;
            let value = number(row.get_ref(2).ok()?)?;
            Some((
                text(row.get_ref(0).ok()?)?,
                text(row.get_ref(3).ok()?)?,
                time,
                value,
            ))
        };
        match point() {
            Some((name, tags, time, value)) => import.add(name, tags, labels, (time, value))?,
            None => import.refuse(),
        }
    }
    Ok(import.finish()?)
}

fn text(value: ValueRef<'_>) -> Option<&str> {
    let text = match value {
        ValueRef::Null => "",
        other => other.as_str().ok()?,
    };
    (text.len() <= TEXT_BYTES_MAX).then_some(text)
}

fn number(value: ValueRef<'_>) -> Option<f64> {
    match value {
        ValueRef::Integer(number) => Some(number as f64),
        ValueRef::Real(number) => Some(number),
        ValueRef::Text(text) => std::str::from_utf8(text).ok()?.trim().parse().ok(),
        ValueRef::Null | ValueRef::Blob(_) => None,
    }
}

/// Reads a time in seconds since 1970, which may have a fraction.
fn milliseconds(value: ValueRef<'_>) -> Option<Millis> {
    let millis = number(value)? * 1000.0;
    // Within the times that a store keeps.
    (0.0..4e15)
        .contains(&millis)
        .then_some(millis.round() as Millis)
}

/// Reads tags: an object in JSON whose values are texts, numbers or booleans.
fn labels(tags: &str) -> Option<Vec<(String, String)>> {
    if tags.is_empty() {
        return Some(Vec::new());
    }
    let Value::Object(tags) = serde_json::from_str(tags).ok()? else {
        return None;
    };
    let label = |(key, value)| match value {
        Value::String(text) => Some((key, text)),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
        other => Some((key, other.to_string())),
    };
    Some(tags.into_iter().filter_map(label).collect())
}

#[cfg(test)]
mod tests {
    use pegel_testkit::TempDir;

    use super::*;

    const OLD: &str = "CREATE TABLE metrics (metric text, tags text, dps BLOB);
        INSERT INTO metrics VALUES ('load', '{\"gpu\": 0}', '{\"1713379493\": 1.5, \"1713379494\": 2}');";
    const NEW: &str = "CREATE TABLE datapoints (metric varchar(50), timestamp varchar(30), value real, tags json);
        INSERT INTO datapoints VALUES ('load', '1713379493', 1.5, '{\"gpu\": 0}');
        INSERT INTO datapoints VALUES ('load', '1713379494.5', 2, '{}');
        INSERT INTO datapoints VALUES ('load', 'yesterday', 2, '{}');
        INSERT INTO datapoints VALUES ('load', '1713379494', 'x', '{}');
        INSERT INTO datapoints VALUES ('lo{ad', '1713379494', 1, '{}');
        INSERT INTO datapoints VALUES ('load', '1713379494', 1, '[');";

    #[test]
    fn files_of_both_forms_are_read_and_malformed_points_are_counted() {
        for (tables, refused) in [(OLD, 0), (NEW, 4)] {
            let dir = TempDir::new();
            let path = dir.join("ts.db");
            let database = Connection::open(&path).expect("opened");
            database.execute_batch(tables).expect("filled");
            drop(database);
            let store = dir.join("store");
            fs::create_dir(&store).expect("made");
            assert_eq!(import(&path, &store).expect("read"), refused, "{tables}");
        }
    }

    #[test]
    fn a_file_that_is_no_database_is_refused() {
        let dir = TempDir::new();
        let path = dir.join("ts.db");
        fs::write(&path, "not a database, but long enough to be read as one").expect("written");
        let error = import_database(&path, &dir.join("store")).expect_err("refused");
        assert!(error.to_string().contains("ts.db"), "{error:#}");
        assert!(!dir.join("store.db").exists(), "the copy is removed");
    }
}
