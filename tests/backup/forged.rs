//! Streams whose checksums hold, and which say what is not so: refused all the same, and never a store.

use std::time::Duration;

use annals::vfs::MemoryVfs;
use annals::{ErrorKind, Store, inspect_backup};
use annals_format::backup::{
    BLOCK_BYTES, Block, Codec, End, HEADER_BYTES, Header, PIECE_BYTES_MAX, Part, payload_bytes,
};
use annals_format::cursor::Writer as _;
use annals_format::{ContentHash, Manifest, WalFile};

use crate::support::DIRECTORY;
use crate::support::copies::{hashes, options, scripted};
use crate::{COPY, backup, restored};

/// A backup taken apart.
#[derive(Clone)]
struct Parts {
    header: Header,
    sections: Vec<(Part, u64, Vec<u8>)>,
    end: End,
}

impl Parts {
    fn of(stream: &[u8]) -> Self {
        let (header, mut chain) = Header::decode(stream).unwrap();
        let mut rest = &stream[HEADER_BYTES..];
        let mut sections: Vec<(Part, u64, Vec<u8>)> = Vec::new();
        loop {
            let (head, after) = rest.split_at(BLOCK_BYTES);
            let (payload, after) = after.split_at(payload_bytes(head).unwrap());
            rest = after;
            let block = chain.decode(head, payload).unwrap();
            let piece = match block.codec {
                Codec::Raw => payload.to_vec(),
                Codec::Zstd => zstd::bulk::decompress(payload, block.raw_bytes as usize).unwrap(),
            };
            if block.part == Part::End {
                assert!(rest.is_empty());
                return Self { header, sections, end: End::decode(&piece).unwrap() };
            }
            if block.offset == 0 {
                sections.push((block.part, block.number, Vec::new()));
            }
            sections.last_mut().unwrap().2.extend_from_slice(&piece);
        }
    }

    fn stream(&self) -> Vec<u8> {
        let (header, mut chain) = self.header.encode();
        let mut out = header.to_vec();
        let mut blocks = 0;
        let mut push = |out: &mut Vec<u8>, part, number, offset: usize, piece: &[u8]| {
            let bytes = u32::try_from(piece.len()).unwrap();
            let (codec, offset) = (Codec::Raw, offset as u64);
            let block =
                Block { part, codec, stored_bytes: bytes, raw_bytes: bytes, number, offset };
            out.extend_from_slice(&chain.encode(&block, piece));
            out.extend_from_slice(piece);
        };
        for (part, number, bytes) in &self.sections {
            let most = PIECE_BYTES_MAX as usize;
            for (nth, piece) in bytes.chunks(most).enumerate() {
                push(&mut out, *part, *number, nth * most, piece);
                blocks += 1;
            }
        }
        let (bytes, hash) = (out.len() as u64, ContentHash::of(&out));
        let end = End { blocks, bytes, hash, ..self.end };
        push(&mut out, Part::End, 0, 0, &end.encode());
        out
    }

    fn section(&mut self, part: Part) -> &mut Vec<u8> {
        &mut self.sections.iter_mut().find(|section| section.0 == part).unwrap().2
    }

    fn drop_section(&mut self, part: Part) {
        let at = self.sections.iter().position(|section| section.0 == part).unwrap();
        self.sections.remove(at);
    }

    fn edit_manifest(&mut self, edit: impl FnOnce(&mut Manifest)) {
        let bytes = self.section(Part::Manifest);
        let mut manifest = Manifest::decode(bytes).unwrap();
        edit(&mut manifest);
        *bytes = manifest.encode().0;
    }
}

fn shorten(bytes: &mut Vec<u8>) {
    bytes.truncate(bytes.len() - 1);
}

/// How a backup is changed, and what the refusal says.
type Forgery = (fn(&mut Parts), &'static str);

/// Restores `before` and the changed backup. It must be refused, and there must be no store.
fn refuse(before: &[u8], parts: &Parts, forgeries: &[Forgery]) {
    for (forge, said) in forgeries {
        let mut parts = parts.clone();
        forge(&mut parts);
        let stream = [before, &parts.stream()].concat();
        let options = options(MemoryVfs::new());
        let error = restored(&stream, &options, COPY).expect_err(said);
        assert!(error.to_string().contains(said), "{said}: {error}");
        let kind = error.kind();
        let typed = matches!(kind, ErrorKind::Corrupt(_) | ErrorKind::InvalidArgument { .. });
        assert!(typed, "{said}: {error:?}");
        let opened = options.create(false).open(COPY).unwrap_err();
        let kind = opened.kind();
        let none = matches!(kind, ErrorKind::NoStore { .. } | ErrorKind::NotAStore { .. });
        assert!(none, "{said}: {opened}");
        // Reading it ends, too, whatever it says.
        let _ = inspect_backup(&stream[..]);
    }
}

fn filled() -> (annals::Options, Store) {
    let options = options(MemoryVfs::new());
    let (store, _) = scripted(&options, 3);
    store.reorganise().unwrap();
    for n in 0..5 {
        store.put(format!("/in/memory/{n}"), "x").unwrap();
    }
    (options, store)
}

#[test]
fn a_full_backup_that_says_what_is_not_so() {
    let (options, store) = filled();
    let parts = Parts::of(&backup(&store));
    restored(&parts.stream(), &options, COPY).unwrap();
    assert_eq!(hashes(&options.open(COPY).unwrap()), hashes(&store), "as it is");
    let forgeries: [Forgery; 16] = [
        (|parts| parts.end.kv_hash ^= 1, "backup: the state"),
        (|parts| parts.end.kv_compacted += 1, "backup: the state"),
        (|parts| parts.header.upto += 1, "what the header says"),
        (|parts| parts.header.incarnation += 1, "what the header says"),
        (|parts| parts.header.compacted -= 1, "what the header says"),
        (|parts| parts.drop_section(Part::Frames), "last revision"),
        (|parts| parts.drop_section(Part::File), "the file"),
        (|parts| parts.section(Part::File)[100] ^= 1, "hash"),
        (|parts| shorten(parts.section(Part::File)), "bytes, hash"),
        (|parts| parts.section(Part::File).push(0), "more"),
        (|parts| shorten(parts.section(Part::Frames)), "backup: frame"),
        (|parts| parts.section(Part::Frames).push(b'a'), "backup: frame"),
        (|parts| parts.section(Part::Frames).extend_from_slice(&[7; 100]), "magic"),
        (|parts| parts.sections.push((Part::File, 1 << 40, vec![1])), "a file of the manifest"),
        (|parts| parts.edit_manifest(|manifest| manifest.flushed_seq += 1), "seq"),
        (
            |parts| {
                let wal = WalFile { number: 9, incarnation: 1, file_bytes: 64 << 10, end: None };
                parts.edit_manifest(|manifest| manifest.wal.push(wal));
            },
            "what the header says",
        ),
    ];
    refuse(&[], &parts, &forgeries);
}

/// The bytes of a record.
fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_prefixed(key);
    bytes.put_prefixed(value);
    bytes
}

#[test]
fn an_increment_that_says_what_is_not_so() {
    let (options, store) = filled();
    let full = backup(&store);
    let since = store.revision();
    store.put("/a", "1").unwrap();
    store.put("/b", "2").unwrap();
    store.lease_grant(700, Duration::from_secs(60)).unwrap();
    let mut stream = Vec::new();
    store.backup_from(since, &mut stream).unwrap();
    let parts = Parts::of(&stream);
    restored(&[&full[..], &parts.stream()].concat(), &options, COPY).unwrap();
    assert_eq!(hashes(&options.open(COPY).unwrap()), hashes(&store), "as it is");
    let forgeries: [Forgery; 11] = [
        (|parts| parts.end.kv_hash ^= 1, "backup: the state"),
        (|parts| parts.header.from.as_mut().unwrap().hash ^= 1, "another history"),
        (|parts| parts.header.from.as_mut().unwrap().revision -= 1, "continues revision"),
        (|parts| parts.header.from.as_mut().unwrap().compacted = 0, "compacted to 0"),
        (|parts| parts.header.store.0[3] ^= 1, "continues incarnation"),
        (|parts| parts.drop_section(Part::Frames), "last revision"),
        (|parts| shorten(parts.section(Part::Frames)), "backup: frame"),
        (
            |parts| {
                let frames = parts.section(Part::Frames);
                let again = frames.clone();
                frames.extend_from_slice(&again);
            },
            "backup: frame",
        ),
        (
            |parts| {
                let records = record(b"\x01/user", b"value");
                parts.section(Part::System).extend_from_slice(&records);
            },
            "one of the system's",
        ),
        (
            |parts| {
                let records = record(b"\x00C", b"");
                parts.section(Part::System).extend_from_slice(&records);
            },
            "ascending order",
        ),
        (|parts| parts.section(Part::System).push(5), "a whole one"),
    ];
    refuse(&full, &parts, &forgeries);
}

#[test]
fn damage_to_an_increment_leaves_no_store() {
    let source = options(MemoryVfs::new()).open(DIRECTORY).unwrap();
    source.put("/a", "1").unwrap();
    let full = backup(&source);
    source.put("/a", "2").unwrap();
    source.lease_grant(7, Duration::from_secs(60)).unwrap();
    let mut increment = Vec::new();
    source.backup_from(2, &mut increment).unwrap();
    let refused = |increment: &[u8], what: &dyn std::fmt::Display| {
        let options = options(MemoryVfs::new());
        let error = restored(&[&full, increment].concat(), &options, COPY).unwrap_err();
        let damage = error.corruption().unwrap_or_else(|| panic!("{what}: {error}"));
        assert!(damage.offset >= full.len() as u64, "{what}: {error}");
        let opened = options.create(false).open(COPY).unwrap_err();
        assert!(matches!(opened.kind(), ErrorKind::NotAStore { .. }), "{what}: {opened}");
    };
    for bit in 0..increment.len() * 8 {
        let mut damaged = increment.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        refused(&damaged, &format_args!("bit {bit}"));
    }
    for cut in 1..increment.len() {
        refused(&increment[..cut], &format_args!("cut at {cut}"));
    }
    // A cut between two backups leaves the first, which is whole.
    assert_eq!(restored(&full, &options(MemoryVfs::new()), COPY).unwrap().revision, 2);
}
