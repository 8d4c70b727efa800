//! What a real etcd wrote is read, and whatever is wrong with a file is refused with its place, in bounded time
//! and memory.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod made;

use annals_etcd_files::bolt::{Bolt, Bucket};
use annals_etcd_files::{Error, Lease, Snapshot, Version};
use made::{
    BRANCH, LEAF, PAGE, branch, buckets, compacted, delete, file, header, leaf, lease, meta, put,
    revision,
};

const FULL: &[u8] = include_bytes!("../../../tests/recorded/etcd-full.db");
const COMPACTED: &[u8] = include_bytes!("../../../tests/recorded/etcd-compacted.db");
const DEAD: &[u8] = include_bytes!("../../../tests/recorded/etcd-dead.db");

/// Reads all of a file, each entry twice. Answers how many there are.
fn read(bytes: &[u8]) -> Result<(u64, Vec<Lease>), Error> {
    let snapshot = Snapshot::open(bytes)?;
    let (mut entries, mut last) = (0, (0, 0));
    snapshot.entries::<Error>(|entry| {
        assert!(entries == 0 || last < (entry.main, entry.sub));
        last = (entry.main, entry.sub);
        entries += 1;
        snapshot.again(entry.place, |again| {
            assert_eq!(
                (again.main, again.sub, again.version),
                (entry.main, entry.sub, entry.version)
            );
            Ok(())
        })
    })?;
    let mut leases = Vec::new();
    snapshot.leases::<Error>(|lease| {
        leases.push(lease);
        Ok(())
    })?;
    Ok((entries, leases))
}

/// The snapshot without its checksum: a database file.
fn database(snapshot: &[u8]) -> Vec<u8> {
    snapshot[..snapshot.len() - 32].to_vec()
}

#[track_caller]
fn refused(bytes: &[u8], place: (u64, u64), why: &str) {
    match read(bytes).unwrap_err() {
        Error::Refused { page, offset, what } => {
            assert!(what.contains(why), "{what}");
            assert_eq!((page, offset), place, "{what}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn snapshots_of_a_real_etcd_are_read() {
    let expected = Lease { id: 2_324_035_535_569_727_238, ttl: 1000, remaining: 0 };
    for (bytes, entries, at) in [(FULL, 148, 0), (COMPACTED, 91, 52), (DEAD, 112, 52)] {
        assert_eq!(read(bytes).unwrap(), (entries, vec![expected]));
        let snapshot = Snapshot::open(bytes).unwrap();
        assert_eq!((snapshot.compacted(), snapshot.is_checked()), (at, true));
        assert!(snapshot.consistent_index().is_some_and(|index| (100..1000).contains(&index)));
        let bytes = database(bytes);
        let snapshot = Snapshot::open(&*bytes).unwrap();
        assert_eq!((snapshot.compacted(), snapshot.is_checked()), (at, false));
        assert_eq!(read(&bytes).unwrap().0, entries);
    }
}

#[test]
fn a_snapshot_with_any_other_byte_or_length_is_refused() {
    for at in (0..COMPACTED.len()).step_by(97) {
        let mut damaged = COMPACTED.to_vec();
        damaged[at] ^= 1 << (at % 8);
        refused(&damaged, (0, COMPACTED.len() as u64 - 32), "checksum");
    }
    for length in (0..COMPACTED.len()).step_by(61).chain([512, 4096, 8192, 12_288]) {
        assert!(read(&COMPACTED[..length]).is_err(), "{length}");
    }
    refused(&COMPACTED[..4097], (0, 4097), "cut?");
    refused(b"", (0, 0), "none of bbolt's");
    refused(&[0; 8192], (0, 0), "none of bbolt's");
    refused(
        &database(COMPACTED)[..PAGE * 4],
        (0, 4 * PAGE as u64),
        "the file has 4 pages, and should have 10",
    );
}

#[test]
fn damage_of_a_database_file_is_never_a_panic() {
    // Whether it is noticed is another matter: its pages have no checksums.
    let (mut read_all, mut noticed) = (0, 0);
    for (bytes, step) in [(COMPACTED, 1), (FULL, 5), (DEAD, 5)] {
        let sound = database(bytes);
        for at in (0..sound.len()).step_by(step) {
            let mut damaged = sound.clone();
            damaged[at] ^= 1 << (at % 8);
            match read(&damaged) {
                Ok(_) => read_all += 1,
                Err(_) => noticed += 1,
            }
        }
    }
    assert!(read_all > 1000 && noticed > 1000, "{read_all} {noticed}");
}

#[test]
fn what_an_etcd_writes_is_read_in_its_order() {
    let entries = vec![
        put((2, 0), "a", "one", (2, 1), 0),
        put((2, 1), "b", "", (2, 1), -5),
        delete((3, 0), "a"),
        (revision(9, 0, ""), Vec::new()),
    ];
    let leases = vec![lease(7, 60, 0), lease(i64::MIN, 2, 1)];
    let mut elements = vec![("key", entries), ("lease", leases), ("meta", compacted(3, 2))];
    let bytes = buckets(&elements);
    assert_eq!(read(&bytes).unwrap().0, 4);
    let snapshot = Snapshot::open(&*bytes).unwrap();
    assert_eq!(snapshot.compacted(), 3);
    let mut seen = Vec::new();
    snapshot
        .entries::<Error>(|entry| {
            seen.push(match entry.version {
                None => format!("{} nothing", entry.main),
                Some(Version::Delete { key }) => {
                    format!("{} del {}", entry.main, key.escape_ascii())
                }
                Some(Version::Put(kv)) => {
                    let [key, value] = [kv.key, kv.value].map(|b| b.escape_ascii().to_string());
                    format!(
                        "{}.{} {key}={value} {} {}",
                        entry.main, entry.sub, kv.version, kv.lease
                    )
                }
            });
            Ok(())
        })
        .unwrap();
    assert_eq!(seen, ["2.0 a=one 1 0", "2.1 b= 1 -5", "3 del a", "9 nothing"]);

    let element = |index: u64| (4, 4 * PAGE as u64 + 16 + 16 * index);
    for (wrong, why) in [
        (put((2, 2), "c", "", (3, 1), 0), "created at 3"),
        (put((2, 2), "c", "", (0, 1), 0), "created at 0"),
        (put((2, 2), "c", "", (1, 1), 0), "created at 1"),
        (put((2, 2), "c", "", (2, 0), 0), "version 0"),
        (put((2, 2), "c", "", (2, 2), 0), "version 2 created at 2 at revision 2"),
        (put((2, 2), "", "", (2, 1), 0), "no key at revision 2"),
        ((revision(2, 2, "t"), Vec::new()), "no key at revision 2"),
        ((revision(2, 2, "t"), b"\x10\x02".to_vec()), "no key at revision 2"),
        // As etcdutl makes one, but not alone.
        ((revision(2, 2, ""), Vec::new()), "no key at revision 2"),
        (
            (revision(2, 2, ""), made::message(&[(1, b"c")], &[(2, 2), (3, 4), (4, 1)])),
            "revision 4",
        ),
        ((revision(2, 2, "x"), b"".to_vec()), "no revision"),
        ((revision(2, u64::MAX, ""), b"".to_vec()), "no revision"),
        ((revision(2, 2, ""), b"\x0a\x05c".to_vec()), "no key-value"),
    ] {
        elements[0].1.insert(2, wrong);
        refused(&buckets(&elements), element(2), why);
        elements[0].1.remove(2);
    }
    let alone = vec![(revision(2, 0, ""), Vec::new())];
    assert_eq!(read(&buckets(&[("key", alone.clone())])).unwrap().0, 1);
    let followed = [alone, vec![put((2, 1), "c", "", (2, 1), 0)]].concat();
    refused(&buckets(&[("key", followed)]), element(1), "among others");
    for main in [0, 1] {
        let early = vec![delete((main, 0), "a")];
        refused(&buckets(&[("key", early)]), element(0), "the first is 2");
    }
    for (created, version) in [(4, 2), (2, 1), (2, 4), (3, 3)] {
        let odd = vec![put((4, 0), "a", "", (created, version), 0)];
        let why = format!("version {version} created at {created} at revision 4");
        refused(&buckets(&[("key", odd)]), element(0), &why);
    }
    elements[0].1.insert(2, delete((2, 1), "b"));
    refused(&buckets(&elements), element(2), "two changes in one place");
    elements[0].1.remove(2);
    elements[0].1.swap(0, 1);
    refused(&buckets(&elements), element(1), "not after the one before");
    elements[0].1.swap(0, 1);
    elements[1].1[0].0 = 8_i64.to_be_bytes().to_vec();
    refused(&buckets(&elements), (5, 5 * PAGE as u64 + 16), "under the id of another");
    elements[2].1[1].1.pop();
    refused(&buckets(&elements), (6, 6 * PAGE as u64 + 32), "no revision compacted to");
    refused(&buckets(&[("keys", Vec::new())]), (0, 0), "of no etcd");
}

/// A file whose bucket `key` begins at page 4.
fn with_keys(pages: &[Vec<u8>]) -> Vec<u8> {
    let value = [4_u64.to_le_bytes(), [0; 8]].concat();
    let names = leaf(3, 1, &[(b"key".to_vec(), value)]);
    file(3, &[vec![names], pages.to_vec()].concat())
}

#[test]
fn trees_that_cannot_be_are_refused_and_end() {
    let at = |page: u64, within: u64| (page, page * PAGE as u64 + within);
    let one = |id, main| leaf(id, 0, &[put((main, 0), "a", "", (main, 1), 0)]);
    // A branch to pages that begin with these revisions.
    let branch = |id, children: &[(u64, u64)]| {
        let children = children.iter().map(|(main, child)| (revision(*main, 0, ""), *child));
        branch(id, &children.collect::<Vec<_>>())
    };
    let sound = [branch(4, &[(2, 5), (3, 6)]), one(5, 2), one(6, 3)];
    assert_eq!(read(&with_keys(&sound)).unwrap().0, 2);
    let turned = [branch(4, &[(3, 5), (2, 6)]), one(5, 3), one(6, 2)];
    refused(&with_keys(&turned), at(6, 16), "not after");
    // A page that is its own child; and one of which each has two, 56 pages deep.
    refused(&with_keys(&[branch(4, &[(2, 4)])]), at(4, 0), "twice");
    let doubled: Vec<_> = (4..60).map(|id| branch(id, &[(2, id + 1), (2, id + 1)])).collect();
    let doubled = [doubled, vec![one(60, 2)]].concat();
    refused(&with_keys(&doubled), at(60, 16), "not after");
    let deep: Vec<_> = (4..80).map(|id| branch(id, &[(2, id + 1)])).collect();
    let deep = [deep, vec![one(80, 2)]].concat();
    refused(&with_keys(&deep), at(4 + 64, 0), "too deep");
    for child in [0, 1, 7, u64::MAX] {
        let (page, offset) = (child, child.saturating_mul(PAGE as u64));
        refused(&with_keys(&[branch(4, &[(2, child)])]), (page, offset), "no page for data");
    }
    refused(&with_keys(&[branch(4, &[(2, 5)]), one(6, 2)]), at(5, 0), "says that it is page 6");
    refused(&with_keys(&[header_page(4, 3, 0, 0)]), at(4, 8), "neither branch nor leaf");
    refused(&with_keys(&[header_page(4, LEAF, 0, 1)]), at(4, 0), "it spans 2 pages");
    let spans = u32::MAX as usize;
    refused(&with_keys(&[header_page(4, LEAF, 0, spans)]), at(4, 0), "it spans 4294967296 pages");
    refused(&with_keys(&[header_page(4, LEAF, 255, 0)]), at(4, 16), "not in the page");
    for kind in [LEAF, BRANCH] {
        let outside = header_page(4, kind, 256, 0);
        refused(&with_keys(&[outside]), at(4, PAGE as u64), "behind the end of the page");
    }
    refused(&with_keys(&[header_page(4, BRANCH, 255, 0)]), at(4, 16), "not in the page");
    let mut outside = one(4, 2);
    for (field, value) in
        [(4, 4096_u32), (8, 4096), (12, 4096), (4, u32::MAX), (12, u32::MAX), (4, 15)]
    {
        let before = outside.clone();
        outside[16 + field..20 + field].copy_from_slice(&value.to_le_bytes());
        refused(&with_keys(&[outside.clone()]), at(4, 16), "not in the page");
        outside = before;
    }
    // Two elements, the second of which is said to begin where the first does.
    let mut shared = leaf(4, 0, &[(vec![1; 9], vec![7; 90]), (vec![2; 9], vec![7; 90])]);
    let pos = 16_u32;
    shared[16 + 16 + 4..16 + 16 + 8].copy_from_slice(&pos.to_le_bytes());
    let bytes = with_keys(&[shared]);
    let bolt = Bolt::open(&*bytes, bytes.len() as u64).unwrap();
    let mut shares = None;
    bolt.buckets::<Error>(|_, bucket| {
        shares = bolt.walk::<Error>(&bucket, |_| Ok(())).err();
        Ok(())
    })
    .unwrap();
    assert_eq!(
        shares.unwrap().to_string(),
        format!(
            "page 4, offset {}: an element that shares bytes with the one before it",
            at(4, 32).1
        )
    );
    // A bucket within the page of the root.
    let inline = |page: &[u8]| leaf(3, 1, &[(b"key".to_vec(), [&[0; 16], page].concat())]);
    assert_eq!(read(&file(3, &[inline(&one(0, 2)[..200])])).unwrap().0, 1);
    refused(&file(3, &[inline(&branch(0, &[(2, 4)])[..200])]), at(3, 16), "no leaf");
    refused(&file(3, &[inline(b"")]), at(3, 16), "no leaf");
    refused(&file(3, &[inline(&one(0, 2)[..40])]), at(3, 32), "not in the page");
    let value = leaf(3, 0, &[(b"key".to_vec(), vec![0; 16])]);
    refused(&file(3, &[value]), at(3, 16), "a value where a bucket");
    refused(&file(3, &[leaf(3, 1, &[(b"key".to_vec(), vec![4; 15])])]), at(3, 16), "less than 16");
}

fn header_page(id: u64, flags: u16, count: usize, overflow: usize) -> Vec<u8> {
    let mut page = header(id, flags, count, overflow);
    page.resize(PAGE, 0);
    page
}

#[test]
fn the_newest_sound_meta_page_counts_whatever_the_size_of_pages() {
    let pages = |bytes: &[u8]| {
        let mut names = Vec::new();
        Bolt::open(bytes, bytes.len() as u64)
            .and_then(|bolt| {
                bolt.buckets::<Error>(|name, _: Bucket| {
                    names.push(name.escape_ascii().to_string());
                    Ok(())
                })
            })
            .map(|()| names)
    };
    for size in [1024, 4096, 16_384, 65_536] {
        let root = |id: u64, name: &str| {
            let mut page = leaf(id, 1, &[(name.into(), vec![9; 16])]);
            page.resize(size.max(PAGE), 0);
            page.truncate(size);
            page
        };
        let of = |first: u64, second: u64| {
            let metas = [meta(0, size, 3, 5, first), meta(1, size, 4, 5, second)];
            let mut free = header(2, 16, 0, 0);
            free.resize(size, 0);
            [metas.concat(), free, root(3, "first"), root(4, "second")].concat()
        };
        assert_eq!(pages(&of(5, 6)).unwrap(), ["second"], "{size}");
        assert_eq!(pages(&of(6, 5)).unwrap(), ["first"], "{size}");
        let mut bytes = of(6, 5);
        bytes[70] ^= 1;
        assert_eq!(pages(&bytes).unwrap(), ["second"], "{size}");
        let mut bytes = of(5, 6);
        bytes[size + 70] ^= 1;
        assert_eq!(pages(&bytes).unwrap(), ["first"], "{size}");
        bytes[70] ^= 1;
        pages(&bytes).unwrap_err();
    }
}
