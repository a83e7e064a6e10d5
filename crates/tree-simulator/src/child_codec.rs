//! The messages of a child's stream, for tonic, on both sides.

use pegel_tree_protocol::{ChildMessage, ParentMessage};
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

#[derive(Debug, Clone, Copy)]
pub(crate) struct ChildCodec;

impl Codec for ChildCodec {
    type Encode = ChildMessage;
    type Decode = ParentMessage;
    type Encoder = ChildCodec;
    type Decoder = ChildCodec;

    fn encoder(&mut self) -> ChildCodec {
        ChildCodec
    }

    fn decoder(&mut self) -> ChildCodec {
        ChildCodec
    }
}

impl Encoder for ChildCodec {
    type Item = ChildMessage;
    type Error = Status;

    fn encode(&mut self, message: ChildMessage, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let encoded = message.encode(out);
        encoded.map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for ChildCodec {
    type Item = ParentMessage;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<ParentMessage>, Status> {
        let decoded = ParentMessage::decode(bytes);
        let decoded = decoded.map_err(|error| Status::invalid_argument(error.to_string()));
        decoded.map(Some)
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ParentCodec;

impl Codec for ParentCodec {
    type Encode = ParentMessage;
    type Decode = ChildMessage;
    type Encoder = ParentCodec;
    type Decoder = ParentCodec;

    fn encoder(&mut self) -> ParentCodec {
        ParentCodec
    }

    fn decoder(&mut self) -> ParentCodec {
        ParentCodec
    }
}

impl Encoder for ParentCodec {
    type Item = ParentMessage;
    type Error = Status;

    fn encode(&mut self, message: ParentMessage, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let encoded = message.encode(out);
        encoded.map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for ParentCodec {
    type Item = ChildMessage;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<ChildMessage>, Status> {
        let decoded = ChildMessage::decode(bytes);
        let decoded = decoded.map_err(|error| Status::invalid_argument(error.to_string()));
        decoded.map(Some)
    }
}
