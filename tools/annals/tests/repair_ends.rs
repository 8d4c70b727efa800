//! What is not in a block of a file is damaged: its header, its index, its filter, its footer, its length. The blocks are found
//! all the same, and nothing is lost; where some of them are damaged, too, what was in these.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed, and tells why")]

mod common;

use std::path::PathBuf;

use annals::inspect::StoreFiles;
use annals::{Options, Retention, Store, Transaction, delete, put};
use annals_format::name::FileName;
use annals_format::{FileKind, FileMeta};
use common::{Tool, small};

/// What is done to the bytes of a file.
type Damage = Box<dyn Fn(&mut Vec<u8>)>;

/// A store with a few files of each kind, leases and rules, all of them in blocks.
fn written(tool: &Tool) -> Store {
    // EVENTS make up for no value.
    let options = small().background(false).l0_files_max(4).event_value_bytes(0);
    let store = options.open(tool.store()).unwrap();
    store.set_retention("ruled/", Some(Retention::forever())).unwrap();
    store.lease_grant(7, std::time::Duration::from_secs(1000)).unwrap();
    for n in 0..400_u32 {
        let value = format!("{n} {}", "x".repeat(n as usize * 7 % 90));
        store.put(format!("k/{:02}", n % 40), value.clone()).unwrap();
        if n % 5 == 0 {
            store
                .txn()
                .then([put("ruled/a", value), delete(format!("k/{:02}", n % 40))])
                .commit()
                .unwrap();
        }
        if n == 300 {
            store.reorganise().unwrap();
        }
    }
    while store.run_background().unwrap() {}
    store
}

/// All that can be asked for.
fn all_of(tool: &Tool) -> Vec<Transaction> {
    let store = small().background(false).open(tool.store()).unwrap();
    store.log(..).with_values().collect::<annals::Result<_>>().unwrap()
}

fn files(tool: &Tool) -> (StoreFiles, Vec<FileMeta>) {
    let files = StoreFiles::open(tool.store(), &Options::new()).unwrap();
    let metas = files.manifest().files.clone();
    (files, metas)
}

fn path(tool: &Tool, meta: &FileMeta) -> PathBuf {
    tool.store().join(FileName::new(meta.kind, meta.number).to_string())
}

/// Damage of each part of a file that is no block.
fn damages(files: &StoreFiles, meta: &FileMeta) -> Vec<Damage> {
    let segment = files.segment(meta).unwrap();
    let footer = segment.footer().unwrap();
    let flip = |at: u64| -> Damage {
        Box::new(move |content| content[usize::try_from(at).unwrap()] ^= 0x10)
    };
    let mut damages = vec![
        flip(10),
        flip(footer.index_offset + 5),
        flip(footer.root.offset + 20),
        flip(meta.bytes - 100),
    ];
    damages.push(Box::new(|content| content.push(0)));
    damages.push(Box::new(|content| content.resize(content.len() + 4096, 0)));
    // A dictionary that is cut off is lost.
    if footer.dictionary_bytes == 0 {
        damages.push(Box::new(|content| content.truncate(content.len() - 1)));
        let end = usize::try_from(footer.index_offset).unwrap();
        damages.push(Box::new(move |content| content.truncate(end)));
        damages.push(Box::new(move |content| content[end..].fill(0)));
    }
    damages
}

#[test]
fn a_file_of_which_the_blocks_are_whole_has_lost_nothing() {
    let tool = Tool::new();
    written(&tool).close().unwrap();
    let truth = all_of(&tool);
    let (files, metas) = files(&tool);
    for kind in [FileKind::L0, FileKind::Head, FileKind::History, FileKind::Events] {
        let meta = metas.iter().filter(|meta| meta.kind == kind).max_by_key(|meta| meta.bytes);
        let meta = meta.unwrap();
        let path = path(&tool, meta);
        let whole = std::fs::read(&path).unwrap();
        for (n, damage) in damages(&files, meta).iter().enumerate() {
            let mut content = whole.clone();
            damage(&mut content);
            std::fs::write(&path, content).unwrap();
            let other = Tool::new();
            let (told, _) = tool.repaired(&other);
            assert!(
                told["way"] == "copy"
                    && told["past_lost"] == false
                    && told["lost_entries"] == 0
                    && told["files_with_losses"] == 0,
                "{kind:?} {n}: {told}"
            );
            assert!(all_of(&other) == truth, "{kind:?} {n}: {told}");
            other.ok(&["verify"]);
        }
        std::fs::write(&path, whole).unwrap();
    }
}

/// Footers of all files are damaged.
#[test]
fn nor_has_a_store_of_such_files() {
    let tool = Tool::new();
    written(&tool).close().unwrap();
    let truth = all_of(&tool);
    for meta in &files(&tool).1 {
        let path = path(&tool, meta);
        let mut content = std::fs::read(&path).unwrap();
        let at = content.len() - 100;
        content[at] ^= 0x10;
        std::fs::write(&path, content).unwrap();
    }
    let other = Tool::new();
    let (told, _) = tool.repaired(&other);
    assert!(told["way"] == "copy" && told["files_with_losses"] == 0, "{told}");
    assert!(all_of(&other) == truth, "{told}");
    other.ok(&["verify"]);
}
