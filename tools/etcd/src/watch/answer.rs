//! Answers of a stream of watches, whose events are encoded once for all watches that tell them.

use std::sync::Arc;

use annals::Batch;
use bytes::{BufMut, Bytes};
use prost::Message as _;
use tonic::Status;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic_prost::ProstCodec;

use crate::answers;
use crate::proto::etcdserverpb as pb;

/// The number of the field `events` of a `WatchResponse`, its last: what is encoded before goes behind all else.
const EVENTS: u32 = 11;

/// The events of a batch, as they are in an answer.
#[derive(Debug)]
pub(super) struct EncodedEvents {
    encoded: Bytes,
    pub(super) count: u64,
}

impl EncodedEvents {
    /// Those of a batch, which all watches that tell it share.
    pub(super) fn of(batch: &Batch) -> Arc<Self> {
        batch.derived(|batch| {
            let events: Vec<_> = batch.events().iter().map(answers::event).collect();
            let bytes = |event| prost::encoding::message::encoded_len(EVENTS, event);
            let mut encoded = Vec::with_capacity(events.iter().map(bytes).sum());
            for event in &events {
                prost::encoding::message::encode(EVENTS, event, &mut encoded);
            }
            Self { encoded: encoded.into(), count: events.len() as u64 }
        })
    }

    /// Bytes they take in an answer.
    pub(super) fn bytes(&self) -> usize {
        self.encoded.len()
    }
}

/// An answer: all but its events, and these.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) head: pb::WatchResponse,
    pub(super) events: Vec<Arc<EncodedEvents>>,
}

impl From<pb::WatchResponse> for Answer {
    fn from(head: pb::WatchResponse) -> Self {
        Self { head, events: Vec::new() }
    }
}

/// Reads requests as for any method, and writes answers.
#[derive(Debug, Default)]
pub(super) struct WatchCodec(ProstCodec<pb::WatchResponse, pb::WatchRequest>);

impl Codec for WatchCodec {
    type Encode = Answer;
    type Decode = pb::WatchRequest;
    type Encoder = AnswerEncoder;
    type Decoder = <ProstCodec<pb::WatchResponse, pb::WatchRequest> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        AnswerEncoder
    }

    fn decoder(&mut self) -> Self::Decoder {
        self.0.decoder()
    }
}

/// See [`WatchCodec`].
#[derive(Debug)]
pub(super) struct AnswerEncoder;

impl Encoder for AnswerEncoder {
    type Item = Answer;
    type Error = Status;

    fn encode(&mut self, answer: Answer, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        answer.encode(to)
    }
}

impl Answer {
    /// Bytes of its events.
    pub(super) fn bytes(&self) -> usize {
        self.events.iter().map(|events| events.bytes()).sum()
    }

    fn encode(&self, to: &mut impl BufMut) -> Result<(), Status> {
        self.head.encode(to).map_err(|error| Status::internal(error.to_string()))?;
        for events in &self.events {
            to.put_slice(&events.encoded);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_what_it_would_be_in_one_piece() -> annals::Result<()> {
        let options = annals::Options::new().vfs(Arc::new(annals::vfs::MemoryVfs::new()));
        let store = options.open("store")?;
        let mut watch = store.watch("/").prefix().prev_kv().start()?;
        store.put("/a", "1")?;
        store.put("/a", vec![7; 300])?;
        store.txn().then([annals::put("/b", "2"), annals::delete("/a")]).commit()?;
        let mut head = pb::WatchResponse { watch_id: 3, fragment: true, ..Default::default() };
        head.header = Some(pb::ResponseHeader { revision: 4, ..Default::default() });
        let mut answer = Answer::from(head.clone());
        let mut whole = head;
        for _ in 0..3 {
            let Some(batch) = watch.next().transpose()? else { break };
            let events = EncodedEvents::of(&batch);
            assert_eq!(events.count, batch.len() as u64);
            assert!(Arc::ptr_eq(&events, &EncodedEvents::of(&batch)), "encoded once");
            answer.events.push(events);
            whole.events.extend(batch.events().iter().map(answers::event));
        }
        assert_eq!(whole.events.len(), 4);
        let mut encoded = Vec::new();
        answer.encode(&mut encoded).expect("there is room");
        assert_eq!(encoded, whole.encode_to_vec());
        Ok(())
    }
}
