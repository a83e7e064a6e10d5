//! Browsers on other machines: the form, the session that replaces the token, and its limits.

use std::fs;

use pegel_testkit::{
    AgentProcess, BrowserPage, CertificateSigner, PLANTED_TOKEN, TempDir, curl, eventually, need,
    set_mode,
};
use rustix::process::Signal;
use serde_json::json;

use crate::tls::{CertificateFiles, agent, expect_refused, outside, prepared};

const HTML: &str = "Accept: text/html,application/xhtml+xml,*/*;q=0.8";

/// Sends requests to an agent's address for other machines.
struct RemoteClient {
    base: String,
    ca: String,
}

impl RemoteClient {
    fn new(agent: &AgentProcess, authority: &CertificateSigner) -> RemoteClient {
        RemoteClient {
            base: format!("https://{}", outside(agent)),
            ca: authority.path("ca.pem"),
        }
    }

    fn ask(&self, path: &str, more: &[&str]) -> (u16, String) {
        let url = format!("{}{path}", self.base);
        curl(&[&["--cacert", self.ca.as_str(), &url], more].concat())
    }

    fn log_in(&self, token: &str) -> (u16, String) {
        let field = format!("token={token}");
        self.ask("/login", &["-H", HTML, "--data-urlencode", &field])
    }

    /// Logs in and returns the header with the cookie.
    fn session(&self, token: &str) -> String {
        let (status, output) = self.log_in(token);
        assert_eq!(status, 303, "{output}");
        assert!(output.contains("\nlocation: ./\r\n"), "{output}");
        let (_, cookie) = output.split_once("set-cookie: ").expect("a cookie");
        let cookie = cookie.lines().next().expect("a line").trim();
        let (pair, attributes) = cookie.split_once("; ").expect("attributes");
        assert_eq!(
            attributes,
            "Path=/; Max-Age=43200; HttpOnly; Secure; SameSite=Strict"
        );
        format!("Cookie: {pair}")
    }

    fn status_with(&self, headers: &[&str]) -> u16 {
        let headers: Vec<&str> = headers.iter().flat_map(|header| ["-H", header]).collect();
        self.ask("/status", &headers).0
    }
}

#[test]
fn a_session_replaces_the_token_until_the_logout() {
    let Some(island) = prepared() else { return };
    let authority = CertificateSigner::create();
    authority.sign("node");
    let files = CertificateFiles::new(&authority, "node");
    island.run_inside(|| {
        let agent = agent().config(&files.config(None)).start();
        let client = RemoteClient::new(&agent, &authority);
        // A browser gets the form, other clients the error.
        let (status, output) = client.ask("/", &["-H", HTML]);
        assert_eq!(status, 401, "{output}");
        assert!(
            output.contains("<form method=\"post\" action=\"login\">"),
            "{output}"
        );
        assert!(output.contains("form-action 'self'"), "{output}");
        assert!(!output.contains("set-cookie"), "{output}");
        let (status, output) = client.ask("/", &[]);
        assert_eq!(status, 401, "{output}");
        assert!(output.contains("\"a token is required\""), "{output}");

        let (status, output) = client.log_in("wrong");
        assert_eq!(status, 401, "{output}");
        assert!(
            output.contains("invalid token") && output.contains("<form"),
            "{output}"
        );
        assert!(!output.contains("set-cookie"), "{output}");
        expect_refused(&agent, "login", 1);
        assert!(
            agent.stderr().contains("login with a wrong token"),
            "{}",
            agent.output()
        );

        let cookie = client.session(PLANTED_TOKEN);
        assert_eq!(client.status_with(&[&cookie]), 200);
        assert_eq!(
            client.status_with(&[&cookie, "Sec-Fetch-Site: same-origin"]),
            200
        );
        for foreign in [
            "Sec-Fetch-Site: cross-site",
            "Sec-Fetch-Site: same-site",
            "Origin: https://evil.example",
        ] {
            assert_eq!(client.status_with(&[&cookie, foreign]), 401, "{foreign}");
        }
        let changed = format!("{}0", &cookie[..cookie.len() - 1]);
        let other = format!("{}1", &cookie[..cookie.len() - 1]);
        let wrong = if changed == cookie { other } else { changed };
        assert_eq!(client.status_with(&[&wrong]), 401);
        // A page of another site can neither log in nor out.
        let evil = ["-X", "POST", "-H", "Origin: https://evil.example"];
        for path in ["/login", "/logout"] {
            assert_eq!(client.ask(path, &evil).0, 403, "{path}");
        }

        let (status, output) = client.ask("/logout", &["-X", "POST", "-H", &cookie]);
        assert_eq!(status, 303, "{output}");
        assert!(
            output.contains("pegel_session=; Path=/; Max-Age=0;"),
            "{output}"
        );
        assert_eq!(client.status_with(&[&cookie]), 401);
        agent.assert_conserved();
    });
}

#[test]
fn failed_logins_are_limited() {
    let Some(island) = prepared() else { return };
    let authority = CertificateSigner::create();
    authority.sign("node");
    let files = CertificateFiles::new(&authority, "node");
    island.run_inside(|| {
        let agent = agent().config(&files.config(None)).start();
        let client = RemoteClient::new(&agent, &authority);
        let cookie = client.session(PLANTED_TOKEN);
        for _ in 0..5 {
            assert_eq!(client.log_in("wrong").0, 401);
        }
        let (status, output) = client.log_in(PLANTED_TOKEN);
        assert_eq!(status, 429, "not even with the token: {output}");
        let (_, seconds) = output.split_once("retry-after: ").expect("a header");
        let seconds = seconds.lines().next().expect("a line").trim();
        let seconds: u64 = seconds.parse().expect("a number");
        assert!((1..=60).contains(&seconds), "{seconds}");
        expect_refused(&agent, "login", 5);
        expect_refused(&agent, "login_rate", 1);
        assert_eq!(client.status_with(&[&cookie]), 200, "who is in stays in");
        agent.assert_conserved();
    });
}

#[test]
fn a_new_token_ends_all_sessions() {
    let Some(island) = prepared() else { return };
    let authority = CertificateSigner::create();
    authority.sign("node");
    let files = CertificateFiles::new(&authority, "node");
    let home = TempDir::new();
    let token = home.join("token");
    fs::write(&token, format!("{PLANTED_TOKEN}-1")).expect("written");
    set_mode(&token, 0o600);
    island.run_inside(|| {
        let config = format!("{}token_file: {}\n", files.config(None), token.display());
        let agent = agent().env("PEGEL_TOKEN", "").config(&config).start();
        let client = RemoteClient::new(&agent, &authority);
        let cookie = client.session(&format!("{PLANTED_TOKEN}-1"));
        assert_eq!(client.status_with(&[&cookie]), 200);
        fs::write(&token, format!("{PLANTED_TOKEN}-2")).expect("written");
        agent.signal(Signal::HUP);
        eventually("the session ends", || {
            match client.status_with(&[&cookie]) {
                401 => Ok(()),
                other => Err(other),
            }
        });
        client.session(&format!("{PLANTED_TOKEN}-2"));
        agent.assert_conserved();
    });
}

#[test]
fn without_tls_no_cookie_is_set() {
    let Some(island) = prepared() else { return };
    island.run_inside(|| {
        let agent = agent().arg("--insecure").start();
        let url = |path: &str| format!("http://{}{path}", outside(&agent));
        let (status, output) = curl(&["-H", HTML, &url("/")]);
        assert_eq!(status, 401, "{output}");
        assert!(!output.contains("<form"), "{output}");
        let field = format!("token={PLANTED_TOKEN}");
        let (status, output) = curl(&["--data", &field, &url("/login")]);
        assert_eq!(status, 403, "{output}");
        assert!(output.contains("a login requires TLS"), "{output}");
        assert!(!output.contains("set-cookie"), "{output}");
        agent.assert_conserved();
    });
}

#[test]
fn a_browser_logs_in_and_out() {
    let Some(island) = prepared() else { return };
    let Some(chromium) = need("chromium") else {
        return;
    };
    let authority = CertificateSigner::create();
    authority.sign("node");
    let files = CertificateFiles::new(&authority, "node");
    island.run_inside(|| {
        let agent = agent().config(&files.config(None)).start();
        let url = format!("https://{}/", outside(&agent));
        let mut page = BrowserPage::start(&chromium);
        page.size(1000, 700);
        page.call("Security.setIgnoreCertificateErrors", json!({"ignore": true}));
        page.open(&url);
        let submit = |token: &str| {
            format!(
                "document.getElementById('token').value = '{token}'; document.querySelector('button').click()"
            )
        };
        page.until("document.activeElement?.id === 'token'");
        page.eval(&submit("wrong"));
        page.until("document.querySelector('[role=alert]')?.textContent.startsWith('invalid token')");
        // The style sheet of the form is permitted.
        assert_eq!(
            page.eval("getComputedStyle(document.querySelector('main')).borderRadius"),
            "12px"
        );
        page.eval(&submit(PLANTED_TOKEN));
        page.until_live();
        assert_eq!(page.eval("document.cookie"), "", "scripts cannot read it");
        page.until("!document.getElementById('logout').hidden");
        page.eval("document.getElementById('logout').click()");
        page.until("document.querySelectorAll('form[action=login]').length === 1");
        agent.assert_conserved();
    });
}
