//! The web page: the files of `web/`, embedded in the binary, so that nothing is fetched from
//! elsewhere.
//!
//! The files are served as they are; there is no build step. Every URL that the page uses is
//! relative, so that it also works behind a proxy that adds a prefix.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::{HandlerResult, INDEX_TEXT};
use crate::api_error::ApiError;
use crate::content_negotiation;

/// The page may connect only to its own agent, and runs no script except its own files. Notebooks
/// on this machine may show it in a frame: it has nothing that a click could change, and they
/// cannot read it.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'self' http://localhost:* http://127.0.0.1:*";

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// A file of the page: its name, content type and bytes.
type EmbeddedFile = (&'static str, &'static str, &'static [u8]);

macro_rules! files {
    ($($name:literal: $kind:expr,)*) => {
        &[$(($name, $kind, include_bytes!(concat!("../../web/", $name)))),*]
    };
}

const FILES: &[EmbeddedFile] = files! {
    "index.html": "text/html; charset=utf-8",
    "style.css": STYLE,
    "views.css": STYLE,
    "charts.css": STYLE,
    "nodes.css": STYLE,
    "icon.svg": "image/svg+xml",
    "uplot.js": SCRIPT,
    "uplot.LICENSE": TEXT,
    "app.js": SCRIPT,
    "agent.js": SCRIPT,
    "alerts.js": SCRIPT,
    "calls.js": SCRIPT,
    "cards.js": SCRIPT,
    "changes.js": SCRIPT,
    "chart.js": SCRIPT,
    "choice.js": SCRIPT,
    "columns.js": SCRIPT,
    "dom.js": SCRIPT,
    "completion.js": SCRIPT,
    "download.js": SCRIPT,
    "expression_feed.js": SCRIPT,
    "families.js": SCRIPT,
    "feed.js": SCRIPT,
    "format.js": SCRIPT,
    "frame.js": SCRIPT,
    "heat.js": SCRIPT,
    "help.js": SCRIPT,
    "history.js": SCRIPT,
    "jobs.js": SCRIPT,
    "live.js": SCRIPT,
    "marks.js": SCRIPT,
    "metrics.js": SCRIPT,
    "node.js": SCRIPT,
    "node_figures.js": SCRIPT,
    "node_tiles.js": SCRIPT,
    "nodes.js": SCRIPT,
    "overview.js": SCRIPT,
    "panel.js": SCRIPT,
    "processes.js": SCRIPT,
    "mpi.js": SCRIPT,
    "programs.js": SCRIPT,
    "series.js": SCRIPT,
    "status.js": SCRIPT,
    "table.js": SCRIPT,
    "theme.js": SCRIPT,
    "timebar.js": SCRIPT,
    "tip.js": SCRIPT,
    "topics.js": SCRIPT,
    "totals.js": SCRIPT,
    "url_state.js": SCRIPT,
    "window.js": SCRIPT,
};

/// A file, ready to be sent.
struct Asset {
    name: &'static str,
    content_type: &'static str,
    plain: &'static [u8],
    gzipped: Bytes,
    /// Changes with the content, so that a browser never mixes files of two versions.
    etag: String,
}

/// All files, compressed at the first request for any of them.
static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| FILES.iter().map(compress_asset).collect());

fn compress_asset(&(name, content_type, plain): &EmbeddedFile) -> Asset {
    let mut sum = flate2::Crc::new();
    sum.update(plain);
    Asset {
        name,
        content_type,
        plain,
        gzipped: gzip(plain).into(),
        etag: format!("\"{:08x}-{:x}\"", sum.sum(), plain.len()),
    }
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(plain).and_then(|()| encoder.finish());
    written.expect("memory takes all that is written")
}

/// The page for a browser; the list of routes for other clients.
pub(super) async fn index(headers: HeaderMap) -> HandlerResult {
    if !content_negotiation::prefers_html(&headers) {
        return Ok(([(header::VARY, "accept")], INDEX_TEXT).into_response());
    }
    file(Path("index.html".to_owned()), headers).await
}

pub(super) async fn file(Path(name): Path<String>, headers: HeaderMap) -> HandlerResult {
    let asset = ASSETS
        .iter()
        .find(|asset| asset.name == name)
        .ok_or_else(|| {
            let message = format!("the page has no file named {name:?}");
            ApiError::new(StatusCode::NOT_FOUND, message).hint("reload the page")
        })?;
    Ok(asset_response(asset, &headers))
}

fn asset_response(asset: &Asset, headers: &HeaderMap) -> Response {
    let common: [(HeaderName, &str); 6] = [
        (header::ETAG, &asset.etag),
        // Revalidated on every request; the response is 304 while the file is unchanged.
        (header::CACHE_CONTROL, "no-cache"),
        (header::VARY, "accept, accept-encoding"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    let known = headers.get(header::IF_NONE_MATCH);
    if known.is_some_and(|known| known.as_bytes() == asset.etag.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    let content_type = [(header::CONTENT_TYPE, asset.content_type)];
    if content_negotiation::accepts_gzip(headers) && asset.gzipped.len() < asset.plain.len() {
        let encoding = [(header::CONTENT_ENCODING, "gzip")];
        return (common, content_type, encoding, asset.gzipped.clone()).into_response();
    }
    (common, content_type, asset.plain).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;

    const WEB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/web");

    fn text(name: &str) -> String {
        let path = format!("{WEB}/{name}");
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    #[test]
    fn every_file_of_the_folder_is_served() {
        let entries = fs::read_dir(WEB).expect("the folder");
        let there: BTreeSet<String> = entries
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .into_string()
                    .expect("UTF-8")
            })
            .filter(|name| !name.ends_with(".md"))
            .collect();
        let served: BTreeSet<String> = FILES.iter().map(|(name, ..)| (*name).to_owned()).collect();
        assert_eq!(there, served);
    }

    #[test]
    fn all_files_together_stay_within_their_budget() {
        let bytes: usize = ASSETS.iter().map(|asset| asset.gzipped.len()).sum();
        assert!(bytes <= 125_000, "{bytes} bytes, compressed");
    }

    #[test]
    fn modules_import_only_files_that_are_served_and_none_is_left_over() {
        let mut wanted = BTreeSet::from(["index.html".to_owned(), "uplot.LICENSE".to_owned()]);
        for (name, ..) in FILES.iter().filter(|(name, ..)| *name != "uplot.js") {
            let content = text(name);
            let imports = content.split("from \"./").skip(1);
            let linked = content.split("=\"page/").skip(1);
            for rest in imports.chain(linked) {
                let file = rest.split('"').next().expect("text");
                assert!(
                    FILES.iter().any(|(known, ..)| *known == file),
                    "{name}: {file}"
                );
                wanted.insert(file.to_owned());
            }
        }
        let served: BTreeSet<String> = FILES.iter().map(|(name, ..)| (*name).to_owned()).collect();
        assert_eq!(served, wanted);
    }

    #[test]
    fn nothing_is_inline_and_nothing_comes_from_another_host() {
        for (name, ..) in FILES.iter().filter(|(name, ..)| !name.starts_with("uplot")) {
            let content = text(name).replace("http://www.w3.org/", "");
            for forbidden in [
                "http://",
                "https://",
                "src=\"//",
                "style=\"",
                "onclick=",
                "innerHTML",
                "eval(",
            ] {
                assert!(!content.contains(forbidden), "{name}: {forbidden}");
            }
        }
        let index = text("index.html");
        assert!(!index.contains("<style") && !index.contains("<script>"));
    }

    #[test]
    fn the_page_goes_to_browsers_and_a_list_of_routes_to_others() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let ask = |accept: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().expect("a header"));
            let answer = runtime
                .as_ref()
                .expect("a runtime")
                .block_on(index(headers));
            let answer = answer.expect("an answer");
            let content_type = answer.headers().get(header::CONTENT_TYPE).cloned();
            content_type
                .expect("a type")
                .to_str()
                .expect("text")
                .to_owned()
        };
        assert_eq!(
            ask("text/html,application/xhtml+xml,*/*;q=0.8"),
            "text/html; charset=utf-8"
        );
        assert_eq!(ask("*/*"), "text/plain; charset=utf-8");
        assert_eq!(ask("application/json"), "text/plain; charset=utf-8");
    }

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        let asset = &ASSETS[0];
        let mut headers = HeaderMap::new();
        headers.insert(header::IF_NONE_MATCH, asset.etag.parse().expect("a header"));
        assert_eq!(
            asset_response(asset, &headers).status(),
            StatusCode::NOT_MODIFIED
        );
        headers.insert(
            header::IF_NONE_MATCH,
            "\"other\"".parse().expect("a header"),
        );
        headers.insert(header::ACCEPT_ENCODING, "gzip".parse().expect("a header"));
        let fresh = asset_response(asset, &headers);
        assert_eq!(fresh.status(), StatusCode::OK);
        assert_eq!(fresh.headers()[header::CONTENT_ENCODING], "gzip");
        assert_eq!(
            fresh.headers()[header::CONTENT_SECURITY_POLICY],
            CONTENT_SECURITY_POLICY
        );
    }
}
