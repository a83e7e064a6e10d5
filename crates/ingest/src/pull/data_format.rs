//! The formats in which programs and files give samples.

use std::fmt;
use std::str::FromStr;

use pegel_wire::exposition::{self, TextFormat};
use pegel_wire::influx::{self, TimePrecision};
use pegel_wire::{PointBatch, json_values};

use super::PullError;

/// The format of a program's output or of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataFormat {
    /// InfluxDB's line protocol, with times in nanoseconds.
    #[default]
    Influx,
    /// Prometheus' text format, or OpenMetrics if the last line is `# EOF`.
    Prometheus,
    /// An object of numbers, or a list of points.
    Json,
}

impl FromStr for DataFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<DataFormat, String> {
        match text {
            "influx" => Ok(DataFormat::Influx),
            "prometheus" => Ok(DataFormat::Prometheus),
            "json" => Ok(DataFormat::Json),
            _ => Err(format!("\"{text}\" is not a format")),
        }
    }
}

impl fmt::Display for DataFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DataFormat::Influx => "influx",
            DataFormat::Prometheus => "prometheus",
            DataFormat::Json => "json",
        })
    }
}

pegel_config::text_setting!(DataFormat, "influx, prometheus or json");

impl DataFormat {
    /// Parses a body. `prefix` is put before names of values in JSON.
    ///
    /// Fails if the body is in another format, which a single valid point disproves: malformed
    /// lines and points among others are counted one by one.
    pub(crate) fn parse<'a>(
        self,
        body: &'a [u8],
        prefix: &str,
    ) -> Result<PointBatch<'a>, PullError> {
        let batch = match self {
            DataFormat::Influx => {
                influx::parse(body, TimePrecision::Nanoseconds).map_err(PullError::malformed)?
            }
            DataFormat::Json => json_values::parse(body, prefix).map_err(PullError::malformed)?,
            DataFormat::Prometheus => {
                let format = match body.trim_ascii_end().ends_with(b"# EOF") {
                    true => TextFormat::OpenMetrics,
                    false => TextFormat::Prometheus,
                };
                exposition::parse(body, format).map_err(PullError::malformed)?
            }
        };
        match batch.points.iter().find_map(|point| point.as_ref().err()) {
            Some(first) if batch.points.iter().all(Result::is_err) => {
                let message = format!("nothing is in the format {self}: {first}");
                Err(PullError::malformed(message))
            }
            _ => Ok(batch),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_in_another_format_is_an_error() {
        for (format, body) in [
            (DataFormat::Influx, "<html>\n<body>\n"),
            (DataFormat::Influx, "\u{0}\u{1}\u{2}"),
            (DataFormat::Prometheus, "<html>"),
            (DataFormat::Json, "<html>"),
            (DataFormat::Json, "[1, 2]"),
        ] {
            assert!(
                format.parse(body.as_bytes(), "").is_err(),
                "{format}: {body:?}"
            );
        }
        let mixed = DataFormat::Influx.parse(b"a value=1\nb\n", "");
        assert_eq!(mixed.expect("one is valid").len(), 2);
        let ended = DataFormat::Prometheus.parse(b"a 1 2.5\n# EOF\n", "");
        assert_eq!(ended.expect("OpenMetrics").len(), 1);
        for format in [DataFormat::Influx, DataFormat::Prometheus] {
            assert!(format.parse(b"", "").expect("empty").is_empty());
        }
    }

    #[test]
    fn names_read_back() {
        for format in [DataFormat::Influx, DataFormat::Prometheus, DataFormat::Json] {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        assert!("xml".parse::<DataFormat>().is_err());
    }
}
