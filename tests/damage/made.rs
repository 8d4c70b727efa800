//! The store that is damaged: small, with every kind of file and every way in which a block can be stored.
//!
//! Superseded versions are in blocks as they are, under zstd, over a dictionary, over another block, and in groups; there
//! are leases, a rule of retention, deletions, a compaction, transactions with metadata; the log is one sealed file and one that
//! was written last. It is closed, or left as a killed process leaves it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use annals::clock::ManualClock;
use annals::inspect::StoreFiles;
use annals::vfs::{CrashMode, MemoryVfs};
use annals::{
    DeleteRangeRequest, HistoryCodec, KeyValue, Op, Options, PutRequest, Retention, RetentionRule,
    Store, Transaction, TxnRequest, Version,
};
use annals_format::FileKind;
use annals_format::block::Encoding;
use bytes::Bytes;

use crate::support::drive::{Driver, Ended};
use crate::support::model::{Model, Request};
use crate::support::random::Random;
use crate::support::{DIRECTORY, START_TIME, tiny};

/// The lease that keys are attached to.
pub const LEASE: i64 = 5;
/// The prefix with a rule of retention. It has keys, and nothing of them is forgotten.
pub const RULED: &str = "/ruled/";

/// A store, an older state of it, and what it must answer.
pub struct Made {
    /// Whether it was closed.
    pub closed: bool,
    pub disk: MemoryVfs,
    pub older: MemoryVfs,
    pub model: Model,
    pub expected: Expected,
    /// Every file that is not empty.
    pub paths: Vec<String>,
}

/// The answers, made once.
pub struct Expected {
    pub revision: u64,
    pub compacted: u64,
    pub states: Vec<(u64, Vec<KeyValue>)>,
    pub histories: Vec<(Bytes, Vec<Version>)>,
    pub log: Vec<Transaction>,
    pub leases: Vec<(i64, i64)>,
    pub attached: Vec<Bytes>,
    pub rules: Vec<RetentionRule>,
}

/// Letters that no compression makes much shorter, the same for the same seed.
fn noise(seed: u64, len: usize) -> String {
    let mut random = Random::new(seed);
    (0..len).map(|_| char::from(33 + u8::try_from(random.below(90)).unwrap())).collect()
}

struct Maker {
    disk: MemoryVfs,
    driver: Driver,
    store: Option<Store>,
}

impl Maker {
    fn new(seed: u64) -> Self {
        let clock = Arc::new(ManualClock::new(START_TIME));
        let mut maker = Self { disk: MemoryVfs::new(), driver: Driver::new(clock), store: None };
        maker.reopen(seed, HistoryCodec::ZstdBlocks, 128 << 10);
        maker
    }

    /// Goes on with another way to store the past.
    fn reopen(&mut self, seed: u64, codec: HistoryCodec, memtable_bytes: u64) {
        if let Some(store) = self.store.take() {
            store.close().unwrap();
        }
        let clock = Arc::clone(&self.driver.clock);
        let options = tiny(Arc::new(self.disk.clone()), clock)
            .store_id_seed(seed)
            .memtable_bytes(memtable_bytes)
            .segment_bytes(64 << 10)
            .l0_files_max(3)
            .history_windows_max(12)
            .blob_value_bytes(1 << 10)
            .history_codec(codec)
            .background_bytes_per_sync(1 << 30)
            .lease_expiry(false);
        self.store = Some(options.open(Path::new(DIRECTORY)).unwrap());
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn request(&self, request: &Request) {
        match self.driver.request(self.store(), request) {
            Ok(Ended::AsExpected) => {}
            other => panic!("{other:?}"),
        }
    }

    fn put(&self, key: &str, value: impl Into<Bytes>, lease: i64) {
        self.request(&Request::Put(PutRequest::new(key, value.into()).lease(lease)));
    }

    fn txn(&self, success: Vec<Op>, metadata: &'static str) {
        let request = TxnRequest { success, ..TxnRequest::default() };
        self.request(&Request::Txn { request, time: None, metadata: metadata.into() });
    }

    /// What was written is in files, and is the past of the next writes.
    fn flush(&self) {
        self.store().reorganise().unwrap();
    }

    /// Several versions of like values of many keys, and of one large value.
    fn likes(&self, part: &str, keys: usize, rounds: u64, common: usize, own: usize) {
        let text = noise(1, common);
        for round in 0..rounds {
            let put = |n: usize| {
                let own = noise(round * 1000 + n as u64, own);
                annals::put(format!("{part}{n:02}"), format!("{text}{own} round {round}"))
            };
            let ops = (0..keys).map(put).collect();
            self.txn(ops, if round == 1 { "by hand" } else { "" });
        }
    }
}

/// Makes the store, and closes it or leaves it as a killed process does.
pub fn made(close: bool) -> Made {
    made_with(1, close)
}

/// The same with another identity.
pub fn made_with(seed: u64, close: bool) -> Made {
    make(seed, close, false)
}

/// A killed one whose last batch has a single sector.
pub fn made_with_small_last() -> Made {
    make(1, false, true)
}

fn make(seed: u64, close: bool, small_last: bool) -> Made {
    let mut maker = Maker::new(seed);
    maker.request(&Request::Grant { id: LEASE, ttl: 60 });
    maker.request(&Request::Grant { id: 6, ttl: 90 });
    // Over a dictionary; the large value over another block.
    maker.likes("/small/", 18, 3, 260, 20);
    let big = noise(7, 4200);
    for n in 0..4 {
        maker.put("/big", format!("{n:03}{big}"), if n == 3 { LEASE } else { 0 });
    }
    maker.flush();
    maker.store().set_retention(RULED, Some(Retention::forever())).unwrap();
    maker.reopen(seed, HistoryCodec::Raw, 128 << 10);
    maker.likes("/group/", 6, 3, 60, 10);
    maker.flush();
    // Groups, some of them over a dictionary.
    maker.reopen(seed, HistoryCodec::Small, 128 << 10);
    maker.likes("/group/", 18, 2, 580, 20);
    for n in 0..12_u64 {
        maker.put(&format!("{RULED}{}", n % 3), noise(n, 300).repeat(2), LEASE);
    }
    let delete = DeleteRangeRequest::new("/small/02").range_end("/small/05");
    maker.request(&Request::DeleteRange(delete));
    maker.flush();
    let older = maker.disk.crash(0, CrashMode::KeepAll);
    // As soon as a memtable is full it becomes files that are not folded or merged yet. Too few versions for a
    // dictionary; those that cannot be compressed as they are.
    maker.reopen(seed, HistoryCodec::ZstdBlocks, 16 << 10);
    for n in 0..5_u64 {
        maker.put("/plain", "what repeats itself, ".repeat(20 + usize::try_from(n).unwrap()), 0);
        let mut random = Random::new(n);
        let bytes: Vec<u8> = (0..3000).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
        maker.put("/noise", bytes, 0);
    }
    while maker.store().run_background().unwrap() {}
    maker.reopen(seed, HistoryCodec::Fast, 16 << 10);
    maker.likes("/late/", 4, 7, 600, 60);
    while maker.store().run_background().unwrap() {}
    // A log of one file that is sealed and one that is not; few enough that there is no spare.
    for n in 0..8_u64 {
        let value = noise(n, usize::try_from(20 + 40 * n).unwrap());
        maker.put(&format!("/last/{}", n % 7), value, if n == 3 { LEASE } else { 0 });
    }
    let delete = DeleteRangeRequest::new("/late/01").range_end("/late/03");
    maker.request(&Request::DeleteRange(delete));
    // What it gives up is still in the files.
    maker.request(&Request::Compact(4));
    maker.likes("/last/x", 3, 2, 700, 30);
    if small_last {
        maker.put("/last/1", "small", 0);
    }
    let rules = maker.store().retention();
    let store = maker.store.take().unwrap();
    if close {
        store.close().unwrap();
    } else {
        std::mem::forget(store);
    }
    let disk = maker.disk.crash(0, CrashMode::KeepAll);
    let paths: Vec<String> = disk
        .paths()
        .into_iter()
        .filter(|path| !disk.read(Path::new(path)).unwrap().is_empty())
        .collect();
    let model = maker.driver.model().model.clone();
    let expected = Expected::of(&model, rules);
    Made { closed: close, disk, older, model, expected, paths }
}

impl Expected {
    pub fn of(model: &Model, rules: Vec<RetentionRule>) -> Self {
        let (oldest, newest) = (model.compacted().max(1), model.revision());
        let states = [oldest, oldest.midpoint(newest), newest]
            .map(|revision| (revision, model.state_at(revision).into_values().collect()));
        Self {
            revision: newest,
            compacted: model.compacted(),
            states: states.into(),
            histories: model.keys().map(|key| (key.clone(), model.history(key))).collect(),
            log: model.transactions(0),
            leases: model.leases().iter().map(|(id, ttl)| (*id, *ttl)).collect(),
            attached: model.attached(LEASE),
            rules,
        }
    }
}

impl Made {
    /// A disk of its own with the same files.
    pub fn copy(&self) -> MemoryVfs {
        self.disk.crash(0, CrashMode::KeepAll)
    }

    pub fn content(&self, path: &str) -> Vec<u8> {
        self.disk.read(Path::new(path)).unwrap()
    }

    /// A copy with another content of one file.
    pub fn with(&self, path: &str, content: &[u8]) -> MemoryVfs {
        let copy = self.copy();
        copy.overwrite(Path::new(path), content);
        copy
    }

    /// Every sector of the files whose path contains a text.
    pub fn sectors(&self, part: &str) -> Vec<(String, usize)> {
        let paths = self.paths.iter().filter(|path| path.contains(part));
        let sectors = paths.flat_map(|path| {
            let sectors = self.content(path).len().div_ceil(512);
            (0..sectors).map(|sector| (path.clone(), sector * 512))
        });
        sectors.collect()
    }

    pub fn bytes(&self) -> u64 {
        self.paths.iter().map(|path| self.content(path).len() as u64).sum()
    }
}

/// What kind of file it is, for tables.
pub fn kind(path: &str) -> &'static str {
    let kinds = ["CURRENT", "MANIFEST", ".wal", ".l0", ".head", ".hist", ".events", ".blob"];
    kinds.into_iter().find(|kind| path.contains(kind)).unwrap()
}

/// Options to look into the files of a disk.
pub fn options(disk: &MemoryVfs) -> Options {
    tiny(Arc::new(disk.clone()), Arc::new(ManualClock::new(START_TIME))).lease_expiry(false)
}

#[test]
fn it_has_every_kind_of_file_and_block() {
    for close in [true, false] {
        let made = made(close);
        for path in &made.paths {
            println!("{path} {}", made.content(path).len());
        }
        println!("{} bytes, revision {}", made.bytes(), made.expected.revision);
        let files = StoreFiles::open(DIRECTORY, &options(&made.disk)).unwrap();
        let mut kinds = BTreeMap::new();
        let mut dictionaries = BTreeSet::new();
        let mut heights = BTreeMap::new();
        for meta in &files.manifest().files {
            let segment = files.segment(meta).unwrap();
            let footer = segment.footer().unwrap();
            if footer.dictionary_bytes > 0 {
                dictionaries.insert(meta.number);
            }
            heights.insert(meta.kind.label(), footer.height);
            let count = &mut |block: annals::inspect::BlockInfo| {
                let seen = kinds.entry((meta.kind.label(), block.encoding.number())).or_insert(0);
                *seen += 1;
                Ok(true)
            };
            segment.blocks(count).unwrap();
        }
        println!(
            "blocks by kind and encoding {kinds:?}, heights {heights:?}, dictionaries in {dictionaries:?}"
        );
        for encoding in [
            Encoding::Raw,
            Encoding::Zstd,
            Encoding::ZstdDictionary,
            Encoding::Groups,
            Encoding::ZstdBase,
        ] {
            let key = (FileKind::History.label(), encoding.number());
            assert!(kinds.contains_key(&key), "no {encoding:?} in {kinds:?}");
        }
        assert!(dictionaries.len() >= 2, "{dictionaries:?}");
        for kind in ["CURRENT", "MANIFEST-", ".l0", ".head", ".hist", ".events", ".blob"] {
            assert!(
                made.paths.iter().any(|path| path.contains(kind)),
                "no {kind} in {:?}",
                made.paths
            );
        }
        assert_eq!(made.paths.iter().filter(|path| path.contains(".wal")).count(), 2);
    }
}
