//! The description of the distribution, `/etc/os-release`: lines `KEY=value` in the syntax of a
//! shell.

/// Returns the value of a variable, without quotes; `None` if it is missing or empty. The last
/// assignment counts.
pub fn os_release_value(text: &str, key: &str) -> Option<String> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let mut of_key = pairs.filter(|(name, _)| name.trim() == key);
    let value = unquote(of_key.next_back()?.1.trim());
    (!value.is_empty()).then_some(value)
}

fn unquote(value: &str) -> String {
    let inside = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    if let Some(literal) = inside('\'') {
        return literal.to_owned();
    }
    let value = inside('"').unwrap_or(value);
    let mut characters = value.chars();
    let mut text = String::with_capacity(value.len());
    while let Some(character) = characters.next() {
        match character {
            '\\' => text.extend(characters.next()),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_escapes_are_removed() {
        let text = "# a comment\nID=rocky\nNAME=\"Rocky \\\"Linux\\\"\"\nVERSION_ID='9.4'\nVERSION_IDX=7\nEMPTY=\nbroken\n";
        let value = |key| os_release_value(text, key);
        assert_eq!(value("ID").as_deref(), Some("rocky"));
        assert_eq!(value("NAME").as_deref(), Some("Rocky \"Linux\""));
        assert_eq!(value("VERSION_ID").as_deref(), Some("9.4"));
        assert_eq!((value("EMPTY"), value("BUILD_ID")), (None, None));
    }
}
