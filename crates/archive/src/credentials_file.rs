//! Credentials of the storage: lines `NAME=VALUE` of a file, or the environment.

use std::collections::HashMap;
use std::path::Path;

use pegel_storage::{StorageCredentials, StorageProblem, StorageProblemKind};

/// The most bytes of the file: the key of a service account has about 2,300.
const BYTES_MAX: u64 = 64 << 10;

/// Reads the credentials. No message contains a value.
pub(crate) fn read_credentials(file: Option<&Path>) -> Result<StorageCredentials, StorageProblem> {
    let Some(path) = file else {
        return StorageCredentials::from_environment(&|name| std::env::var(name).ok());
    };
    let unusable = |problem: String| {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let text = format!("credentials_file {}: {problem}", absolute.display());
        StorageProblem::new(StorageProblemKind::Credentials, text)
    };
    let bytes = pegel_plain_file::read_plain(path, BYTES_MAX)
        .map_err(|error| unusable(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| unusable("not UTF-8".to_owned()))?;
    let variables = parse(&text).map_err(unusable)?;
    StorageCredentials::from_environment(&|name| variables.get(name).cloned())
}

/// Checks a file with credentials.
pub fn check_credentials_file(path: &Path) -> Result<(), StorageProblem> {
    read_credentials(Some(path)).map(drop)
}

pub(crate) fn parse(text: &str) -> Result<HashMap<String, String>, String> {
    let mut variables = HashMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| format!("line {number}: expected NAME=VALUE"))?;
        let value = value.trim();
        let quoted = ['"', '\''].iter().find_map(|quote| {
            let inner = value.strip_prefix(*quote)?.strip_suffix(*quote)?;
            Some(inner)
        });
        let value = quoted.unwrap_or(value);
        variables.insert(name.trim().to_owned(), value.to_owned());
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_their_values_never_shown() {
        let path = std::env::temp_dir().join(format!("pegel-archive-env-{}", std::process::id()));
        let text = "# keys\nAWS_ACCESS_KEY_ID=id\nexport AWS_SECRET_ACCESS_KEY='PLANTED=x'\n\n";
        std::fs::write(&path, text).expect("written");
        let credentials = read_credentials(Some(&path)).expect("read");
        assert_eq!(credentials.aws_access_key_id.as_deref(), Some("id"));
        assert_eq!(
            credentials.aws_secret_access_key.as_deref(),
            Some("PLANTED=x")
        );
        std::fs::write(&path, "AWS_ACCESS_KEY_ID=id\nPLANTED\n").expect("written");
        let problem = read_credentials(Some(&path)).expect_err("malformed");
        assert!(
            problem.text.ends_with("line 2: expected NAME=VALUE"),
            "{problem}"
        );
        assert!(!problem.text.contains("PLANTED"), "{problem}");
        std::fs::remove_file(&path).expect("removed");
        let problem = read_credentials(Some(&path)).expect_err("missing");
        assert_eq!(problem.kind, StorageProblemKind::Credentials);
    }
}
