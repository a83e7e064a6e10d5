//! Configuration: how components declare their keys, and how files, environment and command line
//! become values.
//!
//! 1. A component declares its keys once, with [`settings!`]: documentation, type, default.
//! 2. [`load`] reads a file and its includes into a [`Tree`], where every value knows its place.
//!    The environment and the command line are laid over it with [`Tree::set`].
//! 3. [`read`] turns the tree into the component's struct, or into one [`ConfigError`] that holds
//!    every mistake with file, line, column, key and what would be accepted.
//! 4. [`default_file`] writes the file that explains every key.

mod config_tree;
mod default_file;
mod error_chain;
mod load;
mod map_setting;
mod plain_file;
mod problem;
mod secret;
mod setting;
mod values;
mod yaml;
mod yaml_value;

pub use config_tree::{ConfigEntry, ConfigOrigin, ConfigTree, ConfigValue};
pub use default_file::default_file;
pub use error_chain::with_causes;
pub use load::{FILE_BYTES_MAX, FILES_MAX, INCLUDE_DEPTH_MAX, load};
pub use plain_file::{open_plain, read_plain};
pub use problem::{ConfigError, ConfigProblem};
pub use secret::Secret;
pub use setting::{ConfigKey, Section, Setting, scalar};
pub use values::{
    ByteSize, DetailLevel, HostName, ListenAddress, LogConfig, LogDestination, LogLevel,
    SampleInterval, TimeSpan, UserRef,
};
pub use yaml_value::YamlValue;

/// Reads a whole configuration.
pub fn read<T: Setting>(tree: &ConfigTree) -> Result<T, ConfigError> {
    let mut problems = Vec::new();
    match T::read(tree, &mut problems) {
        Some(value) if problems.is_empty() => Ok(value),
        _ => Err(ConfigError { problems }),
    }
}
