//! The tables of the specification are the tables of the code: field by field, byte by byte.
#![allow(clippy::unwrap_used, reason = "in a test that is how to fail")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use annals_format::layout::Layout;
use annals_format::{batch, current, frame, limits, manifest, seal, sector, wal_file};

/// A row of a byte table: offset, size, field.
type Row = (usize, usize, String);

const LAYOUTS: [Layout; 6] = [
    wal_file::LAYOUT,
    batch::LAYOUT,
    frame::LAYOUT,
    seal::LAYOUT,
    current::LAYOUT,
    manifest::LAYOUT,
];

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

fn specification() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("SPEC.md");
    fs::read_to_string(path).unwrap()
}

#[test]
fn every_layout_is_specified_and_every_table_is_a_layout() {
    let specified = tables(&specification());
    let coded: BTreeMap<_, _> =
        LAYOUTS.iter().map(|layout| (layout.structure.to_owned(), rows(layout))).collect();
    assert_eq!(specified, coded);
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
