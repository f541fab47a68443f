//! How gRPC carries requests that are written already.

use bytes::{Buf, BufMut, Bytes};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// Requests that are written already.
pub(super) struct Written;

impl Codec for Written {
    type Encode = Bytes;
    type Decode = ExportTraceServiceResponse;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Written {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, request: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(request);
        Ok(())
    }
}

impl Decoder for Written {
    type Item = ExportTraceServiceResponse;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Status> {
        // All of it, since what is left would be read as the next answer.
        let answer = from.copy_to_bytes(from.remaining());
        Ok(Some(ExportTraceServiceResponse::decode(answer).unwrap_or_default()))
    }
}
