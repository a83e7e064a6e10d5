//! Which series are sent: rules of a file and of the program. All are on until a rule turns them
//! off; the last rule that matches a name decides.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A larger file is not read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The most rules of the program; further ones replace the oldest.
const RULES_MAX: usize = 1_000;

/// Turns the series on or off whose names match a pattern, in which `*` stands for any text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SourceRule {
    pattern: String,
    is_on: bool,
}

#[derive(Debug, Default)]
pub(super) struct SourceSwitches {
    from_file: Vec<SourceRule>,
    /// Size, time of change and inode of the file when it was read.
    file_version: Option<(u64, i64, i64, u64)>,
    from_program: ProgramRules,
}

/// Rules of the program, oldest first. A pattern has one rule, and their number is limited: a
/// program may switch sources for ever, also while nothing is sent.
#[derive(Debug, Default, Clone)]
pub(super) struct ProgramRules(Vec<SourceRule>);

impl ProgramRules {
    pub(super) const fn new() -> ProgramRules {
        ProgramRules(Vec::new())
    }

    /// Adds the rules of another list as newer ones.
    pub(super) fn extend(&mut self, newer: &ProgramRules) {
        for rule in &newer.0 {
            self.set(&rule.pattern, rule.is_on);
        }
    }

    pub(super) fn set(&mut self, pattern: &str, is_on: bool) {
        self.0.retain(|rule| rule.pattern != pattern);
        if self.0.len() >= RULES_MAX {
            self.0.remove(0);
        }
        let pattern = pattern.to_owned();
        self.0.push(SourceRule { pattern, is_on });
    }
}

impl SourceSwitches {
    #[cfg(test)]
    pub(super) fn set(&mut self, pattern: &str, is_on: bool) {
        self.from_program.set(pattern, is_on);
    }

    /// Returns the rules that the program set.
    pub(super) fn of_program(&self) -> &ProgramRules {
        &self.from_program
    }

    /// Takes over rules that the program set since the last pass.
    pub(super) fn take_over(&mut self, new: &mut ProgramRules) {
        self.from_program.extend(new);
        new.0.clear();
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        let mut rules = self
            .from_program
            .0
            .iter()
            .rev()
            .chain(self.from_file.iter().rev());
        let found = rules.find(|rule| matches(&rule.pattern, name));
        found.is_none_or(|rule| rule.is_on)
    }

    /// Reads the file if it changed: a line `on PATTERN` or `off PATTERN` for each rule. Others are
    /// ignored. Without a file there are no such rules.
    pub(super) fn reload(&mut self, path: &Path) {
        let version = fs::metadata(path)
            .ok()
            .filter(|file| file.is_file())
            .map(|file| (file.len(), file.mtime(), file.mtime_nsec(), file.ino()));
        if version == self.file_version {
            return;
        }
        self.file_version = version;
        let text = match version {
            Some((bytes, ..)) if bytes <= FILE_BYTES_MAX => fs::read_to_string(path).ok(),
            _ => None,
        };
        let lines = text.as_deref().unwrap_or_default().lines();
        self.from_file = lines.filter_map(parse_rule).collect();
    }
}

fn parse_rule(line: &str) -> Option<SourceRule> {
    let (word, pattern) = line.trim().split_once(char::is_whitespace)?;
    let is_on = match word {
        "on" => true,
        "off" => false,
        _ => return None,
    };
    let pattern = pattern.trim().to_owned();
    (!pattern.is_empty()).then_some(SourceRule { pattern, is_on })
}

/// Returns whether a name matches a pattern with `*`. Linear: after each `*`, the first occurrence
/// of the next part is the right one.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use pegel_testkit::TempDir;

    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name) in [
            ("a", "a"),
            ("*", ""),
            ("a*", "abc"),
            ("*c", "abc"),
            ("a*c", "ac"),
            ("a*b*c", "axbybzc"),
            ("flux.*.tx", "flux.kvs.0.tx"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("a", "ab"),
            ("a*a", "a"),
            ("", "a"),
            ("*b", "ba"),
            ("a*b*c", "ac"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn the_last_rule_decides_and_the_program_after_the_file() {
        let dir = TempDir::new();
        let path = dir.join("sources");
        let mut switches = SourceSwitches::default();
        switches.reload(&path);
        assert!(switches.is_on("solver.steps"));
        fs::write(&path, "# ours\noff *\non solver.*\noff\nmaybe x\n").expect("written");
        switches.reload(&path);
        assert!(switches.is_on("solver.steps") && !switches.is_on("io.bytes"));
        switches.set("solver.steps", false);
        switches.set("io.*", true);
        assert!(!switches.is_on("solver.steps") && switches.is_on("io.bytes"));
        switches.set("solver.steps", true);
        assert!(switches.is_on("solver.steps"));
        fs::remove_file(&path).expect("removed");
        switches.reload(&path);
        assert!(switches.is_on("other"));
    }

    #[test]
    fn a_program_that_switches_for_ever_has_a_limited_number_of_rules() {
        let mut rules = ProgramRules::new();
        for number in 0..3 * RULES_MAX {
            rules.set("same", number % 2 == 0);
            rules.set(&format!("other.{number}"), false);
        }
        assert_eq!(rules.0.len(), RULES_MAX);
        let mut switches = SourceSwitches::default();
        switches.take_over(&mut rules);
        assert!(rules.0.is_empty() && !switches.is_on("same"));
        assert!(!switches.is_on(&format!("other.{}", 3 * RULES_MAX - 1)));
        assert!(switches.is_on("other.0"), "the oldest was replaced");
    }
}
