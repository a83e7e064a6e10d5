//! The limits of the protocol. Both sides refuse what exceeds them. docs/tree-protocol.md lists
//! them.

/// The version of the protocol that this program speaks.
pub const PROTOCOL_VERSION: u32 = 1;

/// The size of a message.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// The elements of lists in a message. More series or nodes need several messages.
pub const MESSAGE_ELEMENTS_MAX: usize = 50_000;

/// The series that one child defines.
pub const SERIES_MAX: usize = 200_000;

/// The texts of all series that one child defines, together.
pub const DEFINITION_BYTES_MAX: usize = 64 << 20;

/// The name and labels of a series. The same limit as that of the data model (`pegel-metric`).
pub const TEXT_BYTES_MAX: usize = 16 * 1024;

/// The help text of a series.
pub const HELP_BYTES_MAX: usize = 4 * 1024;

/// The name of a node or of an aggregation, a version, a unit, the name of a header.
pub const NAME_BYTES_MAX: usize = 255;

/// An error message for people.
pub const REASON_BYTES_MAX: usize = 4 * 1024;

/// The sketch of a partial result.
pub const SKETCH_BYTES_MAX: usize = 16 * 1024;

/// The sketches of all series of one child together, absent ones included.
pub const SKETCHES_BYTES_MAX: usize = 32 << 20;

/// The nodes below one child, itself included.
pub const NODES_MAX: usize = 20_000;

/// The names of nodes in a path to the root: the levels of a tree. The shape of a tree in JSON
/// nests twice as deep, and parsers accept 128.
pub const LEVELS_MAX: usize = 32;

/// The time between two ticks. A child reads all its series for each.
pub const INTERVAL_MS_MIN: u32 = 100;
pub const INTERVAL_MS_MAX: u32 = 3_600_000;

/// The random bytes that identify an agent.
pub const INSTANCE_BYTES: usize = 16;

/// The headers of a request or response.
pub const HEADERS_MAX: usize = 64;

/// The value of a header.
pub const HEADER_VALUE_BYTES_MAX: usize = 8 * 1024;

/// The method of a request.
pub const METHOD_BYTES_MAX: usize = 16;

/// The path and query of a request.
pub const TARGET_BYTES_MAX: usize = 64 * 1024;

/// The body of a response in one message.
pub const CHUNK_BYTES: usize = 64 * 1024;

/// The matchers and the selectors of a select request.
pub const MATCHERS_MAX: usize = 256;
