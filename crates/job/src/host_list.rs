//! Lists of hosts: the brackets of Slurm and Flux (`nid[0001-0003,0007]`, `r[1-2]n[1-4]`) and host
//! files of MPI, PBS and LSF.

/// The most nodes of one job: as many as the tree accepts below one agent.
pub const NODES_MAX: usize = 20_000;
/// The longest name of a host in the DNS.
const NAME_BYTES_MAX: usize = 253;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostListError {
    #[error("\"{0}\" has a bracket without its counterpart")]
    Brackets(String),
    #[error("\"{0}\" is not a number or a range such as 0001-0064")]
    Range(String),
    #[error(
        "\"{0}\" is not a host name: letters, digits, dots, hyphens, underscores and colons are \
         accepted, and a letter or digit at the start"
    )]
    Name(String),
    #[error("more than {NODES_MAX} nodes")]
    TooMany,
}

/// Expands a comma-separated list with brackets. The order is kept, duplicates are removed.
pub fn expand_host_list(text: &str) -> Result<Vec<String>, HostListError> {
    let mut hosts = Vec::new();
    for part in split_outside_brackets(text)? {
        if !part.is_empty() {
            expand_part(part, String::new(), &mut hosts)?;
        }
    }
    distinct(hosts)
}

/// Reads a host file: one host per line, followed by anything (`slots=4`, a number), with comments.
pub fn parse_host_file(text: &str) -> Result<Vec<String>, HostListError> {
    let mut hosts = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let Some(word) = line.split_whitespace().next() else {
            continue;
        };
        // `host:4` of MPICH; an IPv6 address has more colons.
        let word = match word.split_once(':') {
            Some((host, count)) if count.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => word,
        };
        expand_part(word, String::new(), &mut hosts)?;
    }
    distinct(hosts)
}

/// Removes duplicates and checks the names.
fn distinct(hosts: Vec<String>) -> Result<Vec<String>, HostListError> {
    let mut seen = std::collections::HashSet::new();
    let mut result = Vec::new();
    for host in hosts {
        check_name(&host)?;
        if seen.insert(host.clone()) {
            result.push(host);
        }
    }
    Ok(result)
}

/// Refuses names that a launcher could take for an option or a shell for a command.
fn check_name(host: &str) -> Result<(), HostListError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
    let is_valid = host.len() <= NAME_BYTES_MAX
        && host.bytes().all(is_allowed)
        && host
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphanumeric() || b == b':');
    match is_valid {
        true => Ok(()),
        false => Err(HostListError::Name(host.to_owned())),
    }
}

fn split_outside_brackets(text: &str) -> Result<Vec<&str>, HostListError> {
    let mut parts = Vec::new();
    let (mut begin, mut is_inside) = (0, false);
    for (at, byte) in text.bytes().enumerate() {
        match (byte, is_inside) {
            (b'[', false) => is_inside = true,
            (b']', true) => is_inside = false,
            (b'[' | b']', _) => return Err(HostListError::Brackets(text.to_owned())),
            (b',', false) => {
                parts.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    if is_inside {
        return Err(HostListError::Brackets(text.to_owned()));
    }
    parts.push(text[begin..].trim());
    Ok(parts)
}

/// Appends all hosts of `done` followed by the expansion of `rest`.
fn expand_part(rest: &str, done: String, hosts: &mut Vec<String>) -> Result<(), HostListError> {
    let Some((before, tail)) = rest.split_once('[') else {
        if rest.contains(']') {
            return Err(HostListError::Brackets(rest.to_owned()));
        }
        if hosts.len() >= NODES_MAX {
            return Err(HostListError::TooMany);
        }
        hosts.push(done + rest);
        return Ok(());
    };
    let (ranges, after) =
        { tail.split_once(']') }.ok_or_else(|| HostListError::Brackets(rest.to_owned()))?;
    for range in ranges.split(',') {
        for number in expand_range(range.trim())? {
            expand_part(after, format!("{done}{before}{number}"), hosts)?;
        }
    }
    Ok(())
}

/// Expands `7` or `0001-0064`; numbers keep the width of the first.
fn expand_range(range: &str) -> Result<Vec<String>, HostListError> {
    let wrong = || HostListError::Range(range.to_owned());
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u64>().ok()).flatten()
    };
    let begin = number(first).ok_or_else(wrong)?;
    let end = number(last).ok_or_else(wrong)?;
    if end < begin {
        return Err(wrong());
    }
    if end - begin >= NODES_MAX as u64 {
        return Err(HostListError::TooMany);
    }
    let width = first.len();
    Ok((begin..=end).map(|n| format!("{n:0width$}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str) -> String {
        expand_host_list(text).expect(text).join(" ")
    }

    #[test]
    fn lists_of_slurm_and_flux_are_expanded() {
        assert_eq!(expand("nid0027"), "nid0027");
        assert_eq!(
            expand("nid[0001-0003,0007],login1"),
            "nid0001 nid0002 nid0003 nid0007 login1"
        );
        assert_eq!(expand("n[8-11]"), "n8 n9 n10 n11");
        assert_eq!(expand("r[1-2]n[1-2]-ib"), "r1n1-ib r1n2-ib r2n1-ib r2n2-ib");
        assert_eq!(expand("a,b, a"), "a b");
        assert_eq!(
            expand("c1[099-101].x.org"),
            "c1099.x.org c1100.x.org c1101.x.org"
        );
    }

    #[test]
    fn malformed_lists_are_refused() {
        for text in ["n[1-", "n1]", "n[[1]]", "n]1["] {
            let error = expand_host_list(text).expect_err(text);
            assert!(
                matches!(error, HostListError::Brackets(_)),
                "{text}: {error}"
            );
        }
        for text in ["n[]", "n[a-b]", "n[3-1]", "n[1-2-3]", "n[-1]"] {
            let error = expand_host_list(text).expect_err(text);
            assert!(matches!(error, HostListError::Range(_)), "{text}: {error}");
        }
        for text in ["-oProxyCommand=x", "a b", "a;b", "$(x)", "a'b", "ä"] {
            let error = expand_host_list(text).expect_err(text);
            assert!(matches!(error, HostListError::Name(_)), "{text}: {error}");
        }
        for text in ["n[1-20001]", "n[0-99999999999]", "a[1-200]b[1-200]"] {
            assert_eq!(
                expand_host_list(text),
                Err(HostListError::TooMany),
                "{text}"
            );
        }
    }

    #[test]
    fn host_files_of_all_kinds_are_read() {
        let text = "# nodes\nn1 slots=4\nn2:4\n\nn1\n  n3 # spare\nfd00::7\nnid[08-09]\n";
        let hosts = parse_host_file(text).expect("valid");
        assert_eq!(hosts, ["n1", "n2", "n3", "fd00::7", "nid08", "nid09"]);
        assert!(parse_host_file("-oX=1 slots=2\n").is_err());
    }
}
