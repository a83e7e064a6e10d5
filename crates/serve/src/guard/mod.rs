//! The guard decides for every request who the caller is and what it may do.
//!
//! Every connection and every route passes through it; nothing else grants access, and every
//! refusal is counted. Loopback is not private on a shared node, and a browser sends whatever a web
//! page tells it to.
//!
//! | caller | may |
//! |---|---|
//! | the agent's user, root, or anyone with the token, a session or a certificate of our authority | everything |
//! | a user in `allow_users` or `operators`; any remote client if `--insecure` is set and no token | everything except [`Access::Owner`] |
//! | anyone else | [`Access::Open`] |
//!
//! Local users are identified by the kernel: by credentials on the UNIX socket, by the owner of the
//! client's socket on loopback. In addition, a request must name an accepted host
//! ([`accepted_hosts`]), and one that changes something must not come from a page of another site
//! ([`origin`]). The session of a browser that logged in ([`login`]) counts only for requests of
//! the agent's own pages.

mod accepted_hosts;
mod access_denied;
mod bearer;
mod local_users;
mod login;
mod origin;
mod peer;
mod refusal_log;
mod sock_diag;
mod token_exchange;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::http::{HeaderMap, Method, Version, header, request};
use pegel_credentials::{Reloadable, TlsError, Token};
pub use pegel_credentials::{TokenError, TokenSource};
use pegel_metric::CommandVisibility;
use rustls::ServerConfig;
use serde_json::{Value, json};

use crate::connection_limit::EvictionState;
use crate::refusals::{ClientRefusal, RefusalCounters};
use crate::settings::ServeSettings;

use accepted_hosts::AcceptedHosts;
pub(crate) use access_denied::AccessDenied;
pub use local_users::LocalUsers;
use local_users::uid_of;
use login::LoginSessions;
pub(crate) use login::{LoginError, SessionCookie};
pub(crate) use peer::{PeerIdentity, is_loopback};
use refusal_log::RefusalLog;
use token_exchange::TokenExchange;

/// Checks that the token can be loaded.
pub(crate) fn check_token_source(source: &TokenSource) -> Result<(), TokenError> {
    Token::load(source).map(drop)
}

/// Whether the kernel reports the owner of a loopback connection; tested with a listener of our
/// own. `None` if the listener cannot be created.
pub fn is_sock_diag_available() -> Option<bool> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").ok()?;
    let address = listener.local_addr().ok()?;
    Some(sock_diag::SockDiag::default().finds_listener(address))
}

/// The access that a route requires. Declared with each route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reveals nothing that needs protection.
    Open,
    /// Reads. A request with a method other than GET and HEAD counts as a change, whatever the
    /// route declares.
    Read,
    /// Changes something, even with GET.
    Change,
    /// Stops the agent or deletes data.
    Owner,
}

/// What a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AccessRights {
    None,
    User,
    Owner,
}

/// The sender of a request. Passed to its route as a request extension.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub peer: PeerIdentity,
    pub rights: AccessRights,
    pub is_tls: bool,
}

impl Caller {
    /// The command lines of processes that the caller may see: those of its own processes, and all
    /// of them with the rights of the agent's user. Arguments may contain secrets, and `/proc` may
    /// hide them from other users.
    pub(crate) fn visible_commands(&self) -> CommandVisibility {
        match (self.rights, self.peer) {
            (AccessRights::Owner, _) => CommandVisibility::All,
            (AccessRights::User, PeerIdentity::User(uid)) => CommandVisibility::OwnedBy(uid),
            _ => CommandVisibility::None,
        }
    }
}

/// The jobs that a caller may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobVisibility {
    All,
    OwnedBy(u32),
    /// The user is unknown, so it has no jobs.
    None,
}

impl JobVisibility {
    pub(crate) fn includes(self, owner: Option<u32>) -> bool {
        match self {
            JobVisibility::All => true,
            JobVisibility::OwnedBy(uid) => owner == Some(uid),
            JobVisibility::None => false,
        }
    }
}

/// What is known about a connection before its first byte.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionInfo {
    pub peer: PeerIdentity,
    /// Our end of the connection; `None` on the UNIX socket.
    pub local: Option<IpAddr>,
    /// Whether the connection is encrypted.
    pub is_tls: bool,
    /// Whether the connection may be closed in favour of others.
    pub standing: Arc<EvictionState>,
}

/// Why the guard cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("auth_key: cannot generate a token")]
    Random(#[source] std::io::Error),
    #[error("there is no user \"{name}\" on this machine; correct the name, or use the uid")]
    UnknownUser { name: String },
    #[error("cannot look up the user \"{name}\"; use the uid instead")]
    Lookup {
        name: String,
        #[source]
        source: std::io::Error,
    },
}

#[derive(Debug)]
pub(crate) struct Guard {
    users: LocalUsers,
    /// The users in `operators`.
    operators: Vec<u32>,
    hosts: AcceptedHosts,
    token: Option<Reloadable<Token, TokenError>>,
    /// Issues a second token, valid until the agent stops.
    token_exchange: Option<TokenExchange>,
    logins: LoginSessions,
    tls: Option<Reloadable<ServerConfig, TlsError>>,
    /// Remote clients are served without authentication.
    allows_any_remote: bool,
    refusal_log: RefusalLog,
    refusals: Arc<RefusalCounters>,
}

impl Guard {
    /// Loads the token and the certificates, and looks up the users.
    pub(crate) fn new(
        settings: &ServeSettings,
        node: &str,
        refusals: Arc<RefusalCounters>,
    ) -> Result<Guard, GuardError> {
        let token = settings.token().map(|source| {
            let files = match &source {
                TokenSource::Variable(_) => Vec::new(),
                TokenSource::File(path) => vec![path.clone()],
            };
            Reloadable::new("the token", files, move || Token::load(&source))
        });
        let tls = settings
            .tls
            .files()
            .map(|files| Reloadable::new("the certificate", files.paths(), move || files.load()));
        Ok(Guard {
            users: LocalUsers::new(&settings.admitted_users())?,
            operators: settings
                .operators
                .iter()
                .map(uid_of)
                .collect::<Result<_, _>>()?,
            hosts: AcceptedHosts::new(node, &settings.hosts),
            allows_any_remote: settings.insecure
                && token.is_none()
                && settings.auth_key.is_none()
                && settings.tls.ca.is_none(),
            token: token.transpose()?,
            token_exchange: settings
                .auth_key
                .as_ref()
                .map(TokenExchange::new)
                .transpose()
                .map_err(GuardError::Random)?,
            logins: LoginSessions::default(),
            tls: tls.transpose()?,
            refusal_log: RefusalLog::default(),
            refusals,
        })
    }

    /// Returns the jobs that a caller may see: its own, and all of them as an operator or with the
    /// rights of the agent's user.
    pub(crate) fn visible_jobs(&self, caller: &Caller) -> JobVisibility {
        match (caller.rights, caller.peer) {
            (AccessRights::Owner, _) => JobVisibility::All,
            (AccessRights::User, PeerIdentity::User(uid)) if self.operators.contains(&uid) => {
                JobVisibility::All
            }
            (AccessRights::User, PeerIdentity::User(uid)) => JobVisibility::OwnedBy(uid),
            _ => JobVisibility::None,
        }
    }

    /// Logs a warning if the kernel does not report the owners of connections: over loopback, only
    /// clients with a token are then served.
    pub(crate) fn check_kernel(&self, listener: SocketAddr) {
        if is_loopback(listener.ip()) && !self.users.peer_lookup.finds_listener(listener) {
            tracing::warn!(
                "the kernel does not report the owners of connections (is the module tcp_diag missing?): over \
                 {listener} only clients with a token are served; the UNIX socket is not affected"
            );
        }
    }

    pub(crate) fn identify_tcp(
        &self,
        stream: &tokio::net::TcpStream,
    ) -> std::io::Result<ConnectionInfo> {
        Ok(ConnectionInfo {
            peer: self.users.peer_lookup.peer_on_tcp(stream)?,
            local: Some(stream.local_addr()?.ip()),
            // The acceptor sets it after the handshake.
            is_tls: false,
            standing: Arc::default(),
        })
    }

    pub(crate) fn identify_unix(&self, stream: &tokio::net::UnixStream) -> ConnectionInfo {
        ConnectionInfo {
            peer: self.users.peer_lookup.peer_on_unix(stream),
            local: None,
            is_tls: false,
            standing: Arc::default(),
        }
    }

    /// The configuration of TLS connections.
    pub(crate) fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.as_ref().map(Reloadable::get)
    }

    /// Whether any file can change while the agent runs.
    pub(crate) fn has_reloadable_files(&self) -> bool {
        self.tls.is_some() || self.token.as_ref().is_some_and(Reloadable::has_files)
    }

    /// Reloads files that changed; with `asked`, reloads all of them. May block.
    pub(crate) fn refresh(&self, asked: bool) {
        if let Some(token) = &self.token {
            token.refresh(asked);
        }
        if let Some(tls) = &self.tls {
            tls.refresh(asked);
        }
    }

    /// The protections in force, for `/status`.
    pub(crate) fn status_json(&self) -> Value {
        let token = self.token.as_ref().and_then(Reloadable::reload_error);
        let tls = self.tls.as_ref().and_then(Reloadable::reload_error);
        json!({
            "token": self.token.is_some(),
            "tls": self.tls.is_some(),
            "trouble": token.or(tls),
        })
    }

    /// Admits a request, or denies it. `access` is the minimum that it requires; its route may
    /// require more with [`Guard::require`].
    pub(crate) fn admit(
        &self,
        info: &ConnectionInfo,
        head: &request::Parts,
        access: Access,
    ) -> Result<Caller, AccessDenied> {
        let caller = Caller {
            peer: info.peer,
            rights: self.rights_with_credentials(info, &head.headers),
            is_tls: info.is_tls,
        };
        let verdict = match info.local {
            Some(local) => self.check_host(head, local),
            None => Ok(()),
        };
        let verdict = verdict.and_then(|()| self.check_access(&caller, head, access));
        self.record_refusal(&caller, verdict).map(|()| caller)
    }

    /// Admits a client of a line protocol, which has no way to send a token.
    pub(crate) fn admit_lines(&self, info: &ConnectionInfo) -> Result<Caller, AccessDenied> {
        let caller = Caller {
            peer: info.peer,
            rights: self.rights_of(info.peer),
            is_tls: info.is_tls,
        };
        let verdict = match caller.rights {
            AccessRights::None => Err(AccessDenied::Stranger(info.peer)),
            AccessRights::User | AccessRights::Owner => Ok(()),
        };
        self.record_refusal(&caller, verdict).map(|()| caller)
    }

    /// Returns the value for `Authorization` if the key is right.
    pub(crate) fn exchange_auth_key(&self, caller: &Caller, key: &str) -> Option<String> {
        let value = self
            .token_exchange
            .as_ref()
            .and_then(|exchange| exchange.exchange(key));
        if value.is_none() {
            self.refusals.count(ClientRefusal::AuthKey);
            self.refusal_log
                .log(ClientRefusal::AuthKey, &caller.peer, || {
                    "wrong auth_key".to_owned()
                });
        }
        value
    }

    /// Checks the access that a route requires beyond reading.
    pub(crate) fn require(
        &self,
        caller: &Caller,
        head: &request::Parts,
        access: Access,
    ) -> Result<(), AccessDenied> {
        self.record_refusal(caller, self.check_access(caller, head, access))
    }

    /// Counts a refusal, and logs it at a limited rate.
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

    /// The rights of a peer without a token.
    pub(crate) fn rights_of(&self, peer: PeerIdentity) -> AccessRights {
        match peer {
            PeerIdentity::User(uid) => self.users.rights_of(uid),
            PeerIdentity::Remote {
                certified: true, ..
            } => AccessRights::Owner,
            PeerIdentity::Remote { .. } if self.allows_any_remote => AccessRights::User,
            // The rights of requests through the tree come with the request.
            PeerIdentity::Unknown
            | PeerIdentity::Forwarded
            | PeerIdentity::Remote { .. }
            | PeerIdentity::ThroughTree
            | PeerIdentity::Tree => AccessRights::None,
        }
    }

    /// The rights of a peer with the token or the session that it sends.
    fn rights_with_credentials(&self, info: &ConnectionInfo, headers: &HeaderMap) -> AccessRights {
        let of_peer = self.rights_of(info.peer);
        if of_peer < AccessRights::Owner
            && (self.has_token(headers) || self.has_session(info, headers))
        {
            return AccessRights::Owner;
        }
        of_peer
    }

    fn has_token(&self, headers: &HeaderMap) -> bool {
        let Some(given) = bearer::bearer_token(headers) else {
            return false;
        };
        let token = self.token.as_ref().map(Reloadable::get);
        let handed_out = self.token_exchange.as_ref();
        token.is_some_and(|token| token.matches(given))
            | handed_out.is_some_and(|exchange| exchange.is_issued_token(given))
    }

    fn check_host(&self, head: &request::Parts, local: IpAddr) -> Result<(), AccessDenied> {
        let mut hosts = head.headers.get_all(header::HOST).iter();
        let first = hosts.next();
        // HTTP/1.0 clients may omit it; no browser is among them.
        let is_missing = first.is_none() && head.version != Version::HTTP_10;
        if is_missing || hosts.next().is_some() {
            return Err(AccessDenied::NoHost);
        }
        let first = first.map(|value| value.to_str().unwrap_or_default());
        // `GET http://name/ HTTP/1.1` is for that name, whatever the header contains.
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
                AccessRights::None if bearer::bearer_token(&head.headers).is_some() => {
                    AccessDenied::Token
                }
                AccessRights::None => AccessDenied::Stranger(caller.peer),
                _ => AccessDenied::NotOwner,
            });
        }
        let reads = matches!(head.method, Method::GET | Method::HEAD)
            && matches!(access, Access::Open | Access::Read);
        if !reads && origin::is_cross_origin(&head.headers, host_of(&head.headers)) {
            return Err(AccessDenied::Origin);
        }
        Ok(())
    }
}

fn host_of(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::HOST)?.to_str().ok()
}

#[cfg(test)]
mod tests;
