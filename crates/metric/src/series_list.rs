//! Comma-separated lists of series, as on the command line and in `names=`.

/// Splits a comma-separated list of names and series: `a,b{k="x,y"},c` has three entries.
///
/// Commas inside quotes or braces belong to their entry. Entries are trimmed and empty entries
/// removed. Entries are not validated.
pub fn split_series_list(list: &str) -> Vec<&str> {
    let mut entries = Vec::new();
    let mut start = 0;
    let mut depth = 0_usize;
    let mut in_quotes = false;
    let mut escaped = false;
    for (at, c) in list.char_indices() {
        if in_quotes {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_quotes = false,
                _ => {}
            }
            continue;
        }
        match c {
            '"' => in_quotes = true,
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                entries.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    entries.push(&list[start..]);
    entries
        .into_iter()
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::split_series_list;

    #[test]
    fn commas_in_quotes_and_braces_do_not_split() {
        for (list, expected) in [
            ("", vec![]),
            (" , ,", vec![]),
            ("a", vec!["a"]),
            ("a, b ,c", vec!["a", "b", "c"]),
            (r#"a{x="1",y="2"},b"#, vec![r#"a{x="1",y="2"}"#, "b"]),
            (r#"a{x="},{"},b"#, vec![r#"a{x="},{"}"#, "b"]),
            (r#"a{x="\",\\"},b"#, vec![r#"a{x="\",\\"}"#, "b"]),
            ("a},b", vec!["a}", "b"]),
            (r#"a{x="1,b"#, vec![r#"a{x="1,b"#]),
            ("ü,ß", vec!["ü", "ß"]),
        ] {
            assert_eq!(split_series_list(list), expected, "{list}");
        }
    }
}
