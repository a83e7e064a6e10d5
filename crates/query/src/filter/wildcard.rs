//! Wildcard patterns of tag filters.

/// Returns whether the whole text matches a pattern in which `*` is any run of characters. All
/// other characters are literal.
pub(super) fn matches_wildcard(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            // The leftmost match leaves the most text for the following parts.
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches_wildcard;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("a*", "a", true),
            ("a*a", "a", false),
            ("*a*", "bab", true),
            ("a*b*c", "axbxbxc", true),
            ("a*b*c", "axcxb", false),
            ("**", "x", true),
            ("*ab", "aab", true),
            ("a?c*", "abc", false),
            ("ü*ß", "ümlautß", true),
            ("plain", "plain", true),
            ("plain", "plainer", false),
        ] {
            assert_eq!(
                matches_wildcard(pattern, text),
                expected,
                "{pattern} {text}"
            );
        }
    }
}
