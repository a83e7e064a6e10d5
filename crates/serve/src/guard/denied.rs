use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::Peer;
use crate::failure::Failure;
use crate::refusals::Refusal;

/// Why a request is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Denied {
    /// No `Host`, or several.
    NoHost,
    /// For a name that is not ours.
    Host(String),
    /// From someone without any right, and without a token.
    Stranger(Peer),
    /// With a token that is not ours.
    Token,
    /// From someone who may use the agent, but not end it.
    NotOwner,
    /// From a page that is not ours.
    Origin,
}

impl Denied {
    pub fn host(authority: &str) -> Denied {
        Denied::Host(authority.chars().take(100).collect())
    }

    pub fn refusal(&self) -> Refusal {
        match self {
            Denied::NoHost | Denied::Host(_) => Refusal::Host,
            Denied::Stranger(_) => Refusal::Stranger,
            Denied::Token => Refusal::Token,
            Denied::NotOwner => Refusal::NotOwner,
            Denied::Origin => Refusal::Origin,
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Denied::NoHost => StatusCode::BAD_REQUEST,
            Denied::Host(_) => StatusCode::MISDIRECTED_REQUEST,
            Denied::Stranger(_) | Denied::Token => StatusCode::UNAUTHORIZED,
            Denied::NotOwner | Denied::Origin => StatusCode::FORBIDDEN,
        }
    }

    pub fn message(&self) -> String {
        match self {
            Denied::NoHost => "a request needs exactly one Host header".to_owned(),
            Denied::Host(host) => format!("\"{}\" is not a name of this node", host.escape_debug()),
            Denied::Stranger(Peer::Remote { .. }) => "a token is needed".to_owned(),
            Denied::Stranger(peer) => format!("{peer} may not use this agent without a token"),
            Denied::Token => "the token is not the right one".to_owned(),
            Denied::NotOwner => {
                "only the agent's own user or someone with its token may do this".to_owned()
            }
            Denied::Origin => "another site's page may not change anything here".to_owned(),
        }
    }

    fn hint(&self) -> &'static str {
        match self {
            Denied::NoHost => "send `Host: localhost`",
            Denied::Host(_) => {
                "use 127.0.0.1, localhost or the node's name, or add this name to `hosts` in the configuration"
            }
            Denied::Stranger(Peer::User(_)) => {
                "send `Authorization: Bearer TOKEN`, or have the user added to `allow_users` in the configuration"
            }
            Denied::Stranger(_) | Denied::NotOwner => "send `Authorization: Bearer TOKEN`",
            Denied::Token => "compare it with the agent's token_file or PEGEL_TOKEN",
            Denied::Origin => "use the agent's own page, or a program that sends no Origin",
        }
    }

    fn challenge(&self) -> Option<&'static str> {
        match self {
            Denied::Stranger(_) => Some("Bearer"),
            Denied::Token => Some("Bearer error=\"invalid_token\""),
            _ => None,
        }
    }
}

impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        let failure = Failure::new(self.status(), self.message()).hint(self.hint());
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
