use std::sync::atomic::{AtomicU64, Ordering};

/// Why a client did not get what it asked for. A closed set, published by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientRefusal {
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
