//! Quotes text for the languages of the generated files.

/// Quotes a word for a POSIX shell. Plain words stay as they are.
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Escapes text for a string of Groovy in single quotes, which expands no variables.
pub(super) fn groovy_text(text: &str) -> String {
    text.replace('\\', r"\\").replace('\'', r"\'")
}

/// Returns a literal of Python. A string of JSON is one too.
pub(super) fn python_literal(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_back_every_word() {
        for text in [
            "",
            "plain/path-1.x",
            "two words",
            "it's",
            "$HOME `id` $(id) \\ \" ; & | < > * ? ~ # !",
            "ä\t\u{1}",
            "'",
            "-n",
        ] {
            let script = format!("printf '%s' {}", shell_word(text));
            let output = Command::new("sh")
                .args(["-c", &script])
                .output()
                .expect("sh");
            assert_eq!(String::from_utf8_lossy(&output.stdout), text, "{script}");
        }
    }

    #[test]
    fn other_languages_are_escaped() {
        assert_eq!(groovy_text(r"a'b\n$c"), r"a\'b\\n$c");
        assert_eq!(python_literal("a\"\n"), r#""a\"\n""#);
    }
}
