//! Spans that wait to be sent, written already.

use std::collections::VecDeque;

use opentelemetry_sdk::trace::SpanData;

use super::{protobuf::Writer, request};

/// Spans in one request.
const MOST_SPANS: u64 = 512;
/// Bytes in one request, but for its last span, and in one span, which is lost if it is longer:
/// collectors take 4 MiB over gRPC unless told otherwise.
const MOST_BYTES: usize = 1024 * 1024;
/// Bytes that wait, but for the last span; a span beyond is lost.
const MOST_WAITING: usize = 8 * 1024 * 1024;
/// Room for a full batch of ordinary spans. What is not written costs an address and no memory.
const ROOM: usize = 256 * 1024;

/// The spans of one request.
#[derive(Debug)]
pub(super) struct Batch {
    written: Writer,
    spans: u64,
}

impl Batch {
    pub(super) fn spans(&self) -> u64 {
        self.spans
    }

    pub(super) fn written(&self) -> &[u8] {
        self.written.bytes_so_far()
    }

    fn is_full(&self) -> bool {
        self.spans >= MOST_SPANS || self.written().len() >= MOST_BYTES
    }
}

/// All that wait, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Batches {
    waiting: VecDeque<Batch>,
    bytes: usize,
    lost: u64,
}

impl Batches {
    /// Writes `span`, and tells whether that is news to who sends: the first span, or a full batch.
    pub(super) fn add(&mut self, span: &SpanData) -> bool {
        if self.bytes >= MOST_WAITING {
            self.lost += 1;
            return false;
        }
        let is_first = self.waiting.is_empty();
        if self.waiting.back().is_none_or(Batch::is_full) {
            let written = Writer::with_capacity(ROOM);
            self.waiting.push_back(Batch { written, spans: 0 });
        }
        let Some(batch) = self.waiting.back_mut() else { return false };
        let before = batch.written().len();
        request::add_span(&mut batch.written, span);
        let length = batch.written().len() - before;
        if length > MOST_BYTES {
            batch.written.truncate(before);
            self.lost += 1;
            return is_first;
        }
        batch.spans += 1;
        self.bytes += length;
        is_first || batch.is_full()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether there is one that need not wait for more.
    pub(super) fn has_full(&self) -> bool {
        self.waiting.front().is_some_and(Batch::is_full)
    }

    /// The oldest batch, full or not.
    pub(super) fn take(&mut self) -> Option<Batch> {
        let batch = self.waiting.pop_front()?;
        self.bytes -= batch.written().len();
        Some(batch)
    }

    /// How many found no room, or were too long, since this was last asked.
    pub(super) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::request::tests::span, *};

    #[test]
    fn a_batch_is_news_when_it_begins_and_when_it_is_full() {
        let mut batches = Batches::default();
        let news: Vec<_> = (0..1200).filter(|_| batches.add(&span("short"))).collect();
        assert_eq!(news, [0, 511, 1023]);
        assert!(batches.has_full());
        let taken = |batches: &mut Batches| batches.take().map(|batch| batch.spans());
        assert_eq!([(); 4].map(|()| taken(&mut batches)), [Some(512), Some(512), Some(176), None]);
        assert!(batches.is_empty() && !batches.has_full());
        assert_eq!(batches.bytes, 0);
    }

    #[test]
    fn a_span_that_is_too_long_is_lost_and_the_others_are_not() {
        let mut batches = Batches::default();
        batches.add(&span("one"));
        batches.add(&span(&"x".repeat(MOST_BYTES)));
        batches.add(&span("two"));
        assert_eq!(batches.take_lost(), 1);
        let batch = batches.take().unwrap();
        assert_eq!(batch.spans(), 2);
        let mut both = Writer::default();
        request::add_span(&mut both, &span("one"));
        request::add_span(&mut both, &span("two"));
        assert_eq!(batch.written(), both.bytes_so_far());
    }

    #[test]
    fn long_spans_make_more_batches_and_no_more_wait_than_there_is_room_for() {
        let long = span(&"x".repeat(MOST_BYTES / 4));
        let mut batches = Batches::default();
        for _ in 0..40 {
            batches.add(&long);
        }
        // Each is a little longer than a quarter, so four fill a batch, and eight batches the room.
        assert_eq!(batches.take_lost(), 8);
        assert_eq!(batches.take_lost(), 0);
        let first = batches.take().unwrap();
        assert_eq!(first.spans(), 4);
        assert!(first.written().len() < MOST_BYTES + MOST_BYTES / 2);
        batches.add(&long);
        assert_eq!(batches.take_lost(), 0);
    }
}
