//! Protobuf, as much of it as a request of OTLP needs.

/// Kinds of fields, the low bits of a key.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

/// A message in the making.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub(super) fn bytes_so_far(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }

    /// Takes back what was written after the first `bytes`.
    pub(super) fn truncate(&mut self, bytes: usize) {
        self.0.truncate(bytes);
    }

    /// Fields that were written elsewhere.
    pub(super) fn fields(&mut self, written: &[u8]) {
        self.0.extend_from_slice(written);
    }

    /// A message within the message, written by `write`.
    pub(super) fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        self.key(field, LENGTH);
        let start = self.0.len();
        // Its length goes before it and is known after it: most fit into this byte.
        self.0.push(0);
        write(self);
        let end = self.0.len();
        let length = end - start - 1;
        if let Ok(length @ ..0x80) = u8::try_from(length) {
            self.0[start] = length;
            return;
        }
        self.varint(wide(length));
        // What was written last, the length, goes first.
        let size = self.0.len() - end;
        self.0[start + 1..].rotate_right(size);
        self.0.remove(start);
    }

    /// The beginning of a message that `length` bytes of fields are to follow.
    pub(super) fn begin(&mut self, field: u32, length: usize) {
        self.key(field, LENGTH);
        self.varint(wide(length));
    }

    /// Nothing for an empty one.
    pub(super) fn text(&mut self, field: u32, text: &str) {
        if !text.is_empty() {
            self.bytes(field, text.as_bytes());
        }
    }

    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.begin(field, bytes.len());
        self.0.extend_from_slice(bytes);
    }

    /// Nothing for 0.
    pub(super) fn number(&mut self, field: u32, number: u64) {
        if number > 0 {
            self.chosen_number(field, number);
        }
    }

    pub(super) fn chosen_number(&mut self, field: u32, number: u64) {
        self.key(field, VARINT);
        self.varint(number);
    }

    pub(super) fn fixed32(&mut self, field: u32, number: u32) {
        self.key(field, FIXED32);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn fixed64(&mut self, field: u32, number: u64) {
        self.key(field, FIXED64);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn key(&mut self, field: u32, kind: u64) {
        self.varint(u64::from(field) << 3 | kind);
    }

    /// Seven bits in a byte, the lowest first; the eighth says that there are more.
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }
}

fn wide(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
