//! A block of newest versions is damaged, of L0 or of HEAD: a repair keeps everything of all other keys, and of those in the
//! block what EVENTS tell; and what is lost nobody is told as if it were there.
//!
//! `ANNALS_REPAIRS=n` says how many stores; `ANNALS_FIRST_SEED=n` where they begin.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed, and tells why"
)]

mod common;
#[path = "../../../tests/support/random.rs"]
#[allow(dead_code, unreachable_pub, reason = "every test uses a part of it")]
mod random;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use annals::inspect::StoreFiles;
use annals::{KeyValue, Options, PutRequest, Retention, Store, delete, put};
use annals_format::FileKind;
use annals_format::entry::EntryRef;
use annals_format::events::Transaction;
use annals_format::name::FileName;
use common::{Tool, small};
use random::Random;
use serde_json::Value;

/// Of one key: the revisions at which it was changed, and what it was from then on; and from when on it can be read.
#[derive(Debug)]
struct Past {
    versions: Vec<(u64, Option<KeyValue>)>,
    oldest: u64,
}

impl Past {
    fn at(&self, revision: u64) -> Option<&KeyValue> {
        let at = self.versions.partition_point(|(changed, _)| *changed <= revision);
        at.checked_sub(1).and_then(|at| self.versions[at].1.as_ref())
    }
}

/// What every key was.
struct Truth {
    keys: BTreeMap<String, Past>,
    newest: u64,
}

impl Truth {
    fn of(store: &Store) -> Self {
        let all = keys().map(|key| {
            let history = store.history(&key).collect::<annals::Result<Vec<_>>>().unwrap();
            let mut versions: Vec<_> =
                history.into_iter().map(|v| (v.mod_revision, state(&v, store, &key))).collect();
            versions.reverse();
            (key.clone(), Past { versions, oldest: store.oldest_readable(&key..=&key) })
        });
        Self { keys: all.collect(), newest: store.revision() }
    }
}

fn state(version: &annals::Version, store: &Store, key: &str) -> Option<KeyValue> {
    let at = version.mod_revision.max(store.oldest_readable(key..=key)).max(1);
    store.get_at(key, at).unwrap()
}

fn keys() -> impl Iterator<Item = String> {
    let of = |prefix: &'static str, count: u32| (0..count).map(move |n| format!("{prefix}{n:02}"));
    of("k/", 40).chain(of("ruled/", 4)).chain(of("short/", 6))
}

/// A store with files of L0 and HEAD, folded in part, and something in the log.
fn written(tool: &Tool, seed: u64) -> Truth {
    let mut random = Random::new(seed);
    let options = small()
        .background(false)
        .segment_bytes(*random.pick(&[4 << 10, 16 << 10]))
        .l0_files_max(*random.pick(&[1, 2, 4]))
        .event_value_bytes(*random.pick(&[0, 200, 200, 1000]));
    let store = options.open(tool.store()).unwrap();
    store.set_retention("ruled/", Some(Retention::forever())).unwrap();
    if random.one_in(2) {
        store.set_retention("short/", Some(Retention::forever().keep_revisions(90))).unwrap();
    }
    let lease = store.lease_grant(7, Duration::from_secs(1000)).unwrap().id;
    let keys: Vec<String> = keys().collect();
    for n in 0..random.between(200, 700) {
        let value = |random: &mut Random| format!("{n} {}", "x".repeat(random.index(400)));
        let key = random.pick(&keys);
        match random.below(12) {
            0 | 1 => drop(store.delete(key).unwrap()),
            2 => {
                let other = random.pick(&keys);
                let more = (other != key).then(|| delete(other));
                store
                    .txn()
                    .then([put(key, value(&mut random))].into_iter().chain(more))
                    .commit()
                    .unwrap();
            }
            3 => {
                let put = PutRequest::new(key, value(&mut random)).lease(lease);
                store.txn().then([put]).commit().unwrap();
            }
            _ => drop(store.put(key, value(&mut random)).unwrap()),
        }
        if random.one_in(60) {
            let to = random.between(1, store.revision() + 1);
            if to > store.compacted_revision() {
                store.compact(to).unwrap();
            }
        }
        match random.below(200) {
            0 => store.reorganise().unwrap(),
            1..60 => drop(store.run_background().unwrap()),
            _ => {}
        }
    }
    store.apply_retention().unwrap();
    let truth = Truth::of(&store);
    store.close().unwrap();
    truth
}

/// The blocks of the files of newest versions, and where they lie in these.
fn blocks(tool: &Tool) -> Vec<(FileName, Range<u64>)> {
    let files = StoreFiles::open(tool.store(), &Options::new()).unwrap();
    let mut blocks = Vec::new();
    let metas = files.manifest().files.iter();
    for meta in metas.filter(|meta| matches!(meta.kind, FileKind::L0 | FileKind::Head)) {
        let name = FileName::new(meta.kind, meta.number);
        let each = &mut |block: annals::inspect::BlockKeys<'_>| {
            blocks.push((name, block.place));
            Ok(true)
        };
        files.segment(meta).unwrap().block_keys(each).unwrap();
        // Its footer.
        blocks.push((name, meta.bytes - 20..meta.bytes));
    }
    blocks
}

/// Damages a block, and the footer, so that it can be found by itself alone; answers what was in the file.
fn damage(tool: &Tool, (name, place): &(FileName, Range<u64>), with_footer: bool) -> Vec<u8> {
    let path = tool.store().join(name.to_string());
    let whole = std::fs::read(&path).unwrap();
    let mut content = whole.clone();
    content[usize::try_from(u64::midpoint(place.start, place.end)).unwrap()] ^= 0x10;
    if with_footer {
        let at = content.len() - 100;
        content[at] ^= 0x10;
    }
    std::fs::write(&path, content).unwrap();
    whole
}

fn repaired(tool: &Tool, block: &(FileName, Range<u64>), with_footer: bool) -> (Value, Tool) {
    let whole = damage(tool, block, with_footer);
    let other = Tool::new();
    let (told, _) = tool.repaired(&other);
    std::fs::write(tool.store().join(block.0.to_string()), whole).unwrap();
    (told, other)
}

/// Everything that the store says is what was, and what is not named as lost is there.
fn check(store: &Store, told: &Value, truth: &Truth, later: bool) {
    let lost: BTreeMap<&str, &Value> = told["lost_keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lost| (lost["key"].as_str().unwrap(), &lost["kept"]))
        .collect();
    let given_up = told["past_given_up"].as_array().unwrap();
    let mut unknown = told["lost_entries"].as_u64().unwrap();
    let is_copy = told["way"] == "copy";
    for (key, past) in &truth.keys {
        let from = given_up.iter().filter(|lost| key.starts_with(lost["prefix"].as_str().unwrap()));
        let from = from.map(|lost| lost["from"].as_u64().unwrap()).max().unwrap_or(0);
        let oldest = store.oldest_readable(key..=key);
        if is_copy && !later {
            // A rule of so many revisions goes on with those that were added.
            assert!(oldest <= from.max(past.oldest + 2), "{key}: {oldest}, {} {told}", past.oldest);
        }
        assert!(oldest >= from, "{key}: {oldest}, {from}");
        let mut is_unknown = false;
        for at in oldest.max(1)..=truth.newest {
            let found =
                store.get_at(key, at).unwrap_or_else(|error| panic!("{key} at {at}: {error}"));
            // Without a past the newest revision is the one that is lost.
            let is_named = !is_copy && lost.contains_key(&key[..]) && at == truth.newest;
            if found.as_ref() != past.at(at) && !is_unknown && !is_named {
                let [found, truth] =
                    [found.as_ref(), past.at(at)].map(|kv| kv.map(|kv| kv.mod_revision));
                println!("    {key} at {at}, from {oldest}: {found:?}, was {truth:?}");
                is_unknown = true;
            }
        }
        if !later && !is_unknown {
            let now = store.get(key).unwrap();
            match lost.get(&key[..]) {
                Some(kept) => {
                    let kept = kept.as_u64();
                    // What was forgotten may still have been there.
                    if kept.is_none_or(|kept| kept >= past.oldest) {
                        let kept = kept.and_then(|at| past.at(at));
                        let value = now.as_ref().map(|kv| &kv.value);
                        assert_eq!(value, kept.map(|kv| &kv.value), "{key}");
                    }
                    assert_ne!(now.as_ref(), past.at(truth.newest), "{key}");
                }
                None => is_unknown = now.as_ref() != past.at(truth.newest),
            }
        }
        if is_unknown {
            unknown = unknown.checked_sub(1).unwrap_or_else(|| panic!("{key} is another: {told}"));
        }
        store.history(key).collect::<annals::Result<Vec<_>>>().unwrap();
    }
    for prefix in ["", "k/", "k/1", "ruled/", "short/"] {
        let view = store.latest().unwrap();
        let alive = view.prefix(prefix).collect::<annals::Result<Vec<_>>>().unwrap().len();
        assert_eq!(view.count(annals::KeyRange::prefix(prefix)).unwrap(), alive as u64, "{prefix}");
    }
}

/// EVENTS let go of what nobody can ask for file by file, where that is much of it: so an older change of a key may still be
/// told where a newer one is not.
#[test]
fn what_events_tell_below_a_floor_is_not_taken_for_the_newest() {
    thinned(false);
}

/// Nor where the rule is not there any more that kept the older one.
#[test]
fn nor_is_it_when_there_is_no_rule() {
    thinned(true);
}

fn thinned(rule_goes: bool) {
    let tool = Tool::new();
    let store = small()
        .background(false)
        .segment_bytes(32 << 10)
        .event_value_bytes(1 << 10)
        .open(tool.store())
        .unwrap();
    store.set_retention("kept/", Some(Retention::forever())).unwrap();
    let kept = |n: u32| {
        store.put(format!("kept/{n:02}"), noise(n, 900)).unwrap();
    };
    for n in 0..40 {
        kept(n);
    }
    store.put("x/changed", "old").unwrap();
    store.put("x/deleted", "old").unwrap();
    for n in 0..40 {
        kept(n);
    }
    // Into files of their own.
    store.reorganise().unwrap();
    for n in 0..120 {
        store.put("x/often", noise(n, 900)).unwrap();
    }
    store.put("x/changed", "new").unwrap();
    store.delete("x/deleted").unwrap();
    for n in 0..120 {
        store.put("x/often", noise(n, 900)).unwrap();
    }
    store.compact(store.revision()).unwrap();
    store.reorganise().unwrap();
    while store.run_background().unwrap() {}
    store.reorganise().unwrap();
    if rule_goes {
        store.set_retention("kept/", None).unwrap();
        store.put("kept/00", "last").unwrap();
        store.compact(store.revision()).unwrap();
    }
    store.close().unwrap();
    let has_floors =
        !StoreFiles::open(tool.store(), &Options::new()).unwrap().manifest().floors.is_empty();
    assert_eq!(has_floors, !rule_goes);
    let told = events_of(&tool, b"x/changed");
    assert_eq!(told.len(), 1, "the newer change is forgotten, and the older one is not: {told:?}");
    let blocks = blocks(&tool);
    // By itself, for a copy; and with another file that is damaged, for a store that is rebuilt.
    let with_another = blocks.iter().filter_map(|block| {
        let another = blocks.iter().find(|another| another.0 != block.0)?;
        Some((block, Some(another)))
    });
    let (mut copies, mut rebuilt) = (0, 0);
    for (block, another) in blocks.iter().map(|block| (block, None)).chain(with_another) {
        let whole = another.map(|another| (another.0, damage(&tool, another, false)));
        let (told, other) = repaired(&tool, block, false);
        if let Some((name, whole)) = whole {
            std::fs::write(tool.store().join(name.to_string()), whole).unwrap();
        }
        *(if told["way"] == "copy" { &mut copies } else { &mut rebuilt }) += 1;
        let store = small().background(false).open(other.store()).unwrap();
        let found =
            ["x/changed", "x/deleted"].map(|key| store.get(key).unwrap().map(|kv| kv.value));
        assert_ne!(found[0].as_deref(), Some(&b"old"[..]), "{block:?} {told}");
        assert_eq!(found[1], None, "{block:?} {told}");
        if found[0].is_none() {
            let named = told["lost_keys"].to_string().contains("x/changed");
            assert!(named || told["lost_entries"] != 0, "{block:?} {told}");
        }
    }
    assert!(copies > 1 && rebuilt > 1, "{copies} {rebuilt}");
}

/// A version that stands in the new store without its value is nowhere to be found when that is damaged, too.
#[test]
fn another_repair_finds_no_version_without_its_value() {
    let tool = Tool::new();
    let store = small().background(false).open(tool.store()).unwrap();
    let values = ["1", "2", "3"].map(|digit| digit.repeat(2000));
    for value in &values {
        store.put("k/a", value.as_str()).unwrap();
    }
    store.put("k/b", "x").unwrap();
    store.reorganise().unwrap();
    store.close().unwrap();
    let block = &blocks(&tool)[0];
    // A copy; and with damage of the log, too, a rebuilt store.
    for with_log in [false, true] {
        let log = tool.store().join(names(&tool, "wal").pop().unwrap());
        let whole = std::fs::read(&log).unwrap();
        if with_log {
            let mut content = whole.clone();
            content[600] ^= 1;
            std::fs::write(&log, content).unwrap();
        }
        let (told, other) = repaired(&tool, block, false);
        std::fs::write(&log, whole).unwrap();
        assert_eq!(told["way"], if with_log { "rebuild" } else { "copy" });
        let segments = names(&other, "seg");
        for (n, first) in segments.iter().enumerate() {
            for second in &segments[n..] {
                check_again(&other, [first, second], &values);
            }
        }
    }
}

/// What is in a directory of the store, in order.
fn names(tool: &Tool, directory: &str) -> Vec<String> {
    let files = std::fs::read_dir(tool.store().join(directory)).unwrap();
    let mut names: Vec<_> = files
        .map(|file| format!("{directory}/{}", file.unwrap().file_name().into_string().unwrap()))
        .collect();
    names.sort_unstable();
    names
}

/// Damages two files, repairs, and looks at `k/a`.
fn check_again(tool: &Tool, damaged: [&String; 2], values: &[String]) {
    let whole = damaged.map(|name| std::fs::read(tool.store().join(name)).unwrap());
    for (name, whole) in damaged.iter().zip(&whole) {
        let mut content = whole.clone();
        content[100] ^= 1;
        std::fs::write(tool.store().join(name), content).unwrap();
    }
    let another = Tool::new();
    let (told, _) = tool.repaired(&another);
    for (name, whole) in damaged.iter().zip(whole) {
        std::fs::write(tool.store().join(name), whole).unwrap();
    }
    let store = small().background(false).open(another.store()).unwrap();
    for at in store.oldest_readable("k/a"..="k/a").max(1)..=store.revision() {
        let found = store.get_at("k/a", at).unwrap();
        assert!(
            found.is_none_or(|kv| values.iter().any(|value| kv.value == *value)),
            "{damaged:?} at {at}: {told}"
        );
    }
}

/// The revisions of which EVENTS tell a change of this key.
fn events_of(tool: &Tool, key: &[u8]) -> Vec<u64> {
    let files = StoreFiles::open(tool.store(), &Options::new()).unwrap();
    let mut found = Vec::new();
    for meta in files.manifest().files.iter().filter(|meta| meta.kind == FileKind::Events) {
        let each = &mut |entry: &EntryRef<'_>| {
            let transaction = Transaction::decode(entry.value).unwrap();
            let changes = transaction.events().map(Result::unwrap);
            found.extend(changes.filter(|event| event.key == key).map(|_| entry.revision));
        };
        files.segment(meta).unwrap().salvage(each, &mut |error, _| panic!("{error}")).unwrap();
    }
    found
}

/// Of what does not get smaller.
fn noise(seed: u32, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed.into());
    (0..bytes)
        .map(|_| *random.pick(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-"))
        .collect()
}

#[test]
fn a_damaged_block_of_newest_versions_costs_what_nothing_else_tells() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().unwrap())
    };
    let (first, count) = (number("ANNALS_FIRST_SEED", 0), number("ANNALS_REPAIRS", 5));
    let mut ways = BTreeMap::<String, u64>::new();
    for seed in first..first + count {
        println!("seed {seed}");
        let tool = Tool::new();
        let truth = written(&tool, seed);
        let blocks = blocks(&tool);
        let mut random = Random::new(seed);
        for block in &blocks {
            if blocks.len() > 12 && !random.one_in(blocks.len() as u64 / 8) {
                continue;
            }
            let with_footer = random.one_in(3);
            let (told, other) = repaired(&tool, block, with_footer);
            println!("  {block:?} {with_footer}: {} {}", told["way"], told["lost_entries"]);
            let what =
                ["lost_keys", "past_given_up"].map(|of| !told[of].as_array().unwrap().is_empty());
            let what = format!(
                "{:?} {} {what:?} {}",
                block.0.kind,
                told["way"],
                told["lost_entries"] != 0
            );
            *ways.entry(what).or_default() += 1;
            let store = small().background(false).open(other.store()).unwrap();
            check(&store, &told, &truth, false);
            for (n, key) in keys().enumerate().filter(|(n, _)| n % 3 == 0) {
                let key = &key;
                match n % 2 {
                    0 => drop(store.put(key, "later").unwrap()),
                    _ => drop(store.delete(key).unwrap()),
                }
            }
            check(&store, &told, &truth, true);
            store.reorganise().unwrap();
            check(&store, &told, &truth, true);
            store.close().unwrap();
            other.ok(&["verify"]);
        }
    }
    for (what, times) in ways {
        println!("{times:>5} {what}");
    }
}
