//! Whether an image is what a store may be after a power cut.

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use annals::inspect::StoreFiles;
use annals::vfs::{CrashMode, FaultVfs, MemoryVfs, Operation};
use annals::{ErrorKind, Store};
use annals_format::FileKind;
use annals_format::name::FileName;

use crate::record::{Point, Recorded};
use crate::support::check::{self, Depth, Found, caught, good, same};
use crate::support::copies::{changes_disk, options};
use crate::support::images::{self, Take};
use crate::support::model::Model;
use crate::support::watchdog::Watchdog;
use crate::support::{DIRECTORY, number_from_env, open_tiny, parallel, processor_time};

/// What was done.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) name: String,
    pub(crate) operations: u64,
    pub(crate) points: u64,
    /// Images of the script, and of the recoveries from some of them.
    pub(crate) images: u64,
    pub(crate) recoveries: u64,
    pub(crate) took: Duration,
    /// Time of processors, of the whole process.
    pub(crate) worked: Duration,
}

impl Figures {
    pub(crate) const HEADER: &str = "workload         operations   points   images  of recoveries  seconds  images a minute  a minute of one processor";

    pub(crate) fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.points += other.points;
        self.images += other.images;
        self.recoveries += other.recoveries;
        self.took += other.took;
        self.worked += other.worked;
    }
}

impl Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, operations, points, images, recoveries, took, worked } = self;
        let all = images + recoveries;
        let rate = |time: Duration| u128::from(all) * 60_000_000 / time.as_micros().max(10_000);
        let seconds = took.as_secs_f64();
        write!(
            f,
            "{name:16} {operations:10} {points:8} {images:8} {recoveries:14} {seconds:8.1} {:16} {:26}",
            rate(*took),
            rate(*worked),
        )
    }
}

/// Verifies images of one script.
struct Verifier<'r> {
    recorded: &'r Recorded,
    take: Take,
    /// Every how many images the recovery is crashed, and every how many of those once more.
    deep: u64,
    deeper: u64,
    images: AtomicU64,
    recoveries: AtomicU64,
    /// The model cut to a number of changes, by epoch.
    cut: Mutex<HashMap<(usize, usize), Arc<Model>>>,
}

/// All images of all points.
pub(crate) fn all(recorded: &Recorded) -> Figures {
    let verifier = Verifier {
        recorded,
        take: Take { random: 2, every: 6, tears: 3 }.or_env(),
        deep: number_from_env("ANNALS_DEEP", 250),
        deeper: number_from_env("ANNALS_DEEPER", 200),
        images: AtomicU64::new(0),
        recoveries: AtomicU64::new(0),
        cut: Mutex::default(),
    };
    let (began, worked) = (Instant::now(), processor_time());
    parallel::each(recorded.points.len() as u64, |number, watchdog| {
        verifier.point(&recorded.points[usize::try_from(number).unwrap()], watchdog)
    });
    Figures {
        name: recorded.name.clone(),
        operations: recorded.operations,
        points: recorded.points.len() as u64,
        images: verifier.images.into_inner(),
        recoveries: verifier.recoveries.into_inner(),
        took: began.elapsed(),
        worked: processor_time()
            .zip(worked)
            .map_or(Duration::ZERO, |(now, then)| now.saturating_sub(then)),
    }
}

impl Verifier<'_> {
    fn point(&self, point: &Point, watchdog: &Watchdog) -> Found {
        for (made, image) in images::of(&point.disk, self.take, point.number) {
            let (name, number, kind) = (&self.recorded.name, point.number, point.kind);
            let place = format!("{name}: before operation {number} ({kind:?}), image {made}");
            watchdog.begin(place);
            let count = self.images.fetch_add(1, Ordering::Relaxed);
            let deep = count % self.deep == self.deep - 1;
            let again = deep.then(|| image.fork());
            self.image(&image, point, count)?;
            if let Some(again) = again {
                self.recovery(&again, point, 1)?;
            }
        }
        Ok(())
    }

    /// What the store had after a number of changes.
    fn model(&self, epoch: usize, changes: usize) -> Arc<Model> {
        let found = self.cut.lock().unwrap().get(&(epoch, changes)).cloned();
        found.unwrap_or_else(|| {
            let mut model = self.recorded.models[epoch].clone();
            model.cut(changes);
            let model = Arc::new(model);
            self.cut.lock().unwrap().insert((epoch, changes), Arc::clone(&model));
            model
        })
    }

    /// Checks what a store shows that was opened from an image. Answers the model of that.
    fn recovered(&self, store: &Store, point: &Point, depth: Depth) -> Result<Arc<Model>, String> {
        let whole = &self.recorded.models[point.epoch];
        let range = point.acknowledged..=point.changes;
        let changes = check::which(store, whole, range)?;
        let model = self.model(point.epoch, changes);
        check::store(store, &model, depth)?;
        Ok(model)
    }

    /// Checks one image, and that the store goes on from there.
    fn image(&self, image: &MemoryVfs, point: &Point, count: u64) -> Found {
        let thorough = count.is_multiple_of(16);
        if thorough {
            sound(image, "before recovery")?;
            self.read_only(image, point)?;
        }
        let what = || format!("open ({:?})", image.paths());
        let store = good(what, open_tiny(Arc::new(image.clone())))?;
        let depth = if count % 4 == 1 { Depth::Sampled(count) } else { Depth::Newest };
        let model = self.recovered(&store, point, depth)?;
        let next = model.revision() + 1;
        let put = good(|| "put".into(), store.put("after", "the crash"))?;
        same(|| "the next revision".into(), &put.revision, &next)?;
        // A second crash right now must not take back what has been seen.
        let second = image.crash(count, CrashMode::Random);
        drop(store);
        let store = good(|| "second open".into(), open_tiny(Arc::new(second)))?;
        same(|| "the revision after a second crash".into(), &store.revision(), &next)?;
        if thorough {
            sound(image, "after recovery")?;
            no_leftovers(image)?;
        }
        Ok(())
    }

    /// Crashes the recovery of an image before each of its operations.
    fn recovery(&self, image: &MemoryVfs, point: &Point, depth: u32) -> Found {
        let points = Arc::new(Mutex::new((Vec::new(), false)));
        let faulty = FaultVfs::new(Arc::new(image.clone()));
        let (below, noted) = (image.clone(), Arc::clone(&points));
        let note = move |number, kind| {
            let mut noted = noted.lock().unwrap();
            if std::mem::replace(&mut noted.1, changes_disk(kind)) {
                noted.0.push((number, kind, below.fork()));
            }
        };
        faulty.observe(note.clone());
        drop(good(|| "open".into(), open_tiny(Arc::new(faulty.clone())))?);
        note(faulty.op_count(), Operation::Exists);
        let points = std::mem::take(&mut points.lock().unwrap().0);
        for (number, kind, disk) in points {
            for (made, image) in images::of(&disk, self.take.fewer(), number) {
                let count = self.recoveries.fetch_add(1, Ordering::Relaxed);
                let again = depth < 3 && count % self.deeper == self.deeper - 1;
                let again = again.then(|| image.fork());
                // With the panics, so that they are told with the place where it was cut.
                let checked = caught(|| {
                    let store = good(|| "open".into(), open_tiny(Arc::new(image)))?;
                    let depth = if count % 4 == 1 { Depth::Sampled(number) } else { Depth::Newest };
                    self.recovered(&store, point, depth).map(drop)
                });
                let checked = checked.and_then(|()| match again {
                    Some(again) => self.recovery(&again, point, depth + 1),
                    None => Ok(()),
                });
                checked.map_err(|found| {
                    format!("recovery {depth} cut before {number} ({kind:?}), {made}: {found}")
                })?;
            }
        }
        Ok(())
    }

    /// A reader sees everything acknowledged, without writing.
    fn read_only(&self, image: &MemoryVfs, point: &Point) -> Found {
        let faulty = FaultVfs::new(Arc::new(image.clone()));
        let options = options(faulty.clone());
        match Store::open_read_only_with(DIRECTORY, &options) {
            Ok(store) => {
                self.recovered(&store, point, Depth::Sampled(1))
                    .map_err(|found| format!("read-only: {found}"))?;
                let refused = store.put("a", "b");
                if refused.is_ok() {
                    return Err("a read-only store takes a write".into());
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::NoStore { .. }) => {
                same(|| "changes in no store".into(), &point.acknowledged, &0)?;
            }
            Err(error) => return Err(format!("read-only: {error}")),
        }
        let writes = [
            Operation::CreateDir,
            Operation::Create,
            Operation::Rename,
            Operation::Remove,
            Operation::Write,
            Operation::SetLen,
            Operation::Lock,
        ];
        let writes: u64 = writes.into_iter().map(|kind| faulty.op_count_of(kind)).sum();
        same(|| "writes of a reader".into(), &writes, &0)
    }
}

/// What a crash leaves is not damage.
fn sound(image: &MemoryVfs, when: &str) -> Found {
    match annals::check(DIRECTORY, &options(image.clone()), &mut |_, _| {}) {
        Ok(report) => {
            same(|| format!("damage {when}"), &report.damage, &Vec::new())?;
            same(|| format!("unchecked {when}"), &report.unchecked.len(), &0)
        }
        // A crash before the store was made.
        Err(error) if matches!(error.kind(), ErrorKind::NoStore { .. }) => Ok(()),
        Err(error) => Err(format!("verify {when}: {error}")),
    }
}

/// Every file is named by the manifest in force, and nothing is unfinished.
fn no_leftovers(image: &MemoryVfs) -> Found {
    let files = StoreFiles::open(DIRECTORY, &options(image.clone()));
    let files = good(|| "manifest".into(), files)?;
    let manifest = files.manifest();
    let segments = manifest.files.iter().map(|meta| FileName::new(meta.kind, meta.number));
    let logs = manifest.wal.iter().map(|file| FileName::new(FileKind::Wal, file.number));
    let mut expected: Vec<String> = segments.chain(logs).map(|name| name.to_string()).collect();
    expected.push(FileName::new(FileKind::Manifest, manifest.number).to_string());
    expected.extend(["CURRENT".to_owned(), "LOCK".to_owned()]);
    let prefix = format!("{DIRECTORY}/");
    let paths = image.paths();
    let within = paths.iter().filter_map(|path| path.strip_prefix(&prefix));
    let mut found: Vec<String> = within.map(str::to_owned).collect();
    let last_log = manifest.wal.iter().map(|file| file.number).max().unwrap_or(0);
    // The log may have rolled over since the manifest was stored, and has a spare.
    found.retain(|path| {
        !matches!(FileName::parse(path), Some(name) if name.kind == FileKind::Wal && name.number > last_log)
    });
    expected.sort();
    found.sort();
    same(|| "files".into(), &found, &expected)
}
