//! Tests of the simulated disk.

use std::collections::BTreeSet;

use super::*;

fn path(text: &str) -> &Path {
    Path::new(text)
}

/// A disk with a synced file `a` of `sectors` sectors of ones.
fn disk_with_ones(sectors: usize) -> (MemoryVfs, Arc<dyn File>) {
    let disk = MemoryVfs::new();
    let file = disk.create(path("a")).unwrap();
    file.write_all_at(&vec![1; sectors * 512], 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(path("")).unwrap();
    (disk, file)
}

#[test]
fn synced_bytes_and_names_are_in_every_image() {
    let (disk, file) = disk_with_ones(3);
    file.write_all_at(&[2; 512], 512).unwrap();
    disk.create(path("b")).unwrap();
    let images = disk.crash_every(100).unwrap();
    assert!(!disk.is_settled() && images.iter().all(MemoryVfs::is_settled));
    assert_eq!(images.len(), 4, "one sector and one name, each there or not");
    for image in images {
        let content = image.read(path("a")).unwrap();
        assert_eq!((&content[..512], &content[1024..]), (&[1; 512][..], &[1; 512][..]));
        assert!(content[512..1024] == [1; 512] || content[512..1024] == [2; 512]);
    }
}

#[test]
fn every_subset_of_sectors_appears_once() {
    let (disk, file) = disk_with_ones(5);
    file.write_all_at(&[2; 5 * 512], 0).unwrap();
    let images = disk.crash_every(32).unwrap();
    let mut found: Vec<Vec<u8>> = images.iter().map(|d| d.read(path("a")).unwrap()).collect();
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 32);
    assert!(disk.crash_every(31).is_none());
    for seed in 0..50 {
        let image = disk.crash(seed, CrashMode::Random).read(path("a")).unwrap();
        assert!(found.binary_search(&image).is_ok(), "seed {seed}");
    }
}

#[test]
fn a_sector_written_twice_can_hold_either() {
    let (disk, file) = disk_with_ones(1);
    file.write_all_at(&[2; 100], 0).unwrap();
    file.write_all_at(&[3; 100], 400).unwrap();
    let firsts: Vec<(u8, u8)> = disk
        .crash_every(10)
        .unwrap()
        .iter()
        .map(|image| image.read(path("a")).unwrap())
        .map(|content| (content[0], content[400]))
        .collect();
    assert_eq!(firsts, [(1, 1), (2, 1), (2, 3)]);
}

#[test]
fn a_grown_file_has_zeros_where_nothing_arrived() {
    let (disk, file) = disk_with_ones(1);
    file.write_all_at(&[2; 1024], 512).unwrap();
    let lens: BTreeSet<(usize, u64)> = disk
        .crash_every(100)
        .unwrap()
        .iter()
        .map(|image| image.read(path("a")).unwrap())
        .map(|content| {
            assert!(content[512..].iter().all(|byte| *byte == 0 || *byte == 2));
            (content.len(), content.iter().map(|byte| u64::from(*byte)).sum())
        })
        .collect();
    let expected = [(512, 512), (1536, 512), (1536, 1536), (1536, 2560)];
    assert_eq!(lens, BTreeSet::from(expected));
}

#[test]
fn a_rename_is_there_wholly_or_not_at_all() {
    let (disk, _) = disk_with_ones(1);
    let new = disk.create(path("a.tmp")).unwrap();
    new.write_all_at(b"new", 0).unwrap();
    new.sync_data().unwrap();
    disk.rename(path("a.tmp"), path("a")).unwrap();
    assert_eq!(disk.paths(), ["a"]);
    for image in disk.crash_every(10).unwrap() {
        let content = image.read(path("a")).unwrap();
        assert!(content == b"new" || content == [1; 512]);
    }
    disk.sync_dir(path("")).unwrap();
    let image = disk.crash(0, CrashMode::LoseAll);
    assert_eq!(image.read(path("a")).unwrap(), b"new");
    assert_eq!(image.paths(), ["a"]);
}

#[test]
fn a_removed_file_may_come_back_until_the_directory_is_synced() {
    let (disk, file) = disk_with_ones(1);
    disk.remove(path("a")).unwrap();
    assert_eq!(file.len().unwrap(), 512, "who has it open keeps it");
    assert_eq!(disk.crash(0, CrashMode::LoseAll).paths(), ["a"]);
    disk.sync_dir(path("")).unwrap();
    assert!(disk.crash(0, CrashMode::LoseAll).paths().is_empty());
}

#[test]
fn a_failed_sync_loses_what_it_covered_for_good() {
    let (disk, file) = disk_with_ones(2);
    file.write_all_at(&[2; 512], 0).unwrap();
    file.lose_unsynced();
    file.write_all_at(&[3; 512], 512).unwrap();
    file.sync_data().unwrap();
    assert_eq!(disk.read(path("a")).unwrap(), [[2; 512], [3; 512]].concat());
    let image = disk.crash(0, CrashMode::KeepAll).read(path("a")).unwrap();
    assert_eq!(image, [[1; 512], [3; 512]].concat());
}

#[test]
fn the_same_calls_have_the_same_trace() {
    let run = |byte: u8| {
        let (disk, file) = disk_with_ones(1);
        file.write_all_at(&[byte], 9).unwrap();
        (disk.trace_hash(), disk.op_count())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
    assert_eq!(run(1).1, 5);
}

#[test]
fn a_full_disk_takes_no_more_until_something_is_removed() {
    let (disk, file) = disk_with_ones(2);
    disk.set_capacity(Some(1200));
    assert_eq!(file.set_len(1201).unwrap_err().kind(), io::ErrorKind::StorageFull);
    file.set_len(1200).unwrap();
    let other = disk.create(path("b")).unwrap();
    assert_eq!(other.write_at(b"x", 0).unwrap_err().kind(), io::ErrorKind::StorageFull);
    disk.remove(path("a")).unwrap();
    other.write_all_at(b"x", 0).unwrap();
    assert_eq!(disk.used_bytes(), 1);
}

#[test]
fn names_behave_as_on_a_file_system() {
    let disk = MemoryVfs::new();
    assert_eq!(disk.create(path("d/x")).unwrap_err().kind(), io::ErrorKind::NotFound);
    disk.create_dir_all(path("/d/e")).unwrap();
    disk.create(path("d/x")).unwrap();
    assert_eq!(disk.create(path("d/x")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert!(disk.create_dir_all(path("d/x/y")).is_err());
    let names: Vec<(String, bool)> =
        disk.list(path("d")).unwrap().into_iter().map(|e| (e.name, e.is_dir)).collect();
    assert_eq!(names, [("e".to_owned(), true), ("x".to_owned(), false)]);
    assert_eq!(disk.list(path("no")).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(disk.exists(path("d/e")).unwrap() && !disk.exists(path("d/z")).unwrap());
    let held = disk.lock(path("d/LOCK")).unwrap();
    assert_eq!(disk.lock(path("d/LOCK")).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert!(disk.crash(0, CrashMode::KeepAll).lock(path("d/LOCK")).is_ok());
    drop(held);
    disk.lock(path("d/LOCK")).unwrap();
}

#[test]
fn a_handle_for_reading_does_not_write() {
    let (disk, _) = disk_with_ones(1);
    let file = disk.open(path("a"), Access::Read).unwrap();
    assert_eq!(file.set_len(0).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    assert_eq!(file.map(512).unwrap().slice(0..2).unwrap(), [1, 1]);
    assert_eq!(file.map(513).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn a_file_with_two_names_is_one_file_and_each_name_is_durable_by_itself() {
    let (disk, file) = disk_with_ones(1);
    disk.create_dir_all(path("d")).unwrap();
    disk.hard_link(path("a"), path("d/b")).unwrap();
    let kind = |linked: io::Result<()>| linked.unwrap_err().kind();
    assert_eq!(kind(disk.hard_link(path("a"), path("d/b"))), io::ErrorKind::AlreadyExists);
    assert_eq!(kind(disk.hard_link(path("a"), path("d"))), io::ErrorKind::AlreadyExists);
    assert_eq!(kind(disk.hard_link(path("a"), path("e/b"))), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.hard_link(path("c"), path("e"))), io::ErrorKind::NotFound);
    assert_eq!(disk.used_bytes(), 512);
    file.write_all_at(&[2; 512], 0).unwrap();
    assert_eq!(disk.read(path("d/b")).unwrap(), [2; 512]);
    // The name and the sector, each there or not; where both names are, they show the same.
    let images = disk.crash_every(10).unwrap();
    assert_eq!(images.len(), 4);
    let linked = images.iter().filter(|image| image.exists(path("d/b")).unwrap());
    for image in linked.clone() {
        assert_eq!(image.read(path("a")).unwrap(), image.read(path("d/b")).unwrap());
        assert_eq!(image.used_bytes(), 512);
    }
    assert_eq!(linked.count(), 2);
    disk.sync_dir(path("d")).unwrap();
    disk.remove(path("a")).unwrap();
    disk.sync_dir(path("")).unwrap();
    file.sync_data().unwrap();
    let lost = disk.crash(0, CrashMode::LoseAll);
    assert_eq!((lost.read(path("d/b")).unwrap(), lost.paths()), (vec![2; 512], vec!["d/b".into()]));
    assert_eq!(disk.used_bytes(), 512);
    disk.remove(path("d/b")).unwrap();
    assert_eq!(disk.used_bytes(), 0);
}

#[test]
fn a_torn_write_is_every_prefix_all_but_one_and_one_alone() {
    let (disk, file) = disk_with_ones(4);
    file.write_all_at(&[5; 512], 512).unwrap();
    file.write_all_at(&[2; 3 * 512], 512).unwrap();
    let of = |earlier| {
        let torn = disk.crash_torn(earlier, 0, usize::MAX);
        let marks = |image: MemoryVfs| {
            let content = image.read(path("a")).unwrap();
            assert!(image.is_settled() && content.len() == 2048 && content[0] == 1);
            [content[512], content[1024], content[1536]]
        };
        torn.into_iter().map(marks).collect::<Vec<_>>()
    };
    let lost =
        [[1, 1, 1], [2, 1, 1], [2, 2, 1], [2, 2, 2], [1, 2, 2], [2, 1, 2], [1, 2, 1], [1, 1, 2]];
    assert_eq!(of(CrashMode::LoseAll), lost);
    let kept = lost.map(|[first, second, third]| [if first == 1 { 5 } else { 2 }, second, third]);
    assert_eq!(of(CrashMode::KeepAll), kept);
    assert_eq!(disk.crash_torn(CrashMode::LoseAll, 3, 5).len(), 5);
    file.sync_data().unwrap();
    assert!(disk.crash_torn(CrashMode::KeepAll, 0, 9).is_empty(), "nothing is in flight");
}

#[test]
fn a_torn_write_at_an_odd_place_keeps_to_sectors_and_grows_the_file() {
    let (disk, file) = disk_with_ones(1);
    file.write_all_at(&[2; 600], 500).unwrap();
    assert!(file.len().is_ok(), "a question in between changes nothing");
    let torn = disk.crash_torn(CrashMode::LoseAll, 0, usize::MAX);
    let contents = torn.iter().map(|image| {
        let content = image.read(path("a")).unwrap();
        assert_eq!(image.used_bytes(), content.len() as u64);
        (content.len(), content[500], content.get(512).copied(), content.get(1099).copied())
    });
    let contents: Vec<_> = contents.collect();
    assert_eq!(contents[0], (512, 1, None, None));
    assert_eq!(contents[1], (1100, 2, Some(0), Some(0)));
    assert_eq!(contents[2], (1100, 2, Some(2), Some(0)));
    assert_eq!(contents[3], (1100, 2, Some(2), Some(2)));
    assert_eq!(contents[4], (1100, 1, Some(2), Some(2)));
    // A file that has lost its name has nothing to be torn.
    disk.create(path("b")).unwrap().write_all_at(&[1; 2000], 0).unwrap();
    assert!(disk.crash_torn(CrashMode::LoseAll, 0, 9).is_empty());
    assert!(!disk.crash_torn(CrashMode::KeepAll, 0, 9).is_empty());
}

#[test]
fn a_fork_goes_on_by_itself_and_has_the_same_crashes() {
    let (disk, file) = disk_with_ones(2);
    file.write_all_at(&[2; 1024], 0).unwrap();
    disk.lock(path("LOCK")).unwrap();
    let fork = disk.fork();
    assert_eq!(fork.content_hash(), disk.content_hash());
    assert_eq!(fork.trace_hash(), disk.trace_hash());
    for seed in 0..20 {
        let hash = |disk: &MemoryVfs| disk.crash(seed, CrashMode::Random).content_hash();
        assert_eq!(hash(&fork), hash(&disk));
    }
    let there = fork.open(path("a"), Access::Write).unwrap();
    there.write_all_at(&[3; 9], 0).unwrap();
    assert_ne!(fork.content_hash(), disk.content_hash());
    assert_eq!(disk.read(path("a")).unwrap(), [2; 1024]);
    there.write_all_at(&[2; 9], 0).unwrap();
    assert_eq!(fork.content_hash(), disk.content_hash());
}

#[test]
fn a_disk_that_loses_power_is_the_crash_of_the_same_seed() {
    for mode in [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Random] {
        let (disk, file) = disk_with_ones(6);
        file.write_all_at(&[2; 3000], 0).unwrap();
        disk.create(path("b")).unwrap();
        let (image, operations) = (disk.crash(7, mode), disk.op_count());
        disk.lose_power(7, mode);
        assert_eq!(disk.content_hash(), image.content_hash());
        assert!(disk.is_settled() && disk.op_count() == operations + 1);
    }
}
