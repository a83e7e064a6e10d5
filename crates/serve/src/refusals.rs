//! Counts the requests and connections that the server refused, by reason.
use std::sync::atomic::{AtomicU64, Ordering};

use pegel_metric::label_enum;

label_enum! {
    /// Why a request or connection was refused. A closed set; the names are published in `/status`.
    pub(crate) ClientRefusal {
        /// The limit on TCP connections was reached.
        Connections = "connections",
        /// The limit on connections to the UNIX socket was reached.
        SocketConnections = "socket_connections",
        /// The head of a request did not arrive in time.
        HeadTime = "head_time",
        HeadSize = "head_size",
        UriLength = "uri_length",
        BodySize = "body_size",
        /// The response was not ready in time.
        RequestTime = "request_time",
        /// The client read nothing of its response for too long.
        SlowReader = "slow_reader",
        /// The response exceeds the limit of a single response.
        AnswerSize = "answer_size",
        /// Responses that are being sent use the whole memory budget.
        AnswerMemory = "answer_memory",
        /// Not HTTP/1.
        Malformed = "malformed",
        /// accept() failed, for example for lack of descriptors.
        Accept = "accept",
        /// The limit on connections of unknown clients was reached.
        UnknownConnections = "unknown_connections",
        /// A user without access who sent no token.
        Stranger = "stranger",
        /// A wrong token.
        Token = "token",
        /// A caller with user rights requested an owner's action, such as stopping the agent.
        NotOwner = "not_owner",
        /// A page of another site sent a request that changes something.
        Origin = "origin",
        /// The `Host` header does not name this node.
        Host = "host",
        /// Plain HTTP on a TLS address.
        PlainHttp = "plain_http",
        /// A failed TLS handshake.
        Handshake = "handshake",
        HandshakeTime = "handshake_time",
        /// Request bodies that are being read use the whole memory budget.
        BodyMemory = "body_memory",
        /// A line was not completed in time.
        LineTime = "line_time",
        LineSize = "line_size",
        /// A wrong `auth_key` in a token exchange.
        AuthKey = "auth_key",
        /// A login with a wrong token.
        Login = "login",
        /// A login after too many failed ones.
        LoginRate = "login_rate",
    }
}

#[derive(Debug, Default)]
pub(crate) struct RefusalCounters {
    counts: [AtomicU64; ClientRefusal::ALL.len()],
}

impl RefusalCounters {
    pub(crate) fn count(&self, refusal: ClientRefusal) {
        self.counts[refusal as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn all(&self) -> Vec<(&'static str, u64)> {
        let counts = self
            .counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        let names = ClientRefusal::ALL.iter().map(|refusal| refusal.as_str());
        names.zip(counts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_counted_under_its_own_name() {
        for refusal in ClientRefusal::ALL {
            let refusals = RefusalCounters::default();
            refusals.count(*refusal);
            let counted: Vec<_> = refusals.all().into_iter().filter(|(_, n)| *n > 0).collect();
            assert_eq!(counted, [(refusal.as_str(), 1)]);
        }
    }
}
