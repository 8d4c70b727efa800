//! The value of an EVENTS entry: what one transaction changed.
//!
//! ```text
//! transaction := flags:varint time:i64 metadata_bytes:varint metadata count:varint event{count}
//! event       := kind:u8 key_bytes:varint key sub:varint
//!                [create_revision:varint version:varint lease:varint value_bytes:varint]   puts only
//!                [value]                                                                   kind 3 only
//! ```
//!
//! A put's value is repeated here (kind 3) or not (kind 1): then it is read by (key, revision) from
//! HEAD, HISTORY or L0. Which of them is up to the writer: repeated values make a replay read one file
//! from front to back, and take their room twice. Keys are the user's, without the space byte. The
//! revision is the entry's. The flags are those of the frame that wrote it, [`TIME_UPTO`] and [`THINNED`].

use crate::cursor::{Reader, Writer};
use crate::error::{Problem, Result};
use crate::limits::{
    BLOCK_RAW_BYTES_MAX, KEY_BYTES_MAX, METADATA_BYTES_MAX, TRANSACTION_OPERATIONS_MAX,
    VALUE_BYTES_MAX,
};

/// What happened to a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum EventKind {
    /// A value was put.
    #[default]
    Put = 1,
    /// The key was deleted.
    Delete = 2,
}

/// One change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventRef<'a> {
    /// Put or delete.
    pub kind: EventKind,
    /// The user's key.
    pub key: &'a [u8],
    /// Position of the write within its transaction.
    pub sub: u32,
    /// Revision that began the key's lifetime; 0 for a delete.
    pub create_revision: u64,
    /// Version of the key; 0 for a delete.
    pub version: u64,
    /// The lease attached; 0 = none.
    pub lease: i64,
    /// Length of the value; 0 for a delete.
    pub value_bytes: u64,
    /// The value, where it is repeated.
    pub value: Option<&'a [u8]>,
}

/// A flag: when the transaction was ordered is not known, but that it was not later than the time given.
pub const TIME_UPTO: u64 = 4;

/// A flag: changes of the transaction are left out, of keys that can be read at later revisions only. So of such a key an
/// older change may be told, and a newer one not.
pub const THINNED: u64 = 8;

/// The kind byte of a put whose value is repeated.
const KIND_PUT_WITH_VALUE: u8 = 3;

/// Builds the value of an EVENTS entry.
#[derive(Debug, Default)]
pub struct TransactionBuilder {
    events: Vec<u8>,
    count: u64,
}

impl TransactionBuilder {
    /// A transaction without events.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an event; the transaction's own order is kept. A value that is given is repeated, and
    /// then counts instead of `value_bytes`.
    pub fn push(&mut self, event: &EventRef<'_>) {
        self.count += 1;
        let value = event.value.filter(|_| event.kind == EventKind::Put);
        self.events.put_u8(value.map_or(event.kind as u8, |_| KIND_PUT_WITH_VALUE));
        self.events.put_prefixed(event.key);
        self.events.put_varint(u64::from(event.sub));
        if event.kind == EventKind::Put {
            self.events.put_varint(event.create_revision);
            self.events.put_varint(event.version);
            self.events.put_varint(event.lease.cast_unsigned());
            match value {
                Some(value) => self.events.put_prefixed(value),
                None => self.events.put_varint(event.value_bytes),
            }
        }
    }

    /// How many events there are.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Bytes of the events so far.
    pub const fn event_bytes(&self) -> usize {
        self.events.len()
    }

    /// Appends the whole value to `out` and starts over.
    pub fn finish(&mut self, flags: u64, time: i64, metadata: &[u8], out: &mut Vec<u8>) {
        out.put_varint(flags);
        out.put_i64(time);
        out.put_prefixed(metadata);
        out.put_varint(self.count);
        out.put_bytes(&self.events);
        self.events.clear();
        self.count = 0;
    }
}

/// An entry of a block of EVENTS, read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryOf<'a> {
    /// The revision, which is also the key.
    pub revision: u64,
    /// The value: a [`Transaction`].
    pub value: &'a [u8],
    /// Where the next entry begins.
    pub next: usize,
}

/// Bytes of a revision that is a key.
const REVISION_BYTES: u64 = 8;

/// The entry at `at` among the `entries` of a block of EVENTS; `None` at their end. `before` is the
/// revision of the entry before it, `None` at the start of a block or at a restart point.
///
/// Reads what any entry has, and proves that this one is what EVENTS hold: ascending revisions that
/// are their own keys, and nothing else beside a value.
#[inline]
pub fn entry(entries: &[u8], at: usize, before: Option<u64>) -> Result<Option<EntryOf<'_>>> {
    let mut reader = Reader::new("entry", entries);
    reader.bytes("start", at)?;
    if reader.is_empty() {
        return Ok(None);
    }
    let shared = reader.varint("shared")?;
    let max = if before.is_some() { REVISION_BYTES } else { 0 };
    if shared > max {
        return Err(reader.error_at("shared", at, Problem::TooLong { max, found: shared }));
    }
    let suffix = reader.prefixed("suffix", REVISION_BYTES)?;
    let mut key = before.unwrap_or_default().to_be_bytes();
    let differs = usize::try_from(shared).ok().and_then(|shared| key.get_mut(shared..));
    let Some(differs) = differs.filter(|differs| differs.len() == suffix.len()) else {
        let found = shared + suffix.len() as u64;
        return Err(reader.error_at("suffix", at, Problem::Invalid { found }));
    };
    for (to, from) in differs.iter_mut().zip(suffix) {
        *to = *from;
    }
    let expected = u64::from_be_bytes(key);
    if before.is_some_and(|before| before >= expected) {
        return Err(reader.error_at("suffix", at, Problem::Order));
    }
    let start = reader.position();
    let flags = reader.u8("flags")?;
    if flags != 0 {
        let found = u64::from(flags);
        return Err(reader.error_at("flags", start, Problem::Invalid { found }));
    }
    let start = reader.position();
    let revision = reader.varint("revision")?;
    if revision != expected {
        let problem = Problem::Mismatch { expected, found: revision };
        return Err(reader.error_at("revision", start, problem));
    }
    for field in ["sub", "create_revision", "version"] {
        let start = reader.position();
        if reader.u8(field)? != 0 {
            return Err(reader.error_at(field, start, Problem::NotZero));
        }
    }
    let value = reader.prefixed("value", BLOCK_RAW_BYTES_MAX)?;
    Ok(Some(EntryOf { revision, value, next: reader.position() }))
}

/// The value of an EVENTS entry, read in place.
#[derive(Clone, Debug)]
pub struct Transaction<'a> {
    /// The flags of the frame that wrote it, [`TIME_UPTO`] and [`THINNED`].
    pub flags: u64,
    /// Microseconds since the Unix epoch. With [`TIME_UPTO`] it was not later.
    pub time: i64,
    /// What the transaction was given to carry.
    pub metadata: &'a [u8],
    /// How many events there are.
    pub count: u64,
    events: Reader<'a>,
}

impl<'a> Transaction<'a> {
    /// Reads the part before the events. Costs the same however many events there are.
    #[inline]
    pub fn decode(value: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new("event transaction", value);
        let flags = reader.varint("flags")?;
        let time = reader.i64("time")?;
        let metadata = reader.prefixed("metadata", METADATA_BYTES_MAX)?;
        let at = reader.position();
        let found = reader.varint("count")?;
        // An event takes at least three bytes.
        let max = TRANSACTION_OPERATIONS_MAX.min(reader.remaining() as u64 / EVENT_BYTES_MIN);
        if found > max {
            return Err(reader.error_at("count", at, Problem::TooLong { max, found }));
        }
        Ok(Self { flags, time, metadata, count: found, events: reader })
    }

    /// The events, in the transaction's order. After an error there are no more.
    pub fn events(&self) -> Events<'a> {
        Events { left: self.count, reader: self.events.clone(), failed: false }
    }
}

/// Kind, length of an empty key, sub.
const EVENT_BYTES_MIN: u64 = 3;

/// The events of a transaction.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    left: u64,
    reader: Reader<'a>,
    failed: bool,
}

impl<'a> Events<'a> {
    #[expect(
        clippy::inline_always,
        reason = "a replay decodes millions, and moving one costs as much"
    )]
    #[inline(always)]
    fn event(&mut self) -> Result<EventRef<'a>> {
        let reader = &mut self.reader;
        let at = reader.position();
        let number = reader.u8("kind")?;
        let kind = match number {
            1 | KIND_PUT_WITH_VALUE => EventKind::Put,
            2 => EventKind::Delete,
            number => {
                let found = u64::from(number);
                return Err(reader.error_at("kind", at, Problem::Invalid { found }));
            }
        };
        let key = reader.prefixed("key", KEY_BYTES_MAX)?;
        let sub = reader.varint_u32("sub")?;
        let mut event = EventRef { kind, key, sub, ..EventRef::default() };
        if kind == EventKind::Put {
            event.create_revision = reader.varint("create_revision")?;
            event.version = reader.varint("version")?;
            event.lease = reader.varint("lease")?.cast_signed();
            let at = reader.position();
            if number == KIND_PUT_WITH_VALUE {
                let value = reader.prefixed("value", VALUE_BYTES_MAX)?;
                event.value_bytes = value.len() as u64;
                event.value = Some(value);
                return Ok(event);
            }
            event.value_bytes = reader.varint("value_bytes")?;
            let (max, found) = (VALUE_BYTES_MAX, event.value_bytes);
            if found > max {
                return Err(reader.error_at("value_bytes", at, Problem::TooLong { max, found }));
            }
        }
        Ok(event)
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Result<EventRef<'a>>;

    #[expect(clippy::inline_always, reason = "as with `event`")]
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        if self.left == 0 {
            // The end is checked once, by whoever reads to the end.
            let end = self.reader.finish().err()?;
            self.failed = true;
            return Some(Err(end));
        }
        self.left -= 1;
        let event = self.event();
        self.failed = event.is_err();
        Some(event)
    }
}
