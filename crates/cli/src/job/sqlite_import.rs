//! Reads the database files of Dragon's telemetry, and ours, for `pegel view`: `datapoints` with a
//! row per point or, in files of older versions, `metrics` with a row per series.
//!
//! A copy is read: SQLite may create files beside the one that it opens. The file may be from
//! anyone: only tables are read, because a view can be a query without end; nothing is sorted,
//! which could fill the disk; and steps and memory of SQLite are limited.

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
const POINTS: &str = "SELECT metric, timestamp, value, tags FROM datapoints";
const SERIES: &str =
    "SELECT m.metric, d.key, d.value, m.tags FROM metrics AS m, json_each(m.dps) AS d";
/// The longest text of a row that is read.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// The most steps of SQLite's virtual machine: a row takes about ten, and at least some bytes. A
/// file whose pages refer to each other in circles would have rows without end.
const STEPS_MIN: u64 = 10_000_000;
const STEPS_PER_BYTE: u64 = 100;
/// The steps between two checks.
const STEPS_AT_ONCE: u32 = 10_000;
/// Memory of SQLite, and only functions without side effects in the file's own schema.
const LIMITS: &str = "PRAGMA hard_heap_limit = 268435456; PRAGMA trusted_schema = OFF;";
/// A view or a virtual table has another type or text.
const IS_TABLE: &str = "SELECT count(*) FROM sqlite_schema WHERE name = ?1 AND type = 'table'
    AND sql NOT LIKE 'create virtual%'";

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
    let bytes = fs::metadata(database)?.len();
    let database = Connection::open_with_flags(database, flags)?;
    database.execute_batch(LIMITS)?;
    limit_steps(
        &database,
        STEPS_MIN.saturating_add(bytes.saturating_mul(STEPS_PER_BYTE)),
    );
    let is_table = |name: &str| {
        let count = database.query_row(IS_TABLE, [name], |row| row.get::<_, i64>(0));
        count.map(|count| count > 0)
    };
    let query = if is_table("datapoints")? {
        POINTS
    } else if is_table("metrics")? {
        SERIES
    } else {
        anyhow::bail!("no table datapoints or metrics");
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

/// Interrupts the queries of a connection after about this many steps.
fn limit_steps(database: &Connection, steps_max: u64) {
    let mut steps = 0;
    let is_over = move || {
        steps += u64::from(STEPS_AT_ONCE);
        steps > steps_max
    };
    database.progress_handler(STEPS_AT_ONCE.cast_signed(), Some(is_over));
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
    fn a_view_is_refused_and_a_query_without_end_is_interrupted() {
        let dir = TempDir::new();
        let path = dir.join("ts.db");
        let database = Connection::open(&path).expect("opened");
        let view = "CREATE VIEW datapoints AS WITH RECURSIVE n(i) AS
            (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3)
            SELECT 'a' AS metric, i AS timestamp, i AS value, '' AS tags FROM n";
        database.execute_batch(view).expect("a view");
        let store = dir.join("store");
        fs::create_dir(&store).expect("made");
        let error = import(&path, &store).expect_err("refused");
        assert!(error.to_string().contains("no table"), "{error:#}");

        limit_steps(&database, 100_000);
        let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
            SELECT count(*) FROM n";
        let counted = database.query_row(endless, [], |row| row.get::<_, i64>(0));
        let error = counted.expect_err("interrupted");
        assert!(error.to_string().contains("interrupted"), "{error}");
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
