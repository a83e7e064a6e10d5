//! A secret that every agent of every test receives, and that must never appear in any output.

/// The token of the agents that tests start, unless they set another one.
pub const PLANTED_TOKEN: &str = "planted-0b53e8f1c9d7-token";

/// Panics if the text contains the planted secret or a large part of it.
#[track_caller]
pub fn assert_token_absent(what: &str, text: &[u8]) {
    // A part is enough to detect a quotation.
    let part = &PLANTED_TOKEN.as_bytes()[8..20];
    let is_shown = text.windows(part.len()).any(|window| window == part);
    assert!(
        !is_shown || std::thread::panicking(),
        "{what} contains the secret: {}",
        String::from_utf8_lossy(text)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_it_is_found() {
        assert_token_absent("a log", b"a token was given");
        let quoting = format!("no such file: {}", &PLANTED_TOKEN[4..22]);
        let found = std::panic::catch_unwind(|| assert_token_absent("a log", quoting.as_bytes()));
        assert!(found.is_err());
    }
}
