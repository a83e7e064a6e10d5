//! The token that grants all rights.

use std::hint::black_box;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pegel_config::{Secret, UserInfo};
use pegel_plain_file::open_plain;

pub const TOKEN_BYTES_MAX: usize = 4096;
/// Shorter tokens are accepted with a warning: a client could find them by trying.
const TOKEN_BYTES_SAFE: usize = 16;

/// The source of the token.
#[derive(Debug, Clone)]
pub enum TokenSource {
    /// `$PEGEL_TOKEN`.
    Variable(Secret),
    File(PathBuf),
}

/// Why a token cannot be used. No message contains any part of it.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("cannot read the token file {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "the token file {path} belongs to {owner}; it must belong to the agent's user or to root"
    )]
    Foreign { path: PathBuf, owner: UserInfo },
    #[error(
        "the token file {path} has mode {mode:04o}, which lets other users read or change it; run `chmod 600` on it"
    )]
    Exposed { path: PathBuf, mode: u32 },
    #[error("the token in {place} {problem}")]
    Content {
        place: String,
        problem: &'static str,
    },
}

/// A token, compared in constant time.
#[derive(Debug, Clone)]
pub struct Token(Secret);

impl Token {
    /// Reads the token from its source.
    pub fn load(source: &TokenSource) -> Result<Token, TokenError> {
        match source {
            TokenSource::Variable(secret) => {
                Token::parse(secret.reveal(), "$PEGEL_TOKEN".to_owned())
            }
            TokenSource::File(path) => {
                Token::parse(&read_private(path)?, path.display().to_string())
            }
        }
    }

    /// Parses one line of printable ASCII, which is what a header can carry. Surrounding white
    /// space is ignored.
    fn parse(text: &str, place: String) -> Result<Token, TokenError> {
        let text = text.trim();
        let problem = if text.is_empty() {
            "is empty"
        } else if text.len() > TOKEN_BYTES_MAX {
            "is longer than 4096 bytes"
        } else if !text.bytes().all(|b| b.is_ascii_graphic()) {
            "has spaces, line breaks or characters beyond ASCII; use printable ASCII"
        } else {
            if text.len() < TOKEN_BYTES_SAFE {
                tracing::warn!(
                    place,
                    "the token is short and can be guessed; use 16 characters or more"
                );
            }
            return Ok(Token(Secret::new(text)));
        };
        Err(TokenError::Content { place, problem })
    }

    /// Accepts any non-empty text, for secrets that are compared but not sent in a header.
    pub fn from_secret(secret: Secret) -> Option<Token> {
        (!secret.reveal().is_empty()).then_some(Token(secret))
    }

    /// Returns the text, to send it.
    pub fn reveal(&self) -> &str {
        self.0.reveal()
    }

    /// Compares in constant time: as fast for a nearly right token as for any other of the same
    /// length.
    pub fn matches(&self, given: &[u8]) -> bool {
        let own = self.0.reveal().as_bytes();
        let mut difference = own.len() ^ given.len();
        // The loop runs over the given bytes, so that its duration reveals nothing about the token.
        for (index, byte) in given.iter().enumerate() {
            // Never empty, see `parse` and `from_secret`.
            let other = own[index % own.len()];
            difference = black_box(difference | usize::from(byte ^ other));
        }
        black_box(difference) == 0
    }
}

/// Returns the token in the value `Bearer TOKEN` of the header `Authorization`.
pub fn parse_bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(6)?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"bearer") && token.first() == Some(&b' ');
    is_bearer.then(|| token.trim_ascii())
}

/// Reads a small file that belongs to this user or root and that no one else can access.
fn read_private(path: &Path) -> Result<String, TokenError> {
    let cannot = |source| TokenError::Io {
        path: path.to_owned(),
        source,
    };
    let file = open_plain(path).map_err(cannot)?;
    let found = file.metadata().map_err(cannot)?;
    let path = || path.to_owned();
    if found.uid() != 0 && found.uid() != rustix::process::geteuid().as_raw() {
        let owner = UserInfo::lookup(found.uid());
        return Err(TokenError::Foreign {
            path: path(),
            owner,
        });
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(TokenError::Exposed { path: path(), mode });
    }
    let mut bytes = Vec::new();
    // Enough to detect a token that is too long, with some room for surrounding white space.
    file.take(2 * TOKEN_BYTES_MAX as u64)
        .read_to_end(&mut bytes)
        .map_err(cannot)?;
    // Invalid UTF-8 is not ASCII either, and is refused as such.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, Instant};

    use pegel_testkit::TempDir;

    use super::*;

    const TEXT: &str = "planted-0123456789";

    fn token(text: &str) -> Result<Token, TokenError> {
        Token::load(&TokenSource::Variable(Secret::new(text)))
    }

    #[test]
    fn only_the_whole_token_is_right() {
        let token = token(TEXT).expect("a token");
        assert!(token.matches(TEXT.as_bytes()));
        let twice = format!("{TEXT}{TEXT}");
        let mut wrong: Vec<&[u8]> = vec![b"", b"x", twice.as_bytes(), b"PLANTED-0123456789"];
        for length in 0..TEXT.len() {
            wrong.push(&TEXT.as_bytes()[..length]);
        }
        for given in wrong {
            assert!(!token.matches(given), "{}", String::from_utf8_lossy(given));
        }
        for index in 0..TEXT.len() {
            let mut given = TEXT.as_bytes().to_vec();
            given[index] ^= 1;
            assert!(!token.matches(&given), "byte {index}");
        }
    }

    #[test]
    fn a_nearly_right_token_takes_no_longer_than_a_wrong_one() {
        let text = "a".repeat(TOKEN_BYTES_MAX);
        let token = token(&text).expect("a token");
        let early = format!("b{}", &text[1..]);
        let late = format!("{}b", &text[1..]);
        // The shortest of many runs: other load only makes runs longer.
        let mut shortest = [Duration::MAX; 2];
        for _ in 0..300 {
            for (time, given) in shortest.iter_mut().zip([&early, &late]) {
                let begun = Instant::now();
                assert!(!black_box(token.matches(black_box(given.as_bytes()))));
                *time = (*time).min(begun.elapsed());
            }
        }
        let [early, late] = shortest.map(|time| time.as_secs_f64());
        // A comparison that stops at the first difference is 4096 times as fast for `early`.
        assert!(
            late < 2.0 * early && early < 2.0 * late,
            "{early} s, {late} s"
        );
    }

    #[test]
    fn bad_tokens_are_refused_without_showing_them() {
        let long = "x".repeat(TOKEN_BYTES_MAX + 1);
        for (text, problem) in [
            ("", "is empty"),
            (" \n", "is empty"),
            ("planted secret", "has spaces"),
            ("planted\nsecret", "line breaks"),
            ("plantedä", "beyond ASCII"),
            (long.as_str(), "is longer than"),
        ] {
            let message = token(text).expect_err("refused").to_string();
            assert!(
                message.starts_with("the token in $PEGEL_TOKEN "),
                "{message}"
            );
            assert!(message.contains(problem), "{message}");
            assert!(
                !message.contains("planted") && !message.contains("xx"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_token_file_must_be_private() {
        let dir = TempDir::new();
        let path = dir.join("token");
        let load = || Token::load(&TokenSource::File(path.clone()));
        assert!(matches!(load(), Err(TokenError::Io { .. })), "not there");
        fs::write(&path, format!("{TEXT}\n")).expect("written");
        for mode in [0o644, 0o640, 0o604, 0o620, 0o602, 0o601] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            let message = load().expect_err("refused").to_string();
            assert!(
                message.contains(&format!("has mode {mode:04o}")),
                "{message}"
            );
        }
        for mode in [0o600, 0o400] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            assert!(
                load().expect("private").matches(TEXT.as_bytes()),
                "without its line break"
            );
        }
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("made");
        assert!(matches!(load(), Err(TokenError::Io { .. })));
    }

    #[test]
    fn a_pipe_as_token_file_does_not_make_us_wait() {
        let dir = TempDir::new();
        let path = dir.join("token");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .expect("a pipe");
        let error = Token::load(&TokenSource::File(path)).expect_err("refused");
        assert!(matches!(error, TokenError::Io { .. }));
    }

    #[test]
    fn the_value_of_the_header_has_the_scheme_bearer() {
        assert_eq!(parse_bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(parse_bearer(b"bearer  abc "), Some(&b"abc"[..]));
        for value in ["", "abc", "Basic abc", "Bearer", "Bearerabc", "Bear"] {
            assert_eq!(parse_bearer(value.as_bytes()), None, "{value}");
        }
    }
}
