//! Responses to requests: `google.rpc.Status`, which OTLP returns with every error, and the
//! response to requests that are accepted.

use prost::Message;

use super::messages::collector::{ExportMetricsPartialSuccess, ExportMetricsServiceResponse};

/// The type of the detail with the delay before a retry.
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// The codes of gRPC that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RpcCode {
    Ok = 0,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl RpcCode {
    /// Returns the code for a status of HTTP.
    pub fn from_http(status: u16) -> RpcCode {
        match status {
            200..=299 => RpcCode::Ok,
            400 | 414 | 415 => RpcCode::InvalidArgument,
            401 => RpcCode::Unauthenticated,
            403 | 421 => RpcCode::PermissionDenied,
            404 | 405 | 501 | 505 => RpcCode::Unimplemented,
            408 | 504 => RpcCode::DeadlineExceeded,
            413 | 429 => RpcCode::ResourceExhausted,
            502 | 503 => RpcCode::Unavailable,
            500 => RpcCode::Internal,
            _ => RpcCode::Unknown,
        }
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<StatusDetail>,
}

/// A message with the name of its type.
#[derive(Clone, PartialEq, Message)]
pub struct StatusDetail {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<RetryDelay>,
}

#[derive(Clone, PartialEq, Message)]
struct RetryDelay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

impl RpcStatus {
    /// Creates a status. `retry_after` is the number of seconds before a retry, if one may succeed.
    pub fn new(code: RpcCode, message: &str, retry_after: Option<u32>) -> RpcStatus {
        let details = retry_after.map(|seconds| StatusDetail {
            type_url: RETRY_INFO.to_owned(),
            value: RetryInfo {
                retry_delay: Some(RetryDelay {
                    seconds: i64::from(seconds),
                    nanos: 0,
                }),
            }
            .encode_to_vec(),
        });
        RpcStatus {
            code: code as i32,
            message: message.to_owned(),
            details: details.into_iter().collect(),
        }
    }

    /// Returns the number of seconds before a retry, rounded up; `None` if the status has none.
    pub fn retry_after(&self) -> Option<u32> {
        let mut details = self.details.iter();
        let detail = details.find(|detail| detail.type_url == RETRY_INFO)?;
        let delay = RetryInfo::decode(&*detail.value).ok()?.retry_delay?;
        let seconds = delay.seconds.saturating_add(i64::from(delay.nanos > 0));
        Some(u32::try_from(seconds.max(0)).unwrap_or(u32::MAX))
    }
}

/// Returns the response to a request of which `rejected` data points were refused; it is empty for
/// 0.
pub fn export_response(rejected: u64, message: &str) -> ExportMetricsServiceResponse {
    let partial = (rejected > 0 || !message.is_empty()).then(|| ExportMetricsPartialSuccess {
        rejected_data_points: i64::try_from(rejected).unwrap_or(i64::MAX),
        error_message: message.to_owned(),
    });
    ExportMetricsServiceResponse {
        partial_success: partial,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_the_delay_before_a_retry() {
        let status = RpcStatus::new(RpcCode::ResourceExhausted, "later", Some(30));
        let read = RpcStatus::decode(&*status.encode_to_vec()).expect("valid");
        assert_eq!((read.code, &*read.message), (8, "later"));
        assert_eq!(read.retry_after(), Some(30));
        let status = RpcStatus::new(RpcCode::InvalidArgument, "never", None);
        assert_eq!(status.retry_after(), None);
        assert_eq!(status.encode_to_vec(), b"\x08\x03\x12\x05never");
    }

    #[test]
    fn absurd_delays_are_bounded() {
        let after = |seconds: i64, nanos: i32| {
            let delay = RetryInfo {
                retry_delay: Some(RetryDelay { seconds, nanos }),
            };
            let mut status = RpcStatus::new(RpcCode::Unavailable, "", Some(1));
            status.details[0].value = delay.encode_to_vec();
            status.retry_after()
        };
        assert_eq!(after(1, 1), Some(2));
        assert_eq!(after(i64::MAX, 1), Some(u32::MAX));
        assert_eq!(after(i64::MIN, i32::MIN), Some(0));
    }

    #[test]
    fn a_response_without_refusals_is_empty() {
        assert_eq!(export_response(0, "").encode_to_vec(), b"");
        assert_eq!(
            export_response(2, "x").encode_to_vec(),
            b"\x0a\x05\x08\x02\x12\x01x"
        );
    }
}
