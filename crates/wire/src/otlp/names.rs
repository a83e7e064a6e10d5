//! Names for Prometheus, by OpenTelemetry's specification "Prometheus and OpenMetrics
//! Compatibility": dots become underscores, the unit is appended in words (`_seconds`), and so are
//! `_total` to monotonic sums and `_ratio` to gauges of the unit 1.

use super::MetricData;

/// Units of UCUM, and the words for them.
const UNITS: [(&str, &str); 26] = [
    ("d", "days"),
    ("h", "hours"),
    ("min", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
    ("By", "bytes"),
    ("KiBy", "kibibytes"),
    ("MiBy", "mebibytes"),
    ("GiBy", "gibibytes"),
    ("TiBy", "tibibytes"),
    ("KBy", "kilobytes"),
    ("MBy", "megabytes"),
    ("GBy", "gigabytes"),
    ("TBy", "terabytes"),
    ("m", "meters"),
    ("V", "volts"),
    ("A", "amperes"),
    ("J", "joules"),
    ("W", "watts"),
    ("g", "grams"),
    ("Cel", "celsius"),
    ("Hz", "hertz"),
    ("1", ""),
    ("%", "percent"),
];

/// The words after `per`.
const PER_UNITS: [(&str, &str); 7] = [
    ("s", "second"),
    ("m", "minute"),
    ("h", "hour"),
    ("d", "day"),
    ("w", "week"),
    ("mo", "month"),
    ("y", "year"),
];

/// Returns the name of a metric, without the suffixes of its series; `None` if no character of the
/// name is valid.
pub fn metric_name(name: &str, unit: &str, data: MetricData) -> Option<String> {
    let mut words: Vec<String> = words(name).map(str::to_owned).collect();
    if words.is_empty() {
        return None;
    }
    let unit = unit.trim();
    let (main, per) = match unit.split_once('/') {
        Some((main, per)) => (main.trim(), per.trim()),
        None => (unit, ""),
    };
    push_unit(&mut words, "", word_for(&UNITS, main));
    if !per.is_empty() {
        push_unit(&mut words, "per_", word_for(&PER_UNITS, per));
    }
    let suffix = match data {
        MetricData::Sum {
            is_monotonic: true, ..
        } => Some("total"),
        MetricData::Gauge if unit == "1" => Some("ratio"),
        _ => None,
    };
    if let Some(suffix) = suffix {
        words.retain(|word| word != suffix);
        words.push(suffix.to_owned());
    }
    let name = words.join("_");
    let starts_with_digit = name.starts_with(|c: char| c.is_ascii_digit());
    Some(match starts_with_digit {
        true => format!("_{name}"),
        false => name,
    })
}

/// Returns the label name for an attribute; `None` if no character of its key is valid.
pub fn label_name(key: &str) -> Option<String> {
    let mut name = String::with_capacity(key.len() + 4);
    if key.starts_with(|c: char| c.is_ascii_digit()) {
        name.push_str("key_");
    }
    for c in key.chars() {
        name.push(if c.is_ascii_alphanumeric() { c } else { '_' });
    }
    // Labels with one underscore at the start are not permitted, those with two are reserved.
    if name.starts_with('_') && !name.starts_with("__") {
        name.insert_str(0, "key");
    }
    let has_letter = name.contains(|c: char| c != '_');
    has_letter.then_some(name)
}

fn words(name: &str) -> impl Iterator<Item = &str> {
    let is_separator = |c: char| !(c.is_ascii_alphanumeric() || c == ':');
    name.split(is_separator).filter(|word| !word.is_empty())
}

/// Returns the word for a unit: that of the table, else the unit itself. Annotations in braces are
/// not units.
fn word_for(table: &[(&str, &'static str)], unit: &str) -> String {
    if unit.contains(['{', '}']) {
        return String::new();
    }
    let known = table.iter().find(|(symbol, _)| *symbol == unit);
    match known {
        Some((_, word)) => (*word).to_owned(),
        None => words(unit).collect::<Vec<_>>().join("_"),
    }
}

/// Appends a unit, unless the name has it.
fn push_unit(words: &mut Vec<String>, prefix: &str, word: String) {
    let suffix = format!("{prefix}{word}");
    if !word.is_empty() && !words.contains(&suffix) {
        words.push(suffix);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Temporality;
    use super::*;

    const COUNTER: MetricData = MetricData::Sum {
        temporality: Temporality::Cumulative,
        is_monotonic: true,
    };
    const UP_DOWN: MetricData = MetricData::Sum {
        temporality: Temporality::Cumulative,
        is_monotonic: false,
    };
    const HISTOGRAM: MetricData = MetricData::Histogram(Temporality::Cumulative);

    #[test]
    fn names_have_units_and_suffixes() {
        for (name, unit, data, expected) in [
            (
                "http.server.requests",
                "",
                COUNTER,
                "http_server_requests_total",
            ),
            ("requests_total", "1", COUNTER, "requests_total"),
            ("total.bytes", "By", COUNTER, "bytes_total"),
            (
                "http.server.duration",
                "s",
                HISTOGRAM,
                "http_server_duration_seconds",
            ),
            ("duration_seconds", "s", HISTOGRAM, "duration_seconds"),
            (
                "memory.usage",
                "By",
                MetricData::Gauge,
                "memory_usage_bytes",
            ),
            (
                "cpu.utilization",
                "1",
                MetricData::Gauge,
                "cpu_utilization_ratio",
            ),
            ("queue.length", "{items}", UP_DOWN, "queue_length"),
            (
                "disk.io",
                "By/s",
                MetricData::Gauge,
                "disk_io_bytes_per_second",
            ),
            (
                "requests",
                "{request}/m",
                MetricData::Gauge,
                "requests_per_minute",
            ),
            ("speed", "km/h", MetricData::Gauge, "speed_km_per_hour"),
            (
                "temperature",
                "Cel",
                MetricData::Gauge,
                "temperature_celsius",
            ),
            ("weird", "foo bar", MetricData::Gauge, "weird_foo_bar"),
            ("2xx..responses", "", UP_DOWN, "_2xx_responses"),
            ("größe", "", MetricData::Gauge, "gr_e"),
        ] {
            let translated = metric_name(name, unit, data);
            assert_eq!(translated.as_deref(), Some(expected), "{name} in {unit}");
        }
        assert_eq!(metric_name("", "s", COUNTER), None);
        assert_eq!(metric_name("…", "", COUNTER), None);
    }

    #[test]
    fn labels_are_valid() {
        for (key, expected) in [
            ("service.name", Some("service_name")),
            ("http.status_code", Some("http_status_code")),
            ("1st", Some("key_1st")),
            ("_private", Some("key_private")),
            ("__reserved", Some("__reserved")),
            ("a b", Some("a_b")),
            ("", None),
            ("..", None),
        ] {
            assert_eq!(label_name(key).as_deref(), expected, "{key}");
        }
    }
}
