//! Globs: `*` is any run of characters, `?` any single one. A pattern is split at its `*`: the
//! first part is a prefix, the last one a suffix, and each part between them is searched once,
//! starting where the previous match ended. The leftmost match of each part is always correct, so
//! matching never backtracks.

/// The longest part between two `*` that may contain a `?`: such a part is compared at every
/// position of the text.
pub(crate) const SEARCHED_CHARS_MAX: usize = 64;

/// Returns whether `pattern` matches the whole of `text`.
///
/// Linear in the text: searching for a part without `?` is linear, and a part with `?` multiplies
/// that by at most its length, which [`is_linear`] bounds.
pub fn glob_matches(pattern: &str, text: &str) -> bool {
    let Some((prefix, rest)) = pattern.split_once('*') else {
        return strip_part(pattern, text) == Some("");
    };
    let (parts, suffix) = rest.rsplit_once('*').unwrap_or(("", rest));
    let between = strip_part(prefix, text).and_then(|text| strip_last_part(suffix, text));
    let Some(mut text) = between else {
        return false;
    };
    parts.split('*').all(|part| match find_part(part, text) {
        Some(rest) => {
            text = rest;
            true
        }
        None => false,
    })
}

/// Returns whether matching with this pattern is linear in the text: no searched part with a `?` is
/// longer than [`SEARCHED_CHARS_MAX`].
pub(crate) fn is_linear(pattern: &str) -> bool {
    let after_prefix = pattern.split_once('*').map_or("", |(_, rest)| rest);
    let searched = after_prefix.rsplit_once('*').map_or("", |(parts, _)| parts);
    searched
        .split('*')
        .all(|part| !part.contains('?') || part.chars().count() <= SEARCHED_CHARS_MAX)
}

/// Returns the text after the first match of `part`.
fn find_part<'a>(part: &str, text: &'a str) -> Option<&'a str> {
    if !part.contains('?') {
        return text.find(part).map(|at| &text[at + part.len()..]);
    }
    let mut starts = text.char_indices().map(|(at, _)| at);
    starts.find_map(|at| strip_part(part, &text[at..]))
}

/// Returns the text after `part`, which must match at the start.
fn strip_part<'a>(part: &str, text: &'a str) -> Option<&'a str> {
    if !part.contains('?') {
        return text.strip_prefix(part);
    }
    let mut rest = text.chars();
    let fits = part
        .chars()
        .all(|p| rest.next().is_some_and(|t| p == '?' || p == t));
    fits.then_some(rest.as_str())
}

/// Returns the text before `part`, which must match at the end.
fn strip_last_part<'a>(part: &str, text: &'a str) -> Option<&'a str> {
    let mut rest = text.chars();
    let mut reversed = part.chars().rev();
    let fits = reversed.all(|p| rest.next_back().is_some_and(|t| p == '?' || p == t));
    fits.then_some(rest.as_str())
}

#[cfg(test)]
mod tests {
    use super::{glob_matches, is_linear};

    #[test]
    fn matches_as_a_shell_would() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("*", "", true),
            ("", "a", false),
            ("node_cpu*", "node_cpu_seconds_total{cpu=\"0\"}", true),
            ("*idle*", "node_cpu_seconds_total{mode=\"idle\"}", true),
            ("node_?oad1", "node_load1", true),
            ("node_load1", "node_load15", false),
            ("*load", "node_load1", false),
            ("*a*b*c", "xaybzc", true),
            ("*a*b*c", "xaybz", false),
            ("ü*", "über", true),
            ("a*a", "a", false),
            ("ab*ba", "aba", false),
            ("*?b", "ab", true),
            ("*?b", "b", false),
            ("a*?", "a", false),
            ("*a?c*", "xaabcy", true),
            ("*a?c*?", "xaabc", false),
            ("**", "x", true),
            ("?", "ü", true),
            ("a*ü?*", "aüx", true),
        ] {
            assert_eq!(glob_matches(pattern, text), expected, "{pattern} on {text}");
        }
    }

    /// Compares with an exhaustive matcher.
    #[test]
    fn agrees_with_the_definition_on_all_short_patterns() {
        fn tries_all(pattern: &[u8], text: &[u8]) -> bool {
            match (pattern.split_first(), text.split_first()) {
                (None, None) => true,
                (Some((b'*', rest)), _) => {
                    (0..=text.len()).any(|skipped| tries_all(rest, &text[skipped..]))
                }
                (Some((p, pattern)), Some((t, text))) => {
                    (*p == b'?' || p == t) && tries_all(pattern, text)
                }
                _ => false,
            }
        }
        let words = |letters: &[u8], len: u32| -> Vec<String> {
            let count = letters.len().pow(len);
            let word = |number: usize| {
                (0..len).map(move |at| {
                    char::from(letters[number / letters.len().pow(at) % letters.len()])
                })
            };
            (0..count).map(|number| word(number).collect()).collect()
        };
        let texts: Vec<String> = (0..6).flat_map(|len| words(b"ab", len)).collect();
        for pattern in (0..6).flat_map(|len| words(b"ab?*", len)) {
            for text in &texts {
                let expected = tries_all(pattern.as_bytes(), text.as_bytes());
                assert_eq!(
                    glob_matches(&pattern, text),
                    expected,
                    "{pattern} on {text}"
                );
            }
        }
    }

    /// Backtracking would compare 10^12 characters here, which takes hours.
    #[test]
    fn a_hostile_pattern_costs_no_more_than_the_text_is_long() {
        let text = "a".repeat(2_000_000);
        for pattern in [
            format!("*{}b", "a".repeat(1_000_000)),
            format!("*{}b*", "a".repeat(1_000_000)),
            format!("{}b", "*a".repeat(500_000)),
            format!("{}*{}b*", "?".repeat(500_000), "a".repeat(500_000)),
        ] {
            assert!(is_linear(&pattern));
            assert!(!glob_matches(&pattern, &text));
        }
    }

    #[test]
    fn a_long_part_with_question_marks_is_not_linear_where_it_is_searched() {
        let long = "?".repeat(65);
        assert!(is_linear(&long) && is_linear(&format!("{long}*")));
        assert!(!is_linear(&format!("*{long}*")));
        assert!(is_linear(&format!("*{}*", &long[1..])));
    }
}
