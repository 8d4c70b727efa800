//! The tables of the specification are the tables of the code: field by field, byte by byte.
#![allow(clippy::unwrap_used, reason = "in a test that is how to fail")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use annals_format::block::{self, BlockHeader};
use annals_format::layout::Layout;
use annals_format::segment::{self, Footer, Header};
use annals_format::{
    backup, batch, current, dictionary, filter, frame, group, lease, limits, manifest, page,
    retention, seal, sector, space, wal_file,
};

/// A row of a byte table: offset, size, field.
type Row = (usize, usize, String);

const LAYOUTS: [Layout; 12] = [
    space::LEASE_LAYOUT,
    lease::VALUE_LAYOUT,
    space::ATTACHMENT_LAYOUT,
    space::COMPACTED_LAYOUT,
    space::RETENTION_LAYOUT,
    retention::VALUE_LAYOUT,
    wal_file::LAYOUT,
    batch::LAYOUT,
    frame::LAYOUT,
    seal::LAYOUT,
    current::LAYOUT,
    manifest::LAYOUT,
];

const SEGMENT_LAYOUTS: [Layout; 6] = [
    Header::LAYOUT,
    Footer::LAYOUT,
    BlockHeader::LAYOUT,
    page::PAGE_LAYOUT,
    filter::FILTER_LAYOUT,
    dictionary::DICTIONARY_LAYOUT,
];

const BACKUP_LAYOUTS: [Layout; 3] = [backup::LAYOUT, backup::BLOCK_LAYOUT, backup::END_LAYOUT];

/// The byte tables of a specification, by the structure that the heading before each names:
/// a heading of the form "### `structure`".
fn tables(text: &str) -> BTreeMap<String, Vec<Row>> {
    let mut tables = BTreeMap::new();
    let mut structure = None;
    for line in text.lines() {
        if line.starts_with('#') {
            let name = line.strip_prefix("### `").and_then(|rest| rest.strip_suffix('`'));
            structure = name.map(str::to_owned);
        }
        let Some(structure) = &structure else { continue };
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, offset, size, field, ..] = cells[..] else { continue };
        if let (Ok(offset), Ok(size)) = (offset.parse(), size.parse()) {
            let rows: &mut Vec<Row> = tables.entry(structure.clone()).or_default();
            rows.push((offset, size, field.to_owned()));
        }
    }
    tables
}

fn rows(layout: &Layout) -> Vec<Row> {
    layout.fields.iter().map(|field| (field.offset, field.bytes, field.name.to_owned())).collect()
}

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

fn specification() -> String {
    read("SPEC.md")
}

fn segment_specification() -> String {
    read("SPEC-segment.md")
}

#[test]
fn every_layout_is_specified_and_every_table_is_a_layout() {
    let files = [
        (specification(), &LAYOUTS[..]),
        (segment_specification(), &SEGMENT_LAYOUTS),
        (read("SPEC-backup.md"), &BACKUP_LAYOUTS),
    ];
    for (text, layouts) in files {
        let coded: BTreeMap<_, _> =
            layouts.iter().map(|layout| (layout.structure.to_owned(), rows(layout))).collect();
        assert_eq!(tables(&text), coded);
    }
}

#[test]
fn the_specification_names_magic_numbers_versions_and_sizes() {
    let text = specification();
    for (magic, version) in [
        (wal_file::MAGIC, Some(wal_file::FORMAT_VERSION)),
        (batch::MAGIC, None),
        (frame::MAGIC, None),
        (current::MAGIC, Some(current::FORMAT_VERSION)),
        (manifest::MAGIC, Some(manifest::FORMAT_VERSION)),
    ] {
        let name = String::from_utf8(magic.to_le_bytes().to_vec()).unwrap();
        let at = text.find(&format!("| 0 | 4 | magic | `{name}` |")).expect("the magic number");
        if let Some(version) = version {
            let next = text[at..].lines().nth(1).unwrap();
            assert_eq!(next, format!("| 4 | 4 | format_version | {version} |"));
        }
    }
    let (system, user) = (space::SYSTEM, space::USER);
    assert!(text.contains(&format!("space: {system} is the store's own, {user} the user's")));
    for record in [
        space::RECORD_LEASE,
        space::RECORD_ATTACHMENT,
        space::RECORD_COMPACTED,
        space::RECORD_RETENTION,
    ] {
        let rows =
            format!("| 0 | 1 | space | {system} |\n| 1 | 1 | record | `{}` |", char::from(record));
        assert_eq!(text.matches(&rows).count(), 1, "{rows}");
    }
    assert!(text.contains(&format!("| 0 | {} | data | |", sector::DATA_BYTES)));
    assert!(text.contains(&format!("sequence of {}-byte sectors", sector::SECTOR_BYTES)));
}

#[test]
fn the_specification_states_the_limits_of_the_code() {
    let text = specification();
    let unit = |bytes: u64| match bytes {
        bytes if bytes >= 1 << 30 => format!("{} GiB", bytes >> 30),
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    };
    for (what, default, max) in [
        ("key", unit(limits::KEY_BYTES_DEFAULT), limits::KEY_BYTES_MAX),
        ("value", unit(limits::VALUE_BYTES_DEFAULT), limits::VALUE_BYTES_MAX),
        (
            "transaction, encoded",
            unit(limits::TRANSACTION_BYTES_DEFAULT),
            limits::TRANSACTION_BYTES_MAX,
        ),
        ("metadata of a transaction", unit(limits::METADATA_BYTES_MAX), limits::METADATA_BYTES_MAX),
        ("WAL file", String::new(), limits::WAL_BYTES_MAX),
        ("body of a batch", String::new(), limits::BATCH_BODY_BYTES_MAX),
        ("manifest", String::new(), limits::MANIFEST_BYTES_MAX),
    ] {
        let row = format!("| {what} | {default} | {} |", unit(max)).replace("|  |", "| |");
        assert!(text.contains(&row), "{row}");
    }
}

#[test]
fn the_specification_of_backups_names_the_constants_of_the_code() {
    let text = read("SPEC-backup.md");
    let magic = String::from_utf8(backup::MAGIC.to_le_bytes().to_vec()).unwrap();
    assert!(text.contains(&format!("| 0 | 4 | magic | `{magic}` |")));
    assert!(text.contains(&format!("| 4 | 4 | format_version | {} |", backup::FORMAT_VERSION)));
    let most = backup::PIECE_BYTES_MAX >> 20;
    assert!(text.contains(&format!("length of the payload, {most} MiB at most")));
    for (kind, name) in [(backup::Kind::Full, "full"), (backup::Kind::Increment, "increment")] {
        assert!(text.contains(&format!("{} {name}", kind as u8)));
    }
    for (part, name) in [
        (backup::Part::Manifest, "manifest"),
        (backup::Part::Frames, "frames"),
        (backup::Part::File, "file"),
        (backup::Part::System, "system"),
        (backup::Part::End, "end"),
    ] {
        assert!(text.contains(&format!("{} {name}", part as u8)));
    }
    for (codec, name) in [(backup::Codec::Raw, "raw"), (backup::Codec::Zstd, "zstd")] {
        assert!(text.contains(&format!("{} {name}", codec as u8)));
    }
}

#[test]
fn the_segment_specification_names_the_constants_of_the_code() {
    let text = segment_specification();
    let name = |magic: &[u8]| String::from_utf8(magic.to_vec()).unwrap();
    for magic in [
        segment::SEGMENT_MAGIC,
        segment::FOOTER_MAGIC,
        filter::FILTER_MAGIC,
        dictionary::DICTIONARY_MAGIC,
    ] {
        assert!(text.contains(&format!("| 0 | 4 | magic | `{}` |", name(&magic.to_le_bytes()))));
    }
    for magic in [block::BLOCK_MAGIC, page::PAGE_MAGIC] {
        assert!(text.contains(&format!("| 0 | 2 | magic | `{}` |", name(&magic.to_le_bytes()))));
    }
    let version = format!("| 4 | 4 | format_version | {} |", segment::SEGMENT_VERSION);
    assert_eq!(text.matches(&version).count(), 2);
    for sentence in [
        format!("they begin at offset {} |", segment::HEADER_BYTES),
        format!("the footer begins {} bytes before", segment::FOOTER_BYTES),
        format!("At most {} entries lie from one to the next", block::RESTART_INTERVAL),
        format!("reached {} bytes and has two items", page::PAGE_BYTES_TARGET),
        format!("a blocked Bloom filter of {} bits a key", filter::bloom::BITS_PER_KEY),
        format!(
            "kind 1: {}, the bits a key sets; kind 2: `length_log`, {} at most",
            filter::bloom::PROBES,
            filter::fuse::LENGTH_LOG_MAX
        ),
        format!("of {} bytes each", filter::bloom::LINE_BYTES),
        format!("| key of an entry | 1 MiB + {} |", limits::INTERNAL_KEY_BYTES_MAX - (1 << 20)),
        format!("| body of a block | {} GiB |", limits::BLOCK_RAW_BYTES_MAX >> 30),
        format!("| page | {} MiB |", limits::PAGE_BYTES_MAX >> 20),
        format!("| levels of an index | {} |", page::LEVELS_MAX),
        format!("| dictionary | {} MiB |", dictionary::DICTIONARY_BYTES_MAX >> 20),
    ] {
        assert!(text.contains(&sentence), "{sentence}");
    }
}

#[test]
fn the_specification_of_groups_names_the_constants_of_the_code() {
    let text = segment_specification();
    let at = text.find("\n## 3a. Groups\n").unwrap();
    let text = &text[at..at + text[at..].find("\n## 4.").unwrap()];
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (flag, name) in [
        (group::FLAGS_WIDTH, "width"),
        (group::FLAG_DEATHS, "deaths"),
        (group::FLAG_LIFETIMES, "lifetimes"),
        (group::FLAG_SUBS, "subs"),
        (group::FLAG_LEASE, "lease"),
        (group::FLAG_LEASES, "leases"),
        (group::FLAG_ZERO, ""),
    ] {
        let row =
            if name.is_empty() { format!("| {flag} | |") } else { format!("| {flag} | {name} |") };
        assert_eq!(text.matches(&row).count(), 1, "{row}");
    }
    for (kind, payload) in [
        (group::KIND_TOMBSTONE, "nothing: a tombstone"),
        (group::KIND_RAW, "the value"),
        (group::KIND_ZSTD, "one zstd frame"),
        (group::KIND_ZSTD_DICTIONARY, "one such frame over the dictionary"),
        (group::KIND_DICTIONARY, "literals; the base is the content of the dictionary"),
        (group::KIND_OWN, "literals; the base is another version of the group"),
        (group::KIND_NEIGHBOUR, "literals; the base is version 0 of an earlier group"),
    ] {
        let row = format!("| {kind} | {payload}");
        assert_eq!(text.matches(&row).count(), 1, "{row}");
    }
    for (number, alphabet) in group::ALPHABETS.iter().enumerate() {
        let characters = std::str::from_utf8(alphabet).unwrap();
        assert!(text.contains(&format!("| {} | `{characters}` |", number + 1)));
    }
    for sentence in [
        format!("A group is up to {} versions of one key", group::VERSIONS_MAX),
        format!("a block holds up to {} groups", group::GROUPS_MAX),
        format!("A shape has at most {} ops", group::OPS_MAX),
        format!("leads in at most {} steps to one of another kind", group::STEPS_MAX),
        format!("so at most {} values are made", group::STEPS_MAX + 2),
        format!("The low {} bits of `kind`", group::ALPHABET_SHIFT),
    ] {
        assert!(text.contains(&sentence), "{sentence}");
    }
    assert_eq!(group::KIND_BITS, (1 << group::ALPHABET_SHIFT) - 1);
}
