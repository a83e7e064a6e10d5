use std::sync::atomic::{AtomicU64, Ordering};

/// Why a client did not get what it asked for. A closed set, published by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// More TCP connections than allowed.
    Connections,
    /// More connections on the UNIX socket than allowed.
    SocketConnections,
    /// The head of a request did not come in time.
    HeadTime,
    HeadSize,
    UriLength,
    BodySize,
    /// The answer could not be made in time.
    RequestTime,
    /// The client took nothing of its answer for too long.
    SlowReader,
    /// The answer would have been too large.
    AnswerSize,
    /// Answers that are being read take all the memory that they may.
    AnswerMemory,
    /// Not HTTP/1.
    Malformed,
    /// The system could not hand over a connection, for example for want of descriptors.
    Accept,
    /// More connections of clients that are not known than allowed.
    UnknownConnections,
    /// A user without access, and without a token.
    Stranger,
    /// A token that is not ours.
    Token,
    /// Someone who may use the agent, but not end it.
    NotOwner,
    /// Another site's page that wanted to change something.
    Origin,
    /// A request for a name that is not ours.
    Host,
    /// HTTP where TLS is spoken.
    PlainHttp,
    /// A TLS handshake that failed.
    Handshake,
    HandshakeTime,
    /// Bodies that are on their way take all the memory that they may.
    BodyMemory,
    /// A line did not come to its end in time.
    LineTime,
    LineSize,
    /// A key that is not ours, where tokens are handed out.
    AuthKey,
}

impl Refusal {
    pub fn as_str(self) -> &'static str {
        NAMES[self as usize].1
    }
}

const NAMES: [(Refusal, &str); 25] = [
    (Refusal::Connections, "connections"),
    (Refusal::SocketConnections, "socket_connections"),
    (Refusal::HeadTime, "head_time"),
    (Refusal::HeadSize, "head_size"),
    (Refusal::UriLength, "uri_length"),
    (Refusal::BodySize, "body_size"),
    (Refusal::RequestTime, "request_time"),
    (Refusal::SlowReader, "slow_reader"),
    (Refusal::AnswerSize, "answer_size"),
    (Refusal::AnswerMemory, "answer_memory"),
    (Refusal::Malformed, "malformed"),
    (Refusal::Accept, "accept"),
    (Refusal::UnknownConnections, "unknown_connections"),
    (Refusal::Stranger, "stranger"),
    (Refusal::Token, "token"),
    (Refusal::NotOwner, "not_owner"),
    (Refusal::Origin, "origin"),
    (Refusal::Host, "host"),
    (Refusal::PlainHttp, "plain_http"),
    (Refusal::Handshake, "handshake"),
    (Refusal::HandshakeTime, "handshake_time"),
    (Refusal::BodyMemory, "body_memory"),
    (Refusal::LineTime, "line_time"),
    (Refusal::LineSize, "line_size"),
    (Refusal::AuthKey, "auth_key"),
];

#[derive(Debug, Default)]
pub(crate) struct Refusals {
    counts: [AtomicU64; NAMES.len()],
}

impl Refusals {
    pub fn count(&self, refusal: Refusal) {
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
            let refusals = Refusals::default();
            refusals.count(refusal);
            let counted: Vec<_> = refusals.all().into_iter().filter(|(_, n)| *n > 0).collect();
            assert_eq!(counted, [(name, 1)]);
        }
    }
}
