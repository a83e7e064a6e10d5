//! Counts the elements of lists in the bytes of a message, before the message is decoded. An empty
//! element has two bytes on the wire and about 200 in memory: a message within its limit could
//! otherwise take a hundred times its size.

use prost::encoding::{WireType, decode_key, decode_varint};

use crate::MessageFault;
use crate::limits::MESSAGE_ELEMENTS_MAX;

/// Checks the number of elements in an encoded `ChildMessage` or `ParentMessage`. The lists of both
/// are two levels deep. Other faults of the bytes are left to the decoder.
pub fn check_message_elements(bytes: &[u8]) -> Result<(), MessageFault> {
    let mut count = 0;
    count_elements(bytes, 2, &mut count)
}

fn count_elements(mut rest: &[u8], levels: u32, count: &mut usize) -> Result<(), MessageFault> {
    while !rest.is_empty() {
        // The decoder stops at the same byte.
        let Ok((_, wire_type)) = decode_key(&mut rest) else {
            return Ok(());
        };
        let length = match wire_type {
            WireType::Varint => {
                if decode_varint(&mut rest).is_err() {
                    return Ok(());
                }
                0
            }
            WireType::ThirtyTwoBit => 4,
            WireType::SixtyFourBit => 8,
            WireType::LengthDelimited => match decode_varint(&mut rest) {
                Ok(length) => length,
                Err(_) => return Ok(()),
            },
            // Not in proto3. The decoder would skip it and continue with what follows.
            WireType::StartGroup | WireType::EndGroup => {
                return Err(MessageFault::Group { field: "message" });
            }
        };
        let length = usize::try_from(length).ok();
        let Some((content, after)) = length.and_then(|length| rest.split_at_checked(length)) else {
            return Ok(());
        };
        rest = after;
        if wire_type != WireType::LengthDelimited {
            continue;
        }
        *count += 1;
        if *count > MESSAGE_ELEMENTS_MAX {
            return Err(MessageFault::TooMany {
                field: "message",
                count: *count,
                limit: MESSAGE_ELEMENTS_MAX,
            });
        }
        if levels > 1 {
            count_elements(content, levels - 1, count)?;
        }
    }
    Ok(())
}
