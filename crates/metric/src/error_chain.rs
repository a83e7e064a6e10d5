//! Formats an error together with its causes.

use std::error::Error;

/// Returns an error and its causes on one line, separated by `: `.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read the file")]
    struct OuterError(#[source] io::Error);

    #[test]
    fn causes_follow_what_they_caused() {
        let inner = io::Error::other("disk removed");
        assert_eq!(
            with_causes(&OuterError(inner)),
            "cannot read the file: disk removed"
        );
    }
}
