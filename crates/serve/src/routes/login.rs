//! The login of browsers on other machines: a form in place of a refused page, `POST /login`, which
//! exchanges the token for a cookie, and `POST /logout`. The form needs no script and loads no
//! other file: before the login, the browser could not get any.

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use axum::Extension;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header, request};
use axum::response::{Html, IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::SharedContext;
use crate::api_error::ApiError;
use crate::content_negotiation::prefers_html;
use crate::guard::{AccessDenied, Caller, LoginError, SessionCookie};

/// The form, with `ACTION` and `MESSAGE` in place of the parts that differ.
const FORM: &str = include_str!("login.html");

/// Permits the form's own style sheet and nothing else. The form is sent to this agent only.
static CONTENT_SECURITY_POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let mut parts = FORM.split(['<', '>']);
    parts.find(|part| *part == "style");
    let style = parts.next().unwrap_or_default();
    let sum = STANDARD.encode(digest(&SHA256, style.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{sum}'; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'"
    );
    HeaderValue::try_from(policy).expect("printable ASCII")
});

/// Responds to a request that the guard denied: with the form if it asks for a page and a login
/// would help.
pub(crate) fn denied_response(
    denied: AccessDenied,
    head: &request::Parts,
    offers_login: bool,
) -> Response {
    let is_unknown = matches!(denied, AccessDenied::Stranger(_));
    let response = denied.into_response();
    if !(offers_login && is_unknown && head.method == Method::GET && prefers_html(&head.headers)) {
        return response;
    }
    // Relative, so that it also works behind a proxy that adds a prefix.
    let depth = head.uri.path().matches('/').count().saturating_sub(1);
    let action = format!("{}login", "../".repeat(depth));
    let mut form = form_response(StatusCode::UNAUTHORIZED, &action, "");
    for name in [header::WWW_AUTHENTICATE, header::CONNECTION] {
        if let Some(value) = response.headers().get(&name) {
            form.headers_mut().insert(name, value.clone());
        }
    }
    form
}

fn form_response(status: StatusCode, action: &str, message: &str) -> Response {
    let page = FORM.replace("ACTION", action).replace("MESSAGE", message);
    let headers = [
        (
            header::CONTENT_SECURITY_POLICY,
            CONTENT_SECURITY_POLICY.clone(),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::VARY, HeaderValue::from_static("accept")),
        // With `no-referrer`, a browser would send the form with the origin `null`.
        (
            header::REFERRER_POLICY,
            HeaderValue::from_static("same-origin"),
        ),
    ];
    (status, headers, Html(page)).into_response()
}

/// Sends a browser to the page, which shows the form if it must log in.
pub(super) async fn login_form() -> Response {
    to_page(HeaderMap::new())
}

/// Exchanges the token in the form's field `token` for a session.
pub(super) async fn log_in(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let field = form_urlencoded::parse(&body).find(|(name, _)| name == "token");
    let given = field.map(|(_, token)| token).unwrap_or_default();
    match context.guard.log_in(&caller, given.trim().as_bytes()) {
        Ok(cookie) => to_page(set_cookie(&cookie.header(&caller))),
        Err(error) => refused_response(error, &headers),
    }
}

/// Ends the session and removes its cookie.
pub(super) async fn log_out(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Response {
    context.guard.log_out(&headers);
    to_page(set_cookie(&SessionCookie::removal(&caller)))
}

fn to_page(mut headers: HeaderMap) -> Response {
    headers.insert(header::LOCATION, HeaderValue::from_static("./"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    (StatusCode::SEE_OTHER, headers).into_response()
}

fn set_cookie(cookie: &str) -> HeaderMap {
    let value = HeaderValue::try_from(cookie).expect("printable ASCII");
    HeaderMap::from_iter([(header::SET_COOKIE, value)])
}

fn refused_response(error: LoginError, headers: &HeaderMap) -> Response {
    let mut more = HeaderMap::new();
    let (status, message, hint) = match error {
        LoginError::Unavailable => (
            StatusCode::FORBIDDEN,
            "a login requires TLS and a token",
            "set tls.cert, tls.key and token_file in the configuration",
        ),
        LoginError::WrongToken => (
            StatusCode::UNAUTHORIZED,
            "invalid token",
            "compare the token with the agent's token_file or PEGEL_TOKEN",
        ),
        LoginError::TooManyFailures { retry_after } => {
            let seconds = retry_after.as_secs().max(1);
            more.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            (
                StatusCode::TOO_MANY_REQUESTS,
                "too many failed logins",
                "retry in a minute",
            )
        }
        LoginError::Random(error) => {
            tracing::warn!(%error, "cannot generate a session id");
            return ApiError::internal().into_response();
        }
    };
    let mut response = if prefers_html(headers) {
        form_response(status, "login", &format!("{message}; {hint}"))
    } else {
        ApiError::new(status, message).hint(hint).into_response()
    };
    response.headers_mut().extend(more);
    response
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;
    use crate::guard::PeerIdentity;

    fn denied(path: &str, accept: &str, offers_login: bool) -> Response {
        let request = Request::get(path).header("accept", accept);
        let head = request.body(()).expect("a request").into_parts().0;
        let peer = PeerIdentity::Remote {
            address: "192.0.2.9".parse().expect("an address"),
            certified: false,
        };
        denied_response(AccessDenied::Stranger(peer), &head, offers_login)
    }

    fn text(response: Response) -> String {
        let body = axum::body::to_bytes(response.into_body(), 1 << 20);
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let bytes = runtime.expect("a runtime").block_on(body).expect("a body");
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    const HTML: &str = "text/html,application/xhtml+xml,*/*;q=0.8";

    #[test]
    fn a_browser_gets_the_form_and_others_the_error() {
        for (path, action) in [
            ("/", "action=\"login\""),
            ("/status", "action=\"login\""),
            ("/nodes/n1/", "action=\"../../login\""),
        ] {
            let response = denied(path, HTML, true);
            assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
            assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
            let page = text(response);
            assert!(page.contains(action), "{path}: {page}");
            assert!(
                !page.contains("MESSAGE") && !page.contains("<script"),
                "{page}"
            );
        }
        for (accept, offers_login) in [("*/*", true), ("application/json", true), (HTML, false)] {
            let page = text(denied("/", accept, offers_login));
            assert!(page.starts_with("{\"error\""), "{accept}: {page}");
        }
    }

    #[test]
    fn the_policy_permits_the_style_of_the_form_and_no_other_source() {
        let (_, style) = FORM.split_once("<style>").expect("a style sheet");
        let (style, _) = style.split_once("</style>").expect("its end");
        let sum = STANDARD.encode(digest(&SHA256, style.as_bytes()));
        let policy = CONTENT_SECURITY_POLICY.to_str().expect("text");
        assert!(
            policy.contains(&format!("style-src 'sha256-{sum}'")),
            "{policy}"
        );
        assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    }
}
