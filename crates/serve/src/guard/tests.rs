//! The rules of the guard: hosts, users, tokens, origins.

use axum::http::Request;
use axum::response::IntoResponse;
use pegel_config::{Secret, UserRef};

use super::local_users::uid_of;
use super::*;

const TOKEN: &str = "planted-0123456789";
const OWN: u32 = 4001;
const ALLOWED: u32 = 4002;
const STRANGER: u32 = 4003;

fn guard(change: impl FnOnce(&mut ServeSettings)) -> Guard {
    let mut settings = ServeSettings {
        allow_users: vec![UserRef::Uid(ALLOWED)],
        token_variable: Some(Secret::new(TOKEN)),
        ..ServeSettings::default()
    };
    change(&mut settings);
    let mut guard = Guard::new(&settings, "nid0001", Arc::default()).expect("a guard");
    guard.users.own_uid = OWN;
    guard
}

fn local(uid: u32) -> ConnectionInfo {
    visit(PeerIdentity::User(uid))
}

fn visit(peer: PeerIdentity) -> ConnectionInfo {
    ConnectionInfo {
        peer,
        local: Some("127.0.0.1".parse().expect("an address")),
        is_tls: false,
        standing: Arc::default(),
    }
}

fn remote(certified: bool) -> ConnectionInfo {
    ConnectionInfo {
        peer: PeerIdentity::Remote {
            address: "192.0.2.9".parse().expect("an address"),
            certified,
        },
        local: Some("192.0.2.1".parse().expect("an address")),
        is_tls: true,
        standing: Arc::default(),
    }
}

fn head(method: Method, headers: &[(&str, &str)]) -> request::Parts {
    let mut request = Request::builder().method(method).uri("/x");
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "localhost:1337");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).expect("a request").into_parts().0
}

fn get(headers: &[(&str, &str)]) -> request::Parts {
    head(Method::GET, headers)
}

/// The result of each kind of access for a caller.
fn statuses(guard: &Guard, visit: &ConnectionInfo, head: &request::Parts) -> [u16; 4] {
    [Access::Open, Access::Read, Access::Change, Access::Owner].map(|access| {
        match guard.admit(visit, head, access) {
            Ok(_) => 200,
            Err(denied) => denied.into_response().status().as_u16(),
        }
    })
}

#[test]
fn local_users_have_the_rights_of_their_kind() {
    let guard = guard(|_| {});
    for (peer, expected) in [
        (PeerIdentity::User(OWN), [200, 200, 200, 200]),
        (PeerIdentity::User(0), [200, 200, 200, 200]),
        (PeerIdentity::User(ALLOWED), [200, 200, 200, 403]),
        (PeerIdentity::User(STRANGER), [200, 401, 401, 401]),
        (PeerIdentity::Unknown, [200, 401, 401, 401]),
    ] {
        assert_eq!(
            statuses(&guard, &visit(peer), &get(&[])),
            expected,
            "{peer:?}"
        );
        // The same rules apply on the UNIX socket.
        let on_socket = ConnectionInfo {
            local: None,
            ..visit(peer)
        };
        assert_eq!(
            statuses(&guard, &on_socket, &get(&[])),
            expected,
            "{peer:?}"
        );
    }
}

#[test]
fn the_token_lets_anyone_do_everything_and_a_wrong_one_nothing() {
    let guard = guard(|_| {});
    let right = format!("Bearer {TOKEN}");
    let wrong = format!("Bearer {}x", &TOKEN[1..]);
    for visit in [
        local(STRANGER),
        local(ALLOWED),
        visit(PeerIdentity::Unknown),
        remote(false),
    ] {
        let with = get(&[("authorization", &right)]);
        assert_eq!(
            statuses(&guard, &visit, &with_host(with, &visit)),
            [200; 4],
            "{visit:?}"
        );
    }
    let with = get(&[("authorization", &wrong)]);
    assert_eq!(
        statuses(&guard, &local(STRANGER), &with),
        [200, 401, 401, 401]
    );
    assert_eq!(
        statuses(&guard, &local(OWN), &with),
        [200; 4],
        "a wrong token does not hurt a caller with rights"
    );
}

/// Sets the `Host` header to the address at which the connection arrived.
fn with_host(mut head: request::Parts, visit: &ConnectionInfo) -> request::Parts {
    let host = visit.local.expect("over TCP").to_string();
    head.headers.insert("host", host.parse().expect("a header"));
    head
}

#[test]
fn other_machines_need_a_token_or_a_certificate() {
    let head = |visit: &ConnectionInfo| with_host(get(&[]), visit);
    let (plain, certified) = (remote(false), remote(true));
    let closed = guard(|_| {});
    assert_eq!(
        statuses(&closed, &plain, &head(&plain)),
        [200, 401, 401, 401]
    );
    assert_eq!(statuses(&closed, &certified, &head(&certified)), [200; 4]);

    let insecure = guard(|settings| settings.insecure = true);
    assert_eq!(
        statuses(&insecure, &plain, &head(&plain)),
        [200, 401, 401, 401],
        "a token is configured, so it is required"
    );
    let open = guard(|settings| {
        settings.insecure = true;
        settings.token_variable = None;
    });
    assert_eq!(statuses(&open, &plain, &head(&plain)), [200, 200, 200, 403]);
    assert_eq!(
        statuses(&open, &local(STRANGER), &get(&[])),
        [200, 401, 401, 401],
        "the rule for loopback is unchanged"
    );
}

#[test]
fn without_a_token_none_is_right() {
    let guard = guard(|settings| settings.token_variable = None);
    for given in ["Bearer ", "Bearer x", "Bearer [hidden]"] {
        let head = get(&[("authorization", given)]);
        assert_eq!(
            statuses(&guard, &local(STRANGER), &head),
            [200, 401, 401, 401]
        );
    }
}

#[test]
fn a_request_for_another_name_is_misdirected_whoever_sends_it() {
    let guard = guard(|settings| settings.hosts = vec!["proxy.example".parse().expect("a name")]);
    for host in ["evil.example", "evil.example:1337", "192.0.2.1", ""] {
        let head = get(&[("host", host)]);
        assert_eq!(statuses(&guard, &local(OWN), &head), [421; 4], "{host}");
    }
    for host in ["127.0.0.1:1337", "[::1]", "nid0001", "proxy.example"] {
        assert_eq!(
            statuses(&guard, &local(OWN), &get(&[("host", host)])),
            [200; 4],
            "{host}"
        );
    }
    let on_socket = ConnectionInfo {
        local: None,
        ..local(OWN)
    };
    let head = get(&[("host", "anything")]);
    assert_eq!(
        statuses(&guard, &on_socket, &head),
        [200; 4],
        "browsers cannot use a UNIX socket"
    );
}

#[test]
fn the_host_must_be_said_once_and_the_target_counts_too() {
    let guard = guard(|_| {});
    let mut head = get(&[]);
    head.headers
        .append("host", "localhost".parse().expect("a header"));
    assert_eq!(statuses(&guard, &local(OWN), &head), [400; 4], "two");
    head.headers.remove("host");
    assert_eq!(statuses(&guard, &local(OWN), &head), [400; 4], "none");
    head.version = Version::HTTP_10;
    assert_eq!(
        statuses(&guard, &local(OWN), &head),
        [200; 4],
        "no Host, and none is required"
    );
    let mut absolute = get(&[]);
    absolute.uri = "http://evil.example/x".parse().expect("a target");
    assert_eq!(statuses(&guard, &local(OWN), &absolute), [421; 4]);
    absolute.uri = "http://127.0.0.1:1337/x".parse().expect("a target");
    assert_eq!(statuses(&guard, &local(OWN), &absolute), [200; 4]);
}

#[test]
fn other_pages_can_read_but_not_change() {
    let guard = guard(|_| {});
    for (name, value) in [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        let headers = [(name, value)];
        let expected = [200, 200, 403, 403];
        assert_eq!(
            statuses(&guard, &local(OWN), &get(&headers)),
            expected,
            "{value}"
        );
        let ahead = head(Method::HEAD, &headers);
        assert_eq!(statuses(&guard, &local(OWN), &ahead), expected, "{value}");
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
            let post = head(method, &headers);
            assert_eq!(statuses(&guard, &local(OWN), &post), [403; 4], "{value}");
        }
    }
    let own_page = [
        ("origin", "http://localhost:1337"),
        ("sec-fetch-site", "same-origin"),
    ];
    assert_eq!(
        statuses(&guard, &local(OWN), &head(Method::POST, &own_page)),
        [200; 4]
    );
    assert_eq!(
        statuses(&guard, &local(OWN), &head(Method::POST, &[])),
        [200; 4]
    );
}

#[test]
fn a_route_can_ask_for_more_than_its_first_look() {
    let guard = guard(|_| {});
    let head = get(&[]);
    let caller = guard
        .admit(&local(ALLOWED), &head, Access::Read)
        .expect("admitted");
    assert_eq!(caller.rights, AccessRights::User);
    assert_eq!(guard.require(&caller, &head, Access::Change), Ok(()));
    assert_eq!(
        guard.require(&caller, &head, Access::Owner),
        Err(AccessDenied::NotOwner)
    );
    let foreign = get(&[("origin", "http://evil.example")]);
    assert_eq!(guard.require(&caller, &foreign, Access::Read), Ok(()));
    assert_eq!(
        guard.require(&caller, &foreign, Access::Change),
        Err(AccessDenied::Origin)
    );
}

#[test]
fn refusals_are_counted_by_reason_and_say_what_to_do() {
    let guard = guard(|_| {});
    let wrong = [("authorization", "Bearer nearly-0123456789")];
    for (visit, head, access, reason, challenge) in [
        (
            local(STRANGER),
            get(&[]),
            Access::Read,
            "stranger",
            Some("Bearer"),
        ),
        (
            local(STRANGER),
            get(&wrong),
            Access::Read,
            "token",
            Some("Bearer error=\"invalid_token\""),
        ),
        (local(ALLOWED), get(&[]), Access::Owner, "not_owner", None),
        (
            local(OWN),
            get(&[("host", "evil.example")]),
            Access::Read,
            "host",
            None,
        ),
        (
            local(OWN),
            head(Method::POST, &[("origin", "null")]),
            Access::Read,
            "origin",
            None,
        ),
    ] {
        let denied = guard.admit(&visit, &head, access).expect_err(reason);
        let message = denied.message();
        assert!(!message.contains("nearly"), "{message}");
        let response = denied.into_response();
        let sent = response.headers().get("www-authenticate");
        assert_eq!(
            sent.map(|value| value.to_str().expect("text")),
            challenge,
            "{reason}"
        );
        let counted = guard
            .refusals
            .all()
            .into_iter()
            .find(|(name, _)| *name == reason);
        assert_eq!(counted, Some((reason, 1)));
    }
}

#[test]
fn users_are_looked_up_by_name() {
    assert_eq!(uid_of(&UserRef::Uid(7)).expect("a number"), 7);
    assert_eq!(uid_of(&UserRef::Name("root".into())).expect("known"), 0);
    let error = uid_of(&UserRef::Name("no-such-user".into())).expect_err("unknown");
    assert!(
        error.to_string().contains("no user \"no-such-user\""),
        "{error}"
    );
}

#[test]
fn command_lines_are_for_their_owners_and_the_agents_user() {
    let visible = |guard: &Guard, info: &ConnectionInfo, headers: &[(&str, &str)]| {
        let admitted = guard.admit(info, &head(Method::GET, headers), Access::Read);
        admitted.map(|caller| caller.visible_commands()).ok()
    };
    let guarded = guard(|_| {});
    let token = format!("Bearer {TOKEN}");
    let with_token = [("authorization", &*token)];
    for (uid, expected) in [
        (OWN, Some(CommandVisibility::All)),
        (0, Some(CommandVisibility::All)),
        (ALLOWED, Some(CommandVisibility::OwnedBy(ALLOWED))),
        (STRANGER, None),
    ] {
        assert_eq!(visible(&guarded, &local(uid), &[]), expected, "uid {uid}");
    }
    let of_stranger = visible(&guarded, &local(STRANGER), &with_token);
    assert_eq!(of_stranger, Some(CommandVisibility::All));
    let certified = visible(&guarded, &remote(true), &[("host", "192.0.2.1")]);
    assert_eq!(certified, Some(CommandVisibility::All));
    let open_to_all = guard(|settings| {
        settings.insecure = true;
        settings.token_variable = None;
    });
    let anyone = visible(&open_to_all, &remote(false), &[("host", "192.0.2.1")]);
    assert_eq!(
        anyone,
        Some(CommandVisibility::None),
        "--insecure shows no command lines"
    );
}

/// The headers of a request of the agent's own page with a session.
fn with_session(guard: &Guard, visit: &ConnectionInfo) -> request::Parts {
    let caller = guard
        .admit(visit, &with_host(get(&[]), visit), Access::Open)
        .expect("open to everyone");
    let cookie = guard.log_in(&caller, TOKEN.as_bytes()).expect("the token");
    let cookie = cookie.header(&caller);
    let pair = cookie.split(';').next().expect("a pair");
    with_host(get(&[("cookie", pair)]), visit)
}

#[test]
fn a_session_has_the_rights_of_the_token_for_our_own_pages_only() {
    let guard = guard(|_| {});
    let visit = remote(false);
    let head = with_session(&guard, &visit);
    assert_eq!(statuses(&guard, &visit, &head), [200; 4]);
    for (name, value, expected) in [
        ("sec-fetch-site", "same-origin", [200; 4]),
        ("sec-fetch-site", "none", [200; 4]),
        ("origin", "https://192.0.2.1", [200; 4]),
        // Other pages may not even read: without a session, the caller is unknown.
        ("sec-fetch-site", "cross-site", [200, 401, 401, 401]),
        ("sec-fetch-site", "same-site", [200, 401, 401, 401]),
        ("origin", "https://evil.example", [200, 401, 401, 401]),
        ("origin", "null", [200, 401, 401, 401]),
    ] {
        let mut head = head.clone();
        head.headers.insert(
            axum::http::HeaderName::from_static(name),
            value.parse().expect("a header"),
        );
        assert_eq!(statuses(&guard, &visit, &head), expected, "{name}: {value}");
    }
    guard.log_out(&head.headers);
    assert_eq!(statuses(&guard, &visit, &head), [200, 401, 401, 401]);
}

#[test]
fn sessions_exist_only_over_tls_and_only_with_a_token() {
    let guarded = guard(|_| {});
    let encrypted = remote(false);
    let head = with_session(&guarded, &encrypted);
    let plain = ConnectionInfo {
        is_tls: false,
        ..encrypted.clone()
    };
    assert_eq!(
        statuses(&guarded, &plain, &head),
        [200, 401, 401, 401],
        "a cookie is not accepted in clear"
    );
    let log_in = |guard: &Guard, visit: &ConnectionInfo| {
        let caller = guard.admit(visit, &with_host(get(&[]), visit), Access::Open);
        let opened = guard.log_in(&caller.expect("open"), TOKEN.as_bytes());
        opened.map(|_| ()).map_err(|error| format!("{error:?}"))
    };
    let unavailable = Err("Unavailable".to_owned());
    assert_eq!(log_in(&guarded, &plain), unavailable);
    assert!(!guarded.offers_login(&plain));
    let without = guard(|settings| settings.token_variable = None);
    assert_eq!(log_in(&without, &encrypted), unavailable);
    assert!(!without.offers_login(&encrypted));
}

#[test]
fn clients_of_a_forwarded_port_need_the_token_or_a_session() {
    let guard = guard(|_| {});
    let forwarded = visit(PeerIdentity::Forwarded);
    let unknown = with_host(get(&[]), &forwarded);
    assert_eq!(statuses(&guard, &forwarded, &unknown), [200, 401, 401, 401]);
    assert!(guard.offers_login(&forwarded));
    let head = with_session(&guard, &forwarded);
    assert_eq!(statuses(&guard, &forwarded, &head), [200; 4]);
    let mut foreign = head.clone();
    let origin = "http://evil.example".parse().expect("a header");
    foreign.headers.insert("origin", origin);
    assert_eq!(statuses(&guard, &forwarded, &foreign), [200, 401, 401, 401]);
    // The cookie is of no use on a plain address that other machines reach.
    let remote = ConnectionInfo {
        is_tls: false,
        ..remote(false)
    };
    let head = with_host(head, &remote);
    assert_eq!(statuses(&guard, &remote, &head), [200, 401, 401, 401]);
}

#[test]
fn failed_logins_are_counted_as_refusals() {
    let guard = guard(|_| {});
    let visit = remote(false);
    let head = with_host(get(&[]), &visit);
    let caller = guard.admit(&visit, &head, Access::Open).expect("open");
    for _ in 0..7 {
        assert!(guard.log_in(&caller, b"nearly-0123456789").is_err());
    }
    let counts = guard.refusals.all();
    let count_of = |name| {
        counts
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, n)| *n)
    };
    assert_eq!(
        (count_of("login"), count_of("login_rate")),
        (Some(5), Some(2))
    );
}
