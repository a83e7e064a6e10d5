//! Writes the samples of a node as Dragon's telemetry does: an SQLite file with one row per point
//! (`datapoints`) and, as older versions had it, one row per series (`metrics`). The samples are
//! read through the tree, so that no directory has to be shared.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use pegel_metric::Millis;
use rusqlite::{Connection, params};
use serde_json::Value;

use crate::agent_client::AgentClient;

/// The time that one request covers: about 2 MB of 1000 series, twice a second.
const WINDOW: Millis = 30_000;

/// Dragon's tables. `is_shutdown` holds an object of Python there; it stays empty here.
const TABLES: &str = "
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    CREATE TABLE datapoints (metric varchar(50), timestamp varchar(30), value real, tags json);
    CREATE TABLE metrics (metric text, tags text, dps BLOB);
    CREATE TABLE flags (id INTEGER PRIMARY KEY CHECK (id = 1), is_shutdown BLOB);
";
const FILL_METRICS: &str = "
    INSERT INTO metrics
    SELECT metric, tags, json_group_object(timestamp, value) FROM datapoints GROUP BY metric, tags;
";

/// Writes the samples of a node between two times to a new file, which appears when it is
/// complete. Returns the number of points.
pub(super) fn dump_node(
    client: &AgentClient,
    node: &str,
    (start, end): (Millis, Millis),
    path: &Path,
) -> anyhow::Result<u64> {
    let partial = path.with_extension("db.partial");
    let written = write_file(client, node, (start, end), &partial).and_then(|count| {
        fs::rename(&partial, path)?;
        Ok(count)
    });
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written.with_context(|| format!("cannot write {}", path.display()))
}

fn write_file(
    client: &AgentClient,
    node: &str,
    (start, end): (Millis, Millis),
    path: &Path,
) -> anyhow::Result<u64> {
    // SQLite creates files that others can read.
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let mut database = Connection::open(path)?;
    database.execute_batch(TABLES)?;
    let mut count = 0;
    let mut begin = start;
    while begin <= end {
        let last = (begin + WINDOW - 1).min(end);
        let (from, to) = (begin.to_string(), last.to_string());
        let query = [
            ("match", "*"),
            ("start", &*from),
            ("end", &*to),
            ("nodes", node),
        ];
        count += insert(&mut database, &client.get("/api/v1/range", &query)?)?;
        begin = last + 1;
    }
    database.execute_batch(FILL_METRICS)?;
    database.close().map_err(|(_, error)| error)?;
    fs::File::open(path)?.sync_all()?;
    Ok(count)
}

/// Inserts the points of one answer: as in Dragon, the last of each second.
fn insert(database: &mut Connection, answer: &Value) -> anyhow::Result<u64> {
    let transaction = database.transaction()?;
    let mut count = 0;
    {
        let mut row = transaction.prepare("INSERT INTO datapoints VALUES (?1, ?2, ?3, ?4)")?;
        for series in answer.as_array().into_iter().flatten() {
            let name = series["name"].as_str().unwrap_or_default();
            let mut tags = series["labels"].clone();
            if let Some(tags) = tags.as_object_mut() {
                // Dragon's readers add it, from the name of the file.
                tags.remove("host");
            }
            let tags = tags.to_string();
            let points = series["points"].as_array().map_or(&[][..], Vec::as_slice);
            for (index, point) in points.iter().enumerate() {
                let second = second_of(point);
                let is_last = points.get(index + 1).map(second_of) != Some(second);
                // Values that are not finite are null.
                if let (true, Some(second), Some(value)) = (is_last, second, point[1].as_f64()) {
                    row.execute(params![name, second.to_string(), value, tags])?;
                    count += 1;
                }
            }
        }
    }
    transaction.commit()?;
    Ok(count)
}

fn second_of(point: &Value) -> Option<i64> {
    Some(point[0].as_i64()?.div_euclid(1000))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_point_of_each_second_is_a_row_and_part_of_its_series() {
        let mut database = Connection::open_in_memory().expect("opened");
        database.execute_batch(TABLES).expect("made");
        let answer = json!([
            {"name": "load", "labels": {"host": "n1", "gpu": "0"},
             "points": [[1000, 1.0], [1500, 2.0], [2000, 3.0], [3000, null]]},
            {"name": "load", "labels": {}, "points": [[1999, 9.5]]},
        ]);
        assert_eq!(insert(&mut database, &answer).expect("inserted"), 3);
        database.execute_batch(FILL_METRICS).expect("filled");
        let text =
            |sql: &str| -> String { database.query_row(sql, [], |row| row.get(0)).expect(sql) };
        let rows = "SELECT group_concat(metric || timestamp || value || tags, ' ') FROM datapoints";
        assert_eq!(
            text(rows),
            "load12.0{\"gpu\":\"0\"} load23.0{\"gpu\":\"0\"} load19.5{}"
        );
        let series = "SELECT dps FROM metrics WHERE tags = '{\"gpu\":\"0\"}'";
        assert_eq!(text(series), "{\"1\":2.0,\"2\":3.0}");
    }
}
