//! Encoding of whole messages, and texts in them.

use bytes::Bytes;
use pegel_tree_protocol::{ChildMessage, ParentMessage, child_message, parent_message};
use prost::Message;

/// Returns the first `bytes_max` bytes of a text, or fewer if a character would be cut.
pub(crate) fn shortened(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

pub(crate) fn encode_to_child(kind: parent_message::Kind) -> Bytes {
    ParentMessage { kind: Some(kind) }.encode_to_vec().into()
}

pub(crate) fn encode_to_parent(kind: child_message::Kind) -> Bytes {
    ChildMessage { kind: Some(kind) }.encode_to_vec().into()
}
