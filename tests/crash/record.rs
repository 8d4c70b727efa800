//! Runs a script, and keeps the disk as it was before each operation that could matter.

use std::sync::{Arc, Mutex};

use annals::vfs::{MemoryVfs, Operation};

use crate::support::check::Found;
use crate::support::copies::changes_disk;
use crate::support::model::Model;
use crate::workloads::Workload;
use crate::workloads::run::Run;

/// A moment at which the power may fail.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    /// The operation that would have come next.
    pub(crate) number: u64,
    pub(crate) kind: Operation,
    /// The disk, unsynced changes included.
    pub(crate) disk: MemoryVfs,
    /// Changes that must survive, and changes that there have been.
    pub(crate) acknowledged: usize,
    pub(crate) changes: usize,
    /// Which of the models it belongs to.
    pub(crate) epoch: usize,
}

/// A script that has been run.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) name: String,
    pub(crate) operations: u64,
    pub(crate) points: Vec<Point>,
    /// What there was to survive. A power cut in a script takes something of it back, so that another begins.
    pub(crate) models: Vec<Model>,
}

#[derive(Debug, Default)]
struct Notes {
    points: Vec<Point>,
    models: Vec<Model>,
    /// Whether the operation before this one has left something new on the disk.
    dirty: bool,
}

pub(crate) fn script(workload: &Workload) -> Recorded {
    by(workload.name, workload.sync, |run| run.script(&workload.steps))
}

pub(crate) fn by(name: &str, sync: bool, work: impl FnOnce(&mut Run) -> Found) -> Recorded {
    let notes = Arc::new(Mutex::new(Notes::default()));
    let mut run = Run::new(sync);
    run.strict = true;
    let forgotten = Arc::clone(&notes);
    run.forgotten =
        Some(Box::new(move |model: &Model| forgotten.lock().unwrap().models.push(model.clone())));
    let (disk, shared, noted) = (run.disk.clone(), run.driver.shared.clone(), Arc::clone(&notes));
    let take = move |number, kind| {
        let mut notes = noted.lock().unwrap();
        if std::mem::replace(&mut notes.dirty, changes_disk(kind)) {
            let truth = shared.lock();
            let (acknowledged, changes) = (truth.acknowledged, truth.model.len());
            drop(truth);
            let (disk, epoch) = (disk.fork(), notes.models.len());
            notes.points.push(Point { number, kind, disk, acknowledged, changes, epoch });
        }
    };
    run.faulty.observe(take.clone());
    work(&mut run).unwrap_or_else(|found| panic!("{name}: {found}"));
    let operations = run.faulty.op_count();
    drop(run.store.take());
    // The end of the script is a point, too.
    take(operations, Operation::Exists);
    let model = run.driver.model().model.clone();
    let mut notes = notes.lock().unwrap();
    let (points, mut models) =
        (std::mem::take(&mut notes.points), std::mem::take(&mut notes.models));
    models.push(model);
    assert!(!points.is_empty());
    Recorded { name: name.to_owned(), operations, points, models }
}
