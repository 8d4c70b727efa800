//! What is taken in always fits into the room that was made, whatever the disk has.

use std::collections::VecDeque;

use annals_format::name::UNFINISHED;

use super::*;
use crate::error::ErrorKind;

/// A small generator of numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % n
    }
}

/// A log, and what has been ordered before it is written.
struct Ordered {
    log: Log,
    disk: MemoryVfs,
    waiting: VecDeque<Vec<u8>>,
    /// The seq of the last, and the bytes of all.
    last_seq: u64,
    bytes: u64,
}

impl Ordered {
    fn open(wal_bytes: u64) -> Self {
        let (disk, vfs) = disk();
        let log = Log::open_with(vfs, Path::new(DIR), wal_bytes).unwrap();
        Self { log, disk, waiting: VecDeque::new(), last_seq: 0, bytes: 0 }
    }

    fn frame(&self, value_bytes: usize) -> Vec<u8> {
        frame(self.last_seq + 1, value_bytes)
    }

    fn takes(&self, frame: &[u8], compacts: bool) -> bool {
        self.log.files.takes(self.bytes + frame.len() as u64, compacts)
    }

    fn order(&mut self, frame: Vec<u8>) {
        self.last_seq += 1;
        self.bytes += frame.len() as u64;
        self.waiting.push_back(frame);
    }

    /// Writes the first of those that wait, as one batch. There must be room whatever the disk has.
    fn write(&mut self, count: usize) {
        let frames: Vec<_> = self.waiting.drain(..count).collect();
        if frames.is_empty() {
            return;
        }
        let last_seq = self.last_seq - self.waiting.len() as u64;
        let first_seq = last_seq + 1 - frames.len() as u64;
        let last_revision = last_seq + 1;
        let info = BatchInfo { first_seq, last_seq, last_revision, durable_upto: first_seq - 1 };
        self.log.writer.append(&mut frames.iter().map(Vec::as_slice), info).unwrap();
    }

    /// No file can be made any more.
    fn fill(&self) {
        self.disk.set_capacity(Some(self.disk.used_bytes()));
    }
}

/// Batches, commits between them and beside them, and a disk that is full now and then, at random.
#[test]
fn what_is_taken_in_can_be_written_on_a_full_disk() {
    let (mut refused, mut taken) = (0_u32, 0_u32);
    for seed in 0..300 {
        let mut numbers = Numbers(seed);
        let mut store = Ordered::open([64, 128, 300, 1024][numbers.below(4)] << 10);
        let longest = [200, 5_000, 100_000][numbers.below(3)];
        let mut full = false;
        for _ in 0..400 {
            match numbers.below(10) {
                0 => {
                    full = numbers.below(3) > 0;
                    if full { store.fill() } else { store.disk.set_capacity(None) }
                }
                1 => assert!(store.log.files.prepare_spare().is_ok() || full, "{seed}"),
                2 => store.write(store.waiting.len()),
                _ => {
                    let frame = store.frame(numbers.below(longest));
                    let (bytes, compacts) = (frame.len() as u64, numbers.below(8) == 0);
                    if store.takes(&frame, compacts) {
                        // Between the question and the link a batch that is being written ends, and one that takes
                        // all that was ordered then.
                        if numbers.below(3) == 0 {
                            store.write(numbers.below(store.waiting.len() + 1));
                            store.write(store.waiting.len());
                        }
                        store.order(frame);
                        taken += 1;
                    } else if numbers.below(2) == 0 && store.log.files.has_room_for(bytes, compacts)
                    {
                        assert!(!store.waiting.is_empty(), "{seed}: it waits for nothing");
                        store.write(store.waiting.len());
                        let has_room = store.log.files.has_room_for(bytes, compacts);
                        assert_eq!(store.takes(&frame, compacts), has_room, "{seed}");
                    } else if let Err(error) =
                        store.log.files.make_room_upto(store.bytes + bytes, compacts)
                    {
                        assert!(
                            full && matches!(error.kind(), ErrorKind::NoSpace { .. }),
                            "{seed}: {error}"
                        );
                        refused += 1;
                    } else {
                        assert!(store.takes(&frame, compacts), "{seed}");
                    }
                }
            }
        }
        store.write(store.waiting.len());
        let Ordered { disk, last_seq, .. } = store;
        assert_eq!(verify_all(&disk), [], "{seed}");
        disk.set_capacity(None);
        assert_eq!(reopen(&disk).seen, all(last_seq), "{seed}");
    }
    assert!(refused > 1_000 && taken > 10_000, "{refused} refused, {taken} taken");
}

/// A frame that is longer than the spare gets a longer one, in its place; if there is no space for that, the shorter one
/// is still there.
#[test]
fn a_spare_that_is_too_short_gives_way_to_a_longer_one() {
    let mut store = Ordered::open(128 << 10);
    let files = Arc::clone(&store.log.files);
    files.make_room_upto(110 << 10, false).unwrap();
    let spare = || store.disk.read(Path::new(&wal_path(2))).unwrap().len();
    let short = spare();
    store.fill();
    let error = files.make_room_upto(1 << 20, false).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoSpace { .. }), "{error}");
    assert_eq!((spare(), files.has_room_for(110 << 10, false)), (short, true));
    assert!(!files.has_room_for(1 << 20, false));
    store.disk.set_capacity(None);
    files.make_room_upto(1 << 20, false).unwrap();
    assert!(spare() > 1 << 20 && files.has_room_for(1 << 20, false));
    let paths = store.disk.paths();
    assert!(paths.iter().all(|path| !path.ends_with(UNFINISHED)), "{paths:?}");
    store.fill();
    let long = store.frame(1 << 20);
    assert!(store.takes(&long, false));
    store.order(long);
    store.write(1);
    assert_eq!(read(&image(&store.disk)).unwrap().0, [1]);
}

/// A sync that has failed is not asked again whether it has succeeded: the name of the file may never get to the disk.
#[test]
fn a_spare_whose_name_is_not_durable_is_never_used() {
    for ahead in [true, false] {
        let (disk, vfs) = disk();
        let faults = FaultVfs::new(vfs);
        let mut log = Log::open(Arc::new(faults.clone())).unwrap();
        let next = faults.op_count_of(Operation::SyncDir);
        faults.fail(Some(Operation::SyncDir), next, Fault::Io, false);
        let files = Arc::clone(&log.files);
        if ahead {
            while !files.spare_is_wanted() {
                log.append(1, 5000).unwrap();
            }
            files.prepare_spare().unwrap_err();
            assert!(!files.prepare_spare().unwrap(), "it is not made again");
        } else {
            files.make_room_upto(200 << 10, false).unwrap_err();
        }
        let told = files.make_room_upto(200 << 10, false).unwrap_err();
        assert!(matches!(told.kind(), ErrorKind::Io { .. }), "{told}");
        // What has room in the file in use is written, and then the log ends.
        let failed = (0..40).find_map(|_| log.append(1, 5000).err()).expect("it has to go on");
        assert!(matches!(failed.kind(), ErrorKind::Io { .. }), "{failed}");
        let acked = log.last_seq();
        assert!(acked >= 10, "{acked}");
        assert_eq!(read(&disk.crash(1, CrashMode::LoseAll)).unwrap().0, all(acked));
    }
}

/// The next session has files of these numbers.
#[test]
fn a_log_that_has_ended_makes_no_further_file() {
    let (disk, vfs) = disk();
    let mut log = Log::open(vfs).unwrap();
    log.append(1, 10).unwrap();
    let files = Arc::clone(&log.files);
    log.close().unwrap();
    let paths = disk.paths();
    let refused = files.make_room_upto(1 << 20, false).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Closed), "{refused}");
    assert!(!files.prepare_spare().unwrap());
    assert_eq!(disk.paths(), paths);
}

/// Commits that let space be given back are taken in a little longer.
#[test]
fn a_little_is_kept_for_compactions() {
    let mut store = Ordered::open(64 << 10);
    store.fill();
    let mut ordinary = 0;
    while store.takes(&store.frame(100), false) {
        let frame = store.frame(100);
        store.order(frame);
        store.write(1);
        ordinary += 1;
    }
    assert!(ordinary > 3, "{ordinary}");
    let mut compactions = 0;
    while store.takes(&store.frame(10), true) {
        let frame = store.frame(10);
        store.order(frame);
        store.write(1);
        compactions += 1;
    }
    assert!(compactions >= 4, "{compactions}");
    assert_eq!(read(&image(&store.disk)).unwrap().0, all(ordinary + compactions));
}
