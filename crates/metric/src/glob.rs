/// Whether `pattern` matches the whole of `text`: `*` is any run of characters, `?` any single one.
///
/// Runs in O(pattern × text) at worst, so that a hostile pattern costs no more than its length says.
pub fn glob_matches(pattern: &str, text: &str) -> bool {
    let mut rest_pattern = pattern;
    let mut rest_text = text;
    // Where to go on when the current attempt fails: after the last `*`, one character further.
    let mut retry: Option<(&str, &str)> = None;
    loop {
        let mut pattern_chars = rest_pattern.chars();
        let mut text_chars = rest_text.chars();
        match (pattern_chars.next(), text_chars.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                rest_pattern = pattern_chars.as_str();
                if rest_pattern.is_empty() {
                    return true;
                }
                retry = Some((rest_pattern, rest_text));
                continue;
            }
            (Some(p), Some(t)) if p == '?' || p == t => {
                rest_pattern = pattern_chars.as_str();
                rest_text = text_chars.as_str();
                continue;
            }
            _ => {}
        }
        let Some((after_star, tried)) = retry else {
            return false;
        };
        let mut tried_chars = tried.chars();
        if tried_chars.next().is_none() {
            return false;
        }
        rest_pattern = after_star;
        rest_text = tried_chars.as_str();
        retry = Some((after_star, rest_text));
    }
}

#[cfg(test)]
mod tests {
    use super::glob_matches;

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
        ] {
            assert_eq!(glob_matches(pattern, text), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn a_hostile_pattern_ends() {
        let text = "a".repeat(10_000);
        assert!(!glob_matches(
            &"*a".repeat(50).replace("*a", "*aaaa*b"),
            &text
        ));
    }
}
