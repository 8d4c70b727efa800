//! How an L0 file is divided that a fold has taken over in part.

use annals_format::FileMeta;

use super::{commit, memory, open, put, user, without_blobs};
use crate::engine::shares::Shares;
use crate::engine::space::{PrefixSpace, SpaceQuery, Survey};
use crate::engine::tables::{FileSet, SealedFile};

#[test]
fn what_a_fold_has_taken_over_of_a_file_is_dead() {
    let (_, vfs) = memory();
    let engine = open(&without_blobs(&vfs).l0_files_max(64)).unwrap();
    for number in 0..=255 {
        let letter = char::from(b'a' + number % 4);
        let key = user(format!("{letter}/{number:03}"));
        commit(&engine, vec![put(key, vec![number; 100])]).unwrap();
        while engine.run_background().unwrap() {}
    }
    let core = &engine.0.door.0;
    let files = core.shared.tables().files;
    let meta = files.l0[0].meta();
    let of = |folded_to: &[u8]| {
        let meta = FileMeta { folded_to: folded_to.to_vec(), ..meta.clone() };
        SealedFile::alone(&core.context, meta)
    };
    let whole = Shares::of(&of(b""), 0, 0);
    assert_eq!((whole.live, whole.dead), (meta.bytes, 0));
    let half = of(b"\x01c/");
    let shares = Shares::of(&half, 0, 0);
    assert_eq!(shares.live + shares.dead, meta.bytes);
    assert!(shares.dead > meta.bytes * 2 / 5 && shares.live > meta.bytes * 2 / 5, "{shares:?}");

    let query = SpaceQuery { prefix: vec![1], delimiter: b'/', depth: 1, top: 9 };
    let space = Survey::over(&FileSet::new([half]), query, 0).unwrap().finish().unwrap();
    assert_eq!(space.prefixes.iter().map(PrefixSpace::bytes).sum::<u64>(), meta.bytes);
    assert_eq!(space.prefixes.iter().map(|found| found.versions).sum::<u64>(), meta.entries);
    for found in &space.prefixes {
        let of_dead = found.dead_bytes * 10 / found.bytes();
        let expected = if found.prefix[1] < b'c' { 7..=10 } else { 0..=3 };
        assert!(expected.contains(&of_dead), "{found:?}");
        assert!(found.keys > 0 || of_dead > 7);
    }
    assert_eq!(space.prefixes.len(), 4);
}
