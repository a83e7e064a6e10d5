//! Configuration: components declare their keys here, and files, the environment and the command
//! line are read into typed values.
//!
//! 1. A component declares its keys once, with [`settings!`]: documentation, type, default.
//! 2. [`load`] reads a file and its includes into a [`ConfigTree`], in which every value has an
//!    origin. The environment and the command line override it with [`ConfigTree::set`].
//! 3. [`read`] turns the tree into the component's struct, or into one [`ConfigError`] with every
//!    problem: file, line, column, key and the accepted values.
//! 4. [`default_file`] generates the file that documents every key.

mod config_tree;
mod default_file;
mod inline_yaml;
mod load;
mod map_setting;
mod problem;
mod secret;
mod setting;
mod user_info;
mod values;
mod yaml;

pub use config_tree::{ConfigEntry, ConfigOrigin, ConfigTree, ConfigValue};
pub use default_file::default_file;
pub use load::{FILE_BYTES_MAX, FILES_MAX, INCLUDE_DEPTH_MAX, load, matching_files, read_text};
pub use problem::{ConfigError, ConfigProblem};
pub use secret::Secret;
pub use setting::{ConfigKey, Section, Setting, map_entries, read_scalar};
pub use user_info::{UserInfo, user_name_in};
pub use values::{
    ByteSize, DetailLevel, HostName, ListenAddress, LogConfig, LogDestination, LogLevel,
    OptionalTimeSpan, SampleInterval, TimeSpan, UserRef,
};

/// Parses the text of a configuration file without its includes. `name` stands for the file in
/// messages.
pub fn parse(name: &std::path::Path, text: &str) -> Result<ConfigTree, ConfigError> {
    yaml::parse(&std::sync::Arc::from(name), text).map_err(ConfigError::from)
}

/// Reads a whole configuration, or returns all problems found in it.
pub fn read<T: Setting>(tree: &ConfigTree) -> Result<T, ConfigError> {
    let mut problems = Vec::new();
    match T::read(tree, &mut problems) {
        Some(value) if problems.is_empty() => Ok(value),
        _ => Err(ConfigError { problems }),
    }
}
