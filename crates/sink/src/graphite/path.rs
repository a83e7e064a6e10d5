//! The paths of series: `PREFIX HOST POSTFIX . plugin-instance . type-instance`, as collectd's
//! write_graphite builds them, or the name itself.
//!
//! | part | of a statsd metric | of any other series |
//! |---|---|---|
//! | plugin | `statsd` | the first word of the name, without `node_` |
//! | plugin instance | – | the value of the first label |
//! | type | `derive` for counters, `gauge` for all others | the rest of the name; the plugin if nothing remains |
//! | type instance | the name, then the values of labels | the values of the other labels |
//! | data source | `value` | `value` |
//!
//! Labels are in the order of their names. Values are joined by `-`.

use std::borrow::Cow;

use pegel_metric::{Input, MetricKind, Series};

use super::settings::{GraphiteSettings, PathStyle};

/// The name of the data source of a value list with one value in collectd.
const DATA_SOURCE: &str = "value";
/// What stands between plugin or type and its instance.
const INSTANCE_SEPARATOR: &str = "-";

/// Makes the paths of one server.
#[derive(Debug)]
pub(super) struct PathBuilder {
    settings: GraphiteSettings,
    host: String,
}

/// The parts of a path, as collectd names them.
#[derive(Debug, PartialEq, Eq)]
struct PathParts<'a> {
    plugin: Cow<'a, str>,
    plugin_instance: Cow<'a, str>,
    kind: Cow<'a, str>,
    kind_instance: Cow<'a, str>,
}

impl PathBuilder {
    /// `node` is the host in paths, unless the settings name one.
    pub(super) fn new(settings: &GraphiteSettings, node: &str) -> PathBuilder {
        let host = settings.host_name.as_deref().unwrap_or(node);
        let host = match settings.reverse_host {
            true => host.rsplit('.').collect::<Vec<_>>().join("."),
            false => host.to_owned(),
        };
        let mut builder = PathBuilder {
            settings: settings.clone(),
            host: String::new(),
        };
        // A reversed host is a tree of domains, and tags make no folders.
        let keeps_dots = settings.reverse_host || settings.use_tags || settings.preserve_separator;
        builder.host = builder.escape_with(&host, keeps_dots).into_owned();
        builder
    }

    pub(super) fn path(&self, series: &Series) -> String {
        match (self.settings.paths, self.settings.use_tags) {
            (PathStyle::Collectd, false) => self.folders(&parts(series)),
            (PathStyle::Collectd, true) => self.tags(&parts(series)),
            (PathStyle::Name, false) => self.name_path(series),
            (PathStyle::Name, true) => self.name_tags(series),
        }
    }

    /// `host.plugin-instance.type-instance.ds`
    fn folders(&self, parts: &PathParts<'_>) -> String {
        let settings = &self.settings;
        let separator = match settings.separate_instances {
            true => ".",
            false => INSTANCE_SEPARATOR,
        };
        let join = |first: &str, instance: &str| match instance {
            "" => first.to_owned(),
            instance => format!("{first}{separator}{instance}"),
        };
        let plugin = self.escape(&parts.plugin);
        let kind = self.escape(&parts.kind);
        let kind_instance = self.escape_instance(&parts.kind_instance);
        let plugin_path = join(&plugin, &self.escape_instance(&parts.plugin_instance));
        let is_same = settings.drop_duplicate_fields && plugin == kind;
        let kind_path = match kind_instance.as_ref() {
            instance if is_same && !instance.is_empty() => instance.to_owned(),
            instance => join(&kind, instance),
        };
        let mut path = self.start();
        path.push('.');
        path.push_str(&plugin_path);
        if !(settings.drop_duplicate_fields && plugin_path == kind_path) {
            path.push('.');
            path.push_str(&kind_path);
        }
        self.append_data_source(&mut path);
        path
    }

    /// `plugin.type.ds;host=…;plugin=…`
    fn tags(&self, parts: &PathParts<'_>) -> String {
        let settings = &self.settings;
        let (plugin, kind) = (self.escape(&parts.plugin), self.escape(&parts.kind));
        let mut path = settings.prefix.clone().unwrap_or_default();
        path.push_str(&plugin);
        if !(settings.drop_duplicate_fields && plugin == kind) {
            path.push('.');
            path.push_str(&kind);
        }
        self.append_data_source(&mut path);
        path.push_str(settings.postfix.as_deref().unwrap_or_default());
        // Tags make no folders, so that their values keep dots.
        let tags = [
            ("host", self.host.as_str()),
            ("plugin", &parts.plugin),
            ("plugin_instance", &parts.plugin_instance),
            ("type", &parts.kind),
            ("type_instance", &parts.kind_instance),
        ];
        for (key, value) in tags.iter().filter(|(_, value)| !value.is_empty()) {
            push_tag(&mut path, key, &self.escape_with(value, true));
        }
        if settings.always_append_ds {
            push_tag(&mut path, "ds_name", DATA_SOURCE);
        }
        path
    }

    /// The name and the values of labels, without a host.
    fn name_path(&self, series: &Series) -> String {
        let mut path = self.settings.prefix.clone().unwrap_or_default();
        path.push_str(&self.escape_with(series.name(), true));
        for (_, value) in series.labels() {
            path.push('.');
            path.push_str(&self.escape(&value));
        }
        path.push_str(self.settings.postfix.as_deref().unwrap_or_default());
        self.append_data_source(&mut path);
        path
    }

    /// The name, then the host and the labels as tags.
    fn name_tags(&self, series: &Series) -> String {
        let mut path = self.settings.prefix.clone().unwrap_or_default();
        path.push_str(&self.escape_with(series.name(), true));
        path.push_str(self.settings.postfix.as_deref().unwrap_or_default());
        push_tag(&mut path, "host", &self.host);
        for (key, value) in series.labels().filter(|(key, _)| *key != "host") {
            push_tag(
                &mut path,
                &self.escape(key),
                &self.escape_with(&value, true),
            );
        }
        path
    }

    fn start(&self) -> String {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let settings = &self.settings;
        text(&settings.prefix) + &self.host + &text(&settings.postfix)
    }

    fn append_data_source(&self, path: &mut String) {
        if self.settings.always_append_ds {
            path.push('.');
            path.push_str(DATA_SOURCE);
        }
    }

    /// Escapes a part that must not be empty.
    fn escape<'a>(&self, part: &'a str) -> Cow<'a, str> {
        self.escape_with(part, self.settings.preserve_separator)
    }

    fn escape_instance<'a>(&self, part: &'a str) -> Cow<'a, str> {
        match part {
            "" => Cow::Borrowed(""),
            part => self.escape(part),
        }
    }

    fn escape_with<'a>(&self, part: &'a str, keeps_dots: bool) -> Cow<'a, str> {
        let replacement = self.settings.escape_character.0;
        // Empty folders and folders that start or end with a dot would lead elsewhere.
        let keeps_dots =
            keeps_dots && !part.starts_with('.') && !part.ends_with('.') && !part.contains("..");
        if part.is_empty() {
            return Cow::Owned(replacement.to_string());
        }
        if !part.chars().any(|c| must_escape(c, keeps_dots)) {
            return Cow::Borrowed(part);
        }
        let escaped = part.chars().map(|c| match must_escape(c, keeps_dots) {
            true => replacement,
            false => c,
        });
        Cow::Owned(escaped.collect())
    }
}

/// Returns whether a part of a path cannot contain a character: dots and slashes make folders,
/// spaces end the path, and tags use semicolons and other signs.
pub(super) fn must_escape(c: char, keeps_dots: bool) -> bool {
    match c {
        '.' => !keeps_dots,
        '/' | '\\' | ';' | '=' | '~' | '!' | '^' | '(' | ')' | '{' | '}' | ',' | '*' | '['
        | ']' => true,
        c => c.is_whitespace() || c.is_control(),
    }
}

fn push_tag(path: &mut String, key: &str, value: &str) {
    path.push(';');
    path.push_str(key);
    path.push('=');
    path.push_str(value);
}

fn parts(series: &Series) -> PathParts<'_> {
    if series.family().input == Input::Statsd {
        let is_counter = series.family().kind == MetricKind::Counter;
        return PathParts {
            plugin: Cow::Borrowed("statsd"),
            plugin_instance: Cow::Borrowed(""),
            kind: Cow::Borrowed(if is_counter { "derive" } else { "gauge" }),
            kind_instance: join_values(series.name().into(), series),
        };
    }
    let name = series.name();
    let name = name.strip_prefix("node_").unwrap_or(name);
    let (plugin, rest) = match name.split_once(['_', '.']) {
        Some((plugin, rest)) if !plugin.is_empty() && !rest.is_empty() => (plugin, rest),
        _ => (name, name),
    };
    let mut labels = series.labels();
    let plugin_instance = labels.next().map_or(Cow::Borrowed(""), |(_, value)| value);
    let others: Vec<Cow<'_, str>> = labels
        .map(|(_, value)| value)
        .filter(|value| !value.is_empty())
        .collect();
    PathParts {
        plugin: Cow::Borrowed(plugin),
        plugin_instance,
        kind: Cow::Borrowed(rest),
        kind_instance: Cow::Owned(others.join(INSTANCE_SEPARATOR)),
    }
}

fn join_values<'a>(first: Cow<'a, str>, series: &Series) -> Cow<'a, str> {
    let values = series.labels().filter(|(_, value)| !value.is_empty());
    values.fold(first, |joined, (_, value)| {
        Cow::Owned(format!("{joined}{INSTANCE_SEPARATOR}{value}"))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pegel_metric::Family;

    use super::*;

    type SettingsChange = fn(&mut GraphiteSettings);

    fn series(text: &str, kind: MetricKind, input: Input) -> Series {
        let family = Arc::new(Family::new("", kind, "", 0, "").of_input(input));
        Series::parse(text, |_| family).expect("a series")
    }

    fn path(text: &str, change: impl FnOnce(&mut GraphiteSettings)) -> String {
        let mut settings = GraphiteSettings::default();
        change(&mut settings);
        let series = series(text, MetricKind::Counter, Input::Collect);
        PathBuilder::new(&settings, "n1.site.org").path(&series)
    }

    #[test]
    fn name_and_labels_become_folders() {
        let cpu = r#"node_cpu_seconds_total{cpu="0",mode="user"}"#;
        let disk = r#"node_filesystem_free_bytes{device="/dev/sda1",fstype="ext4",mountpoint="/"}"#;
        for (text, expected) in [
            (cpu, "n1_site_org.cpu-0.seconds_total-user"),
            ("node_load1", "n1_site_org.load1.load1"),
            (disk, "n1_site_org.filesystem-_dev_sda1.free_bytes-ext4-_"),
            ("app.queue.depth", "n1_site_org.app.queue_depth"),
            (r#"x{a=""}"#, "n1_site_org.x.x"),
            ("_x", "n1_site_org._x._x"),
        ] {
            assert_eq!(path(text, |_| {}), expected, "{text}");
        }
    }

    #[test]
    fn statsd_metrics_have_the_paths_of_collectd() {
        let settings = GraphiteSettings::default();
        let builder = PathBuilder::new(&settings, "n1");
        for (text, kind, expected) in [
            ("foo.bar", MetricKind::Counter, "n1.statsd.derive-foo_bar"),
            ("foo.bar", MetricKind::Gauge, "n1.statsd.gauge-foo_bar"),
            (r#"q{a="1"}"#, MetricKind::Gauge, "n1.statsd.gauge-q-1"),
        ] {
            assert_eq!(builder.path(&series(text, kind, Input::Statsd)), expected);
        }
    }

    #[test]
    fn every_option_changes_the_path() {
        let cpu = r#"node_cpu_seconds_total{cpu="0",mode="user"}"#;
        let load = "node_load1";
        let cases: [(&str, SettingsChange, &str); 12] = [
            (
                cpu,
                |s| s.prefix = Some("a.".into()),
                "a.n1_site_org.cpu-0.seconds_total-user",
            ),
            (
                cpu,
                |s| s.postfix = Some(".z".into()),
                "n1_site_org.z.cpu-0.seconds_total-user",
            ),
            (
                cpu,
                |s| s.host_name = Some("h".into()),
                "h.cpu-0.seconds_total-user",
            ),
            (
                cpu,
                |s| s.always_append_ds = true,
                "n1_site_org.cpu-0.seconds_total-user.value",
            ),
            (
                cpu,
                |s| s.escape_character = EscapeCharacter('-'),
                "n1-site-org.cpu-0.seconds_total-user",
            ),
            (
                cpu,
                |s| s.separate_instances = true,
                "n1_site_org.cpu.0.seconds_total.user",
            ),
            (
                cpu,
                |s| s.preserve_separator = true,
                "n1.site.org.cpu-0.seconds_total-user",
            ),
            (
                cpu,
                |s| s.reverse_host = true,
                "org.site.n1.cpu-0.seconds_total-user",
            ),
            (
                load,
                |s| s.drop_duplicate_fields = true,
                "n1_site_org.load1",
            ),
            (
                cpu,
                |s| s.use_tags = true,
                "cpu.seconds_total;host=n1.site.org;plugin=cpu;plugin_instance=0;type=seconds_total;type_instance=user",
            ),
            (
                cpu,
                |s| s.paths = PathStyle::Name,
                "node_cpu_seconds_total.0.user",
            ),
            (
                cpu,
                |s| {
                    s.paths = PathStyle::Name;
                    s.use_tags = true
                },
                "node_cpu_seconds_total;host=n1.site.org;cpu=0;mode=user",
            ),
        ];
        for (text, change, expected) in cases {
            assert_eq!(path(text, change), expected);
        }
    }

    #[test]
    fn no_part_is_empty_or_leads_out_of_its_folder() {
        let bad = r#"..{a="../../etc",b=". .",c="x y;z=1"}"#;
        for preserve in [false, true] {
            let path = path(bad, |settings| settings.preserve_separator = preserve);
            assert!(
                !path.contains("..") && !path.contains([' ', '/', ';', '=']),
                "{path}"
            );
            assert!(!path.starts_with('.') && !path.ends_with('.'), "{path}");
        }
    }

    use crate::graphite::settings::EscapeCharacter;
}
