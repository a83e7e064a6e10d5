//! Whether a request that changes something comes from a page of another site.
//!
//! A browser sends what any page tells it to, with the rights of the user who runs it. It also
//! sends the page's origin (`Origin`), or at least its relation to ours (`Sec-Fetch-Site`). Clients
//! other than browsers send neither.

use axum::http::{HeaderMap, header};

/// Whether a browser reports another origin. `authority` is the host and port of the request
/// itself.
pub(super) fn is_cross_origin(headers: &HeaderMap, authority: Option<&str>) -> bool {
    let mut sites = headers.get_all("sec-fetch-site").iter();
    // `none`: entered by the user. Values that future browsers may add are not trusted.
    if !sites.all(|site| site == "same-origin" || site == "none") {
        return true;
    }
    let mut origins = headers.get_all(header::ORIGIN).iter();
    !origins.all(|origin| {
        let origin = origin.to_str().unwrap_or_default();
        authority.is_some_and(|authority| is_same_origin(origin, authority))
    })
}

/// Compares `http://HOST:PORT` with `HOST:PORT`; either may omit the default port of the scheme.
fn is_same_origin(origin: &str, authority: &str) -> bool {
    let (rest, default_port) = match origin.split_once("://") {
        Some(("http", rest)) => (rest, ":80"),
        Some(("https", rest)) => (rest, ":443"),
        // `null` is the origin of a page that has none.
        _ => return false,
    };
    let bare = |text: &str| {
        let text = text.to_ascii_lowercase();
        text.strip_suffix(default_port)
            .map(str::to_owned)
            .unwrap_or(text)
    };
    !rest.is_empty() && bare(rest) == bare(authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foreign(pairs: &[(&'static str, &'static str)]) -> bool {
        let headers: HeaderMap = pairs
            .iter()
            .map(|&(name, value)| {
                let name = header::HeaderName::from_static(name);
                (name, header::HeaderValue::from_static(value))
            })
            .collect();
        is_cross_origin(&headers, Some("localhost:1337"))
    }

    #[test]
    fn programs_and_our_own_pages_may() {
        assert!(!foreign(&[]));
        assert!(!foreign(&[("origin", "http://localhost:1337")]));
        assert!(!foreign(&[("origin", "https://LOCALHOST:1337")]));
        assert!(!foreign(&[("sec-fetch-site", "same-origin")]));
        assert!(!foreign(&[("sec-fetch-site", "none")]));
    }

    #[test]
    fn other_pages_may_not() {
        for origin in [
            "http://evil.example",
            "http://localhost",
            "http://localhost:1338",
            "http://localhost:1337.evil.example",
            "http://evil.example/localhost:1337",
            "http://",
            "null",
            "",
            "file://",
            "localhost:1337",
        ] {
            assert!(foreign(&[("origin", origin)]), "{origin}");
        }
        for site in ["cross-site", "same-site", "something-new", ""] {
            assert!(foreign(&[("sec-fetch-site", site)]), "{site}");
        }
        let both = [
            ("origin", "http://localhost:1337"),
            ("sec-fetch-site", "cross-site"),
        ];
        assert!(foreign(&both));
    }

    #[test]
    fn the_default_port_need_not_be_said() {
        assert!(is_same_origin("http://node", "node:80"));
        assert!(is_same_origin("https://node:443", "node"));
        assert!(!is_same_origin("https://node", "node:80"));
        let mut headers = HeaderMap::new();
        headers.insert("origin", header::HeaderValue::from_static("http://node"));
        assert!(
            is_cross_origin(&headers, None),
            "without a host, no origin is the same"
        );
    }
}
