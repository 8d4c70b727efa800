//! Blocks of groups: read one way and another, made out of arbitrary histories, and read back.

use annals_format::FileKind;
use annals_format::block::{BlockHeader, Encoding};
use annals_format::entry::EntryRef;
use annals_format::group::{Codec, Favour, Groups, GroupsBuilder, Pack, Scratch};

use crate::input::Input;

/// Values that claim to be longer are left alone: the format bounds them, but they take time.
const VALUE_BYTES_MAX: u32 = 1 << 20;
/// Groups looked at one by one.
const GROUPS_MAX: usize = 64;

/// The content of the dictionary of every block.
const DICTIONARY: &[u8] =
    b"{\"kind\":\"Pod\",\"status\":{\"phase\":\"Running\",\"time\":\"2026-11-22T01:33:10Z\"}}";

/// zstd, and the dictionary as raw content.
pub(crate) struct Zstd;

impl Codec for Zstd {
    type Frame = Vec<u8>;

    fn frame(&mut self, _: usize, stored: &[u8], bytes: usize, trained: bool) -> Option<Vec<u8>> {
        if bytes > VALUE_BYTES_MAX as usize {
            return None;
        }
        let content = if trained { DICTIONARY } else { b"" };
        let mut codec = zstd::bulk::Decompressor::with_dictionary(content).ok()?;
        codec.decompress(stored, bytes).ok()
    }

    fn dictionary(&self) -> &[u8] {
        DICTIONARY
    }
}

impl Pack for Zstd {
    fn zstd(&mut self, value: &[u8], dictionary: bool) -> Option<Vec<u8>> {
        let content = if dictionary { DICTIONARY } else { b"" };
        let mut codec = zstd::bulk::Compressor::with_dictionary(1, content).ok()?;
        codec.compress(value).ok().filter(|frame| frame.len() < value.len())
    }
}

/// The first byte says what the rest is: stored bytes of a block, after the two counts of its
/// header; or a history, which is written and read back.
pub(crate) fn groups(data: &[u8]) -> bool {
    let mut input = Input(data);
    if input.byte() & WRITTEN != 0 { written(input) } else { stored(input) }
}

/// Flag of an input's first byte: it is a history.
pub(crate) const WRITTEN: u8 = 2;

fn header(stored: &[u8], entry_count: u32, raw_bytes: u32) -> BlockHeader {
    BlockHeader {
        kind: FileKind::History,
        encoding: Encoding::Groups,
        raw_bytes,
        stored_bytes: u32::try_from(stored.len()).expect("inputs are small"),
        entry_count,
        base_distance: 0,
    }
}

/// What a check that lets a block through says of an entry, a single read says too.
fn stored(mut input: Input<'_>) -> bool {
    let (entries, values) = (u32::from(input.u16()), u32::from(input.u16()));
    let stored = input.0;
    let Ok(groups) = Groups::parse(stored) else { return false };
    let mut scratch = Scratch::default();
    let mut reads = groups.count() <= GROUPS_MAX;
    for number in 0..groups.count().min(GROUPS_MAX) {
        let Ok(group) = groups.group(number) else { continue };
        for version in 0..group.len() {
            let _ = group.fields(version);
            let small = group.value_bytes(version).is_ok_and(|bytes| bytes <= VALUE_BYTES_MAX);
            reads &= small;
            // The values it is made of may be long, too.
            if small && reads {
                let value = groups.value_of(&group, version, &mut Zstd, &mut scratch);
                let length = value.ok().map(|value| value.as_ref().len());
                let expected = group.value_bytes(version).ok().map(|bytes| bytes as usize);
                assert!(length.is_none() || length == expected);
            }
        }
    }
    for key in [&b""[..], b"\x01k", &[0xff; 40]] {
        for at in [0, 1000, u64::MAX] {
            let _ = groups.find(key, at);
        }
    }
    reads && check(&groups, &header(stored, entries, values)).is_some()
}

/// Key, revision and value.
type Entry = (Vec<u8>, u64, Vec<u8>);

/// The entries of a block that is sound; each is found by a search.
fn check(groups: &Groups<'_>, header: &BlockHeader) -> Option<Vec<Entry>> {
    let (mut all, mut scratch) = (Vec::new(), Scratch::default());
    groups
        .check(header, &mut Zstd, &mut scratch, |entry, key| {
            assert!(entry.death > entry.revision && entry.create_revision <= entry.revision);
            all.push((key.to_vec(), entry.revision, entry.value.to_vec()));
        })
        .ok()?;
    for (key, revision, value) in &all {
        let (group, version) = groups.find(key, *revision).expect("sound").expect("it is there");
        assert_eq!(group.fields(version).expect("sound").revision, *revision);
        let found = groups.value_of(&group, version, &mut Zstd, &mut scratch).expect("sound");
        assert_eq!(found.as_ref(), value);
    }
    Some(all)
}

/// A history out of the input: whatever it is, what is written is read back.
fn written(mut input: Input<'_>) -> bool {
    let favour = [Favour::Raw, Favour::Fast, Favour::Small][usize::from(input.byte() % 3)];
    let block_bytes = usize::from(input.u16());
    let mut builder = GroupsBuilder::new(favour, DICTIONARY, block_bytes);
    let (mut key, mut value) = (b"\x01".to_vec(), DICTIONARY.repeat(3));
    let (mut revision, mut version, mut create) = (1 << 20, 1 << 10, 1_u64);
    let (mut expected, mut blocks) = (Vec::new(), Vec::new());
    while !input.is_empty() && expected.len() < 500 {
        let what = input.byte();
        if what & 7 == 7 {
            // Another key, above this one.
            key.push(input.byte());
            (revision, version, create) = (1 << 20, 1 << 10, 1);
        }
        if what & 0x18 == 0x18 {
            create = u64::from(input.byte()) + 1;
            version += input.below(3);
        }
        for _ in 0..what >> 6 {
            let at = usize::from(input.u16()) % value.len();
            let count = usize::from(input.byte()) % 40;
            let bytes = input.bytes(count);
            let end = value.len().min(at + usize::from(input.byte() % 40));
            value.splice(at..end, bytes.iter().copied());
            value.push(b'.');
        }
        value.truncate(8 << 10);
        let tombstone = what & 0x3f == 0x21;
        let entry = EntryRef {
            key: &key,
            revision,
            sub: u32::from(what & 0x20 != 0) * u32::from(what),
            tombstone,
            create_revision: if tombstone { 0 } else { create },
            version: if tombstone { 0 } else { version },
            lease: if what & 0x30 == 0x30 { -i64::from(what) } else { 0 },
            death: revision + 1 + u64::from(what & 3),
            value: if tombstone { b"" } else { &value },
            ..EntryRef::default()
        };
        if GroupsBuilder::holds(&entry) {
            builder.push(&entry, &mut Zstd);
            expected.push((key.clone(), revision, entry.value.to_vec()));
        }
        if builder.is_full() {
            blocks.extend(builder.finish());
        }
        version -= 1;
        revision -= 1 + u64::from(what >> 5) * 40;
        if version < 2 {
            break;
        }
    }
    blocks.extend(std::iter::from_fn(|| builder.finish()));
    let mut found = Vec::new();
    for block in &blocks {
        let groups = Groups::parse(&block.stored).expect("what was written");
        let header = header(&block.stored, block.entry_count, block.raw_bytes);
        found.extend(check(&groups, &header).expect("what was written is sound"));
    }
    assert_eq!(found, expected, "what was written is read back");
    !expected.is_empty()
}

/// Stored bytes with the counts before them, and histories.
pub(crate) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mut seeds = Vec::new();
    for (name, favour) in [("raw", Favour::Raw), ("fast", Favour::Fast), ("small", Favour::Small)] {
        let mut builder = GroupsBuilder::new(favour, DICTIONARY, 4096);
        let text = String::from_utf8_lossy(DICTIONARY).into_owned();
        for number in 0..24_u64 {
            let key = format!("\u{1}/pods/pod-{}", number / 8);
            let nth = number % 8;
            let tombstone = nth == 5;
            let time = format!("T01:{:02}:{:02}Z", 59 - nth, 7 * nth);
            let value = text.replace("T01:33:10Z", &time).repeat(4);
            let entry = EntryRef {
                key: key.as_bytes(),
                revision: 900 - 10 * nth,
                sub: u32::from(number > 7),
                tombstone,
                create_revision: if tombstone { 0 } else { 100 },
                version: if tombstone { 0 } else { 20 - nth },
                lease: if number > 15 && !tombstone { 77 } else { 0 },
                death: if nth == 3 { 875 } else { 910 - 10 * nth },
                value: if tombstone { b"" } else { value.as_bytes() },
                ..EntryRef::default()
            };
            builder.push(&entry, &mut Zstd);
        }
        let block = builder.finish().expect("entries were pushed");
        let mut out = vec![0];
        for count in [block.entry_count, block.raw_bytes] {
            out.extend(u16::try_from(count).expect("small").to_le_bytes());
        }
        out.extend(block.stored);
        seeds.push((name, out));
    }
    let bytes = |step: u8| (0..240_u8).map(move |nth| nth.wrapping_mul(step));
    seeds.push(("written", [WRITTEN, 1, 0, 4].into_iter().chain(bytes(37)).collect()));
    seeds
        .push(("written_small_blocks", [WRITTEN, 2, 90, 0].into_iter().chain(bytes(91)).collect()));
    seeds
}
