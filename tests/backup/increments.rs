//! Full backups with increments: equal to the store at every revision that both know; refused where they do
//! not continue; and stores whose revision was raised.

use std::sync::Arc;
use std::time::Duration;

use annals::vfs::{CrashMode, FaultVfs, MemoryVfs};
use annals::{
    At, Durability, Error, ErrorKind, LeaseGrantRequest, Options, PutRequest, RestoreOptions,
    RestoreReport, Retention, Store, delete, inspect_backup, put, restore,
};

use crate::support::DIRECTORY;
use crate::support::check::{self, Depth};
use crate::support::copies::{clock, hashes, images, options, sound};
use crate::support::drive::{Driver, Ended};
use crate::support::generate::{self, Taste};
use crate::support::model::Request;
use crate::support::random::Random;
use crate::{COPY, backup, restored};

fn increment(store: &Store, since: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let made = store.backup_from(since, &mut out).unwrap();
    assert_eq!((made.from, made.bytes), (Some(since), out.len() as u64));
    assert_eq!(store.hash_at(made.revision).unwrap(), made.hash);
    out
}

#[test]
fn a_backup_with_increments_equals_the_store_at_every_revision() {
    for seed in 0..16 {
        let clock = clock();
        let options = options(MemoryVfs::new()).clock(Arc::clone(&clock) as _);
        let store = options.open(DIRECTORY).unwrap();
        let driver = Driver::new(clock);
        let mut random = Random::new(seed);
        let mut taste = Taste::random(&mut random);
        taste.value_bytes = 3_000;
        taste.leases = true;
        let (mut stream, mut since, mut parts) = (Vec::new(), 0, 0);
        for n in 0..240 {
            let model = driver.model().model.clone();
            let request = match n {
                // What the next increment continues stays readable.
                130 => Request::Compact(since.max(2).min(model.revision())),
                _ => match generate::request(&mut random, &taste, &model) {
                    Request::Compact(_) => continue,
                    other => other,
                },
            };
            match driver.request(&store, &request) {
                Ok(Ended::AsExpected) => {}
                other => panic!("{request:?}: {other:?}"),
            }
            if n % 60 == 50 {
                let part = if parts == 0 { backup(&store) } else { increment(&store, since) };
                stream.extend_from_slice(&part);
                (since, parts) = (store.revision(), parts + 1);
            }
            match n {
                100 => store.reorganise().unwrap(),
                _ if n % 20 == 0 => drop(store.run_background().unwrap()),
                _ => {}
            }
        }
        stream.extend_from_slice(&increment(&store, since));
        // One in which nothing has changed.
        stream.extend_from_slice(&increment(&store, store.revision()));
        let report = restored(&stream, &options, COPY).unwrap();
        assert_eq!((report.increments, report.bytes), (parts + 1, stream.len() as u64));
        assert_eq!(report.hash, store.hash_at(At::Latest).unwrap());
        let infos = inspect_backup(&stream[..]).unwrap();
        assert_eq!(infos.len() as u64, parts + 2);
        assert!(infos[1].from.is_some() && infos[1].transactions > 0, "{:?}", infos[1]);
        let copy = options.open(COPY).unwrap();
        let model = driver.model().model.clone();
        check::store(&copy, &model, Depth::Everything).unwrap();
        assert_eq!(hashes(&copy), hashes(&store), "{seed}");
        assert_eq!(copy.lease_list().unwrap(), store.lease_list().unwrap(), "{seed}");
        for lease in store.lease_list().unwrap() {
            let held =
                |store: &Store| store.lease_time_to_live(lease.id, true).unwrap().unwrap().keys;
            assert_eq!(held(&copy), held(&store), "{seed}");
        }
        assert!(copy.incarnation() > store.incarnation());
        copy.put("its", "own").unwrap();
        copy.reorganise().unwrap();
        copy.close().unwrap();
        sound(&options, COPY).unwrap();
    }
}

#[test]
fn records_that_come_change_and_go_do_so_in_the_copy() {
    let options = options(MemoryVfs::new());
    let store = options.open(DIRECTORY).unwrap();
    let keep = |revisions| Some(Retention::forever().keep_revisions(revisions));
    store.set_retention("/a/", keep(5)).unwrap();
    store.set_retention("/gone/", keep(5)).unwrap();
    for id in [1, 2, 3] {
        let request = LeaseGrantRequest { ttl_min: 1, ..LeaseGrantRequest::new(id, 60) };
        store.lease_grant_with(request).unwrap();
        store.put_with(PutRequest::new(format!("/k/{id}"), "v").lease(id)).unwrap();
    }
    let mut stream = backup(&store);
    let since = store.revision();
    store.lease_revoke(1).unwrap();
    store.put_with(PutRequest::new("/k/2", "v").lease(3)).unwrap();
    store.lease_grant_with(LeaseGrantRequest::new(9, 90)).unwrap();
    store.set_retention("/a/", keep(7)).unwrap();
    store.set_retention("/gone/", None).unwrap();
    store
        .set_retention("/new/", Some(Retention::forever().keep_for(Duration::from_secs(60))))
        .unwrap();
    store.txn().then([put("/x", "1"), delete("/k/3")]).metadata("by hand").commit().unwrap();
    stream.extend_from_slice(&increment(&store, since));
    let since = store.revision();
    // Nothing but records.
    store.lease_revoke(9).unwrap();
    store.compact(since).unwrap();
    stream.extend_from_slice(&increment(&store, since));
    restored(&stream, &options, COPY).unwrap();
    let copy = options.open(COPY).unwrap();
    assert_eq!(copy.retention(), store.retention());
    assert_eq!(copy.lease_list().unwrap(), store.lease_list().unwrap());
    assert_eq!(copy.compacted_revision(), store.compacted_revision());
    assert_eq!(hashes(&copy), hashes(&store));
    copy.lease_revoke(3).unwrap();
    assert_eq!(copy.get("/k/2").unwrap(), None);
}

fn refused(parts: &[&[u8]]) -> Error {
    let options = options(MemoryVfs::new());
    let error = restored(&parts.concat(), &options, COPY).unwrap_err();
    let opened = options.create(false).open(COPY).unwrap_err();
    let kind = opened.kind();
    let none = matches!(kind, ErrorKind::NoStore { .. } | ErrorKind::NotAStore { .. });
    assert!(none, "{opened}");
    error
}

#[test]
fn an_increment_is_applied_to_the_state_that_it_continues_and_to_no_other() {
    let made = |value: &str| {
        let options = options(MemoryVfs::new());
        let store = options.open(DIRECTORY).unwrap();
        for n in 0..9 {
            store.put(format!("/k/{}", n % 3), value).unwrap();
        }
        let full = backup(&store);
        store.put("/k/0", "then").unwrap();
        let second = increment(&store, 10);
        store.put("/k/0", "and then").unwrap();
        (full, second, increment(&store, 11), increment(&store, 10))
    };
    let (full, second, third, both) = made("ours");
    let (_, theirs, ..) = made("others");
    let says = |parts: &[&[u8]], what: &str| {
        let error = refused(parts);
        assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    };
    says(&[&second], "a full backup comes first");
    says(&[&full, &full], "a full backup follows");
    says(&[&full, &third], "continues revision 11, but this is 10");
    says(&[&full, &second, &second], "continues revision 10, but this is 11");
    says(&[&full, &both, &third], "continues revision 11, but this is 12");
    // The same store, as far as its identity tells, with another history.
    says(&[&full, &theirs], "another history");
    let cut = refused(&[&full, &second[..second.len() - 1]]);
    assert!(cut.corruption().is_some_and(|damage| damage.offset > full.len() as u64), "{cut}");
    for parts in [&[&full[..], &second, &third][..], &[&full, &both]] {
        let report = restored(&parts.concat(), &options(MemoryVfs::new()), COPY).unwrap();
        assert_eq!(report.revision, 12);
    }
}

#[test]
fn what_is_forgotten_is_in_no_increment() {
    let options = options(MemoryVfs::new());
    let store = options.open(DIRECTORY).unwrap();
    for n in 0..20 {
        store.put(format!("/k/{}", n % 3), "v").unwrap();
    }
    let refused = |since| store.backup_from(since, std::io::sink()).unwrap_err().into_kind();
    assert!(matches!(refused(0), ErrorKind::InvalidArgument { .. }));
    assert!(matches!(refused(22), ErrorKind::FutureRevision { requested: 22, current: 21 }));
    store.compact(10).unwrap();
    let kind = refused(9);
    assert!(matches!(kind, ErrorKind::Compacted { requested: 9, compacted: 10, .. }), "{kind:?}");
    store.backup_from(10, std::io::sink()).unwrap();
    store.set_retention("/k/", Some(Retention::forever().keep_revisions(5))).unwrap();
    store.apply_retention().unwrap();
    assert!(matches!(refused(10), ErrorKind::Compacted { .. }));
}

#[test]
fn increments_of_many_transactions_and_of_long_ones() {
    let options = Options::new()
        .vfs(Arc::new(MemoryVfs::new()))
        .memtable_bytes(64 << 10)
        .wal_bytes(64 << 10)
        .durability(Durability::Buffered);
    let store = options.open(DIRECTORY).unwrap();
    store.put("/a", "1").unwrap();
    let mut stream = backup(&store);
    let mut random = Random::new(1);
    for n in 0..3_000 {
        store.put(format!("/k/{}", random.below(500)), "value ".repeat(n % 60)).unwrap();
    }
    store.put("/long", vec![7; 5 << 20]).unwrap();
    let many = (0..2_000).map(|n| put(format!("/many/{n}"), vec![1; 2_000]));
    store.txn().then(many.collect::<Vec<_>>()).commit().unwrap();
    stream.extend_from_slice(&increment(&store, 2));
    let report = restored(&stream, &options, COPY).unwrap();
    assert_eq!(report.hash, store.hash_at(At::Latest).unwrap());
    let copy = options.open(COPY).unwrap();
    assert_eq!(copy.hash_at(1_000).unwrap(), store.hash_at(1_000).unwrap());
}

#[test]
fn a_crash_with_increments_and_a_raised_revision_leaves_no_store_or_all_of_it() {
    let source = options(MemoryVfs::new()).open(DIRECTORY).unwrap();
    source.set_retention("/b/", Some(Retention::forever().keep_revisions(5))).unwrap();
    source.lease_grant(3, Duration::from_secs(60)).unwrap();
    for n in 0..30 {
        source.put(format!("/a/{}", n % 7), "x".repeat(n * 30)).unwrap();
    }
    let mut stream = backup(&source);
    for n in 0..30 {
        source.put(format!("/b/{}", n % 7), "y".repeat(n * 30)).unwrap();
    }
    source.lease_revoke(3).unwrap();
    stream.extend_from_slice(&increment(&source, 31));
    let (revision, alive) = (source.revision(), state(&source));
    let disk = MemoryVfs::new();
    let faulty = FaultVfs::new(Arc::new(disk.clone()));
    let check = move |image: MemoryVfs, place: &dyn std::fmt::Debug| {
        let store = match options(image.clone()).create(false).open(COPY) {
            Ok(store) => store,
            Err(error) => {
                let kind = error.kind();
                let none = matches!(kind, ErrorKind::NoStore { .. } | ErrorKind::NotAStore { .. });
                assert!(none, "{place:?}: {error}");
                return false;
            }
        };
        assert_eq!((store.revision(), state(&store)), (revision + 100, alive.clone()), "{place:?}");
        assert_eq!(store.put("/next", "1").unwrap().revision, revision + 101);
        store.close().unwrap();
        sound(&options(image), COPY).unwrap_or_else(|found| panic!("{place:?}: {found}"));
        true
    };
    let (stores, dirty) =
        (Arc::new(std::sync::Mutex::new((0, 0))), std::sync::atomic::AtomicBool::new(true));
    let (look, seen, watched) = (check.clone(), Arc::clone(&stores), disk.clone());
    faulty.observe(move |number, kind| {
        let changes = crate::support::copies::changes_disk(kind);
        if dirty.swap(changes, std::sync::atomic::Ordering::Relaxed) {
            for image in images(&watched) {
                let is_store = look(image, &(number, kind));
                let mut seen = seen.lock().unwrap();
                *seen = (seen.0 + 1, seen.1 + u64::from(is_store));
            }
        }
    });
    let raise = RestoreOptions::new().options(options(faulty)).bump_revision(100);
    restore(&stream[..], COPY, &raise).unwrap();
    let (images_seen, stores) = *stores.lock().unwrap();
    println!("{images_seen} images, {stores} stores");
    assert!(images_seen > 200);
    for image in images(&disk) {
        assert!(check(image, &"at the end"), "what has returned is durable");
    }
}

/// What lives, with its numbers, and the leases.
fn state(store: &Store) -> (Vec<annals::KeyValue>, Vec<i64>) {
    let view = store.latest().unwrap();
    let living = view.range(..).map(Result::unwrap).collect();
    (living, store.lease_list().unwrap().iter().map(|lease| lease.id).collect())
}

fn raised(stream: &[u8], options: &Options, by: u64) -> annals::Result<RestoreReport> {
    restore(stream, COPY, &RestoreOptions::new().options(options.clone()).bump_revision(by))
}

/// A store that could never be written to is not made, whichever way.
#[test]
fn a_revision_is_not_raised_so_far_that_few_are_to_come() {
    let options = options(MemoryVfs::new());
    let store = options.open(DIRECTORY).unwrap();
    store.put("a", "1").unwrap();
    let stream = backup(&store);
    let half = 1 << 61;
    for by in [half + 1, half * 2, half * 2 - 5, u64::MAX] {
        let error = raised(&stream, &options, by).unwrap_err();
        assert!(error.to_string().contains("too few revisions to come"), "{error}");
        // Told before anything is made.
        assert!(matches!(
            options.clone().create(false).open(COPY).unwrap_err().kind(),
            ErrorKind::NoStore { .. }
        ));
    }
    // Only when it is read does the backup tell how far it goes.
    let error = raised(&stream, &options, half).unwrap_err();
    assert!(error.to_string().contains("too few revisions to come"), "{error}");
    let to = "raised";
    let most = RestoreOptions::new().options(options.clone()).bump_revision(half - 2);
    assert_eq!(restore(&stream[..], to, &most).unwrap().revision, half);
    assert_eq!(options.open(to).unwrap().put("a", "2").unwrap().revision, half + 1);
}

#[test]
fn a_store_whose_revision_was_raised_refuses_every_revision_before() {
    for (seed, by) in [(0, 1), (1, 2), (2, 1_000), (3, 1 << 40), (4, 7)] {
        let options = options(MemoryVfs::new());
        let (store, model) = crate::support::copies::scripted(&options, seed);
        if seed == 4 {
            store.set_retention("", Some(Retention::forever().keep_revisions(50))).unwrap();
            store.set_retention("/", Some(Retention::forever())).unwrap();
            store.apply_retention().unwrap();
        }
        let (alive, stream) = (state(&store), backup(&store));
        let report = raised(&stream, &options, by).unwrap();
        let newest = model.revision() + by;
        assert_eq!((report.revision, report.hash.revision), (newest, newest));
        let copy = options.open(COPY).unwrap();
        assert_eq!((copy.revision(), copy.compacted_revision()), (newest, newest));
        assert_eq!(state(&copy), alive);
        assert!(copy.time_of(newest).unwrap() >= store.time_of(model.revision()).unwrap());
        assert!(copy.retention().iter().all(|rule| rule.floor == newest), "{:?}", copy.retention());
        // Of what a client of the lost store may have seen nothing is answered.
        for revision in [1, model.revision(), model.revision() + 1, newest - 1] {
            if revision == newest {
                continue;
            }
            let compacted = |error: Error| matches!(error.kind(), ErrorKind::Compacted { .. });
            assert!(compacted(copy.at(revision).unwrap_err()), "{revision}");
            let mut watch = copy.watch("/").prefix().from(revision).start().unwrap();
            assert!(compacted(watch.try_next().unwrap().unwrap_err()), "{revision}");
            assert!(copy.log(revision..).next().unwrap().is_err_and(compacted), "{revision}");
            assert!(copy.hash_at(revision).is_err_and(compacted), "{revision}");
        }
        assert_eq!(copy.put("/next", "1").unwrap().revision, newest + 1);
        let told: Vec<_> = copy.log(newest + 1..).map(Result::unwrap).collect();
        assert_eq!((told.len(), told[0].revision), (1, newest + 1));
        let mut watch = copy.watch("/next").from(newest + 1).start().unwrap();
        assert_eq!(watch.try_next().unwrap().unwrap().revision(), newest + 1);
        for n in 0..40 {
            copy.put(format!("/later/{}", n % 9), "x".repeat(300)).unwrap();
        }
        copy.reorganise().unwrap();
        copy.compact(newest + 20).unwrap();
        copy.reorganise().unwrap();
        // It is backed up like any other, and goes on being raised.
        let again = backup(&copy);
        restored(&again, &options, "again").unwrap();
        assert_eq!(hashes(&options.open("again").unwrap()), hashes(&copy));
        copy.close().unwrap();
        for path in [COPY, "again"] {
            sound(&options, path).unwrap();
        }
    }
}

#[test]
fn an_empty_store_can_be_raised() {
    let options = options(MemoryVfs::new());
    let stream = backup(&options.open(DIRECTORY).unwrap());
    raised(&stream, &options, 9).unwrap();
    let copy = options.open(COPY).unwrap();
    assert_eq!((copy.revision(), copy.put("/a", "1").unwrap().revision), (10, 11));
    drop(copy);
    sound(&options, COPY).unwrap();
}

#[test]
fn a_copy_is_of_a_later_incarnation_than_all_that_it_was_made_of() {
    let disk = MemoryVfs::new();
    let mut store = options(disk.clone()).open(DIRECTORY).unwrap();
    store.put("/a", "1").unwrap();
    let mut stream = backup(&store);
    let mut disk = disk;
    for _ in 0..3 {
        // With the store open.
        disk = disk.crash(0, CrashMode::LoseAll);
        store = options(disk.clone()).open(DIRECTORY).unwrap();
        store.put("/b", "1").unwrap();
    }
    let options = options(disk.crash(0, CrashMode::LoseAll));
    store = options.open(DIRECTORY).unwrap();
    assert_eq!((store.incarnation(), store.revision()), (5, 5));
    stream.extend_from_slice(&increment(&store, 2));
    restored(&stream, &options, COPY).unwrap();
    assert!(options.open(COPY).unwrap().incarnation() > 5);
    restore(
        &stream[..],
        "raised",
        &RestoreOptions::new().options(options.clone()).bump_revision(2),
    )
    .unwrap();
    assert!(options.open("raised").unwrap().incarnation() > 5);
}

#[test]
fn rules_that_have_forgotten_more_since_have_in_the_copy_too() {
    let options = options(MemoryVfs::new());
    let store = options.open(DIRECTORY).unwrap();
    store.set_retention("/a/", Some(Retention::forever().keep_revisions(5))).unwrap();
    let fill = |count: u64| {
        for n in 0..count {
            store.put(format!("/a/{}", n % 3), "v").unwrap();
            store.put(format!("/b/{}", n % 3), "v").unwrap();
        }
    };
    fill(15);
    let mut stream = backup(&store);
    for _ in 0..3 {
        let since = store.revision();
        fill(2);
        store.apply_retention().unwrap();
        assert!(store.oldest_readable(..) > 25 && store.oldest_readable(..) <= since);
        stream.extend_from_slice(&increment(&store, since));
    }
    restored(&stream, &options, COPY).unwrap();
    let copy = options.open(COPY).unwrap();
    assert_eq!(copy.retention(), store.retention());
    assert_eq!(copy.oldest_readable(..), store.oldest_readable(..));
    assert_eq!(copy.hash_at(At::Latest).unwrap(), store.hash_at(At::Latest).unwrap());
    let raise = RestoreOptions::new().options(options.clone()).bump_revision(5);
    let report = restore(&stream[..], "raised", &raise).unwrap();
    assert_eq!(report.hash.compacted, report.revision);
    // And the last rule goes.
    let since = store.revision();
    store.set_retention("/a/", None).unwrap();
    store.compact(since).unwrap();
    store.apply_retention().unwrap();
    assert_eq!(store.retention(), []);
    stream.extend_from_slice(&increment(&store, since));
    restored(&stream, &options, "without").unwrap();
    let copy = options.open("without").unwrap();
    assert_eq!((copy.retention(), hashes(&copy)), (Vec::new(), hashes(&store)));
}
