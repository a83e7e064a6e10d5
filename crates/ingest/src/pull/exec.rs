//! Programs whose output is read.

use pegel_command::{CommandOptions, RunError, run_command};

use super::data_format::DataFormat;
use super::pull_context::{PullContext, SampleOptions};
use super::settings::ExecSettings;
use super::{PullError, PullReader};

/// Runs a program at each interval, or until it succeeds once.
#[derive(Debug)]
pub(crate) struct ExecReader {
    command: Vec<String>,
    environment: Vec<(String, String)>,
    format: DataFormat,
    prefix: String,
    output_max: usize,
    once: bool,
    /// The output of a program that is run once.
    kept_output: Option<Vec<u8>>,
}

impl ExecReader {
    pub(crate) fn new(settings: &ExecSettings) -> ExecReader {
        let environment = settings.environment.clone();
        ExecReader {
            command: settings.command.clone(),
            environment: environment.into_iter().collect(),
            format: settings.format,
            prefix: settings.prefix.clone().unwrap_or_default(),
            output_max: settings.output_max.as_usize().max(1),
            once: settings.once,
            kept_output: None,
        }
    }
}

impl PullReader for ExecReader {
    fn read(&mut self, context: &PullContext<'_>) -> Result<(), PullError> {
        if let Some(output) = &self.kept_output {
            let batch = self.format.parse(output, &self.prefix)?;
            let options = SampleOptions {
                honor_times: false,
                ..SampleOptions::default()
            };
            return context.store(&batch, options);
        }
        let output = run_command(&CommandOptions {
            argv: &self.command,
            input: b"",
            environment: &self.environment,
            timeout: context.time_left(),
            output_max: self.output_max,
            stop: Some(context.stop.clone()),
        });
        let output = output.map_err(|error| match error {
            RunError::TimedOut(_) => {
                PullError::new(format!("killed after {} s", context.timeout.as_secs_f64()))
            }
            RunError::OutputTooLarge(_) => PullError::malformed(error),
            error => PullError::new(error),
        })?;
        let batch = self.format.parse(&output, &self.prefix)?;
        context.store(&batch, SampleOptions::default())?;
        if self.once {
            self.kept_output = Some(output);
        }
        Ok(())
    }

    fn is_once(&self) -> bool {
        self.once
    }
}
