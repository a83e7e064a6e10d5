//! Human-readable format: a list of series under a boxed title, and a table of values.

use pegel_metric::Series;

use super::DisplayContext;
use super::number::{ago, human_rate, human_readable, time_of_day};
use crate::agent_query::{name_only_family, series_text};
use crate::api_values::{SeriesInfo, SeriesValue};
use crate::counter_rates::CounterRates;
use crate::listed_node::natural_order;

pub(crate) const TRACK_HEAD: &str = "TIME                     VALUE  NAME\n";

/// Width of the title's box and of the lines below it.
const WIDTH: usize = 71;
/// The label by which a parent distinguishes the series of nodes.
pub(crate) const HOST_LABEL: &str = "host";
/// Names are not truncated below this on a narrow terminal.
const NAME_WIDTH_MIN: usize = 20;

pub(crate) fn list(listed: &[SeriesInfo], title: &str) -> String {
    let mut out = boxed(title);
    out.push('\n');
    for item in listed {
        let unit = match item.unit.as_str() {
            "" => String::new(),
            unit => format!(", {unit}"),
        };
        out.push_str(&format!(" • {} ({}{unit}) :\n", item.name, item.kind));
        for line in wrap(&item.doc, WIDTH - 3) {
            out.push_str(&format!("   {line}\n"));
        }
    }
    out
}

fn boxed(title: &str) -> String {
    let inner = (WIDTH - 2).max(title.chars().count() + 2);
    let line = "═".repeat(inner);
    format!("╔{line}╗\n║{title:^inner$}║\n╚{line}╝\n")
}

/// Wraps text into lines of at most `width` characters; longer words are not broken.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Formats one line per value. The column of rates is omitted if there are none.
pub(crate) fn values(
    readings: &[SeriesValue],
    rates: &CounterRates,
    context: DisplayContext,
) -> String {
    let names = readings.iter().map(|reading| reading.name.clone());
    let columns = value_columns(readings, rates, context);
    rows(&[], &names.collect::<Vec<_>>(), &columns, context)
}

/// Formats one line per value of a node, sorted by series and node. The label `host` becomes a
/// column of its own.
pub(crate) fn values_per_node(
    readings: &[SeriesValue],
    rates: &CounterRates,
    context: DisplayContext,
) -> String {
    let split = |reading: &SeriesValue| (split_host(&reading.name), reading.clone());
    let mut split: Vec<_> = readings.iter().map(split).collect();
    split.sort_by(|((name, node), _), ((other, other_node), _)| {
        name.cmp(other)
            .then_with(|| natural_order(node, other_node))
    });
    let nodes = split.iter().map(|((_, node), _)| node.clone());
    let nodes = TableColumn::new("NODE", nodes.collect());
    let names: Vec<String> = split.iter().map(|((name, _), _)| name.clone()).collect();
    let readings: Vec<SeriesValue> = split.into_iter().map(|(_, reading)| reading).collect();
    let columns = value_columns(&readings, rates, context);
    rows(&[nodes], &names, &columns, context)
}

/// Splits a series into its text without the label `host`, and the value of that label.
fn split_host(text: &str) -> (String, String) {
    let Ok(series) = Series::parse(text, name_only_family) else {
        return (text.to_owned(), String::new());
    };
    let host = series.label(HOST_LABEL).unwrap_or_default().into_owned();
    let labels = series.labels().filter(|(key, _)| *key != HOST_LABEL);
    let labels: Vec<(String, String)> = labels
        .map(|(key, value)| (key.to_owned(), value.into_owned()))
        .collect();
    let labels: Vec<(&str, &str)> = labels
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    let name = series_text(series.name(), &labels);
    (name.unwrap_or_else(|| text.to_owned()), host)
}

/// Returns the columns after the name.
fn value_columns(
    readings: &[SeriesValue],
    rates: &CounterRates,
    context: DisplayContext,
) -> Vec<TableColumn> {
    let column = |title: &'static str, cells: Vec<String>| TableColumn::new(title, cells);
    let numbers = readings.iter().map(|reading| human_readable(reading.value));
    let mut columns = vec![column("VALUE", aligned(numbers.collect()))];
    if !rates.is_empty() {
        let rate = |reading: &SeriesValue| match rates.get(&reading.name) {
            Some(rate) => human_rate(*rate),
            None => String::new(),
        };
        columns.push(column(
            "PER SECOND",
            aligned(readings.iter().map(rate).collect()),
        ));
    }
    let times = readings.iter().map(|reading| ago(reading.ts, context.now));
    columns.push(column("LAST CHANGE", times.collect()));
    columns
}

/// Formats one line per sample, without its time.
pub(crate) fn samples(samples: &[SeriesValue], context: DisplayContext) -> String {
    let numbers = samples.iter().map(|sample| human_readable(sample.value));
    let columns = [TableColumn::new("VALUE", aligned(numbers.collect()))];
    let names = samples.iter().map(|sample| sample.name.clone());
    rows(&[], &names.collect::<Vec<_>>(), &columns, context)
}

/// Formats a head and one line per series: left-aligned cells, its name, and right-aligned cells.
fn rows(
    before: &[TableColumn],
    names: &[String],
    columns: &[TableColumn],
    context: DisplayContext,
) -> String {
    let longest = names.iter().map(|name| name.chars().count()).max();
    let longest = longest.unwrap_or(0);
    let others = before.iter().chain(columns);
    let others: usize = others.map(|column| column.width + 3).sum();
    let room = context.width.map(|width| width.saturating_sub(others));
    let name_width = room
        .map_or(longest, |room| longest.min(room.max(NAME_WIDTH_MIN)))
        .max(4);
    let mut out = String::new();
    for column in before {
        out.push_str(&format!("{:width$}   ", column.title, width = column.width));
    }
    out.push_str(&format!("{:name_width$}", "NAME"));
    for column in columns {
        out.push_str(&format!(
            "   {:>width$}",
            column.title,
            width = column.width
        ));
    }
    out.push('\n');
    for (row, name) in names.iter().enumerate() {
        for column in before {
            out.push_str(&format!(
                "{:width$}   ",
                column.cells[row],
                width = column.width
            ));
        }
        let name = truncate_middle(name, name_width);
        out.push_str(&format!("{name:name_width$}"));
        for column in columns {
            out.push_str(&format!(
                "   {:>width$}",
                column.cells[row],
                width = column.width
            ));
        }
        out.push('\n');
    }
    out
}

/// A column of cells.
struct TableColumn {
    title: &'static str,
    cells: Vec<String>,
    width: usize,
}

impl TableColumn {
    fn new(title: &'static str, cells: Vec<String>) -> TableColumn {
        let widths = cells.iter().map(|cell| cell.chars().count());
        let width = widths.max().unwrap_or(0).max(title.len());
        TableColumn {
            title,
            cells,
            width,
        }
    }
}

/// Pads numbers to align their decimal points.
fn aligned(numbers: Vec<String>) -> Vec<String> {
    let parts = |text: &str| match text.find('.') {
        Some(point) => (point, text.len() - point),
        None => (text.len(), 0),
    };
    let whole = numbers.iter().map(|text| parts(text).0).max().unwrap_or(0);
    let fraction = numbers.iter().map(|text| parts(text).1).max().unwrap_or(0);
    let pad = |text: &String| {
        let (before, after) = parts(text);
        format!(
            "{}{text}{}",
            " ".repeat(whole - before),
            " ".repeat(fraction - after)
        )
    };
    numbers.iter().map(pad).collect()
}

/// Truncates a name in the middle: both the metric and the last label stay readable.
pub(crate) fn truncate_middle(name: &str, width: usize) -> String {
    let chars: Vec<char> = name.chars().collect();
    if chars.len() <= width {
        return name.to_owned();
    }
    let tail = (width - 1) / 2;
    let head = width - 1 - tail;
    let mut out: String = chars[..head].iter().collect();
    out.push('…');
    out.extend(&chars[chars.len() - tail..]);
    out
}

pub(crate) fn track_step(readings: &[SeriesValue]) -> String {
    let line = |reading: &SeriesValue| {
        let (time, value) = (time_of_day(reading.ts), human_readable(reading.value));
        format!("{time}  {value:>16}  {}\n", reading.name)
    };
    readings.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(name: &str, value: f64) -> SeriesValue {
        SeriesValue {
            name: name.into(),
            ts: 100.0,
            value,
        }
    }

    #[test]
    fn decimal_points_are_aligned() {
        let readings = [
            reading("a", 12_441_600.0),
            reading("bb{c=\"d\"}", 6220.11),
            reading("c", -0.5),
        ];
        let text = values(
            &readings,
            &CounterRates::new(),
            DisplayContext {
                now: 100.5,
                width: None,
            },
        );
        let expected = "\
NAME                   VALUE   LAST CHANGE
a            12 441 600        0.5 s ago
bb{c=\"d\"}        6 220.11     0.5 s ago
c                    -0.5      0.5 s ago
";
        let trimmed = |text: &str| -> Vec<String> {
            text.lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect()
        };
        assert_eq!(trimmed(&text), trimmed(expected));
        let points: Vec<usize> = text
            .lines()
            .skip(2)
            .filter_map(|line| line.split("s ago").next()?.find('.'))
            .collect();
        assert_eq!(points[0], points[1], "{text}");
    }

    #[test]
    fn a_narrow_terminal_truncates_names_in_the_middle() {
        let readings = [reading(&"x".repeat(200), 1.0)];
        let text = values(
            &readings,
            &CounterRates::new(),
            DisplayContext {
                now: 100.5,
                width: Some(60),
            },
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 60),
            "{text}"
        );
        assert!(text.contains('…'));
        assert_eq!(truncate_middle("abcdefghij", 5), "ab…ij".to_owned());
        assert_eq!(truncate_middle("abc", 5), "abc");
    }

    #[test]
    fn the_node_is_a_column() {
        let readings = [
            reading(r#"a{host="n10",x="1"}"#, 1.0),
            reading(r#"a{host="n2",x="1"}"#, 2.0),
            reading("b", 3.0),
        ];
        let context = DisplayContext {
            now: 100.5,
            width: None,
        };
        let text = values_per_node(&readings, &CounterRates::new(), context);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        assert_eq!(lines[0], "NODE NAME VALUE LAST CHANGE");
        assert_eq!(lines[1], r#"n2 a{x="1"} 2 0.5 s ago"#);
        assert_eq!(lines[2], r#"n10 a{x="1"} 1 0.5 s ago"#);
        assert_eq!(lines[3], "b 3 0.5 s ago");
    }

    #[test]
    fn long_titles_and_texts_fit() {
        assert_eq!(wrap("a bb ccc", 4), ["a bb", "ccc"]);
        assert!(
            boxed(&"t".repeat(100))
                .lines()
                .all(|line| line.chars().count() == 104)
        );
    }
}
