//! Responses of storage servers, and the problems that their statuses mean.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use super::{StorageProblem, StorageProblemKind};

/// Providers reject requests whose time differs from theirs by 5 to 15 minutes.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(300);
/// The most characters of an error code that are shown.
const CODE_CHARS_MAX: usize = 60;

/// A response with its whole body.
pub(super) struct StorageResponse {
    pub(super) status: u16,
    /// Names in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl StorageResponse {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let (_, value) = headers.find(|(found, _)| found == name)?;
        Some(value)
    }

    pub(super) fn number_header(&self, name: &str) -> Option<u64> {
        self.header(name)?.parse().ok()
    }

    /// Returns the error code of the provider: Azure's header, XML, or Google's JSON. Messages are
    /// not shown, because some repeat parts of the request.
    pub(super) fn error_code(&self) -> Option<String> {
        let code = self
            .header("x-ms-error-code")
            .map(str::to_owned)
            .or_else(|| xml_values(&self.body, "Code").into_iter().next())
            .or_else(|| json_error_code(&self.body))?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let is_code = !code.is_empty() && code.len() <= CODE_CHARS_MAX;
        (is_code && code.chars().all(is_plain)).then_some(code)
    }

    pub(super) fn has_code(&self, code: &str) -> bool {
        self.error_code().is_some_and(|found| found == code)
    }

    /// Returns the problem that a response with an unexpected status means.
    pub(super) fn problem(&self, label: &str, operation: &str) -> StorageProblem {
        let code = self.error_code();
        let skew = self.clock_skew();
        let kind = problem_kind(self.status, code.as_deref().unwrap_or_default(), skew);
        let mut text = format!("{label}: {operation}: HTTP status {}", self.status);
        if let Some(code) = code {
            text.push_str(&format!(" ({code})"));
        }
        if let (StorageProblemKind::ClockSkew, Some(skew)) = (kind, skew) {
            text.push_str(&format!("; clocks differ by {} s", skew.as_secs()));
        }
        let region = self.header("x-amz-bucket-region");
        if let Some(region) = region.filter(|_| matches!(self.status, 301 | 307 | 400)) {
            text.push_str(&format!(
                "; the bucket is in the region {region:?}, set AWS_REGION"
            ));
        }
        StorageProblem {
            retry_after: self.retry_after(),
            ..StorageProblem::new(kind, text)
        }
    }

    /// Returns the difference between the clocks of this node and of the server.
    fn clock_skew(&self) -> Option<Duration> {
        let date = parse_date(self.header("date")?)?;
        Some(Timestamp::now().duration_since(date).unsigned_abs())
    }

    fn retry_after(&self) -> Option<Duration> {
        let value = self.header("retry-after")?.trim();
        if let Ok(seconds) = value.parse() {
            return Some(Duration::from_secs(seconds));
        }
        let date = SystemTime::from(parse_date(value)?);
        date.duration_since(SystemTime::now()).ok()
    }
}

fn parse_date(text: &str) -> Option<Timestamp> {
    let parser = jiff::fmt::rfc2822::DateTimeParser::new().relaxed_weekday(true);
    parser.parse_timestamp(text.trim()).ok()
}

fn problem_kind(status: u16, code: &str, skew: Option<Duration>) -> StorageProblemKind {
    let is_skewed = skew.is_some_and(|skew| skew > CLOCK_SKEW_MAX);
    match (status, code) {
        (_, "RequestTimeTooSkewed") => StorageProblemKind::ClockSkew,
        (401 | 403, _) | (400, "invalid_grant") if is_skewed => StorageProblemKind::ClockSkew,
        (_, "rateLimitExceeded" | "userRateLimitExceeded" | "SlowDown" | "RequestTimeout")
        | (409, "ConditionalRequestConflict" | "OperationAborted")
        | (408 | 429 | 503, _) => StorageProblemKind::Throttled,
        (401 | 403, _)
        | (400, "ExpiredToken" | "InvalidToken" | "invalid_grant" | "invalid_client") => {
            StorageProblemKind::Credentials
        }
        (404, _) | (409, "ContainerBeingDeleted" | "ContainerDisabled") => {
            StorageProblemKind::MissingContainer
        }
        (500.., _) => StorageProblemKind::ServerError,
        _ => StorageProblemKind::Rejected,
    }
}

/// Returns the texts of all elements with this name. Storage servers write plain elements without
/// attributes, name spaces or comments inside.
pub(super) fn xml_values(body: &[u8], name: &str) -> Vec<String> {
    let text = String::from_utf8_lossy(body);
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut values = Vec::new();
    let mut rest = text.as_ref();
    while let Some((_, after)) = rest.split_once(&open) {
        let Some((value, after)) = after.split_once(&close) else {
            break;
        };
        values.push(unescape_xml(value));
        rest = after;
    }
    values
}

fn unescape_xml(text: &str) -> String {
    let entities = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&#39;", "'"),
        ("&#34;", "\""),
        ("&amp;", "&"),
    ];
    let unescape = |text: String, (entity, plain): &(&str, &str)| text.replace(entity, plain);
    entities.iter().fold(text.to_owned(), unescape)
}

/// Google: `{"error":{"errors":[{"reason":"…"}]}}`; tokens: `{"error":"invalid_grant"}`.
fn json_error_code(body: &[u8]) -> Option<String> {
    let document: serde_json::Value = serde_json::from_slice(body).ok()?;
    let error = document.get("error")?;
    let code = error.as_str().or_else(|| {
        let reason = error.pointer("/errors/0/reason");
        reason.or_else(|| error.get("status"))?.as_str()
    })?;
    Some(code.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, headers: &[(&str, &str)], body: &str) -> StorageResponse {
        let headers = headers.iter();
        StorageResponse {
            status,
            headers: headers
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            body: body.as_bytes().to_vec(),
        }
    }

    #[test]
    fn every_status_has_a_kind() {
        use StorageProblemKind::{
            ClockSkew, Credentials, MissingContainer, Rejected, ServerError, Throttled,
        };
        let xml = |code: &str| format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code></Error>");
        let google =
            |reason: &str| format!("{{\"error\":{{\"errors\":[{{\"reason\":\"{reason}\"}}]}}}}");
        for (status, body, expected) in [
            (401, String::new(), Credentials),
            (403, xml("SignatureDoesNotMatch"), Credentials),
            (403, xml("RequestTimeTooSkewed"), ClockSkew),
            (403, google("rateLimitExceeded"), Throttled),
            (400, xml("ExpiredToken"), Credentials),
            (400, "{\"error\":\"invalid_grant\"}".to_owned(), Credentials),
            (404, xml("NoSuchBucket"), MissingContainer),
            (409, xml("ContainerBeingDeleted"), MissingContainer),
            (409, xml("ConditionalRequestConflict"), Throttled),
            (429, String::new(), Throttled),
            (503, xml("SlowDown"), Throttled),
            (500, String::new(), ServerError),
            (502, "<html>".to_owned(), ServerError),
            (400, xml("InvalidArgument"), Rejected),
            (301, String::new(), Rejected),
            (407, String::new(), Rejected),
        ] {
            let problem = response(status, &[], &body).problem("s3://bucket", "PutObject");
            assert_eq!(problem.kind, expected, "{status} {body}: {problem}");
        }
    }

    #[test]
    fn a_rejected_signature_and_a_distant_date_mean_clock_skew() {
        let date = [("date", "Fri, 13 Feb 2009 23:31:30 GMT")];
        let problem = response(403, &date, "").problem("azblob://a/c", "Append Block");
        assert_eq!(problem.kind, StorageProblemKind::ClockSkew);
        assert!(problem.text.contains("; clocks differ by "), "{problem}");
        let problem = response(404, &date, "").problem("azblob://a/c", "Append Block");
        assert_eq!(problem.kind, StorageProblemKind::MissingContainer);
    }

    #[test]
    fn retry_after_is_a_number_of_seconds_or_a_date() {
        let wait = |value| response(503, &[("retry-after", value)], "").retry_after();
        assert_eq!(wait("7"), Some(Duration::from_secs(7)));
        assert_eq!(wait("Fri, 13 Feb 2009 23:31:30 GMT"), None);
        assert!(wait("Fri, 13 Feb 2299 23:31:30 GMT").is_some());
        assert_eq!(wait("soon"), None);
    }

    #[test]
    fn messages_and_odd_codes_are_not_shown() {
        for body in [
            "<Error><Code>PLANTED secret</Code></Error>",
            "<Error><Code>A</Code><Message>PLANTED</Message></Error>",
            "{\"error\":\"PLANTED secret\"}",
            "PLANTED",
        ] {
            let problem = response(403, &[], body).problem("gs://bucket", "upload");
            assert!(
                !format!("{problem} {problem:?}").contains("PLANTED"),
                "{body}"
            );
        }
    }

    #[test]
    fn elements_are_found_and_unescaped() {
        let body = b"<L><Key>a&amp;b</Key><x/><Key>c&amp;lt;</Key><Key>open";
        assert_eq!(xml_values(body, "Key"), ["a&b", "c&lt;"]);
    }
}
