//! Groups put together by hand, field by field, good and bad ones; and a codec without zstd.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, reason = "in a test that is how to fail")]

use annals_format::block::{BlockHeader, Encoding};
use annals_format::cursor::Writer;
use annals_format::entry::EntryRef;
use annals_format::group::{
    ALPHABET_SHIFT, Codec, FLAG_DEATHS, FLAG_LEASE, FLAG_LEASES, FLAG_LIFETIMES, FLAG_SUBS,
    FLAGS_COLUMNS, FLAGS_WIDTH, Groups, KIND_DICTIONARY, KIND_NEIGHBOUR, KIND_OWN, KIND_RAW,
    KIND_TOMBSTONE, KIND_ZSTD, KIND_ZSTD_DICTIONARY, Scratch, Shape,
};
use annals_format::{DecodeError, FileKind};
use xxhash_rust::xxh3::xxh3_64;

/// A group as it stands in a block: nothing is derived from anything else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Made {
    pub(crate) flags: u8,
    pub(crate) key_suffix: &'static [u8],
    pub(crate) revision: u64,
    pub(crate) lived: u64,
    pub(crate) sub: u64,
    /// `version` and `create`.
    pub(crate) life: (u64, u64),
    pub(crate) lease: i64,
    pub(crate) offsets: Vec<u64>,
    pub(crate) columns: Vec<u8>,
    pub(crate) shape_of: Vec<u8>,
    pub(crate) shapes: Vec<Shape>,
    /// Bits of `widths` that are not as they should be.
    pub(crate) widths_flipped: u8,
    pub(crate) ops: Vec<u8>,
    pub(crate) payloads: Vec<Vec<u8>>,
}

impl Made {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.flags);
        out.put_u8(u8::try_from(self.shape_of.len()).unwrap());
        out.put_prefixed(self.key_suffix);
        out.put_varint(self.revision);
        out.put_varint(self.lived);
        out.put_varint(self.sub);
        out.put_varint(self.life.0);
        if self.life.0 != 0 {
            out.put_varint(self.life.1);
        }
        if self.flags & FLAG_LEASE != 0 {
            out.put_varint(self.lease.cast_unsigned());
        }
        let width = usize::from(self.flags & FLAGS_WIDTH) + 1;
        for offset in &self.offsets {
            out.put_bytes(&offset.to_le_bytes()[..width]);
        }
        if self.flags & FLAGS_COLUMNS != 0 {
            out.put_prefixed(&self.columns);
        }
        out.put_bytes(&self.shape_of);
        out.put_u8(u8::try_from(self.shapes.len()).unwrap());
        out.put_varint(self.ops.len() as u64);
        let widths = self.widths();
        let [value, payload, ops_at] = widths;
        let byte = (value - 1) | (payload - 1) << 2 | ops_at << 4;
        out.put_u8(u8::try_from(byte).unwrap() ^ self.widths_flipped);
        for shape in &self.shapes {
            out.put_u8(shape.kind | shape.alphabet << ALPHABET_SHIFT);
        }
        for shape in &self.shapes {
            out.put_u8(shape.base);
        }
        let columns: [fn(&Shape) -> u32; 3] =
            [|shape| shape.value_bytes, |shape| shape.payload_bytes, |shape| shape.ops_at];
        for (number, width) in columns.iter().zip(widths) {
            for shape in &self.shapes {
                out.put_bytes(&number(shape).to_le_bytes()[..width]);
            }
        }
        out.put_bytes(&self.ops);
        for payload in &self.payloads {
            out.put_bytes(payload);
        }
    }

    /// Bytes of a `value_bytes`, a `payload_bytes` and an `ops_at`, as few as hold all of them.
    pub(crate) fn widths(&self) -> [usize; 3] {
        let widest = |number: fn(&Shape) -> u32| {
            let most = self.shapes.iter().map(number).max().unwrap_or(0);
            (0..4).find(|bytes| u64::from(most) < 1 << (8 * bytes)).unwrap_or(4)
        };
        let value = widest(|shape| shape.value_bytes).max(1);
        [value, widest(|shape| shape.payload_bytes).max(1), widest(|shape| shape.ops_at)]
    }

    /// A group of one version, whose value is in it as it is.
    pub(crate) fn raw(key_suffix: &'static [u8], revision: u64, value: &[u8]) -> Self {
        Self {
            key_suffix,
            revision,
            lived: 1,
            life: (1, 0),
            shape_of: vec![0],
            shapes: vec![shape(KIND_RAW, 0, value.len(), value.len(), 0)],
            payloads: vec![value.to_vec()],
            ..Self::default()
        }
    }
}

/// A shape without an alphabet.
pub(crate) fn shape(kind: u8, base: u8, value: usize, payload: usize, ops_at: usize) -> Shape {
    let short = |number| u32::try_from(number).unwrap();
    let (value_bytes, payload_bytes, ops_at) = (short(value), short(payload), short(ops_at));
    Shape { kind, alphabet: 0, base, value_bytes, payload_bytes, ops_at }
}

/// Ops of (insert, copy, skip).
pub(crate) fn ops(list: &[(u64, u64, i64)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (insert, copy, skip) in list {
        out.put_varint(*insert);
        out.put_varint(*copy);
        out.put_varint((skip << 1 ^ skip >> 63).cast_unsigned());
    }
    out
}

/// The stored bytes of a block.
pub(crate) fn block(prefix: &[u8], groups: &[Made]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u16(u16::try_from(groups.len()).unwrap());
    out.put_prefixed(prefix);
    let hashes = groups.iter().map(|group| xxh3_64(group.key_suffix).to_le_bytes()[0]);
    let first = out.len() + 5 * groups.len() - 4;
    let mut bodies = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        group.encode(&mut bodies);
        if index + 1 < groups.len() {
            out.put_u32(u32::try_from(first + bodies.len()).unwrap());
        }
    }
    out.put_bytes(&hashes.collect::<Vec<_>>());
    out.put_bytes(&bodies);
    out
}

/// A header that says what a block of groups holds.
pub(crate) fn header(stored: &[u8], entry_count: u32, raw_bytes: u32) -> BlockHeader {
    BlockHeader {
        kind: FileKind::History,
        encoding: Encoding::Groups,
        raw_bytes,
        stored_bytes: u32::try_from(stored.len()).unwrap(),
        entry_count,
        base_distance: 0,
    }
}

/// A "frame" is the value backwards; over the dictionary, with every byte mixed with its first.
#[derive(Debug)]
pub(crate) struct Backwards(pub(crate) &'static [u8]);

/// The content of the dictionary of most tests.
pub(crate) const DICTIONARY: &[u8] = b"{\"phase\":\"Running\",\"ready\":true}";

pub(crate) fn frame(value: &[u8], dictionary: Option<&[u8]>) -> Vec<u8> {
    let mask = dictionary.map_or(0, |content| content[0]);
    value.iter().rev().map(|byte| byte ^ mask).collect()
}

impl Codec for Backwards {
    type Frame = Vec<u8>;

    fn frame(&mut self, _: usize, stored: &[u8], bytes: usize, trained: bool) -> Option<Vec<u8>> {
        (stored.len() == bytes).then(|| frame(stored, trained.then_some(self.0)))
    }

    fn dictionary(&self) -> &[u8] {
        self.0
    }
}

/// Every entry: key, revision, death, sub, `create_revision`, version, lease, value (`None` for a
/// tombstone).
pub(crate) type Row = (Vec<u8>, u64, u64, u32, u64, u64, i64, Option<Vec<u8>>);

/// An entry as a row.
pub(crate) fn row(entry: &EntryRef<'_>) -> Row {
    let EntryRef { revision, death, sub, create_revision, version, lease, .. } = *entry;
    let value = (!entry.tombstone).then(|| entry.value.to_vec());
    (entry.key.to_vec(), revision, death, sub, create_revision, version, lease, value)
}

/// All entries of a block that the check lets through.
pub(crate) fn rows(stored: &[u8], entries: u32, bytes: u32) -> Result<Vec<Row>, DecodeError> {
    let mut rows = Vec::new();
    let (header, mut codec) = (header(stored, entries, bytes), Backwards(DICTIONARY));
    Groups::parse(stored)?.check(&header, &mut codec, &mut Scratch::default(), |entry, key| {
        assert_eq!(entry.key, key);
        rows.push(row(entry));
    })?;
    Ok(rows)
}

/// The groups of [`sample`]: every kind, both alphabets, every flag, and a key in two groups.
pub(crate) fn sample_groups() -> [Made; 3] {
    let every = Made {
        flags: 1 | FLAG_DEATHS | FLAG_LIFETIMES | FLAG_SUBS | FLAG_LEASES,
        key_suffix: b"a",
        revision: 1000,
        lived: 5,
        sub: 2,
        life: (3, 100),
        offsets: vec![10, 50, 60, 100, 300, 350, 360],
        columns: varints(&[
            4,
            20, // deaths: version 2 lived for 20
            0x0c,
            0,
            9,
            840, // lifetimes: version 2 is a tombstone, version 3 the 9th since 100
            2,
            0,
            1,
            1,
            300,
            2,
            2, // subs
            (-7_i64).cast_unsigned(),
            (-7_i64).cast_unsigned(),
            0,
            5,
            5,
            5,
            5,
            6, // leases
        ]),
        shape_of: vec![0, 1, 2, 3, 4, 5, 6, 1],
        shapes: vec![
            shape(KIND_DICTIONARY, 0, 32, 7, 0),
            Shape { alphabet: 2, ..shape(KIND_OWN, 0, 32, 4, 0) },
            shape(KIND_TOMBSTONE, 0, 0, 0, 0),
            Shape { alphabet: 1, ..shape(KIND_OWN, 1, 32, 4, 0) },
            shape(KIND_RAW, 0, 0, 0, 0),
            shape(KIND_ZSTD, 0, 4, 4, 0),
            shape(KIND_ZSTD_DICTIONARY, 0, 10, 10, 0),
        ],
        ops: ops(&[(0, 10, 0), (7, 15, 7)]),
        payloads: vec![
            b"Pending".to_vec(),
            vec![0x0c, 0xff, 0xee, 0x01],
            Vec::new(),
            vec![0x21, 0x3a, 0xe0, 0x0c],
            Vec::new(),
            frame(b"zstd", None),
            frame(b"dictionary", Some(DICTIONARY)),
            vec![0xba, 0xdc, 0xfe, 0x00],
        ],
        ..Made::default()
    };
    let neighbour = Made {
        flags: FLAG_LEASE,
        key_suffix: b"b",
        revision: 70,
        lived: 100_000,
        life: (1, 0),
        lease: 1 << 40,
        shape_of: vec![0],
        shapes: vec![shape(KIND_NEIGHBOUR, 1, 14, 0, 0)],
        ops: ops(&[(0, 1, 0), (0, 13, 18)]),
        ..Made::default()
    };
    [every, neighbour, Made { lived: 10, ..Made::raw(b"b", 60, b"v") }]
}

/// What [`sample`] begins its keys with.
pub(crate) const PREFIX: &[u8] = b"\x01/p/";
/// The versions of [`sample`] and the bytes of their values.
pub(crate) const SAMPLE_COUNTS: (u32, u32) = (10, 157);

/// A block of [`sample_groups`].
pub(crate) fn sample() -> Vec<u8> {
    block(PREFIX, &sample_groups())
}

/// What [`sample`] says.
pub(crate) fn sample_rows() -> Vec<Row> {
    let a = b"\x01/p/a".to_vec();
    let b = b"\x01/p/b".to_vec();
    let value = |bytes: &[u8]| Some(bytes.to_vec());
    let phase = |name: &str| value(format!("{{\"phase\":\"{name}\",\"ready\":true}}").as_bytes());
    vec![
        (a.clone(), 1000, 1005, 2, 900, 3, -7, phase("Pending")),
        (a.clone(), 990, 1000, 2, 900, 2, -7, phase("c0ffee1")),
        (a.clone(), 950, 970, 0, 0, 0, 0, None),
        (a.clone(), 940, 950, 1, 100, 9, 5, phase("12:30Z.")),
        (a.clone(), 900, 940, 1, 100, 8, 5, value(b"")),
        (a.clone(), 700, 900, 300, 100, 7, 5, value(b"zstd")),
        (a.clone(), 650, 700, 2, 100, 6, 5, value(b"dictionary")),
        (a, 640, 650, 2, 100, 5, 6, phase("abcdef0")),
        (b.clone(), 70, 100_070, 0, 70, 1, 1 << 40, value(b"{\"ready\":true}")),
        (b, 60, 70, 0, 60, 1, 0, value(b"v")),
    ]
}

/// Varints one after another.
pub(crate) fn varints(list: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    for number in list {
        out.put_varint(*number);
    }
    out
}
