use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::PeerIdentity;
use crate::api_error::ApiError;
use crate::refusals::ClientRefusal;

/// Why a request is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AccessDenied {
    /// No `Host`, or several.
    NoHost,
    /// For a name that is not ours.
    Host(String),
    /// From someone without any right, and without a token.
    Stranger(PeerIdentity),
    /// With a token that is not ours.
    Token,
    /// From someone who may use the agent, but not end it.
    NotOwner,
    /// From a page that is not ours.
    Origin,
}

impl AccessDenied {
    pub fn host(authority: &str) -> AccessDenied {
        AccessDenied::Host(authority.chars().take(100).collect())
    }

    pub fn refusal(&self) -> ClientRefusal {
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

    pub fn message(&self) -> String {
        match self {
            AccessDenied::NoHost => "a request needs exactly one Host header".to_owned(),
            AccessDenied::Host(host) => {
                format!("\"{}\" is not a name of this node", host.escape_debug())
            }
            AccessDenied::Stranger(PeerIdentity::Remote { .. }) => "a token is needed".to_owned(),
            AccessDenied::Stranger(peer) => {
                format!("{peer} may not use this agent without a token")
            }
            AccessDenied::Token => "the token is not the right one".to_owned(),
            AccessDenied::NotOwner => {
                "only the agent's own user or someone with its token may do this".to_owned()
            }
            AccessDenied::Origin => "another site's page may not change anything here".to_owned(),
        }
    }

    fn hint(&self) -> &'static str {
        match self {
            AccessDenied::NoHost => "send `Host: localhost`",
            AccessDenied::Host(_) => {
                "use 127.0.0.1, localhost or the node's name, or add this name to `hosts` in the configuration"
            }
            AccessDenied::Stranger(PeerIdentity::User(_)) => {
                "send `Authorization: Bearer TOKEN`, or have the user added to `allow_users` in the configuration"
            }
            AccessDenied::Stranger(_) | AccessDenied::NotOwner => {
                "send `Authorization: Bearer TOKEN`"
            }
            AccessDenied::Token => "compare it with the agent's token_file or PEGEL_TOKEN",
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
            // Strangers do not keep the seat.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
