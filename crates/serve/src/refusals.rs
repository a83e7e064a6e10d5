//! Counts the requests and connections that the server refused, by reason.
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a request or connection was refused. A closed set; the names are published in `/status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientRefusal {
    /// The limit on TCP connections was reached.
    Connections,
    /// The limit on connections to the UNIX socket was reached.
    SocketConnections,
    /// The head of a request did not arrive in time.
    HeadTime,
    HeadSize,
    UriLength,
    BodySize,
    /// The response was not ready in time.
    RequestTime,
    /// The client read nothing of its response for too long.
    SlowReader,
    /// The response exceeds the limit of a single response.
    AnswerSize,
    /// Responses that are being sent use the whole memory budget.
    AnswerMemory,
    /// Not HTTP/1.
    Malformed,
    /// accept() failed, for example for lack of descriptors.
    Accept,
    /// The limit on connections of unknown clients was reached.
    UnknownConnections,
    /// A user without access who sent no token.
    Stranger,
    /// A wrong token.
    Token,
    /// A caller with user rights requested an owner's action, such as stopping the agent.
    NotOwner,
    /// A page of another site sent a request that changes something.
    Origin,
    /// The `Host` header does not name this node.
    Host,
    /// Plain HTTP on a TLS address.
    PlainHttp,
    /// A failed TLS handshake.
    Handshake,
    HandshakeTime,
    /// Request bodies that are being read use the whole memory budget.
    BodyMemory,
    /// A line was not completed in time.
    LineTime,
    LineSize,
    /// A wrong `auth_key` in a token exchange.
    AuthKey,
}

impl ClientRefusal {
    pub fn as_str(self) -> &'static str {
        NAMES[self as usize].1
    }
}

const NAMES: [(ClientRefusal, &str); 25] = [
    (ClientRefusal::Connections, "connections"),
    (ClientRefusal::SocketConnections, "socket_connections"),
    (ClientRefusal::HeadTime, "head_time"),
    (ClientRefusal::HeadSize, "head_size"),
    (ClientRefusal::UriLength, "uri_length"),
    (ClientRefusal::BodySize, "body_size"),
    (ClientRefusal::RequestTime, "request_time"),
    (ClientRefusal::SlowReader, "slow_reader"),
    (ClientRefusal::AnswerSize, "answer_size"),
    (ClientRefusal::AnswerMemory, "answer_memory"),
    (ClientRefusal::Malformed, "malformed"),
    (ClientRefusal::Accept, "accept"),
    (ClientRefusal::UnknownConnections, "unknown_connections"),
    (ClientRefusal::Stranger, "stranger"),
    (ClientRefusal::Token, "token"),
    (ClientRefusal::NotOwner, "not_owner"),
    (ClientRefusal::Origin, "origin"),
    (ClientRefusal::Host, "host"),
    (ClientRefusal::PlainHttp, "plain_http"),
    (ClientRefusal::Handshake, "handshake"),
    (ClientRefusal::HandshakeTime, "handshake_time"),
    (ClientRefusal::BodyMemory, "body_memory"),
    (ClientRefusal::LineTime, "line_time"),
    (ClientRefusal::LineSize, "line_size"),
    (ClientRefusal::AuthKey, "auth_key"),
];

#[derive(Debug, Default)]
pub(crate) struct RefusalCounters {
    counts: [AtomicU64; NAMES.len()],
}

impl RefusalCounters {
    pub fn count(&self, refusal: ClientRefusal) {
        self.counts[refusal as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn all(&self) -> Vec<(&'static str, u64)> {
        NAMES
            .iter()
            .map(|&(refusal, name)| (name, self.counts[refusal as usize].load(Ordering::Relaxed)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_counted_under_its_own_name() {
        for (index, (refusal, name)) in NAMES.into_iter().enumerate() {
            assert_eq!(refusal as usize, index);
            let refusals = RefusalCounters::default();
            refusals.count(refusal);
            let counted: Vec<_> = refusals.all().into_iter().filter(|(_, n)| *n > 0).collect();
            assert_eq!(counted, [(name, 1)]);
        }
    }
}
