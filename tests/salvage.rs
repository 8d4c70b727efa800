//! What can be read of a damaged file: all but the damaged blocks, each of which is told once.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeSet;

use annals::Options;
use annals::inspect::StoreFiles;
use annals_format::FileKind;
use annals_format::name::FileName;

#[test]
fn a_damaged_block_is_lost_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().block_bytes(512);
    let store = options.open(directory.path()).unwrap();
    for n in 0..200 {
        store.put(format!("{n:03}"), format!("{n:0100}")).unwrap();
    }
    store.reorganise().unwrap();
    store.close().unwrap();

    let files = StoreFiles::open(directory.path(), &options).unwrap();
    let head = files.manifest().files.iter().find(|meta| meta.kind == FileKind::Head).unwrap();
    let mut offsets = Vec::new();
    let note = &mut |block: annals::inspect::BlockInfo| {
        offsets.push(block.offset);
        Ok(true)
    };
    files.segment(head).unwrap().blocks(note).unwrap();
    assert!(offsets.len() > 10);

    let path = directory.path().join(FileName::new(head.kind, head.number).to_string());
    let whole = std::fs::read(&path).unwrap();
    for at in [0, 5, offsets.len() - 1] {
        let mut damaged = whole.clone();
        damaged[usize::try_from(offsets[at]).unwrap() + 60] ^= 0x20;
        std::fs::write(&path, damaged).unwrap();
        let files = StoreFiles::open(directory.path(), &options).unwrap();
        let (mut found, mut lost) = (BTreeSet::new(), 0);
        let segment = files.segment(head).unwrap();
        let salvaged = segment.salvage(
            &mut |entry| {
                found.insert(entry.key.to_vec());
            },
            &mut |_, _| lost += 1,
        );
        salvaged.unwrap();
        assert_eq!(lost, 1, "block {at}");
        assert!(found.len() < 200 && found.len() > 180, "block {at}: {} keys", found.len());
    }
}
