//! Logins of browsers on other machines.
//!
//! A browser cannot send `Authorization` with a page, so its user exchanges the token for a
//! session: a random id that the browser sends as a cookie. Sessions are kept in memory, are bound
//! to the token that opened them, and end with it. Failed attempts are limited per address and in
//! total; while a limit is reached, no token is compared.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use axum::http::{HeaderMap, header};
use parking_lot::Mutex;

use super::{Caller, ConnectionInfo, Guard, PeerIdentity, host_of, origin};
use crate::refusals::ClientRefusal;
use pegel_credentials::Token;

const COOKIE: &str = "pegel_session";
const SESSION_TIME: Duration = Duration::from_secs(12 * 3600);
/// The oldest session ends when another one exceeds this number.
const SESSIONS_MAX: usize = 1000;
const ID_BYTES: usize = 32;
/// How many cookies of our name a request may have: other servers of this host may set them, too.
const COOKIES_MAX: usize = 4;

const FAILURE_WINDOW: Duration = Duration::from_secs(60);
const FAILURES_PER_ADDRESS: usize = 5;
const FAILURES_MAX: usize = 60;

/// Why a login is refused.
#[derive(Debug)]
pub(crate) enum LoginError {
    /// The connection is not encrypted, or the agent has no token.
    Unavailable,
    WrongToken,
    /// Too many attempts failed within the last minute.
    TooManyFailures {
        retry_after: Duration,
    },
    Random(io::Error),
}

/// A new session. The id itself is not stored by the agent.
pub(crate) struct SessionCookie(String);

impl SessionCookie {
    /// The value of `Set-Cookie`. The path is that of the whole host: behind a proxy, the agent
    /// does not know its prefix. `Secure` is left out for forwarded ports, where the browser sees
    /// plain HTTP on loopback and ssh encrypts the rest of the way.
    pub(crate) fn header(&self, caller: &Caller) -> String {
        let seconds = SESSION_TIME.as_secs();
        let id = &self.0;
        format!(
            "{COOKIE}={id}; Path=/; Max-Age={seconds}; {}",
            attributes(caller)
        )
    }

    /// The value of `Set-Cookie` that removes the cookie.
    pub(crate) fn removal(caller: &Caller) -> String {
        format!("{COOKIE}=; Path=/; Max-Age=0; {}", attributes(caller))
    }
}

fn attributes(caller: &Caller) -> &'static str {
    match caller.is_tls {
        true => "HttpOnly; Secure; SameSite=Strict",
        false => "HttpOnly; SameSite=Strict",
    }
}

/// Whether a browser can log in on a connection: over TLS, and through a tunnel of ssh.
fn can_log_in(peer: PeerIdentity, is_tls: bool) -> bool {
    is_tls || peer == PeerIdentity::Forwarded
}

#[derive(Debug, Default)]
pub(super) struct LoginSessions {
    /// The oldest first.
    sessions: Mutex<VecDeque<LoginSession>>,
    /// The failures of the last minute, the oldest first.
    failures: Mutex<VecDeque<LoginFailure>>,
}

#[derive(Debug)]
struct LoginSession {
    id_hash: [u8; SHA256_OUTPUT_LEN],
    /// The token that opened the session. A reloaded token is another one.
    token: Arc<Token>,
    started: Instant,
}

#[derive(Debug)]
struct LoginFailure {
    peer: PeerIdentity,
    at: Instant,
}

impl LoginSessions {
    /// Opens a session if `given` is the token.
    pub(super) fn log_in(
        &self,
        peer: PeerIdentity,
        token: &Arc<Token>,
        given: &[u8],
        now: Instant,
    ) -> Result<SessionCookie, LoginError> {
        self.check_token(network_of(peer), token, given, now)?;
        let mut bytes = [0; ID_BYTES];
        File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut bytes))
            .map_err(LoginError::Random)?;
        let id: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut sessions = self.sessions.lock();
        sessions.retain(|session| session.is_valid(token, now));
        if sessions.len() >= SESSIONS_MAX {
            sessions.pop_front();
        }
        sessions.push_back(LoginSession {
            id_hash: hash(id.as_bytes()),
            token: token.clone(),
            started: now,
        });
        Ok(SessionCookie(id))
    }

    /// Compares the token, unless too many attempts failed. One lock covers both, so that parallel
    /// attempts cannot exceed the limits.
    fn check_token(
        &self,
        peer: PeerIdentity,
        token: &Token,
        given: &[u8],
        now: Instant,
    ) -> Result<(), LoginError> {
        let mut failures = self.failures.lock();
        failures.retain(|failure| now.duration_since(failure.at) < FAILURE_WINDOW);
        let of_peer = failures.iter().filter(|failure| failure.peer == peer);
        let first = if of_peer.clone().count() >= FAILURES_PER_ADDRESS {
            of_peer.clone().next()
        } else {
            failures.front().filter(|_| failures.len() >= FAILURES_MAX)
        };
        if let Some(first) = first {
            let retry_after = FAILURE_WINDOW.saturating_sub(now.duration_since(first.at));
            return Err(LoginError::TooManyFailures { retry_after });
        }
        if token.matches(given) {
            return Ok(());
        }
        failures.push_back(LoginFailure { peer, at: now });
        Err(LoginError::WrongToken)
    }

    /// Whether a cookie of the request is a session that this token opened.
    pub(super) fn has_session(
        &self,
        headers: &HeaderMap,
        token: &Arc<Token>,
        now: Instant,
    ) -> bool {
        session_hashes(headers).any(|given| {
            let sessions = self.sessions.lock();
            // Every session is compared, whichever matches.
            sessions.iter().fold(false, |found, session| {
                let is_same = session.has_hash(&given);
                found | (is_same & session.is_valid(token, now))
            })
        })
    }

    /// Ends the sessions of the request's cookies.
    pub(super) fn log_out(&self, headers: &HeaderMap) {
        for given in session_hashes(headers) {
            let mut sessions = self.sessions.lock();
            sessions.retain(|session| !session.has_hash(&given));
        }
    }
}

impl Guard {
    /// Whether a browser on this connection can log in.
    pub(crate) fn offers_login(&self, info: &ConnectionInfo) -> bool {
        can_log_in(info.peer, info.is_tls) && self.token.is_some()
    }

    /// Exchanges the token for a session.
    pub(crate) fn log_in(
        &self,
        caller: &Caller,
        given: &[u8],
    ) -> Result<SessionCookie, LoginError> {
        let token = { self.token.as_ref() }.filter(|_| can_log_in(caller.peer, caller.is_tls));
        let token = token.ok_or(LoginError::Unavailable)?.get();
        let opened = self
            .logins
            .log_in(caller.peer, &token, given, Instant::now());
        let (refusal, reason) = match &opened {
            Err(LoginError::WrongToken) => (ClientRefusal::Login, "login with a wrong token"),
            Err(LoginError::TooManyFailures { .. }) => {
                (ClientRefusal::LoginRate, "too many failed logins")
            }
            _ => return opened,
        };
        self.refusals.count(refusal);
        self.refusal_log
            .log(refusal, &caller.peer, || reason.to_owned());
        opened
    }

    /// Ends the session of a request.
    pub(crate) fn log_out(&self, headers: &HeaderMap) {
        self.logins.log_out(headers);
    }

    /// A browser also sends cookies when a page of another site makes a request: those are not
    /// accepted, not even for reading.
    pub(super) fn has_session(&self, info: &ConnectionInfo, headers: &HeaderMap) -> bool {
        let token = { self.token.as_ref() }.filter(|_| can_log_in(info.peer, info.is_tls));
        let Some(token) = token else {
            return false;
        };
        !origin::is_cross_origin(headers, host_of(headers))
            && self
                .logins
                .has_session(headers, &token.get(), Instant::now())
    }
}

impl LoginSession {
    fn is_valid(&self, token: &Arc<Token>, now: Instant) -> bool {
        Arc::ptr_eq(&self.token, token) && now.duration_since(self.started) < SESSION_TIME
    }

    fn has_hash(&self, given: &[u8]) -> bool {
        verify_slices_are_equal(&self.id_hash, given).is_ok()
    }
}

/// The peer for which failures are counted: of an IPv6 address, the network of 64 bits, all of
/// whose addresses a single machine can use.
fn network_of(peer: PeerIdentity) -> PeerIdentity {
    let PeerIdentity::Remote { address, .. } = peer else {
        return peer;
    };
    let address = match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
    };
    PeerIdentity::Remote {
        address,
        certified: false,
    }
}

fn hash(id: &[u8]) -> [u8; SHA256_OUTPUT_LEN] {
    let mut bytes = [0; SHA256_OUTPUT_LEN];
    bytes.copy_from_slice(digest(&SHA256, id).as_ref());
    bytes
}

/// The hashes of the session ids in the request's cookies.
fn session_hashes(headers: &HeaderMap) -> impl Iterator<Item = [u8; SHA256_OUTPUT_LEN]> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(name, id)| *name == COOKIE && id.len() == 2 * ID_BYTES)
        .take(COOKIES_MAX)
        .map(|(_, id)| hash(id.as_bytes()))
}

#[cfg(test)]
mod tests {
    use pegel_config::Secret;

    use super::*;
    use pegel_credentials::TokenSource;

    const TEXT: &str = "planted-0123456789";

    fn token(text: &str) -> Arc<Token> {
        let source = TokenSource::Variable(Secret::new(text));
        Arc::new(Token::load(&source).expect("a token"))
    }

    fn remote(address: &str) -> PeerIdentity {
        PeerIdentity::Remote {
            address: address.parse().expect("an address"),
            certified: false,
        }
    }

    fn cookies(text: &str) -> HeaderMap {
        let value = text.parse().expect("a header");
        HeaderMap::from_iter([(header::COOKIE, value)])
    }

    fn open(logins: &LoginSessions, token: &Arc<Token>, now: Instant) -> HeaderMap {
        let cookie = logins.log_in(remote("192.0.2.9"), token, TEXT.as_bytes(), now);
        let caller = Caller {
            peer: remote("192.0.2.9"),
            rights: super::super::AccessRights::None,
            is_tls: true,
        };
        let header = cookie.expect("the right token").header(&caller);
        let (pair, attributes) = header.split_once("; ").expect("attributes");
        assert_eq!(
            attributes,
            "Path=/; Max-Age=43200; HttpOnly; Secure; SameSite=Strict"
        );
        assert_eq!(pair.len(), "pegel_session=".len() + 64, "{pair}");
        cookies(&format!("theme=dark; {pair}"))
    }

    #[test]
    fn a_session_lasts_until_its_time_its_logout_or_another_token() {
        let (logins, own, now) = (LoginSessions::default(), token(TEXT), Instant::now());
        let first = open(&logins, &own, now);
        let second = open(&logins, &own, now);
        assert!(logins.has_session(&first, &own, now));
        assert!(logins.has_session(&second, &own, now + SESSION_TIME / 2));
        assert!(!logins.has_session(&second, &own, now + SESSION_TIME));
        logins.log_out(&first);
        assert!(!logins.has_session(&first, &own, now));
        assert!(logins.has_session(&second, &own, now), "of another browser");
        // Also one with the same text: the administrator asked for a reload.
        assert!(!logins.has_session(&second, &token(TEXT), now));
        assert!(!format!("{logins:?}").contains("planted"));
    }

    #[test]
    fn other_cookies_are_not_sessions() {
        let (logins, own, now) = (LoginSessions::default(), token(TEXT), Instant::now());
        let right = open(&logins, &own, now);
        let right = right[header::COOKIE].to_str().expect("text").to_owned();
        let id = right.rsplit('=').next().expect("an id");
        for text in [
            String::new(),
            "pegel_session=".to_owned(),
            format!("pegel_session={}", "0".repeat(64)),
            format!("pegel_session={}", &id[1..]),
            format!("pegel_session={}", id.to_uppercase() + "0"),
            format!("session={id}"),
            id.to_owned(),
        ] {
            assert!(!logins.has_session(&cookies(&text), &own, now), "{text}");
        }
        let other = format!("pegel_session={}; {right}", "0".repeat(64));
        assert!(logins.has_session(&cookies(&other), &own, now));
    }

    #[test]
    fn sessions_are_bounded_and_the_oldest_ends() {
        let (logins, own, now) = (LoginSessions::default(), token(TEXT), Instant::now());
        let first = open(&logins, &own, now);
        let second = open(&logins, &own, now);
        for _ in 2..=SESSIONS_MAX {
            open(&logins, &own, now);
        }
        assert!(!logins.has_session(&first, &own, now));
        assert!(logins.has_session(&second, &own, now));
        assert_eq!(logins.sessions.lock().len(), SESSIONS_MAX);
    }

    #[test]
    fn an_address_has_five_failures_per_minute() {
        let (logins, own, now) = (LoginSessions::default(), token(TEXT), Instant::now());
        let try_at = |address: &str, given: &str, at: Duration| {
            let done = logins.log_in(remote(address), &own, given.as_bytes(), now + at);
            match done {
                Ok(_) => Ok(()),
                Err(LoginError::TooManyFailures { retry_after }) => Err(retry_after.as_secs()),
                Err(_) => Err(0),
            }
        };
        let at = Duration::from_secs;
        for second in 0..5 {
            assert_eq!(try_at("192.0.2.9", "wrong", at(second)), Err(0));
        }
        assert_eq!(try_at("192.0.2.9", "wrong", at(10)), Err(50));
        assert_eq!(
            try_at("192.0.2.9", TEXT, at(10)),
            Err(50),
            "no token is compared"
        );
        assert_eq!(try_at("192.0.2.10", TEXT, at(10)), Ok(()));
        assert_eq!(
            try_at("192.0.2.9", TEXT, at(60)),
            Ok(()),
            "the first failure is a minute ago"
        );
        // One machine has many addresses of its network.
        for host in 1..=5 {
            assert_eq!(
                try_at(&format!("2001:db8::{host}"), "wrong", at(20)),
                Err(0)
            );
        }
        assert_eq!(try_at("2001:db8::9", TEXT, at(20)), Err(60));
        assert_eq!(try_at("2001:db8:0:1::9", TEXT, at(20)), Ok(()));
    }

    #[test]
    fn all_addresses_together_have_sixty_failures_per_minute() {
        let (logins, own, now) = (LoginSessions::default(), token(TEXT), Instant::now());
        let try_from = |host: usize, given: &str| {
            let peer = remote(&format!("192.0.2.{host}"));
            logins.log_in(peer, &own, given.as_bytes(), now)
        };
        for host in 0..FAILURES_MAX {
            assert!(matches!(
                try_from(host, "wrong"),
                Err(LoginError::WrongToken)
            ));
        }
        for given in ["wrong", TEXT] {
            assert!(matches!(
                try_from(200, given),
                Err(LoginError::TooManyFailures { .. })
            ));
        }
        assert_eq!(logins.failures.lock().len(), FAILURES_MAX);
    }
}
