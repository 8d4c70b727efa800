//! Damage to every structure of the log and the manifest: every bit flipped, every length cut, and
//! which error it is. Then fields with impossible values under a checksum that holds.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test that is how to fail")]

mod harness;
mod samples;

use annals_format::batch::BatchHeader;
use annals_format::checksum::{FileSeed, crc};
use annals_format::current::{BYTES as CURRENT_BYTES, Current, CurrentFile};
use annals_format::frame::{Binding, patch_header};
use annals_format::page::Handle;
use annals_format::seal::Seal;
use annals_format::sector::{SECTOR_BYTES, Sector};
use annals_format::segment::{Footer, Header};
use annals_format::space::Key;
use annals_format::wal_file::WalFileHeader;
use annals_format::{DecodeError, FileKind, Frame, Manifest, Place, Problem};
use harness::{NEVER, damage_everywhere};
use samples::{PLACE, STORE};

#[test]
fn wal_file_header() {
    let bytes = samples::wal_file_header().encode();
    damage_everywhere(&bytes, true, &|bytes| WalFileHeader::decode(bytes).map(drop), NEVER);
}

#[test]
fn batch_header() {
    let (bytes, _) = samples::batch_header().encode(&PLACE);
    let decode = |bytes: &[u8]| BatchHeader::decode(bytes, &PLACE).map(drop);
    damage_everywhere(&bytes, true, &decode, NEVER);
    let elsewhere = BatchHeader::decode(&bytes, &PLACE.at(8192)).unwrap_err();
    assert!(matches!(elsewhere.problem, Problem::Checksum { .. }));
}

#[test]
fn seals() {
    for closed in [false, true] {
        let bytes = samples::seal(closed).encode(&PLACE);
        damage_everywhere(&bytes, false, &|bytes| Seal::decode(bytes, &PLACE).map(drop), NEVER);
    }
}

#[test]
fn current_file() {
    let bytes = samples::current().encode();
    damage_everywhere(&bytes, true, &|bytes| Current::decode(bytes).map(drop), NEVER);
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(Current::decode(&longer).unwrap_err().problem, Problem::Trailing { bytes: 1 });
}

/// Of a file with a copy of the manifest one of the three parts is damaged, is found to be, and the others tell all.
#[test]
fn current_file_with_a_copy() {
    let (current, manifest) = (samples::current(), samples::manifest());
    let whole = CurrentFile::encode(&current, &manifest.encode().0);
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let file = CurrentFile::decode(&bytes).unwrap();
        assert_eq!(file.current, current, "bit {bit}");
        let in_copy = (CURRENT_BYTES..whole.len() - CURRENT_BYTES).contains(&(bit / 8));
        assert_eq!(file.damage.is_none(), in_copy, "bit {bit}");
        match file.manifest() {
            Ok(found) => assert!(!in_copy && found.as_ref() == Some(&manifest), "bit {bit}"),
            Err(error) => {
                let place = CURRENT_BYTES as u64..(whole.len() - CURRENT_BYTES) as u64;
                assert!(in_copy && place.contains(&error.offset), "bit {bit}: {error}");
            }
        }
    }
}

#[test]
fn manifest_file() {
    let (bytes, _) = samples::manifest_with_floors().encode();
    // A manifest says how long it is, so a cut is seen there first.
    let length = |at: usize, error: &DecodeError| {
        let in_length = (32..40).contains(&at) || at >= 40;
        in_length && matches!(error.problem, Problem::Mismatch { .. })
    };
    damage_everywhere(&bytes, true, &|bytes| Manifest::decode(bytes).map(drop), &length);
}

/// Internal keys have no checksum of their own. Damaged, they are another key or none: never the
/// same one, and never one that would be written differently.
#[test]
fn internal_keys() {
    for key in samples::keys() {
        let bytes = key.encode();
        let flipped = (0..bytes.len() * 8).map(|bit| {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            damaged
        });
        for damaged in flipped {
            match Key::decode(&damaged) {
                Ok(other) => assert!(other != key && other.encode() == damaged, "{other:?}"),
                Err(error) => assert!(error.offset <= bytes.len() as u64, "{error}"),
            }
        }
        for cut in 0..bytes.len() {
            match Key::decode(&bytes[..cut]) {
                Ok(other) => assert_eq!(other.encode(), bytes[..cut], "only a shorter user's key"),
                Err(error) => {
                    let truncated = matches!(error.problem, Problem::Truncated { needed, have } if needed > have);
                    assert!(truncated, "cut at {cut}: {error}");
                }
            }
        }
    }
}

#[test]
fn one_frame() {
    let binding = Binding::new(&STORE);
    let bytes = samples::frame();
    // The length of the header section is needed to find its checksum.
    let length = |at: usize, error: &DecodeError| (4..8).contains(&at) && error.offset <= 8;
    damage_everywhere(&bytes, true, &|bytes| Frame::decode(bytes, &binding).map(drop), &length);
}

/// Of the eight sectors of a page with a batch in its first: every flipped bit is rot, and only
/// zeroing a sector as a whole makes it look unwritten.
#[test]
fn sectors_of_a_batch() {
    let page = samples::batch_page();
    let seed = FileSeed::new(&PLACE);
    let read = |page: &[u8], index: usize| {
        let sector = page.as_chunks::<SECTOR_BYTES>().0[index];
        match Sector::read(seed, PLACE.offset + (index * SECTOR_BYTES) as u64, &sector) {
            Sector::Unwritten => "unwritten",
            Sector::Written { first: true, .. } => "first",
            Sector::Written { first: false, .. } => "later",
            Sector::Rotten { .. } => "rotten",
        }
    };
    let of_page = |page: &[u8]| [0, 1, 2, 3, 4, 5, 6, 7].map(|index| read(page, index));
    let mut whole = ["later"; 8];
    whole[0] = "first";
    assert_eq!(of_page(&page), whole);
    for bit in 0..page.len() * 8 {
        let mut damaged = page.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(read(&damaged, bit / 8 / SECTOR_BYTES), "rotten", "bit {bit}");
    }
    for (index, zeroed) in (0..8).flat_map(|index| (0..=SECTOR_BYTES).map(move |n| (index, n))) {
        let mut damaged = page.clone();
        damaged[index * SECTOR_BYTES..][..zeroed].fill(0);
        let unchanged = damaged == page;
        let mut expected = whole;
        expected[index] = match zeroed {
            SECTOR_BYTES => "unwritten",
            _ if unchanged => whole[index],
            _ => "rotten",
        };
        assert_eq!(of_page(&damaged), expected, "{zeroed} bytes of sector {index} zeroed");
    }
    let moved = [&page[SECTOR_BYTES..2 * SECTOR_BYTES], &page[..SECTOR_BYTES]].concat();
    assert_eq!(read(&moved, 1), "rotten");
}

/// Writes `value` at `at` and makes the checksum at the end hold again.
fn forge(bytes: &[u8], place: &Place, at: usize, value: &[u8]) -> Vec<u8> {
    let mut forged = bytes.to_vec();
    forged[at..at + value.len()].copy_from_slice(value);
    let end = forged.len() - 4;
    let crc = crc(place, &[&forged[..end]]);
    forged[end..].copy_from_slice(&crc.to_le_bytes());
    forged
}

#[test]
fn impossible_fields_are_refused_although_the_checksum_holds() {
    let start = PLACE.at(0);
    let header = samples::wal_file_header().encode();
    for (at, value, field) in [
        (4, &9_u32.to_le_bytes()[..], "format_version"),
        (4, &[0; 4], "format_version"),
        (32, &4096_u64.to_le_bytes(), "file_bytes"),
        (32, &8191_u64.to_le_bytes(), "file_bytes"),
        (32, &(1_u64 << 50).to_le_bytes(), "file_bytes"),
        (56, &[0; 8], "incarnation"),
        (56, &[0xff; 8], "incarnation"),
        (64, &[1], "zero"),
    ] {
        let error = WalFileHeader::decode(&forge(&header, &start, at, value)).unwrap_err();
        assert_eq!(error.field, field, "{error}");
    }
    let (header, _) = samples::batch_header().encode(&PLACE);
    for (at, value, field) in [
        (4, &[0][..], "kind"),
        (4, &[3], "kind"),
        (4, &[2], "frame_count"),
        (5, &[1], "zero"),
        (20, &[0; 4], "frame_count"),
        (20, &[0xff; 4], "body_bytes"),
        (24, &[0; 8], "body_bytes"),
        (24, &[0xff; 8], "body_bytes"),
        (40, &41_u64.to_le_bytes(), "durable_upto"),
        (52, &[1], "zero"),
    ] {
        let error = BatchHeader::decode(&forge(&header, &PLACE, at, value), &PLACE).unwrap_err();
        assert_eq!(error.field, field, "{error}");
    }
    for closed in [false, true] {
        let seal = samples::seal(closed).encode(&PLACE);
        for (at, value) in [(0, 0), (0, 3), (0, if closed { 1 } else { 2 }), (3, 1)] {
            Seal::decode(&forge(&seal, &PLACE, at, &[value]), &PLACE).unwrap_err();
        }
    }
}

/// The footer, at `place`, of a segment without entries.
fn footer_of_nothing(place: Place) -> Footer {
    Footer {
        place,
        class: 0,
        incarnation: 1,
        entries: 0,
        keys: 0,
        tombstones: 0,
        value_bytes: 0,
        min_revision: 0,
        max_revision: 0,
        death_after: 0,
        death_upto: 0,
        block_count: 0,
        page_count: 0,
        index_offset: place.offset,
        root: Handle::default(),
        height: 0,
        filter_offset: place.offset,
        filter_bytes: 0,
        dictionary_bytes: 0,
        living: 0,
    }
}

/// A newer format is named, and that comes after the checksum: the tests above flip the bits of
/// every version and meet the checksum.
#[test]
fn an_unknown_version_under_a_checksum_that_holds_is_named() {
    type Decode = fn(&[u8], &Place) -> Result<(), DecodeError>;
    let start = PLACE.at(0);
    let current = Place::start_of(STORE, FileKind::Current, 0);
    let manifest = Place::start_of(STORE, FileKind::Manifest, 3);
    let segment = Place::start_of(STORE, FileKind::History, 12);
    let (mut header, mut footer) = (Vec::new(), Vec::new());
    Header { place: segment, class: 0, incarnation: 1 }.encode(&mut header);
    footer_of_nothing(segment.at(64)).encode(&mut footer);
    let cases: [(Vec<u8>, Place, Decode); 5] = [
        (samples::wal_file_header().encode().to_vec(), start, |bytes, _| {
            WalFileHeader::decode(bytes).map(drop)
        }),
        (samples::current().encode().to_vec(), current, |bytes, _| {
            Current::decode(bytes).map(drop)
        }),
        (samples::manifest_with_floors().encode().0, manifest, |bytes, _| {
            Manifest::decode(bytes).map(drop)
        }),
        (header, segment, |bytes, place| Header::decode(bytes, place).map(drop)),
        (footer, segment.at(64), |bytes, place| Footer::decode(bytes, place).map(drop)),
    ];
    for (bytes, place, decode) in cases {
        decode(&bytes, &place).unwrap();
        for found in [0, 2, u32::MAX] {
            let error =
                decode(&forge(&bytes, &place, 4, &found.to_le_bytes()), &place).unwrap_err();
            assert_eq!(error.problem, Problem::Version { supported: 1, found }, "{error}");
        }
    }
}

/// A small generator of numbers, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

/// What a fuzzer finds behind the checksum: random content that passes it. Nothing panics, and
/// what is accepted encodes to the same bytes.
#[test]
fn forged_manifests_are_refused_or_canonical() {
    let (bytes, _) = samples::manifest_with_floors().encode();
    let place = Place::start_of(STORE, FileKind::Manifest, 3);
    let mut random = Random(0x5eed);
    let mut accepted = 0;
    for _ in 0..200_000 {
        let mut forged = bytes.clone();
        for _ in 0..=random.below(3) {
            let at = 40 + random.below(bytes.len() - 44);
            forged[at] = u8::try_from(random.below(256)).unwrap();
        }
        let forged = forge(&forged, &place, 0, &[]);
        if let Ok(manifest) = Manifest::decode(&forged) {
            accepted += 1;
            assert_eq!(manifest.encode().0, forged);
        }
    }
    assert!(accepted > 1000, "{accepted} forged manifests were accepted");
}

/// A floor of a prefix that no rule can have, or that is no other than the watermark, is not believed.
#[test]
fn floors_are_of_prefixes_that_a_rule_can_have() {
    let decoded = |length: usize| {
        let floors = vec![(vec![b'a'; length], 9)];
        let made = Manifest { floors, ..samples::manifest() };
        Manifest::decode(&made.encode().0).map(|manifest| manifest == made)
    };
    assert_eq!((decoded(1), decoded(1024)), (Ok(true), Ok(true)));
    assert!(decoded(0).is_err() && decoded(1025).is_err());
}

#[test]
fn forged_frames_never_panic() {
    let binding = Binding::new(&STORE);
    let bytes = samples::frame();
    let mut random = Random(0xf4a3e);
    let mut viewed = 0;
    for _ in 0..200_000 {
        let mut forged = bytes.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len());
            forged[at] = u8::try_from(random.below(256)).unwrap();
        }
        // Without the checksums, then with those that a writer would compute.
        if let Ok((frame, used)) = Frame::view(&forged) {
            viewed += 1;
            assert!(used <= forged.len());
            assert_eq!(frame.ops().count(), frame.op_count());
            let (seq, revision, time) = (frame.seq, frame.revision, frame.time);
            let results: Vec<_> = frame.ops().map(|op| (op.create_revision, op.version)).collect();
            patch_header(&mut forged, &binding, seq, revision, time, results);
            let _ = Frame::measure(&forged, &binding).unwrap();
        }
    }
    assert!(viewed > 1000, "{viewed} forged frames were decoded");
}
