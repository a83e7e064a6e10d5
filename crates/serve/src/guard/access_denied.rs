//! Why the guard denies a request, and the response for each reason.
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::PeerIdentity;
use crate::api_error::ApiError;
use crate::refusals::ClientRefusal;

/// Why a request is denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AccessDenied {
    /// No `Host` header, or several.
    NoHost,
    /// The host is not a name of this node.
    Host(String),
    /// The caller has no rights and sent no token.
    Stranger(PeerIdentity),
    /// The caller sent a wrong token.
    Token,
    /// The caller has user rights, but the route requires those of the owner.
    NotOwner,
    /// The request comes from a page of another site.
    Origin,
}

impl AccessDenied {
    pub(crate) fn host(authority: &str) -> AccessDenied {
        AccessDenied::Host(authority.chars().take(100).collect())
    }

    pub(crate) fn refusal(&self) -> ClientRefusal {
        match self {
            AccessDenied::NoHost | AccessDenied::Host(_) => ClientRefusal::Host,
            AccessDenied::Stranger(_) => ClientRefusal::Stranger,
            AccessDenied::Token => ClientRefusal::Token,
            AccessDenied::NotOwner => ClientRefusal::NotOwner,
            AccessDenied::Origin => ClientRefusal::Origin,
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            AccessDenied::NoHost => StatusCode::BAD_REQUEST,
            AccessDenied::Host(_) => StatusCode::MISDIRECTED_REQUEST,
            AccessDenied::Stranger(_) | AccessDenied::Token => StatusCode::UNAUTHORIZED,
            AccessDenied::NotOwner | AccessDenied::Origin => StatusCode::FORBIDDEN,
        }
    }

    pub(crate) fn message(&self) -> String {
        match self {
            AccessDenied::NoHost => "a request requires exactly one Host header".to_owned(),
            AccessDenied::Host(host) => {
                format!("\"{}\" is not a name of this node", host.escape_debug())
            }
            AccessDenied::Stranger(PeerIdentity::Remote { .. }) => "a token is required".to_owned(),
            AccessDenied::Stranger(peer) => {
                format!("{peer} is not permitted without a token")
            }
            AccessDenied::Token => "invalid token".to_owned(),
            AccessDenied::NotOwner => {
                "not permitted; requires the agent's user or the token".to_owned()
            }
            AccessDenied::Origin => "cross-site request refused".to_owned(),
        }
    }

    fn hint(&self) -> &'static str {
        match self {
            AccessDenied::NoHost => "send `Host: localhost`",
            AccessDenied::Host(_) => {
                "use 127.0.0.1, localhost or the node's name, or add this name to `hosts` in the configuration"
            }
            AccessDenied::Stranger(PeerIdentity::User(_)) => {
                "send `Authorization: Bearer TOKEN`, or add the user to `allow_users` in the configuration"
            }
            AccessDenied::Stranger(_) | AccessDenied::NotOwner => {
                "send `Authorization: Bearer TOKEN`"
            }
            AccessDenied::Token => "compare the token with the agent's token_file or PEGEL_TOKEN",
            AccessDenied::Origin => "use the agent's own page, or a program that sends no Origin",
        }
    }

    fn challenge(&self) -> Option<&'static str> {
        match self {
            AccessDenied::Stranger(_) => Some("Bearer"),
            AccessDenied::Token => Some("Bearer error=\"invalid_token\""),
            _ => None,
        }
    }
}

impl IntoResponse for AccessDenied {
    fn into_response(self) -> Response {
        let failure = ApiError::new(self.status(), self.message()).hint(self.hint());
        let mut response = failure.into_response();
        let headers = response.headers_mut();
        if let Some(challenge) = self.challenge() {
            headers.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static(challenge),
            );
            // Unknown clients do not keep their connection permit.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
