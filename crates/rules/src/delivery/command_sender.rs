//! Starts a program for changes of alerts, with the webhook's JSON as its standard input.

use std::time::Duration;

use pegel_command::{CommandOptions, run_command};

use super::SendError;

pub(super) fn run(argv: &[String], body: &[u8], timeout: Duration) -> Result<(), SendError> {
    let options = CommandOptions {
        argv,
        input: body,
        environment: &[],
        timeout,
        output_max: 0,
        stop: None,
    };
    let ended = run_command(&options).map(drop);
    ended.map_err(|error| SendError::Retry(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use pegel_testkit::TempDir;

    use super::*;

    #[test]
    fn the_alert_is_on_standard_input_and_a_failure_is_retried() {
        let dir = TempDir::new();
        let input = dir.join("input");
        let script = format!("cat > {}; exit 3", input.display());
        let argv = ["sh".to_owned(), "-c".to_owned(), script];
        let body = vec![b'x'; 1 << 20];
        let failed = run(&argv, &body, Duration::from_secs(60));
        assert!(
            matches!(&failed, Err(SendError::Retry(error)) if error == "exited with status 3"),
            "{failed:?}"
        );
        assert_eq!(fs::read(input).expect("written"), body);
    }
}
