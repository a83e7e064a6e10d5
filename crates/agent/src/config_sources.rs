//! The sources of the configuration: the command line overrides the environment, the environment
//! the file, the file the defaults.

use std::ffi::OsString;
use std::path::PathBuf;

use pegel_config::{
    ConfigError, ConfigOrigin, ConfigProblem, ConfigTree, ConfigValue, DetailLevel, ListenAddress,
};

use crate::config::{Config, is_dragon_key};
use crate::memory_limit::MemoryLimit;
use crate::statsd;

/// Looks up an environment variable.
pub type EnvironmentLookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A command-line option that sets a key.
#[derive(Debug, Clone)]
pub struct ConfigArgument {
    pub key: &'static str,
    pub flag: &'static str,
    pub texts: Vec<String>,
}

/// A configuration with the origin of each value.
#[derive(Debug, Clone)]
pub struct LoadedConfig {
    pub config: Config,
    pub tree: ConfigTree,
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
}

/// Variables that set a key, with that key.
const VARIABLES: &[(&str, &str)] = &[
    ("DRAGON_TELEMETRY_LEVEL", "level"),
    ("PEGEL_SOCKET", "socket"),
    ("PEGEL_LISTEN", "listen"),
    ("PEGEL_LEVEL", "level"),
    ("PEGEL_RATE", "rate"),
    ("PEGEL_DIR", "dir"),
    ("PEGEL_LOG", "log"),
];
const FILE_VARIABLES: &[&str] = &["PEGEL_CONFIG", "DRAGON_TELEMETRY_CONFIG"];

/// Reads all sources and reports every error. `file` is the argument of `--config`.
pub fn load_config(
    file: Option<PathBuf>,
    arguments: &[ConfigArgument],
    environment: EnvironmentLookup<'_>,
) -> Result<LoadedConfig, ConfigError> {
    let named = FILE_VARIABLES
        .iter()
        .find_map(|name| non_empty_variable(environment, name));
    let file = file.or_else(|| named.map(PathBuf::from));
    let mut tree = match &file {
        Some(path) => pegel_config::load(path)?,
        None => ConfigTree::empty(ConfigOrigin::Default),
    };
    for (name, key) in VARIABLES {
        if let Some(value) = non_empty_variable(environment, name) {
            apply_variable(&mut tree, name, key, value)?;
        }
    }
    for argument in arguments {
        set_key(
            &mut tree,
            argument.key,
            &argument.texts,
            ConfigOrigin::Argument(argument.flag),
        )?;
    }
    let mut config: Config = pegel_config::read(&tree)?;
    if let Some(limit) = MemoryLimit::read(environment) {
        limit.fit_config(&mut config, |key| tree.find(key).is_some());
    }
    let loaded = LoadedConfig { config, tree, file };
    loaded.check_duplicate_keys()?;
    loaded.check_tls()?;
    loaded.check_exposure()?;
    Ok(loaded)
}

fn non_empty_variable(environment: EnvironmentLookup<'_>, name: &str) -> Option<OsString> {
    environment(name).filter(|value| !value.is_empty())
}

fn apply_variable(
    tree: &mut ConfigTree,
    name: &'static str,
    key: &'static str,
    value: OsString,
) -> Result<(), ConfigError> {
    let origin = ConfigOrigin::Variable(name);
    let Ok(mut text) = value.into_string() else {
        return Err(ConfigError::from(ConfigProblem {
            origin: Some(origin),
            key: key.to_owned(),
            message: "the value is not UTF-8".to_owned(),
            hint: String::new(),
        }));
    };
    // Dragon accepts a fifth level, which adds nothing to its fourth.
    if name == "DRAGON_TELEMETRY_LEVEL" && text.trim() == "5" {
        text = DetailLevel::MAX.to_string();
    }
    let texts = match key {
        "listen" => text.split(',').map(|part| part.trim().to_owned()).collect(),
        _ => vec![text],
    };
    set_key(tree, key, &texts, origin)
}

fn set_key(
    tree: &mut ConfigTree,
    key: &str,
    texts: &[String],
    origin: ConfigOrigin,
) -> Result<(), ConfigError> {
    match (key, texts) {
        ("statsd", texts) => statsd::apply_statsd_argument(tree, texts, &origin)?,
        ("listen" | "forwarded", texts) => tree.set_list(key, texts, origin),
        ("tree.parents", texts) => {
            let section = tree.section("tree", origin.clone());
            section.set_list("parents", texts, origin);
        }
        (key, [text]) => match key.strip_prefix("tree.") {
            Some(name) => {
                let section = tree.section("tree", origin.clone());
                section.set(name, text, origin);
            }
            None => tree.set(key, text, origin),
        },
        _ => {}
    }
    Ok(())
}

impl LoadedConfig {
    /// Whether any of Dragon's keys or variables is set.
    pub fn uses_dragon_keys(&self, environment: EnvironmentLookup<'_>) -> bool {
        let by_key = match &self.tree.value {
            ConfigValue::Map(entries) => entries.iter().any(|entry| {
                is_dragon_key(&entry.key) && !matches!(entry.value.value, ConfigValue::Null)
            }),
            _ => false,
        };
        by_key || non_empty_variable(environment, "DRAGON_TELEMETRY_LEVEL").is_some()
    }

    /// The origin of a key's value; `None` if the key has its default.
    pub fn origin_of(&self, key: &str) -> Option<&ConfigOrigin> {
        self.tree.find(key).map(|tree| &tree.origin)
    }

    /// Refuses addresses that other machines can reach, unless `insecure` is set. HTTP may use TLS;
    /// whether clients are authenticated then is checked when the server is bound.
    fn check_exposure(&self) -> Result<(), ConfigError> {
        let (serve, statsd) = (&self.config.serve, &self.config.agent.statsd);
        if serve.insecure {
            return Ok(());
        }
        if serve.tls.cert.is_none() {
            let hint = "or set `tls` and a token, or set `insecure: true` (--insecure) if everyone who can \
                        connect may read and write";
            self.refuse_exposed("listen", &serve.listen, hint)?;
        }
        for (key, addresses) in [("statsd.udp", &statsd.udp), ("statsd.tcp", &statsd.tcp)] {
            let hint = "or set `insecure: true` (--insecure) if everyone who can reach it may write: \
                        statsd has neither encryption nor tokens";
            self.refuse_exposed(key, addresses, hint)?;
        }
        Ok(())
    }

    fn refuse_exposed(
        &self,
        key: &str,
        addresses: &[ListenAddress],
        hint: &str,
    ) -> Result<(), ConfigError> {
        let exposed = addresses.iter().position(|address| !address.is_loopback());
        let (Some(index), Some(tree)) = (exposed, self.tree.find(key)) else {
            return Ok(());
        };
        let item = match &tree.value {
            ConfigValue::List(items) => items.get(index).unwrap_or(tree),
            _ => tree,
        };
        let address = &addresses[index];
        let message = format!("\"{address}\" can be reached from other machines");
        let hint = format!("use a loopback address such as 127.0.0.1, {hint}");
        Err(ConfigProblem::new(item, message, hint).into())
    }

    /// A certificate requires its key, and an authority requires both.
    fn check_tls(&self) -> Result<(), ConfigError> {
        let tls = &self.config.serve.tls;
        let (is_set, missing) = match (&tls.cert, &tls.key, &tls.ca) {
            (Some(_), None, _) => ("tls.cert", "tls.key"),
            (None, Some(_), _) => ("tls.key", "tls.cert"),
            (None, None, Some(_)) => ("tls.ca", "tls.cert"),
            _ => return Ok(()),
        };
        let Some(tree) = self.tree.find(is_set) else {
            return Ok(());
        };
        let message = format!("`{is_set}` is set, but `{missing}` is not");
        Err(ConfigProblem::new(tree, message, "set tls.cert and tls.key, or none of them").into())
    }

    /// Two keys with the same meaning must not both be set in files: it would be unclear which one
    /// applies.
    fn check_duplicate_keys(&self) -> Result<(), ConfigError> {
        for (ours, theirs) in [("rate", "collector_rate"), ("dir", "default_tmdb_dir")] {
            let (Some(first), Some(second)) = (self.tree.get(ours), self.tree.get(theirs)) else {
                continue;
            };
            let are_both_set = ![first, second]
                .iter()
                .any(|t| matches!(t.value, ConfigValue::Null));
            if are_both_set && matches!(first.origin, ConfigOrigin::File { .. }) {
                let message = format!("`{ours}` means the same and is set at {}", first.origin);
                let problem = ConfigProblem::new(second, message, "keep one of the two");
                return Err(problem.into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load_with(
        variables: &[(&str, &str)],
        arguments: &[ConfigArgument],
    ) -> Result<LoadedConfig, ConfigError> {
        let environment = |name: &str| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| OsString::from(value))
        };
        load_config(None, arguments, &environment)
    }

    fn argument(key: &'static str, flag: &'static str, text: &str) -> ConfigArgument {
        ConfigArgument {
            key,
            flag,
            texts: vec![text.to_owned()],
        }
    }

    #[test]
    fn arguments_win_over_variables() {
        let variables = [
            ("PEGEL_RATE", "2"),
            ("PEGEL_LEVEL", "1"),
            ("DRAGON_TELEMETRY_LEVEL", "4"),
        ];
        let loaded = load_with(&variables, &[argument("rate", "--rate", "100ms")]).expect("valid");
        assert_eq!(loaded.config.agent.rate.to_string(), "100ms");
        assert_eq!(loaded.config.agent.level.get(), 1);
        assert_eq!(
            loaded.origin_of("rate"),
            Some(&ConfigOrigin::Argument("--rate"))
        );
        assert_eq!(
            loaded.origin_of("level"),
            Some(&ConfigOrigin::Variable("PEGEL_LEVEL"))
        );
        assert_eq!(loaded.origin_of("keep.memory"), None);
    }

    #[test]
    fn variables_are_named_when_they_are_wrong() {
        let error = load_with(&[("PEGEL_LEVEL", "9")], &[]).expect_err("no such level");
        assert!(
            error
                .to_string()
                .starts_with("$PEGEL_LEVEL: level: \"9\" is not a level"),
            "{error}"
        );
        assert!(
            load_with(&[("PEGEL_LEVEL", "")], &[]).is_ok(),
            "an empty variable is not set"
        );
    }

    #[test]
    fn a_list_of_listeners_fits_into_a_variable() {
        let loaded = load_with(&[("PEGEL_LISTEN", "127.0.0.1:1, [::1]:2")], &[]).expect("valid");
        let listen: Vec<String> = loaded
            .config
            .serve
            .listen
            .iter()
            .map(|a| a.to_string())
            .collect();
        assert_eq!(listen, ["127.0.0.1:1", "[::1]:2"]);
    }

    #[test]
    fn dragons_levels_go_one_further() {
        let variables = [("DRAGON_TELEMETRY_LEVEL", "5")];
        let loaded = load_with(&variables, &[]).expect("valid");
        assert_eq!(loaded.config.agent.level.get(), 4);
        assert!(
            loaded.uses_dragon_keys(&|name| (name == "DRAGON_TELEMETRY_LEVEL").then(|| "5".into()))
        );
        assert!(!loaded.uses_dragon_keys(&|_| None));
    }
}
