//! Typed settings: the traits that read a value from a [`ConfigTree`] and write it back, and the
//! [`settings!`](crate::settings) macro with which a component declares its keys.

use std::fmt::Display;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;

use crate::config_tree::{ConfigEntry, ConfigTree, ConfigValue};
use crate::problem::ConfigProblem;

/// A type that can be the value of a key.
pub trait Setting: Sized {
    /// Describes the accepted values, for error messages and the default file.
    fn accepts() -> String;

    /// Reads the value, or adds to `problems` and returns `None`.
    fn read(tree: &ConfigTree, problems: &mut Vec<ConfigProblem>) -> Option<Self>;

    /// Returns the value as it would be written in a file.
    fn to_value(&self) -> ConfigValue;

    /// Returns the inner keys of a map with fixed keys.
    fn keys() -> Vec<ConfigKey> {
        Vec::new()
    }
}

/// The declaration of one key, from which the default file and the manual are generated.
#[derive(Debug, Clone)]
pub struct ConfigKey {
    pub name: &'static str,
    pub doc: &'static [&'static str],
    pub accepts: String,
    pub default: ConfigValue,
    /// Shown in the default file, commented out, if the key has no default.
    pub example: Option<&'static str>,
    pub inner: Vec<ConfigKey>,
}

/// A map with fixed keys; implemented by [`settings!`](crate::settings).
pub trait Section: Default {
    fn keys() -> Vec<ConfigKey>;

    /// Reads one entry. Returns false if the section has no such key.
    fn read_entry(&mut self, entry: &ConfigEntry, problems: &mut Vec<ConfigProblem>) -> bool;

    fn entries(&self) -> Vec<(String, ConfigValue)>;
}

impl<T: Section> Setting for T {
    fn accepts() -> String {
        let names: Vec<&str> = <T as Section>::keys().iter().map(|key| key.name).collect();
        format!("a map with the keys {}", names.join(", "))
    }

    fn read(tree: &ConfigTree, problems: &mut Vec<ConfigProblem>) -> Option<T> {
        let entries = map_entries::<T>(tree, problems)?;
        let before = problems.len();
        let mut section = T::default();
        for entry in entries {
            if !section.read_entry(entry, problems) {
                let keys = <T as Section>::keys();
                let known = keys.iter().map(|key| key.name);
                problems.push(ConfigProblem::unknown_key(
                    &entry.origin,
                    &tree.path,
                    &entry.key,
                    known,
                ));
            }
        }
        (problems.len() == before).then_some(section)
    }

    fn to_value(&self) -> ConfigValue {
        ConfigValue::map(self.entries())
    }

    fn keys() -> Vec<ConfigKey> {
        <T as Section>::keys()
    }
}

/// Returns the entries of a map, or adds a problem that expects `T`. A key without a value is an
/// empty map.
pub fn map_entries<'a, T: Setting>(
    tree: &'a ConfigTree,
    problems: &mut Vec<ConfigProblem>,
) -> Option<&'a [ConfigEntry]> {
    match &tree.value {
        ConfigValue::Map(entries) => Some(entries),
        ConfigValue::Null => Some(&[]),
        _ => {
            let message = format!("expected a map, found {}", tree.kind());
            problems.push(ConfigProblem::value(tree, message, &T::accepts()));
            None
        }
    }
}

/// Reads a scalar with `parse`, or adds a problem that expects `T`.
pub fn read_scalar<T: Setting>(
    tree: &ConfigTree,
    problems: &mut Vec<ConfigProblem>,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Option<T> {
    let parsed = match &tree.value {
        ConfigValue::Scalar(text) => parse(text),
        _ => Err(format!("expected a single value, found {}", tree.kind())),
    };
    parsed
        .map_err(|message| problems.push(ConfigProblem::value(tree, message, &T::accepts())))
        .ok()
}

/// Implements [`Setting`] for a type that is parsed from text by the function given, or else by its
/// `FromStr`, and written by its `Display`.
#[macro_export]
macro_rules! text_setting {
    ($type:ty, $accepts:expr) => {
        $crate::text_setting!($type, $accepts, |text: &str| text
            .parse::<$type>()
            .map_err(|error| error.to_string()));
    };
    ($type:ty, $accepts:expr, $parse:expr) => {
        impl $crate::Setting for $type {
            fn accepts() -> String {
                $accepts.to_string()
            }

            fn read(
                tree: &$crate::ConfigTree,
                problems: &mut Vec<$crate::ConfigProblem>,
            ) -> Option<Self> {
                $crate::read_scalar(tree, problems, $parse)
            }

            fn to_value(&self) -> $crate::ConfigValue {
                $crate::ConfigValue::Scalar(self.to_string())
            }
        }
    };
}

text_setting!(
    bool,
    "true or false (also yes, no, on, off, 1, 0)",
    parse_bool
);
text_setting!(u16, whole_number(0, u16::MAX), parse_whole_number);
text_setting!(u32, whole_number(0, u32::MAX), parse_whole_number);
text_setting!(u64, whole_number(0, u64::MAX), parse_whole_number);
text_setting!(
    NonZeroU32,
    whole_number(1, NonZeroU32::MAX),
    parse_whole_number
);
text_setting!(String, "text", |text: &str| match text {
    "" => Err("the value is empty".to_owned()),
    text => Ok(text.to_owned()),
});

fn parse_bool(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(format!("\"{text}\" is neither true nor false")),
    }
}

fn whole_number(min: u32, max: impl Display) -> String {
    format!("a whole number from {min} to {max}")
}

fn parse_whole_number<T: FromStr>(text: &str) -> Result<T, String> {
    let number = text.replace('_', "").parse::<T>();
    number.map_err(|_| format!("\"{text}\" is not a whole number in range"))
}

impl Setting for PathBuf {
    fn accepts() -> String {
        "a path".to_owned()
    }

    fn read(tree: &ConfigTree, problems: &mut Vec<ConfigProblem>) -> Option<PathBuf> {
        read_scalar(tree, problems, |text| {
            if text.is_empty() || text.contains('\0') {
                return Err("the path is empty or contains a NUL byte".to_owned());
            }
            Ok(PathBuf::from(text))
        })
    }

    fn to_value(&self) -> ConfigValue {
        ConfigValue::Scalar(self.display().to_string())
    }
}

/// An optional key: it may be absent or null.
impl<T: Setting> Setting for Option<T> {
    fn accepts() -> String {
        T::accepts()
    }

    fn read(tree: &ConfigTree, problems: &mut Vec<ConfigProblem>) -> Option<Option<T>> {
        match tree.value {
            ConfigValue::Null => Some(None),
            _ => T::read(tree, problems).map(Some),
        }
    }

    fn to_value(&self) -> ConfigValue {
        self.as_ref().map_or(ConfigValue::Null, T::to_value)
    }

    fn keys() -> Vec<ConfigKey> {
        T::keys()
    }
}

/// A list; a single value is read as a list of one.
impl<T: Setting> Setting for Vec<T> {
    fn accepts() -> String {
        format!("a list; each item: {}", T::accepts())
    }

    fn read(tree: &ConfigTree, problems: &mut Vec<ConfigProblem>) -> Option<Vec<T>> {
        match &tree.value {
            ConfigValue::Null => Some(Vec::new()),
            ConfigValue::List(items) => {
                // Read every item before returning, to report all problems at once.
                let read: Vec<Option<T>> =
                    items.iter().map(|item| T::read(item, problems)).collect();
                read.into_iter().collect()
            }
            _ => T::read(tree, problems).map(|item| vec![item]),
        }
    }

    fn to_value(&self) -> ConfigValue {
        ConfigValue::List(self.iter().map(|item| item.to_value().into()).collect())
    }
}

/// Declares the keys of a component: documentation, name, type and default. Generates the struct,
/// its `Default` and the reader; the default file and the manual are made from the same
/// declaration.
///
/// ```
/// pegel_config::settings! {
///     /// How long samples are kept.
///     pub struct Keep {
///         /// In memory.
///         memory: pegel_config::TimeSpan = pegel_config::TimeSpan::seconds(300),
///         /// A place; the text behind the arrow is the example in the default file.
///         place: Option<String> = None => "here",
///     }
/// }
/// ```
///
/// `..name: Type;` lines before the first key include the keys of another section at the same
/// depth. A block `with { … }` after the keys declares fields that are not keys, with their
/// defaults: the struct is then everything that the component needs to know.
#[macro_export]
macro_rules! settings {
    (
        $(#[doc = $struct_doc:expr])*
        $vis:vis struct $name:ident {
            $(..$part:ident: $part_type:ty;)*
            $(
                $(#[doc = $doc:expr])*
                $key:ident: $type:ty = $default:expr $(=> $example:literal)?
            ),* $(,)?
        } $(with {
            $(
                $(#[doc = $field_doc:expr])*
                $field:ident: $field_type:ty = $field_default:expr
            ),* $(,)?
        })?
    ) => {
        $(#[doc = $struct_doc])*
        #[derive(Debug, Clone)]
        $vis struct $name {
            $(pub $part: $part_type,)*
            $($(#[doc = $doc])* pub $key: $type,)*
            $($($(#[doc = $field_doc])* pub $field: $field_type,)*)?
        }

        impl Default for $name {
            fn default() -> Self {
                $name {
                    $($part: Default::default(),)*
                    $($key: $default,)*
                    $($($field: $field_default,)*)?
                }
            }
        }

        impl $crate::Section for $name {
            fn keys() -> Vec<$crate::ConfigKey> {
                let defaults = <$name as Default>::default();
                let mut keys = Vec::new();
                $(keys.extend(<$part_type as $crate::Section>::keys());)*
                keys.append(&mut vec![$($crate::ConfigKey {
                    name: stringify!($key),
                    doc: &[$($doc),*],
                    accepts: <$type as $crate::Setting>::accepts(),
                    default: $crate::Setting::to_value(&defaults.$key),
                    example: $crate::settings!(@example $($example)?),
                    inner: <$type as $crate::Setting>::keys(),
                }),*]);
                // Unused in a section without keys of its own.
                let _ = &defaults;
                keys
            }

            fn read_entry(
                &mut self,
                entry: &$crate::ConfigEntry,
                problems: &mut Vec<$crate::ConfigProblem>,
            ) -> bool {
                $(if $crate::Section::read_entry(&mut self.$part, entry, problems) {
                    return true;
                })*
                match entry.key.as_str() {
                    $(stringify!($key) => {
                        if let Some(value) = $crate::Setting::read(&entry.value, problems) {
                            self.$key = value;
                        }
                        true
                    })*
                    _ => false,
                }
            }

            fn entries(&self) -> Vec<(String, $crate::ConfigValue)> {
                let mut entries = Vec::new();
                $(entries.extend($crate::Section::entries(&self.$part));)*
                entries.append(&mut vec![
                    $((stringify!($key).to_owned(), $crate::Setting::to_value(&self.$key))),*
                ]);
                entries
            }
        }
    };
    (@example) => { None };
    (@example $example:literal) => { Some($example) };
}
