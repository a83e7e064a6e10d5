//! The keys of the section `otlp_input`.

use pegel_config::settings;

settings! {
    /// How metrics of OpenTelemetry are named.
    pub struct OtlpInputSettings {
        /// Attributes of resources that become labels: patterns with * and ?.
        resource_attributes: Vec<String> = vec!["*".to_owned()],
        /// Attributes of resources that do not, though a pattern above matches them: they repeat
        /// what is known of a process, or contain its command line.
        ignored_attributes: Vec<String> = ignored_by_default(),
    }
}

fn ignored_by_default() -> Vec<String> {
    let patterns = [
        "telemetry.*",
        "process.command*",
        "process.executable.*",
        "process.runtime.*",
        "os.*",
    ];
    patterns.map(str::to_owned).into()
}
