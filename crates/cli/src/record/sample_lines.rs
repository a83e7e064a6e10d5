//! Samples as lines of CSV and JSON, with the columns of `pegel get`.

use pegel_metric::Millis;

use crate::format::json;
use crate::format::number::{exact, json_number};

/// The format of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SampleLines {
    Csv,
    Json,
}

impl SampleLines {
    pub(super) fn head(self) -> &'static str {
        match self {
            SampleLines::Csv => crate::format::CSV_VALUES_HEAD,
            SampleLines::Json => "",
        }
    }

    /// Appends the samples of one series and returns their number.
    pub(super) fn append(
        self,
        out: &mut String,
        series: &str,
        samples: impl Iterator<Item = (Millis, f64)>,
    ) -> u64 {
        let name = match self {
            SampleLines::Csv => crate::format::csv_field(series),
            SampleLines::Json => json::string(series),
        };
        let mut count = 0;
        for (time, value) in samples {
            let time = seconds(time);
            match self {
                SampleLines::Csv => {
                    for text in [name.as_str(), ",", &time, ",", &exact(value), "\n"] {
                        out.push_str(text);
                    }
                }
                SampleLines::Json => {
                    let value = json_number(value);
                    out.push_str(&format!(
                        "{{\"name\":{name},\"ts\":{time},\"value\":{value}}}\n"
                    ));
                }
            }
            count += 1;
        }
        count
    }
}

/// Formats milliseconds as seconds, exactly.
pub(super) fn seconds(time: Millis) -> String {
    let sign = if time < 0 { "-" } else { "" };
    let (whole, rest) = (time.unsigned_abs() / 1000, time.unsigned_abs() % 1000);
    match rest {
        0 => format!("{sign}{whole}"),
        _ => format!("{sign}{whole}.{rest:03}")
            .trim_end_matches('0')
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_name_time_and_value() {
        let samples = [(1_667_486_717_480, 1.5), (-1, f64::NAN)];
        let mut text = String::new();
        let count = SampleLines::Csv.append(&mut text, r#"a{b="c"}"#, samples.into_iter());
        assert_eq!(count, 2);
        assert_eq!(
            text,
            "\"a{b=\"\"c\"\"}\",1667486717.48,1.5\n\"a{b=\"\"c\"\"}\",-0.001,NaN\n"
        );
        text.clear();
        SampleLines::Json.append(&mut text, r#"a{b="c"}"#, samples.into_iter());
        for line in text.lines() {
            let parsed: serde_json::Value = serde_json::from_str(line).expect("JSON");
            assert_eq!(parsed["name"], r#"a{b="c"}"#);
        }
        assert!(text.contains("\"value\":null"), "{text}");
    }

    #[test]
    fn times_are_exact() {
        for (time, text) in [(0, "0"), (10, "0.01"), (1000, "1"), (-2500, "-2.5")] {
            assert_eq!(seconds(time), text);
        }
        assert_eq!(seconds(Millis::MIN), "-9223372036854775.808");
    }
}
