//! The manual page pegel.yaml(5), generated from the declarations of the configuration keys.

use clap_mangen::roff::{Roff, bold, italic, roman};
use pegel_agent::Config;
use pegel_config::{ConfigKey, ConfigValue};

const EXAMPLE: &str = "\
level: 4
keep:
  disk: 7d
listen: [\"127.0.0.1:1337\", \"127.0.0.1:4242\"]
allow_users: [prometheus, grafana]
";

pub(super) fn text() -> String {
    let mut roff = Roff::new();
    let version = format!("pegel {}", env!("CARGO_PKG_VERSION"));
    roff.control("TH", ["PEGEL.YAML", "5", " ", &version, "Pegel"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("pegel.yaml - configuration of the agent of Pegel")]);
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([roman(
        "The agent runs without a configuration file. pegel agent --config FILE or $PEGEL_CONFIG \
         names one; it is YAML. The command line overrides the environment, the environment the \
         file, the file the defaults. pegel config check FILE reports all errors, pegel config \
         init prints a file with every key, and pegel config show prints the values in force.",
    )]);
    roff.control("SH", ["KEYS"]);
    roff.text([roman(
        "Keys of a section are written with a dot: keep.disk is the key disk of the section keep. \
         remote_write[].url is the key url of each entry of the list remote_write.",
    )]);
    for key in Config::keys() {
        write_key(&mut roff, &key, "");
        for inner in Config::entry_keys(key.name) {
            write_key(&mut roff, &inner, &format!("{}[]", key.name));
        }
    }
    roff.control("SH", ["EXAMPLES"]);
    roff.text([roman(
        "Keep all metrics for a week, and let two services read them:",
    )]);
    roff.control("PP", []);
    roff.control("nf", []);
    for line in EXAMPLE.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
    roff.control("SH", ["ENVIRONMENT"]);
    roff.text([roman(
        "PEGEL_CONFIG names the file. PEGEL_SOCKET, PEGEL_LISTEN, PEGEL_LEVEL, PEGEL_RATE, \
         PEGEL_DIR and PEGEL_LOG override its keys.",
    )]);
    roff.control("SH", ["FILES"]);
    roff.control("TP", []);
    roff.text([bold("/etc/pegel/pegel.yaml")]);
    roff.text([roman("The configuration of the system's service.")]);
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(
        "pegel(1), pegel-agent(1), pegel-config(1), pegel-config-check(1); packages install the pages \
         of docs in /usr/share/doc/pegel/docs",
    )]);
    roff.render()
}

fn write_key(roff: &mut Roff, key: &ConfigKey, inside: &str) {
    let path = match inside {
        "" => key.name.to_owned(),
        inside => format!("{inside}.{}", key.name),
    };
    roff.control("TP", []);
    roff.text([bold(path.as_str())]);
    let words = key.doc.iter().flat_map(|line| line.split_whitespace());
    roff.text([roman(words.collect::<Vec<_>>().join(" "))]);
    if key.inner.is_empty() {
        roff.control("br", []);
        roff.text([italic("Accepted: "), roman(key.accepts.as_str())]);
        roff.control("br", []);
        let default = match (&key.default, key.example) {
            (ConfigValue::Null, Some(example)) => format!("none; for example {example}"),
            (ConfigValue::Null, None) => "none".to_owned(),
            (default, _) => default.to_inline(),
        };
        roff.text([italic("Default: "), roman(default)]);
    }
    for inner in &key.inner {
        write_key(roff, inner, &path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_documented() {
        let text = text();
        let loaded = pegel_agent::load_config(None, &[], &|_| None).expect("valid");
        for row in crate::config_rows::from_loaded(&loaded) {
            let first = row.key.split('.').next().expect("a key");
            assert!(text.contains(&format!("\\fB{first}")), "{}", row.key);
        }
        assert!(text.contains("\\fBkeep.disk\\fR"), "{text}");
        assert!(text.contains("\\fBremote_write[].shards\\fR"), "{text}");
    }

    #[test]
    fn the_example_is_valid() {
        let tree = pegel_config::parse(std::path::Path::new("example"), EXAMPLE).expect("YAML");
        pegel_config::read::<Config>(&tree).expect("valid");
    }
}
