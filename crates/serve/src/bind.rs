//! Binds the TCP addresses. Errors name the process that occupies an address.

use std::io;
use std::net::{SocketAddr, TcpListener};

use pegel_config::ListenAddress;

use crate::guard::GuardError;
use crate::port_owner::{PortOwner, tcp_port_owner};
use crate::settings::ServeSettings;
use crate::socket::SocketError;

/// How many ports beyond the configured one `--port-search` tries.
const PORTS_TRIED: u16 = 100;
/// Length of the queue of connections that are not yet accepted. If it is full, a client's SYN is
/// dropped and retried a second later.
const BACKLOG: i32 = 1024;

/// Why the server could not bind its addresses. On error, nothing stays bound.
#[derive(Debug, thiserror::Error)]
pub enum ServerBindError {
    #[error("{address} is already in use{}; stop the process that uses it, choose another address with --listen, or use --port-search", by(.holder))]
    Busy {
        address: SocketAddr,
        holder: Option<PortOwner>,
    },
    #[error(
        "{first} and the next {PORTS_TRIED} ports are already in use; choose another address with --listen"
    )]
    AllBusy { first: SocketAddr },
    #[error(
        "{address} can be reached from other machines, and TLS is not configured; use a loopback address \
         such as 127.0.0.1, or set tls.cert, tls.key and a token, or use --insecure if everyone on that \
         network may read and write here"
    )]
    Exposed { address: SocketAddr },
    #[error(
        "{address} can be reached from other machines, and TLS alone does not authenticate clients; set \
         token_file, PEGEL_TOKEN or tls.ca, or use --insecure if everyone on that network may read and \
         write here"
    )]
    Unauthenticated { address: SocketAddr },
    #[error(
        "forwarded: {address} can be reached from other machines; use a loopback address such as 127.0.0.1:1347"
    )]
    ForwardedExposed { address: SocketAddr },
    #[error("forwarded requires a token: set token_file or PEGEL_TOKEN")]
    ForwardedWithoutToken,
    #[error("cannot listen on {address}")]
    Io {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    Guard(#[from] GuardError),
}

fn by(holder: &Option<PortOwner>) -> String {
    holder
        .as_ref()
        .map_or_else(String::new, |holder| format!(" by {holder}"))
}

/// Refuses addresses that other machines can reach, unless clients are authenticated over TLS or
/// `--insecure` is set.
pub(crate) fn check_exposure(settings: &ServeSettings) -> Result<(), ServerBindError> {
    if let Some(address) = settings
        .forwarded
        .iter()
        .find(|address| !address.is_loopback())
    {
        let address = address.socket();
        return Err(ServerBindError::ForwardedExposed { address });
    }
    if !settings.forwarded.is_empty() && settings.token().is_none() {
        return Err(ServerBindError::ForwardedWithoutToken);
    }
    let is_authenticated =
        settings.token().is_some() || settings.auth_key.is_some() || settings.tls.ca.is_some();
    let mut exposed = settings
        .listen
        .iter()
        .filter(|address| !address.is_loopback());
    let Some(address) = exposed.next().map(ListenAddress::socket) else {
        return Ok(());
    };
    if settings.insecure {
        Ok(())
    } else if settings.tls.files().is_none() {
        Err(ServerBindError::Exposed { address })
    } else if !is_authenticated {
        Err(ServerBindError::Unauthenticated { address })
    } else {
        Ok(())
    }
}

/// Listens on one address. The listener is non-blocking.
///
/// `SO_REUSEADDR` is set, so that a restart need not wait for old connections. `SO_REUSEPORT` is
/// not, so that two agents never share a port.
pub(crate) fn bind_tcp(
    address: &ListenAddress,
    port_search: bool,
) -> Result<TcpListener, ServerBindError> {
    let wanted = address.socket();
    match try_bind(wanted)? {
        Some(listener) => Ok(listener),
        None if port_search => {
            let last = wanted.port().saturating_add(PORTS_TRIED);
            for port in wanted.port().saturating_add(1)..=last {
                if let Some(listener) = try_bind(SocketAddr::new(wanted.ip(), port))? {
                    return Ok(listener);
                }
            }
            Err(ServerBindError::AllBusy { first: wanted })
        }
        None => Err(ServerBindError::Busy {
            address: wanted,
            holder: tcp_port_owner(wanted),
        }),
    }
}

/// Returns `None` if the address is in use.
fn try_bind(address: SocketAddr) -> Result<Option<TcpListener>, ServerBindError> {
    let listener = match TcpListener::bind(address) {
        Ok(listener) => listener,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(None),
        Err(source) => return Err(ServerBindError::Io { address, source }),
    };
    rustix::net::listen(&listener, BACKLOG)
        .map_err(io::Error::from)
        .and_then(|()| listener.set_nonblocking(true))
        .map_err(|source| ServerBindError::Io { address, source })?;
    Ok(Some(listener))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::TlsSettings;

    fn address(text: &str) -> ListenAddress {
        text.parse().expect("a valid address")
    }

    #[test]
    fn a_busy_port_names_its_holder() {
        let first = bind_tcp(&address("127.0.0.1:0"), false).expect("a free port");
        let taken = first.local_addr().expect("bound");
        let error = bind_tcp(&taken.into(), false).expect_err("busy");
        let message = error.to_string();
        let pid = std::process::id();
        assert!(
            message.starts_with(&format!("{taken} is already in use by pid {pid} (")),
            "{message}"
        );
        assert!(message.contains("--port-search"), "{message}");
    }

    #[test]
    fn port_search_takes_the_next_free_one() {
        let first = bind_tcp(&address("127.0.0.1:0"), false).expect("a free port");
        let taken = first.local_addr().expect("bound");
        match bind_tcp(&taken.into(), true) {
            Ok(second) => {
                let port = second.local_addr().expect("bound").port();
                assert!(port > taken.port() && port - taken.port() <= PORTS_TRIED);
            }
            // The first port may be one of the last in the range.
            Err(error) => assert!(taken.port() > u16::MAX - PORTS_TRIED, "{error}"),
        }
    }

    #[test]
    fn other_machines_are_let_in_only_on_purpose() {
        let settings = |listen: &str, change: fn(&mut ServeSettings)| {
            let mut settings = ServeSettings {
                listen: vec![ListenAddress::loopback(0), address(listen)],
                ..ServeSettings::default()
            };
            change(&mut settings);
            check_exposure(&settings).map_err(|error| error.to_string())
        };
        let files = |ca| TlsSettings {
            cert: Some("c".into()),
            key: Some("k".into()),
            ca,
        };
        for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
            let error = settings(listen, |_| {}).expect_err("exposed");
            assert!(
                error.contains("--insecure") && error.contains("tls.cert"),
                "{error}"
            );
            let error = settings(listen, |s| s.token_file = Some("t".into()))
                .expect_err("the token in clear");
            assert!(error.contains("--insecure"), "{error}");
            assert!(settings(listen, |s| s.insecure = true).is_ok());
        }
        let mut with_tls = ServeSettings {
            listen: vec![address("0.0.0.0:0")],
            tls: files(None),
            ..ServeSettings::default()
        };
        let error = check_exposure(&with_tls)
            .expect_err("no authentication")
            .to_string();
        assert!(
            error.contains("token_file, PEGEL_TOKEN or tls.ca"),
            "{error}"
        );
        with_tls.token_file = Some("t".into());
        assert!(check_exposure(&with_tls).is_ok());
        with_tls.token_file = None;
        with_tls.tls = files(Some("ca".into()));
        assert!(check_exposure(&with_tls).is_ok());
        assert!(settings("127.0.0.9:0", |_| {}).is_ok());
    }

    #[test]
    fn an_address_of_another_machine_is_an_error() {
        let error = bind_tcp(&address("192.0.2.1:0"), false).expect_err("not ours");
        assert!(matches!(error, ServerBindError::Io { .. }), "{error}");
    }
}
