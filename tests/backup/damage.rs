//! A damaged stream never becomes a store, and the damage is found where it is.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use annals::vfs::MemoryVfs;
use annals::{ErrorKind, RestoreOptions, inspect_backup, restore};

use crate::support::copies::{clock, hashes, options, scripted};
use crate::support::random::Random;
use crate::support::{DIRECTORY, tiny};
use crate::{COPY, backup, restored};

/// A stream that gives little at a time, and is interrupted.
struct Drip<'a>(&'a [u8], u64);

impl Read for Drip<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.1 += 1;
        if self.1.is_multiple_of(3) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let count = buffer.len().min(7);
        self.0.read(&mut buffer[..count])
    }
}

#[test]
fn damage_to_any_bit_and_any_length_is_refused_and_leaves_no_store() {
    let options = |disk: &MemoryVfs| tiny(Arc::new(disk.clone()), clock());
    let store = options(&MemoryVfs::new()).open(DIRECTORY).unwrap();
    for n in 0..12 {
        store.put(format!("/k/{}", n % 5), "value ".repeat(n)).unwrap();
    }
    store.delete("/k/1").unwrap();
    store.lease_grant(7, Duration::from_secs(60)).unwrap();
    let expected = hashes(&store);
    let stream = backup(&store);
    let no_store = |stream: &[u8], what: &dyn std::fmt::Display| {
        let disk = MemoryVfs::new();
        let error = restored(stream, &options(&disk), COPY).unwrap_err();
        let damage = error.corruption().unwrap_or_else(|| panic!("{what}: {error}"));
        assert_eq!(damage.file, Path::new("backup"), "{what}: {error}");
        assert!(damage.offset <= stream.len() as u64 + 1, "{what}: {error}");
        let opened = options(&disk).create(false).open(COPY).unwrap_err();
        let kind = opened.kind();
        let none = matches!(kind, ErrorKind::NoStore { .. } | ErrorKind::NotAStore { .. });
        assert!(none, "{what}: {opened}");
        let error = inspect_backup(stream).unwrap_err();
        assert!(error.corruption().is_some(), "{what}: {error}");
    };
    for bit in 0..stream.len() * 8 {
        let mut damaged = stream.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        no_store(&damaged, &format_args!("bit {bit}"));
    }
    for cut in 0..stream.len() {
        no_store(&stream[..cut], &format_args!("cut at {cut}"));
    }
    no_store(&[&stream[..], b"x"].concat(), &"a byte more");
    no_store(
        b"something else, and long enough to be a header of eighty bytes; nearly, now it is",
        &"text",
    );
    // As it is, however it comes.
    let disk = MemoryVfs::new();
    let drip = RestoreOptions::new().options(options(&disk));
    restore(Drip(&stream, 0), COPY, &drip).unwrap();
    assert_eq!(hashes(&options(&disk).open(COPY).unwrap()), expected);
    println!("{} bytes", stream.len());
}

#[test]
fn damage_to_a_stream_of_all_kinds_of_files_is_found_where_it_is() {
    let (store, _) = scripted(&options(MemoryVfs::new()), 3);
    store.reorganise().unwrap();
    store.put("/in/memory", "x").unwrap();
    let stream = backup(&store);
    let found = inspect_backup(&stream[..]).unwrap().remove(0);
    assert!(found.files > 3 && found.transactions > 0, "{found:?}");
    let mut random = Random::new(1);
    for n in 0..300 {
        let at = usize::try_from(random.below(stream.len() as u64)).unwrap();
        let mut damaged = stream.clone();
        damaged[at] ^= 1 << random.below(8);
        let disk = MemoryVfs::new();
        let error = restored(&damaged, &options(disk), COPY).unwrap_err();
        let damage = error.corruption().unwrap_or_else(|| panic!("{n} at {at}: {error}"));
        // No later than the end of the block, where its checksum has been seen.
        let (from, upto) = (at.saturating_sub(1 << 20), at + (1 << 20));
        let offset = usize::try_from(damage.offset).unwrap();
        assert!((from..upto).contains(&offset), "{n} at {at}: {error}");
    }
}
