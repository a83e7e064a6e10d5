//! The command line of a process, from `/proc/PID/cmdline`, with secrets redacted.
//!
//! Redaction is a second line of defence: a command line is shown only to the owner of the process
//! and to the agent's administrators. It finds values by the names next to them
//! ([`redact`](crate::redact)); a bare word that happens to be a password is not recognised.

use crate::redact::{has_secret_ending, is_secret_name, looks_like_secret, redact_value};

/// The longest command line that is kept, in bytes.
const COMMAND_BYTES_MAX: usize = 1024;
/// Marks where a command line was cut.
const CUT: &str = "…";
/// Programs that take a password attached to `-p`.
const PASSWORD_FLAG_PROGRAMS: [&str; 3] = ["mysql", "mariadb", "sshpass"];

/// Returns the command line with secrets redacted and arguments separated by spaces; `None` if it
/// is empty, as for kernel threads. `is_truncated`: the text is only the beginning of the command
/// line, so its last argument is left out: half an address may show a password whose end would
/// have marked it as one.
pub fn redact_command_line(text: &[u8], is_truncated: bool) -> Option<String> {
    let text = text.strip_suffix(b"\0").unwrap_or(text);
    let mut arguments: Vec<&[u8]> = text.split(|byte| *byte == 0).collect();
    if is_truncated {
        arguments.pop();
    }
    let program = arguments
        .first()
        .map(|first| String::from_utf8_lossy(first));
    let program = program.unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    let mut redaction = Redaction {
        output: String::new(),
        takes_password_flag: PASSWORD_FLAG_PROGRAMS
            .iter()
            .any(|name| program.starts_with(name)),
        hides_next: false,
        expects_user: false,
    };
    let mut is_cut = is_truncated;
    for argument in arguments {
        if redaction.output.len() >= COMMAND_BYTES_MAX {
            is_cut = true;
            break;
        }
        redaction.add_argument(&String::from_utf8_lossy(argument));
    }
    let mut output = redaction.output;
    if output.len() > COMMAND_BYTES_MAX {
        let is_end = |at: &usize| output.is_char_boundary(*at);
        let end = (0..=COMMAND_BYTES_MAX).rev().find(is_end);
        output.truncate(end.unwrap_or(0));
        is_cut = true;
    }
    if is_cut {
        output.push_str(CUT);
    }
    (!output.is_empty()).then_some(output)
}

struct Redaction {
    output: String,
    /// The program takes a password with `-p`.
    takes_password_flag: bool,
    /// The previous word announced a secret.
    hides_next: bool,
    /// The previous word announced a user, perhaps with a password: `curl -u ada:password`.
    expects_user: bool,
}

impl Redaction {
    /// Redacts an argument word by word: scripts passed to a shell, and titles that programs write
    /// over their arguments, are one argument.
    fn add_argument(&mut self, argument: &str) {
        for word in argument.split_whitespace() {
            if self.output.len() >= COMMAND_BYTES_MAX {
                return;
            }
            let redacted = self.redact_word(word);
            if !self.output.is_empty() {
                self.output.push(' ');
            }
            self.output.push_str(&redacted);
        }
    }

    fn redact_word(&mut self, word: &str) -> String {
        let announces = self.announces_secret(word);
        let announces_user = matches!(word, "-u" | "--user" | "--proxy-user");
        let is_user = std::mem::replace(&mut self.expects_user, announces_user);
        let has_password = is_user && word.contains(':') && !word.contains("://");
        if std::mem::replace(&mut self.hides_next, announces) || has_password {
            return crate::redact::placeholder();
        }
        if self.takes_password_flag && word.starts_with("-p") {
            return "-p[hidden]".to_owned();
        }
        // `curl -uada:password`
        if word.starts_with("-u") && word.contains(':') {
            return "-u[hidden]".to_owned();
        }
        if let Some((name, separator, value)) = split_name(word)
            && is_secret(name)
            && !value.is_empty()
        {
            return format!("{name}{separator}[hidden]");
        }
        redact_value(word)
    }

    /// Whether the word after this one is a secret: `--password`, `X-Auth-Token:`, `Bearer`.
    fn announces_secret(&self, word: &str) -> bool {
        let name = word.trim_matches(['\'', '"']);
        let is_header = name.strip_suffix([':', '=']).is_some_and(is_secret);
        let is_flag = name.starts_with('-') && !name.contains(['=', ':']) && is_secret(name);
        let is_scheme = ["bearer", "basic"]
            .iter()
            .any(|scheme| name.eq_ignore_ascii_case(scheme));
        let is_password = self.takes_password_flag && name == "-p";
        let is_block = looks_like_secret(name) && name.starts_with("-----");
        is_header || is_flag || is_scheme || is_password || is_block
    }
}

/// Splits `name=value` and `name:value` at the first separator. An address is not such a pair.
fn split_name(word: &str) -> Option<(&str, char, &str)> {
    let at = word.find(['=', ':'])?;
    let (name, rest) = word.split_at(at);
    let value = &rest[1..];
    let separator = rest.chars().next()?;
    (!value.starts_with("//")).then_some((name, separator, value))
}

/// Whether a flag, variable or header of this name has a secret value.
fn is_secret(name: &str) -> bool {
    let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let name = name.replace('-', "_");
    is_secret_name(&name) || has_secret_ending(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(arguments: &[&str]) -> String {
        let mut text = arguments.join("\0");
        text.push('\0');
        redact_command_line(text.as_bytes(), false).expect("not empty")
    }

    #[test]
    fn secrets_are_hidden_in_every_position() {
        for arguments in [
            &["app", "--password", "PLANTED"][..],
            &["app", "--password=PLANTED"],
            &["app", "--no-password", "--api-token", "PLANTED"],
            &["app", "--db-pass", "PLANTED"],
            &["env", "AWS_SECRET_ACCESS_KEY=PLANTED", "app"],
            &["curl", "-H", "Authorization: Bearer PLANTED", "https://h/"],
            &["curl", "-H", "X-Auth-Token: PLANTED"],
            &["curl", "-H", "X-Api-Key:PLANTED"],
            &["curl", "-u", "ada:PLANTED"],
            &["curl", "-uada:PLANTED"],
            &["curl", "--proxy-user", "ada:PLANTED"],
            &["curl", "-u", "https://ada:PLANTED@host/x"],
            &["curl", "https://ada:PLANTED@host/x?sig=PLANTED"],
            &["app", "--url=https://ada:PLANTED@host/x"],
            &["sh", "-c", "app --token PLANTED && mysql password=PLANTED"],
            &["mysqldump", "-pPLANTED", "base"],
            &["/usr/bin/sshpass", "-p", "PLANTED", "ssh", "host"],
            &["app", "{\"password\": \"PLANTED\"}"],
            &["app", "{\"password\":\"PLANTED\"}"],
            &["app: session token=PLANTED"],
        ] {
            let text = shown(arguments);
            assert!(!text.contains("PLANTED"), "{text}");
            assert!(
                text.contains("[hidden]") || text.contains("host/x"),
                "{text}"
            );
        }
    }

    #[test]
    fn the_rest_is_shown_as_it_is() {
        let text = shown(&[
            "./solver", "--input", "a b.nml", "-p", "8", "-n=4", "x:y", "ü",
        ]);
        assert_eq!(text, "./solver --input a b.nml -p 8 -n=4 x:y ü");
        assert_eq!(
            shown(&["sh", "-c", "pegel top -u /run/p.sock; sudo -u ada x"]),
            "sh -c pegel top -u /run/p.sock; sudo -u ada x"
        );
        assert_eq!(
            shown(&["tail", "--token-file", "/etc/x"]),
            "tail --token-file /etc/x"
        );
        assert_eq!(redact_command_line(b"", false), None);
        assert_eq!(redact_command_line(b"\0\0", false), None);
    }

    #[test]
    fn a_truncated_command_line_ends_with_its_last_complete_argument() {
        let text = b"app\0--url\0https://ada:PLANT";
        assert_eq!(
            redact_command_line(text, true).as_deref(),
            Some("app --url…")
        );
        assert_eq!(redact_command_line(b"x", true).as_deref(), Some("…"));
        let long = format!("app\0{}", "ü".repeat(COMMAND_BYTES_MAX));
        let shown = redact_command_line(long.as_bytes(), false).expect("not empty");
        assert!(shown.len() <= COMMAND_BYTES_MAX + CUT.len() && shown.ends_with(CUT));
    }

    #[test]
    fn bytes_that_are_not_utf8_do_no_harm() {
        let shown = redact_command_line(b"a\xff\0--token\0\xfe\xff\0", false);
        assert_eq!(shown.as_deref(), Some("a\u{fffd} --token [hidden]"));
    }
}
