//! What is written is read back: trees of any shape, databases, and entries sorted in little memory.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Cursor, Seek, SeekFrom, Write};

use annals_etcd_files::bolt::Bolt;
use annals_etcd_files::proto::KeyValue;
use annals_etcd_files::write::{BoltWriter, Bucket, DatabaseWriter, Meta, Sorter, encode_lease};
use annals_etcd_files::{Error, Lease, Snapshot, Version};

const PAGE: usize = 4096;

type Elements = Vec<(Vec<u8>, Vec<u8>)>;

fn written(buckets: &[(&str, &Elements)]) -> Vec<u8> {
    let mut writer = BoltWriter::create(Cursor::new(Vec::new())).unwrap();
    for (name, elements) in buckets {
        writer.bucket(name.as_bytes()).unwrap();
        for (key, value) in *elements {
            writer.put(key, value).unwrap();
        }
    }
    let (file, bytes) = writer.finish().unwrap();
    assert_eq!(file.get_ref().len() as u64, bytes);
    assert_eq!(bytes % PAGE as u64, 0);
    file.into_inner()
}

fn read(file: &[u8]) -> BTreeMap<String, Elements> {
    let bolt = Bolt::open(file, file.len() as u64).unwrap();
    let mut found = BTreeMap::new();
    bolt.buckets::<Error>(|name, bucket| {
        let mut elements = Vec::new();
        bolt.walk::<Error>(&bucket, |item| {
            elements.push((item.key.to_vec(), item.value.to_vec()));
            Ok(())
        })?;
        found.insert(String::from_utf8(name.to_vec()).unwrap(), elements);
        Ok(())
    })
    .unwrap();
    found
}

/// Every page is used once; a branch has two children at least, or bbolt panics when it deletes. Answers how many
/// pages there are of each kind.
fn looked_at(file: &[u8]) -> (usize, usize) {
    let u16_at = |at: usize| u16::from_le_bytes(file[at..at + 2].try_into().unwrap());
    let u32_at = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let (mut at, mut branches, mut leaves) = (3 * PAGE, 0, 0);
    while at < file.len() {
        assert_eq!(u32_at(at) * PAGE, at);
        match u16_at(at + 8) {
            1 => {
                branches += 1;
                assert!(u16_at(at + 10) >= 2);
            }
            2 => leaves += 1,
            flags => panic!("flags {flags}"),
        }
        at += (1 + u32_at(at + 12)) * PAGE;
    }
    assert_eq!(at, file.len());
    (branches, leaves)
}

fn numbered(count: u64, key_bytes: usize, value_bytes: usize) -> Elements {
    let key = |n: u64| [&n.to_be_bytes()[..], &vec![b'k'; key_bytes]].concat();
    (0..count).map(|n| (key(n), vec![b'v'; value_bytes])).collect()
}

#[test]
fn trees_of_any_height_are_read_back() {
    for (key_bytes, value_bytes) in
        [(0, 0), (9, 40), (100, 1500), (1300, 10), (3000, 9), (30_000, 0)]
    {
        let (most, step) = if key_bytes < 1000 { (3000, 81) } else { (90, 2) };
        // Around the numbers at which pages fill up, too.
        for count in (0..40).chain((40..most).step_by(step)).chain([most]) {
            let elements = numbered(count, key_bytes, value_bytes);
            let file = written(&[("one", &elements)]);
            assert_eq!(read(&file)["one"], elements, "{count} {key_bytes} {value_bytes}");
            looked_at(&file);
        }
    }
    // Each number of children of a branch that is to be seen at the end of a level.
    for count in 0..600 {
        let elements = numbered(count, 0, 3000);
        let file = written(&[("one", &elements)]);
        let (branches, leaves) = looked_at(&file);
        assert_eq!(leaves as u64, count.max(1) + u64::from(count > 0), "and the root");
        assert!(branches == 0 || branches <= 2 + leaves / 80, "{branches} of {leaves}");
        assert_eq!(read(&file)["one"].len() as u64, count);
    }
}

#[test]
fn values_of_any_length_are_read_back() {
    let lengths = [0, 1, 4000, 4031, 4032, 4033, 4096, 8128, 8129, 1 << 16, 1_572_864, 3, 5 << 20];
    let elements: Elements =
        (0_u8..).zip(lengths).map(|(n, length)| (vec![b'k', n], vec![n; length])).collect();
    let file =
        written(&[("long", &elements), ("inline", &numbered(3, 1, 1)), ("empty", &Vec::new())]);
    let found = read(&file);
    assert_eq!(found["long"], elements);
    assert_eq!((found["inline"].len(), found["empty"].len()), (3, 0));
    looked_at(&file);
}

#[test]
fn what_has_no_place_in_a_file_is_refused() {
    let mut writer = BoltWriter::create(Cursor::new(Vec::new())).unwrap();
    let refused = |error: Error, why: &str| match error {
        Error::Refused { what, .. } => assert!(what.contains(why), "{what}"),
        other => panic!("{other}"),
    };
    refused(writer.put(b"k", b"").unwrap_err(), "no bucket");
    writer.bucket(b"b").unwrap();
    writer.put(b"k", b"").unwrap();
    refused(writer.put(b"k", b"").unwrap_err(), "not after");
    refused(writer.put(b"j", b"").unwrap_err(), "not after");
    refused(writer.put(b"", b"").unwrap_err(), "a key of 0 bytes");
    refused(writer.put(&vec![b'z'; 32_769], b"").unwrap_err(), "a key of 32769 bytes");
    writer.put(&vec![b'z'; 32_768], b"").unwrap();
    refused(writer.bucket(b"b").unwrap_err(), "a second bucket");
}

/// A file on a disk that is full after some bytes.
struct Full {
    file: Cursor<Vec<u8>>,
    left: usize,
}

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match bytes.len().min(self.left) {
            0 if !bytes.is_empty() => Err(io::ErrorKind::StorageFull.into()),
            count => {
                self.left -= count;
                self.file.write(&bytes[..count])
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Full {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

#[test]
fn a_full_disk_is_told_wherever_it_comes() {
    let elements = numbered(4000, 10, 100);
    let make = |left| {
        let mut writer = BoltWriter::create(Full { file: Cursor::default(), left })?;
        writer.bucket(b"key")?;
        for (key, value) in &elements {
            writer.put(key, value)?;
        }
        writer.finish().map(|(_, bytes)| usize::try_from(bytes).unwrap())
    };
    let needed = make(usize::MAX).unwrap() + 2 * PAGE;
    assert!(make(needed).is_ok());
    for left in (0..needed).step_by(PAGE * 3 - 5).chain([needed - 1]) {
        match make(left).unwrap_err() {
            Error::Io { error, .. } => assert_eq!(error.kind(), io::ErrorKind::StorageFull),
            other => panic!("{other}"),
        }
    }
    let mut sorter = Sorter::new(100, || Err(io::ErrorKind::StorageFull.into()));
    sorter.push(b"k", &[0; 90]).unwrap();
    assert!(matches!(sorter.push(b"k", &[0; 90]), Err(Error::Io { .. })));
    let mut sorter = Sorter::new(1000, || File::options().write(true).open("/dev/full"));
    let pushed = (0..100_u32).try_for_each(|n| sorter.push(&n.to_be_bytes(), &[0; 90]));
    assert!(matches!(pushed, Err(Error::Io { .. })));
}

#[test]
fn entries_are_sorted_in_whatever_memory_there_is() {
    let mut expected: Elements = (0..5000_u64)
        .map(|n| {
            let key = (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (n % 40)).to_be_bytes();
            let short = usize::try_from(n % 7).unwrap();
            let key = [&key[short..], &n.to_le_bytes()].concat();
            (key, vec![b'v'; usize::try_from(n * n % 300).unwrap()])
        })
        .collect();
    expected[77].1 = vec![b'l'; 3 << 20];
    let shuffled = expected.clone();
    expected.sort();
    for memory in [0, 1000, 20_000, 300_000, 1 << 30] {
        let mut sorter = Sorter::new(memory, tempfile::tempfile);
        for (key, value) in shuffled.iter().take(if memory == 0 { 300 } else { 5000 }) {
            sorter.push(key, value).unwrap();
        }
        let mut sorted = Vec::new();
        sorter
            .finish::<Error>(|key, value| {
                sorted.push((key.to_vec(), value.to_vec()));
                Ok(())
            })
            .unwrap();
        if memory == 0 {
            assert!(sorted.len() == 300 && sorted.is_sorted());
        } else {
            assert!(sorted == expected, "{memory}");
        }
    }
    let none = Sorter::new(0, tempfile::tempfile);
    none.finish::<Error>(|_, _| panic!("nothing was given")).unwrap();
}

#[test]
fn a_database_has_all_that_was_given() {
    let mut database = DatabaseWriter::create(Cursor::new(Vec::new())).unwrap();
    let long = vec![b'x'; 1_572_864];
    let kv = |key, value, create_revision, mod_revision, version| KeyValue {
        key,
        value,
        create_revision,
        mod_revision,
        version,
        lease: 7,
    };
    database.version(&kv(b"a", b"", 2, 5, 3), 1).unwrap();
    database.deletion(b"b", 6, 0).unwrap();
    database.version(&kv(b"c", &long, 6, 6, 1), 1).unwrap();
    for n in 7..20_000 {
        database.version(&kv(b"c", b"value", 6, n, n - 5), 0).unwrap();
    }
    database.bucket(Bucket::Lease).unwrap();
    let leases = [(7, 60, 3), (i64::MAX, 9_000_000_000, 0), (-5, 1, 0)];
    let leases = leases.map(|(id, ttl, remaining)| Lease { id, ttl, remaining });
    for lease in &leases {
        let (key, value) = encode_lease(lease);
        database.put(&key, &value).unwrap();
    }
    assert!(database.put(&[0; 8], b"").is_err());
    let storage_version = "3.6.0".to_owned();
    let meta = Meta { compacted: 6, consistent_index: 99, term: 4, storage_version };
    let (file, _) = database.finish(&meta).unwrap();
    let file = file.into_inner();
    looked_at(&file);
    let names: Vec<_> = read(&file).into_keys().collect();
    let buckets = "alarm auth authRoles authUsers cluster key lease members members_removed meta";
    assert_eq!(names.join(" "), buckets);
    let snapshot = Snapshot::open(&file[..]).unwrap();
    assert_eq!((snapshot.compacted(), snapshot.consistent_index()), (6, Some(99)));
    let mut entries = 0;
    snapshot
        .entries::<Error>(|entry| {
            match (entries, entry.version.unwrap()) {
                (0, Version::Put(found)) => assert_eq!(found, kv(b"a", b"", 2, 5, 3)),
                (1, version) => assert_eq!(version, Version::Delete { key: b"b" }),
                (2, Version::Put(found)) => assert_eq!(found, kv(b"c", &long, 6, 6, 1)),
                (n, Version::Put(found)) => assert_eq!(found, kv(b"c", b"value", 6, n + 4, n - 1)),
                (n, other) => panic!("{n}: {other:?}"),
            }
            entries += 1;
            Ok(())
        })
        .unwrap();
    assert_eq!(entries, 19_996);
    let mut found = Vec::new();
    snapshot
        .leases::<Error>(|lease| {
            found.push(lease);
            Ok(())
        })
        .unwrap();
    assert_eq!(found, leases);
    let (empty, bytes) =
        DatabaseWriter::create(Cursor::new(Vec::new())).unwrap().finish(&Meta::default()).unwrap();
    assert_eq!(bytes, 4 * PAGE as u64);
    assert_eq!(Snapshot::open(&empty.into_inner()[..]).unwrap().compacted(), 0);
}
