//! The section `inputs` of the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pegel_config::{
    ByteSize, ConfigKey, ConfigProblem, ConfigTree, ConfigValue, Section, Setting, TimeSpan,
    settings,
};
use pegel_metric::{Family, MetricKind, Series};

use super::PullReader;
use super::apache::{ApacheReader, ServerType};
use super::data_format::DataFormat;
use super::endpoint::EndpointUrl;
use super::exec::ExecReader;
use super::file::FileReader;
use super::flux::FluxReader;
use super::http_fetch::HttpSource;
use super::line_pattern::LinePattern;
use super::prometheus::PrometheusReader;
use super::tail::TailReader;
use crate::reserved_names::is_identity_label;

/// The most inputs of an agent: each has a thread.
pub const INPUTS_MAX: usize = 32;
/// The shortest interval between two attempts.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// The most characters of an input's name.
const NAME_LENGTH_MAX: usize = 64;

settings! {
    /// The inputs that the agent reads by itself.
    pub(super) struct PullSettings {
        /// Prometheus endpoints to scrape. Keys: url, user, password_file, bearer_token_file,
        /// ca_file, verify_peer, body_max, honor_labels, honor_timestamps; and those of all inputs:
        /// name, interval, timeout, max_interval, labels, enabled.
        prometheus: Vec<InputEntry<PrometheusSettings>> = Vec::new(),
        /// Status pages of Apache (server-status?auto) and lighttpd. Keys: url, server, user,
        /// password_file, bearer_token_file, ca_file, verify_peer, body_max.
        apache: Vec<InputEntry<ApacheSettings>> = Vec::new(),
        /// Programs whose output is read. Keys: command, format, prefix, once, environment,
        /// output_max. No shell is involved.
        exec: Vec<InputEntry<ExecSettings>> = Vec::new(),
        /// Files that are read as a whole. Keys: path, format, prefix, bytes_max.
        file: Vec<InputEntry<FileSettings>> = Vec::new(),
        /// Logs that grow, of which each new line is read once. Keys: path, format, prefix,
        /// pattern, from_start.
        tail: Vec<InputEntry<TailSettings>> = Vec::new(),
        /// The message counters of Flux's modules. Keys: modules, uri, command.
        flux: Vec<InputEntry<FluxSettings>> = Vec::new(),
    }
}

settings! {
    /// The keys that every input has.
    pub(super) struct PullSchedule {
        /// Names the input in `/status`, and its samples with the label `job`. Without this key:
        /// the kind of the input.
        name: Option<String> = None,
        /// How often the input is read.
        interval: TimeSpan = TimeSpan::seconds(10),
        /// How long one attempt may take.
        timeout: TimeSpan = TimeSpan::seconds(5),
        /// After each failure the interval doubles, up to this one.
        max_interval: TimeSpan = TimeSpan::seconds(86_400),
        /// Labels of all samples of the input.
        labels: BTreeMap<String, String> = BTreeMap::new(),
        /// Whether the input is read from the start on.
        enabled: bool = true,
    }
}

settings! {
    /// How a page is fetched.
    pub(super) struct HttpSettings {
        /// The page to fetch.
        url: Option<EndpointUrl> = None,
        /// The user name of HTTP's basic authentication.
        user: Option<String> = None,
        /// A file with the password.
        password_file: Option<PathBuf> = None,
        /// A file with a token that is sent as `Authorization: Bearer TOKEN`.
        bearer_token_file: Option<PathBuf> = None,
        /// The certificates of authorities (PEM) for https URLs.
        ca_file: Option<PathBuf> = None,
        /// Verify the server's certificate.
        verify_peer: bool = true,
        /// The most bytes of a response, uncompressed.
        body_max: ByteSize = ByteSize::mebibytes(16),
    }
}

settings! {
    /// A Prometheus endpoint.
    pub(super) struct PrometheusSettings {
        ..schedule: PullSchedule;
        ..http: HttpSettings;
        /// Labels `job` and `instance` of the endpoint win over those of the agent.
        honor_labels: bool = false,
        /// Samples keep the timestamps that the endpoint gave them.
        honor_timestamps: bool = true,
    }
}

settings! {
    /// A status page of a web server.
    pub(super) struct ApacheSettings {
        ..schedule: PullSchedule;
        ..http: HttpSettings;
        /// The kind of the server: the letters of its scoreboard.
        server: ServerType = ServerType::Apache,
    }
}

settings! {
    /// A program.
    pub(super) struct ExecSettings {
        ..schedule: PullSchedule;
        /// The program and its arguments.
        command: Vec<String> = Vec::new(),
        /// The format of its output.
        format: DataFormat = DataFormat::Influx,
        /// Put before names of values in JSON.
        prefix: Option<String> = None,
        /// Run the program until it succeeds once. Its values are also part of the snapshot.
        once: bool = false,
        /// Variables of its environment.
        environment: BTreeMap<String, String> = BTreeMap::new(),
        /// The most bytes of its output.
        output_max: ByteSize = ByteSize::mebibytes(1),
    }
}

settings! {
    /// A file.
    pub(super) struct FileSettings {
        ..schedule: PullSchedule;
        /// The file to read.
        path: Option<PathBuf> = None,
        /// Its format.
        format: DataFormat = DataFormat::Prometheus,
        /// Put before names of values in JSON.
        prefix: Option<String> = None,
        /// The most bytes that are read.
        bytes_max: ByteSize = ByteSize::mebibytes(4),
    }
}

settings! {
    /// A log.
    pub(super) struct TailSettings {
        ..schedule: PullSchedule;
        /// The file to follow.
        path: Option<PathBuf> = None,
        /// The format of its lines.
        format: DataFormat = DataFormat::Influx,
        /// Put before names of values in JSON.
        prefix: Option<String> = None,
        /// Extracts values from lines, instead of a format.
        pattern: Option<LinePattern> = None,
        /// Also read what the file contains when the agent starts.
        from_start: bool = false,
    }
}

settings! {
    /// A Flux instance.
    pub(super) struct FluxSettings {
        ..schedule: PullSchedule;
        /// The modules whose counters are read from the start on, or all.
        modules: Vec<String> = Vec::new(),
        /// The instance to ask. Without this key: $FLUX_URI of the agent.
        uri: Option<String> = None,
        /// The program `flux`, and options for it.
        command: Vec<String> = vec!["flux".to_owned()],
    }
}

impl PullSchedule {
    /// Returns the interval after a number of failures in a row.
    pub(super) fn interval_after(&self, failures: u32) -> Duration {
        let interval = self.interval.duration();
        let longest = self.max_interval.duration().max(interval);
        interval
            .saturating_mul(1_u32.checked_shl(failures.min(31)).unwrap_or(1))
            .min(longest)
    }
}

/// An input that is ready to be read.
pub(super) struct ConfiguredInput {
    pub kind: &'static str,
    pub name: String,
    pub schedule: PullSchedule,
    /// The labels that are added to its samples; later ones replace earlier ones.
    pub labels: Vec<(String, String)>,
    pub reader: Box<dyn PullReader>,
}

/// The keys of one kind of input.
pub(super) trait InputSettings: Section + Clone {
    const KIND: &'static str;
    /// An example for messages and the default file.
    const EXAMPLE: &'static str;

    fn schedule(&self) -> &PullSchedule;

    /// Returns what is missing or does not fit together.
    fn validation_error(&self) -> Option<String>;

    /// The label `instance` of its samples, if they come from a server.
    fn instance(&self) -> Option<String> {
        None
    }

    fn reader(&self) -> Box<dyn PullReader>;
}

/// A validated entry of a list of inputs.
#[derive(Debug, Clone)]
pub(super) struct InputEntry<T>(T);

impl<T: InputSettings> InputEntry<T> {
    fn name(&self) -> String {
        let name = self.0.schedule().name.clone();
        name.unwrap_or_else(|| T::KIND.to_owned())
    }

    fn configured(&self) -> ConfiguredInput {
        let name = self.name();
        let schedule = self.0.schedule().clone();
        let instance = self
            .0
            .instance()
            .map(|instance| ("instance".to_owned(), instance));
        let job = ("job".to_owned(), name.clone());
        let own = schedule.labels.clone();
        ConfiguredInput {
            kind: T::KIND,
            labels: [job].into_iter().chain(instance).chain(own).collect(),
            name,
            reader: self.0.reader(),
            schedule,
        }
    }
}

impl<T: InputSettings> Setting for InputEntry<T> {
    fn accepts() -> String {
        format!("an input, such as {}", T::EXAMPLE)
    }

    fn read(tree: &ConfigTree, problems: &mut Vec<ConfigProblem>) -> Option<InputEntry<T>> {
        let keys = <T as Setting>::read(tree, problems)?;
        let error = schedule_error(keys.schedule()).or_else(|| keys.validation_error());
        match error {
            None => Some(InputEntry(keys)),
            Some(message) => {
                let accepts = Self::accepts();
                problems.push(ConfigProblem::value(tree, message, &accepts));
                None
            }
        }
    }

    fn to_value(&self) -> ConfigValue {
        Setting::to_value(&self.0)
    }
}

fn schedule_error(schedule: &PullSchedule) -> Option<String> {
    let is_name = |name: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        name.len() <= NAME_LENGTH_MAX && name.chars().all(is_plain)
    };
    if let Some(name) = schedule.name.as_ref().filter(|name| !is_name(name)) {
        return Some(format!(
            "{name:?} is not a name of an input: use up to {NAME_LENGTH_MAX} letters, digits, _, - and ."
        ));
    }
    if schedule.interval.duration() < INTERVAL_MIN {
        return Some("interval is shorter than 100 ms".to_owned());
    }
    if schedule.timeout.duration().is_zero() {
        return Some("timeout is 0".to_owned());
    }
    let family = Arc::new(Family::new("name", MetricKind::Unknown, "", 0, ""));
    for key in schedule.labels.keys() {
        if let Err(error) = Series::new(family.clone(), &[(key, "")]) {
            return Some(error.to_string());
        }
        if is_identity_label(key) {
            return Some(format!(
                "the label {key} is reserved for the agent; use another one, such as input_{key}"
            ));
        }
    }
    None
}

fn http_error(http: &HttpSettings) -> Option<String> {
    if http.url.is_none() {
        return Some("url is missing".to_owned());
    }
    if http.user.is_some() != http.password_file.is_some() {
        return Some("user requires password_file, and vice versa".to_owned());
    }
    if http.user.is_some() && http.bearer_token_file.is_some() {
        return Some("set either user or bearer_token_file".to_owned());
    }
    None
}

fn instance_of(http: &HttpSettings) -> Option<String> {
    http.url.as_ref().map(EndpointUrl::instance)
}

impl InputSettings for PrometheusSettings {
    const KIND: &'static str = "prometheus";
    const EXAMPLE: &'static str = "{name: web, url: \"http://127.0.0.1:9100/metrics\"}";

    fn schedule(&self) -> &PullSchedule {
        &self.schedule
    }

    fn validation_error(&self) -> Option<String> {
        http_error(&self.http)
    }

    fn instance(&self) -> Option<String> {
        instance_of(&self.http)
    }

    fn reader(&self) -> Box<dyn PullReader> {
        Box::new(PrometheusReader::new(
            HttpSource::new(&self.http),
            self.honor_labels,
            self.honor_timestamps,
        ))
    }
}

impl InputSettings for ApacheSettings {
    const KIND: &'static str = "apache";
    const EXAMPLE: &'static str = "{name: www, url: \"http://127.0.0.1/server-status?auto\"}";

    fn schedule(&self) -> &PullSchedule {
        &self.schedule
    }

    fn validation_error(&self) -> Option<String> {
        http_error(&self.http)
    }

    fn instance(&self) -> Option<String> {
        instance_of(&self.http)
    }

    fn reader(&self) -> Box<dyn PullReader> {
        Box::new(ApacheReader::new(HttpSource::new(&self.http), self.server))
    }
}

impl InputSettings for ExecSettings {
    const KIND: &'static str = "exec";
    const EXAMPLE: &'static str = "{name: ipmi, command: [/usr/local/bin/ipmi-power, -q]}";

    fn schedule(&self) -> &PullSchedule {
        &self.schedule
    }

    fn validation_error(&self) -> Option<String> {
        let program = self.command.first().filter(|program| !program.is_empty());
        program
            .is_none()
            .then(|| "command is missing: a list of the program and its arguments".to_owned())
    }

    fn reader(&self) -> Box<dyn PullReader> {
        Box::new(ExecReader::new(self))
    }
}

impl InputSettings for FileSettings {
    const KIND: &'static str = "file";
    const EXAMPLE: &'static str = "{name: raid, path: /var/lib/raid.prom}";

    fn schedule(&self) -> &PullSchedule {
        &self.schedule
    }

    fn validation_error(&self) -> Option<String> {
        self.path.is_none().then(|| "path is missing".to_owned())
    }

    fn reader(&self) -> Box<dyn PullReader> {
        Box::new(FileReader::new(self))
    }
}

impl InputSettings for TailSettings {
    const KIND: &'static str = "tail";
    const EXAMPLE: &'static str =
        "{name: solver, path: /scratch/run.log, pattern: 'took (?P<step_seconds>[0-9.]+) s'}";

    fn schedule(&self) -> &PullSchedule {
        &self.schedule
    }

    fn validation_error(&self) -> Option<String> {
        self.path.is_none().then(|| "path is missing".to_owned())
    }

    fn reader(&self) -> Box<dyn PullReader> {
        Box::new(TailReader::new(self))
    }
}

impl InputSettings for FluxSettings {
    const KIND: &'static str = "flux";
    const EXAMPLE: &'static str = "{modules: [kvs, sched-simple]}";

    fn schedule(&self) -> &PullSchedule {
        &self.schedule
    }

    fn validation_error(&self) -> Option<String> {
        self.command
            .is_empty()
            .then(|| "command is empty".to_owned())
    }

    fn reader(&self) -> Box<dyn PullReader> {
        Box::new(FluxReader::new(self))
    }
}

/// The validated section `inputs`: no two inputs have one name.
#[derive(Debug, Clone, Default)]
pub struct PullConfig(PullSettings);

impl PullConfig {
    /// Returns the inputs in the order of their kinds and of the configuration.
    pub(super) fn inputs(&self) -> Vec<ConfiguredInput> {
        fn all<T: InputSettings>(entries: &[InputEntry<T>]) -> Vec<ConfiguredInput> {
            entries.iter().map(InputEntry::configured).collect()
        }
        let keys = &self.0;
        [
            all(&keys.prometheus),
            all(&keys.apache),
            all(&keys.exec),
            all(&keys.file),
            all(&keys.tail),
            all(&keys.flux),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    pub fn is_empty(&self) -> bool {
        self.inputs().is_empty()
    }

    /// Returns the number of inputs.
    pub fn len(&self) -> usize {
        self.inputs().len()
    }
}

impl Setting for PullConfig {
    fn accepts() -> String {
        <PullSettings as Setting>::accepts()
    }

    fn read(tree: &ConfigTree, problems: &mut Vec<ConfigProblem>) -> Option<PullConfig> {
        let config = PullConfig(PullSettings::read(tree, problems)?);
        let inputs = config.inputs();
        let mut names = BTreeSet::new();
        let duplicate = inputs.iter().find(|input| !names.insert(&input.name));
        let message = match duplicate {
            Some(input) => format!("two inputs have the name {}", input.name),
            None if inputs.len() > INPUTS_MAX => {
                format!("{} inputs; at most {INPUTS_MAX} are accepted", inputs.len())
            }
            None => return Some(config),
        };
        let hint = "give each input a name of its own with the key name";
        problems.push(ConfigProblem::new(tree, message, hint));
        None
    }

    fn to_value(&self) -> ConfigValue {
        Setting::to_value(&self.0)
    }

    fn keys() -> Vec<ConfigKey> {
        <PullSettings as Section>::keys()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(yaml: &str) -> Result<PullConfig, String> {
        let tree = pegel_config::parse(Path::new("f.yaml"), yaml).expect("YAML");
        pegel_config::read(&tree).map_err(|error| error.to_string())
    }

    #[test]
    fn every_kind_has_its_keys_and_labels() {
        let config = read(
            "prometheus:
- {name: web, url: 'http://127.0.0.1:9100/metrics', interval: 1m, labels: {rack: r1}}
apache: {url: 'http://www.site/server-status?auto', server: lighttpd, labels: {instance: x}}
exec: {name: power, command: [/bin/power, -q], format: json, prefix: p_, once: true}
file: {path: /x.prom, enabled: false}
",
        );
        let inputs = config.expect("valid").inputs();
        let shown = inputs.iter().map(|input| {
            let labels: Vec<String> = input
                .labels
                .iter()
                .map(|(k, v)| format!("{k}={v}"))
                .collect();
            format!("{} {} {}", input.kind, input.name, labels.join(","))
        });
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [
                "prometheus web job=web,instance=127.0.0.1:9100,rack=r1",
                "apache apache job=apache,instance=www.site:80,instance=x",
                "exec power job=power",
                "file file job=file",
            ]
        );
        assert!(inputs[2].reader.is_once() && !inputs[3].schedule.enabled);
    }

    #[test]
    fn mistakes_are_named() {
        let many: String = (0..40)
            .map(|at| format!("- {{name: n{at}, path: /x}}\n"))
            .collect();
        for (yaml, expected) in [
            ("prometheus: [{name: a}]", "url is missing"),
            ("prometheus: [{url: 'ftp://a'}]", "http://"),
            (
                "prometheus: [{url: 'http://a', user: u}]",
                "user requires password_file",
            ),
            (
                "prometheus: [{url: 'http://a', user: u, password_file: /p, bearer_token_file: /t}]",
                "set either user or bearer_token_file",
            ),
            ("exec: [{name: a}]", "command is missing"),
            (
                "exec: [{name: 'a/b', command: [x]}]",
                "\"a/b\" is not a name",
            ),
            (
                "exec: [{command: [x], interval: 1ms}]",
                "interval is shorter",
            ),
            (
                "exec: [{command: [x], format: xml}]",
                "influx, prometheus or json",
            ),
            (
                "exec: [{command: [x], labels: {user: x}}]",
                "the label user is reserved",
            ),
            (
                "exec: [{command: [x], labels: {'': x}}]",
                "a label has an empty key",
            ),
            ("file: [{name: a}]", "path is missing"),
            (
                "file: [{path: /a}, {path: /b}]",
                "two inputs have the name file",
            ),
            (
                "exec: [{name: x, command: [a]}]\nfile: [{name: x, path: /b}]",
                "two inputs",
            ),
            ("tail: [{path: /a, pattern: 'x'}]", "no named group"),
            ("flux: [{command: []}]", "command is empty"),
            ("tale: []", "did you mean"),
            (&format!("file:\n{many}"), "40 inputs; at most 32"),
        ] {
            let error = read(yaml).expect_err(yaml);
            assert!(error.contains(expected), "{yaml}: {error}");
        }
    }

    #[test]
    fn intervals_double_up_to_the_longest() {
        let schedule = PullSchedule::default();
        let seconds = |failures| schedule.interval_after(failures).as_secs();
        assert_eq!(
            [0, 1, 2, 13, 14, 50].map(seconds),
            [10, 20, 40, 81_920, 86_400, 86_400]
        );
        let slow = PullSchedule {
            interval: TimeSpan::seconds(100_000),
            ..PullSchedule::default()
        };
        assert_eq!(slow.interval_after(5).as_secs(), 100_000);
    }
}
