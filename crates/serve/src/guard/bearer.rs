//! The token in the headers of a request.

use axum::http::{HeaderMap, header};
use pegel_credentials::parse_bearer;

/// The token in `Authorization: Bearer TOKEN`; `None` if the header is missing or duplicate.
pub(super) fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (value, None) = (values.next()?.as_bytes(), values.next()) else {
        return None;
    };
    parse_bearer(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duplicate_header_is_no_token() {
        let mut headers = HeaderMap::new();
        let value = header::HeaderValue::from_static("Bearer a");
        headers.append("authorization", value.clone());
        assert_eq!(bearer_token(&headers), Some(&b"a"[..]));
        headers.append("authorization", value);
        assert_eq!(bearer_token(&headers), None);
    }
}
