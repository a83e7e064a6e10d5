//! The guard: for every request, who asks, what it may do, and why not.
//!
//! Loopback is not private on a shared node, and a browser asks for whatever a web page tells it to.
//!
//! | asked by | may |
//! |---|---|
//! | the agent's user, root, or anyone with the token or a certificate of our authority | everything |
//! | a user in `allow_users`; anyone from outside where `--insecure` and no token is set | everything but [`Access::Owner`] |
//! | anyone else | [`Access::Open`] |
//!
//! Users are known by the word of the kernel: credentials on the UNIX socket, the owner of the client's
//! socket on loopback. Beyond that a request must be for one of our names ([`host`]), and one that
//! changes something must not come from somebody else's page ([`origin`]).

mod accepted_hosts;
mod access_denied;
mod local_users;
mod origin;
mod peer;
mod refusal_log;
mod reloadable;
mod sock_diag;
mod token;
mod token_exchange;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::http::{HeaderMap, Method, Version, header, request};
use nix::unistd;
use pegel_config::UserRef;
use rustls::ServerConfig;
use serde_json::{Value, json};

use crate::connection_limit::Standing;
use crate::refusals::{ClientRefusal, RefusalCounters};
use crate::settings::ServeSettings;
use crate::tls::{TlsError, TlsFiles};

use accepted_hosts::AcceptedHosts;
pub(crate) use access_denied::AccessDenied;
pub use local_users::LocalUsers;
use peer::PeerLookup;
pub(crate) use peer::{PeerIdentity, is_loopback};
use refusal_log::RefusalLog;
use reloadable::Reloadable;
use token::Token;
pub use token::{TokenError, TokenSource};
use token_exchange::TokenExchange;

/// Whether there is a token that can be used.
pub(crate) fn check_token_source(source: &TokenSource) -> Result<(), TokenError> {
    Token::load(source).map(drop)
}

/// Whether the kernel tells whose a connection on loopback is: asks about a listener of our own. `None` when
/// not even that can be made.
pub fn is_sock_diag_available() -> Option<bool> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").ok()?;
    let address = listener.local_addr().ok()?;
    Some(sock_diag::SockDiag::default().finds_listener(address))
}

/// What a route lets its caller do. Said for each route where it is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Tells nothing that a stranger could not see anyway.
    Open,
    /// Reads. Requests with a method other than GET and HEAD change something, whatever the route says.
    Read,
    /// Changes something, even by GET.
    Change,
    /// Stops the agent or removes what it holds.
    Owner,
}

/// What somebody may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AccessRights {
    None,
    User,
    Owner,
}

/// The one who sent a request. Travels with it to its route.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub peer: PeerIdentity,
    pub rights: AccessRights,
}

/// What is known about a connection before anything was said on it.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionInfo {
    pub peer: PeerIdentity,
    /// Our end of it; none on the UNIX socket, where nothing but a path leads here.
    pub local: Option<IpAddr>,
    /// Whether it may be closed to make room for others.
    pub standing: Arc<Standing>,
}

/// Why the guard cannot take its post.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("auth_key: cannot make a token for those who show the key")]
    Random(#[source] std::io::Error),
    #[error(
        "there is no user \"{name}\" on this machine; correct the name, or give the user's number"
    )]
    UnknownUser { name: String },
    #[error("cannot look up the user \"{name}\"; give the user's number")]
    Lookup {
        name: String,
        #[source]
        source: std::io::Error,
    },
}

#[derive(Debug)]
pub(crate) struct Guard {
    own_uid: u32,
    allowed: Vec<u32>,
    hosts: AcceptedHosts,
    peer_lookup: PeerLookup,
    token: Option<Reloadable<Token, TokenError>>,
    /// Hands out another token, for the life of this agent.
    token_exchange: Option<TokenExchange>,
    tls: Option<Reloadable<ServerConfig, TlsError>>,
    /// Other machines are served without being asked who they are.
    allows_any_remote: bool,
    refusal_log: RefusalLog,
    refusals: Arc<RefusalCounters>,
}

impl Guard {
    /// Reads the token and the certificates, and looks up the users.
    pub fn new(
        settings: &ServeSettings,
        node: &str,
        refusals: Arc<RefusalCounters>,
    ) -> Result<Guard, GuardError> {
        let token = settings.token.clone().map(|source| {
            let files = match &source {
                TokenSource::Variable(_) => Vec::new(),
                TokenSource::File(path) => vec![path.clone()],
            };
            Reloadable::new("the token", files, move || Token::load(&source))
        });
        let tls = settings.tls.clone().map(|files: TlsFiles| {
            Reloadable::new("the certificate", files.paths(), move || files.load())
        });
        let has_authority = settings
            .tls
            .as_ref()
            .is_some_and(|files| files.ca.is_some());
        Ok(Guard {
            own_uid: rustix::process::geteuid().as_raw(),
            allowed: settings
                .allow_users
                .iter()
                .map(uid_of)
                .collect::<Result<_, _>>()?,
            hosts: AcceptedHosts::new(node, &settings.hosts),
            peer_lookup: PeerLookup::new(),
            allows_any_remote: settings.insecure
                && token.is_none()
                && settings.auth_key.is_none()
                && !has_authority,
            token: token.transpose()?,
            token_exchange: settings
                .auth_key
                .as_ref()
                .map(TokenExchange::new)
                .transpose()
                .map_err(GuardError::Random)?,
            tls: tls.transpose()?,
            refusal_log: RefusalLog::default(),
            refusals,
        })
    }

    /// Says so when the kernel does not tell who owns a connection, because then nobody gets in over
    /// loopback without a token.
    pub fn check_kernel(&self, listener: SocketAddr) {
        if is_loopback(listener.ip()) && !self.peer_lookup.finds_listener(listener) {
            tracing::warn!(
                "the kernel does not tell who owns a connection (is the module tcp_diag missing?): over \
                 {listener} only clients with a token are served; the UNIX socket is not affected"
            );
        }
    }

    pub fn identify_tcp(&self, stream: &tokio::net::TcpStream) -> std::io::Result<ConnectionInfo> {
        Ok(ConnectionInfo {
            peer: self.peer_lookup.peer_on_tcp(stream)?,
            local: Some(stream.local_addr()?.ip()),
            standing: Arc::default(),
        })
    }

    pub fn identify_unix(&self, stream: &tokio::net::UnixStream) -> ConnectionInfo {
        ConnectionInfo {
            peer: self.peer_lookup.peer_on_unix(stream),
            local: None,
            standing: Arc::default(),
        }
    }

    /// What TLS connections are made with.
    pub fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.as_ref().map(Reloadable::get)
    }

    /// Whether there is anything to look after.
    pub fn has_reloadable_files(&self) -> bool {
        self.tls.is_some() || self.token.as_ref().is_some_and(Reloadable::has_files)
    }

    /// Looks whether the files changed; `asked` to, reads them in any case. May block.
    pub fn refresh(&self, asked: bool) {
        if let Some(token) = &self.token {
            token.refresh(asked);
        }
        if let Some(tls) = &self.tls {
            tls.refresh(asked);
        }
    }

    /// Which protections are in force, for `/status`.
    pub fn status_json(&self) -> Value {
        let token = self.token.as_ref().and_then(Reloadable::reload_error);
        let tls = self.tls.as_ref().and_then(Reloadable::reload_error);
        json!({
            "token": self.token.is_some(),
            "tls": self.tls.is_some(),
            "trouble": token.or(tls),
        })
    }

    /// Lets a request in, or says why not. `access` is what it needs at least; its route may ask for
    /// more with [`Guard::require`].
    pub fn admit(
        &self,
        visit: &ConnectionInfo,
        head: &request::Parts,
        access: Access,
    ) -> Result<Caller, AccessDenied> {
        let caller = Caller {
            peer: visit.peer,
            rights: self.rights_with_token(visit.peer, &head.headers),
        };
        let verdict = match visit.local {
            Some(local) => self.check_host(head, local),
            None => Ok(()),
        };
        let verdict = verdict.and_then(|()| self.check_access(&caller, head, access));
        self.record_refusal(&caller, verdict).map(|()| caller)
    }

    /// Lets a client in that sends lines and not requests: it can show no token.
    pub fn admit_lines(&self, visit: &ConnectionInfo) -> Result<Caller, AccessDenied> {
        let caller = Caller {
            peer: visit.peer,
            rights: self.rights_of(visit.peer),
        };
        let verdict = match caller.rights {
            AccessRights::None => Err(AccessDenied::Stranger(visit.peer)),
            AccessRights::User | AccessRights::Owner => Ok(()),
        };
        self.record_refusal(&caller, verdict).map(|()| caller)
    }

    /// The value of `Authorization` for someone who shows the right key.
    pub fn exchange_auth_key(&self, caller: &Caller, key: &str) -> Option<String> {
        let value = self
            .token_exchange
            .as_ref()
            .and_then(|exchange| exchange.exchange(key));
        if value.is_none() {
            self.refusals.count(ClientRefusal::AuthKey);
            self.refusal_log
                .log(ClientRefusal::AuthKey, &caller.peer, || {
                    "the auth_key is not the right one".to_owned()
                });
        }
        value
    }

    /// For a route that needs more than to be read.
    pub fn require(
        &self,
        caller: &Caller,
        head: &request::Parts,
        access: Access,
    ) -> Result<(), AccessDenied> {
        self.record_refusal(caller, self.check_access(caller, head, access))
    }

    /// Every refusal is counted, and said in the log now and then.
    fn record_refusal(
        &self,
        caller: &Caller,
        verdict: Result<(), AccessDenied>,
    ) -> Result<(), AccessDenied> {
        if let Err(denied) = &verdict {
            self.refusals.count(denied.refusal());
            self.refusal_log
                .log(denied.refusal(), &caller.peer, || denied.message());
        }
        verdict
    }

    /// What the peer may do by itself, before it has shown a token.
    pub fn rights_of(&self, peer: PeerIdentity) -> AccessRights {
        match peer {
            PeerIdentity::User(uid) if uid == self.own_uid || uid == 0 => AccessRights::Owner,
            PeerIdentity::User(uid) if self.allowed.contains(&uid) => AccessRights::User,
            PeerIdentity::Remote {
                certified: true, ..
            } => AccessRights::Owner,
            PeerIdentity::Remote { .. } if self.allows_any_remote => AccessRights::User,
            _ => AccessRights::None,
        }
    }

    fn rights_with_token(&self, peer: PeerIdentity, headers: &HeaderMap) -> AccessRights {
        let of_peer = self.rights_of(peer);
        let has_token = || {
            let Some(given) = token::bearer_token(headers) else {
                return false;
            };
            let token = self.token.as_ref().map(Reloadable::get);
            let handed_out = self.token_exchange.as_ref();
            token.is_some_and(|token| token.matches(given))
                | handed_out.is_some_and(|exchange| exchange.is_issued_token(given))
        };
        if of_peer < AccessRights::Owner && has_token() {
            return AccessRights::Owner;
        }
        of_peer
    }

    fn check_host(&self, head: &request::Parts, local: IpAddr) -> Result<(), AccessDenied> {
        let mut hosts = head.headers.get_all(header::HOST).iter();
        let first = hosts.next();
        // The oldest clients send none, and browsers are not among them.
        let is_missing = first.is_none() && head.version != Version::HTTP_10;
        if is_missing || hosts.next().is_some() {
            return Err(AccessDenied::NoHost);
        }
        let first = first.map(|value| value.to_str().unwrap_or_default());
        // `GET http://name/ HTTP/1.1` is for that name, whatever the header says.
        let target = head.uri.authority().map(|authority| authority.as_str());
        for authority in first.into_iter().chain(target) {
            if !self.hosts.accepts(authority, local) {
                return Err(AccessDenied::host(authority));
            }
        }
        Ok(())
    }

    fn check_access(
        &self,
        caller: &Caller,
        head: &request::Parts,
        access: Access,
    ) -> Result<(), AccessDenied> {
        let needed = match access {
            Access::Open => AccessRights::None,
            Access::Read | Access::Change => AccessRights::User,
            Access::Owner => AccessRights::Owner,
        };
        if caller.rights < needed {
            return Err(match caller.rights {
                AccessRights::None if token::bearer_token(&head.headers).is_some() => {
                    AccessDenied::Token
                }
                AccessRights::None => AccessDenied::Stranger(caller.peer),
                _ => AccessDenied::NotOwner,
            });
        }
        let reads = matches!(head.method, Method::GET | Method::HEAD)
            && matches!(access, Access::Open | Access::Read);
        let host = head.headers.get(header::HOST);
        let host = host.and_then(|value| value.to_str().ok());
        if !reads && origin::is_cross_origin(&head.headers, host) {
            return Err(AccessDenied::Origin);
        }
        Ok(())
    }
}

fn uid_of(user: &UserRef) -> Result<u32, GuardError> {
    let name = match user {
        UserRef::Uid(uid) => return Ok(*uid),
        UserRef::Name(name) => name,
    };
    match unistd::User::from_name(name) {
        Ok(Some(found)) => Ok(found.uid.as_raw()),
        Ok(None) => Err(GuardError::UnknownUser { name: name.clone() }),
        Err(error) => Err(GuardError::Lookup {
            name: name.clone(),
            source: error.into(),
        }),
    }
}

#[cfg(test)]
mod tests;
