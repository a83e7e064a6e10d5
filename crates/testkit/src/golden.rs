//! Golden files.

use std::fs;
use std::path::Path;

/// Compares a text with a file of the repository; `PEGEL_BLESS=1` writes the file instead.
#[track_caller]
pub fn assert_golden(path: impl AsRef<Path>, actual: &str) {
    let path = path.as_ref();
    if std::env::var_os("PEGEL_BLESS").is_some_and(|value| value == "1") {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).unwrap_or_else(|e| panic!("{}: {e}", parent.display()));
        }
        fs::write(path, actual).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        return;
    }
    let expected = fs::read_to_string(path)
        .unwrap_or_else(|e| panic!("{}: {e}; PEGEL_BLESS=1 writes it", path.display()));
    if expected != actual {
        panic!(
            "{} differs; PEGEL_BLESS=1 accepts the new text.\n{}",
            path.display(),
            first_difference(&expected, actual)
        );
    }
}

/// Returns the first differing line, with two lines of context.
fn first_difference(expected: &str, actual: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) =
        (expected.split('\n').collect(), actual.split('\n').collect());
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let mut shown = String::new();
    for line in &old[same.saturating_sub(2)..same] {
        shown.push_str(&format!("    {line}\n"));
    }
    let end = "(end of file)";
    shown.push_str(&format!("  - {}\n", old.get(same).unwrap_or(&end)));
    shown.push_str(&format!("  + {}\n", new.get(same).unwrap_or(&end)));
    format!(
        "line {}:\n{shown}({} lines before, {} now)",
        same + 1,
        old.len(),
        new.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_different_line_is_shown() {
        let shown = first_difference("a\nb\nc\nd\n", "a\nb\nx\nd\n");
        assert!(shown.contains("line 3:"), "{shown}");
        assert!(shown.contains("  - c\n  + x\n"), "{shown}");
        let shown = first_difference("a", "a\nb");
        assert!(shown.contains("  - (end of file)\n  + b\n"), "{shown}");
    }
}
