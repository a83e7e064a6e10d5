//! The protocol between the agents of a tree: messages, the coding of ticks and samples, and the
//! traits by which the HTTP server and the tree call each other. Pure functions over bytes, without
//! I/O. Input is untrusted: malformed bytes give an error, never a panic, and memory is bounded by
//! stated limits. docs/tree-protocol.md describes the protocol.

pub mod limits;
mod message_checks;
mod message_elements;
mod messages;
mod node_calls;
mod number_forms;
mod partial_ticks;
mod sample_columns;
mod select_frames;
#[cfg(test)]
mod tests;
mod tick_bytes;
mod value_ticks;

pub use message_checks::{
    DefinitionCheck, MessageFault, check_child_message, check_definitions, check_hello,
    check_node_name, check_node_updates, check_parent_message, check_request, check_response_chunk,
    check_response_head, check_select, check_tick, check_welcome,
};
pub use message_elements::check_message_elements;
pub use messages::*;
pub use node_calls::{
    BodyParts, BoxFuture, ChildAnswer, FanOut, LocalServer, NodeReport, NodeRow, NodeStatus,
    NodeTree, TreeCallError, TreeRequest, TreeResponse,
};
pub use partial_ticks::{PartialCell, PartialTickDecoder, PartialTickEncoder};
pub use prost::Message;
pub use sample_columns::{
    decode_partials, decode_times, decode_values, encode_partials, encode_times, encode_values,
};
pub use select_frames::{SelectFrameError, SelectReader, SelectTooLarge, SelectWriter};
pub use tick_bytes::TickCodecError;
pub use value_ticks::{ValueTickDecoder, ValueTickEncoder};
