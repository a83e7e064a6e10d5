//! Content negotiation: the format of `/metrics`, HTML or text, and compression.

use axum::http::{HeaderMap, HeaderName, header};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricsFormat {
    Text,
    OpenMetrics,
}

/// The format that the client prefers. Falls back to the text format if the client states no
/// preference or accepts neither: in a browser, text is more useful than an error.
pub(crate) fn metrics_format(headers: &HeaderMap) -> MetricsFormat {
    let text = accept_preference(headers, "text", "plain", &["0.0.4"]);
    let open = accept_preference(
        headers,
        "application",
        "openmetrics-text",
        &["1.0.0", "0.0.1"],
    );
    match (open, text) {
        (Some(open), text) if open.is_preferred_to(text) => MetricsFormat::OpenMetrics,
        _ => MetricsFormat::Text,
    }
}

/// Whether the client is a browser that wants a page: it names HTML explicitly and prefers it to
/// text.
pub(crate) fn prefers_html(headers: &HeaderMap) -> bool {
    let Some(html) = accept_preference(headers, "text", "html", &[]) else {
        return false;
    };
    html.precision >= 2 && html.is_preferred_to(accept_preference(headers, "text", "plain", &[]))
}

/// How strongly a client prefers a media type: by quality, then by how specifically the entry names
/// it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct AcceptPreference {
    quality: f32,
    precision: u8,
}

impl AcceptPreference {
    fn is_preferred_to(self, other: Option<AcceptPreference>) -> bool {
        let other = other.unwrap_or(AcceptPreference {
            quality: 0.0,
            precision: 0,
        });
        self.quality > other.quality
            || (self.quality == other.quality
                && self.quality > 0.0
                && self.precision > other.precision)
    }
}

/// The preference that `Accept` gives a media type; the most specific entry counts.
fn accept_preference(
    headers: &HeaderMap,
    kind: &str,
    subtype: &str,
    versions: &[&str],
) -> Option<AcceptPreference> {
    header_entries(headers, header::ACCEPT)
        .filter_map(|entry| {
            let (found_kind, found_subtype) = entry.value.split_once('/')?;
            let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
            let precision = match (found_kind, found_subtype) {
                ("*", "*") => 0,
                (found, "*") if same(found, kind) => 1,
                (found, sub) if same(found, kind) && same(sub, subtype) => match entry.version {
                    None => 2,
                    Some(version) if versions.contains(&version) => 3,
                    Some(_) => return None,
                },
                _ => return None,
            };
            Some(AcceptPreference {
                quality: entry.quality,
                precision,
            })
        })
        // Of several equally specific entries (two versions), the higher quality counts.
        .max_by(|a, b| {
            (a.precision, a.quality)
                .partial_cmp(&(b.precision, b.quality))
                .expect("no NaN")
        })
}

/// Whether the client accepts gzip and does not prefer the uncompressed form.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let quality = |coding: &str| {
        header_entries(headers, header::ACCEPT_ENCODING)
            .find(|entry| entry.value.eq_ignore_ascii_case(coding))
            .map(|entry| entry.quality)
    };
    let gzip = quality("gzip").or_else(|| quality("*")).unwrap_or(0.0);
    gzip > 0.0 && gzip >= quality("identity").unwrap_or(0.0)
}

struct HeaderEntry<'a> {
    value: &'a str,
    version: Option<&'a str>,
    quality: f32,
}

/// The comma-separated entries of a header, over all its lines.
fn header_entries(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = HeaderEntry<'_>> {
    let lines = headers
        .get_all(name)
        .into_iter()
        .filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).filter_map(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        let value = parts.next().filter(|value| !value.is_empty())?;
        let mut entry = HeaderEntry {
            value,
            version: None,
            quality: 1.0,
        };
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match key.trim() {
                "q" | "Q" => {
                    // An entry with a malformed quality is ignored.
                    let quality: f32 = value.parse().ok()?;
                    entry.quality = quality.clamp(0.0, 1.0);
                    if quality.is_nan() {
                        return None;
                    }
                }
                "version" => entry.version = Some(value),
                _ => {}
            }
        }
        Some(entry)
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn with(name: HeaderName, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).expect("valid"));
        headers
    }

    #[test]
    fn the_better_wish_wins() {
        use MetricsFormat::*;
        for (accept, expected) in [
            ("", Text),
            ("*/*", Text),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Text),
            ("application/openmetrics-text", OpenMetrics),
            (
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
                OpenMetrics,
            ),
            (
                "application/openmetrics-text;version=\"0.0.1\"",
                OpenMetrics,
            ),
            ("application/openmetrics-text;version=2.0.0", Text),
            ("application/openmetrics-text;q=0.5, text/plain;q=0.9", Text),
            ("application/openmetrics-text;q=0", Text),
            ("application/openmetrics-text, */*", OpenMetrics),
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                OpenMetrics,
            ),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.6,*/*;q=0.5",
                OpenMetrics,
            ),
            ("text/plain, application/openmetrics-text", Text),
            ("application/json", Text),
            ("application/*;q=0.9, text/*;q=0.1", OpenMetrics),
            ("application/openmetrics-text;q=nan, text/plain", Text),
            (";;,,/;q=,application/openmetrics-text", OpenMetrics),
        ] {
            assert_eq!(
                metrics_format(&with(header::ACCEPT, accept)),
                expected,
                "{accept}"
            );
        }
        assert_eq!(metrics_format(&HeaderMap::new()), Text);
    }

    #[test]
    fn gzip_is_used_when_it_is_wanted() {
        for (accepted, expected) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("*", true),
            ("*;q=0", false),
            ("gzip;q=0.5, identity", false),
            ("br", false),
            ("identity", false),
            ("", false),
        ] {
            assert_eq!(
                accepts_gzip(&with(header::ACCEPT_ENCODING, accepted)),
                expected,
                "{accepted}"
            );
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
