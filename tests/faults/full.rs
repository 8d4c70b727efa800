//! A disk that is full: of every size that is too small, and from every operation on for ever after.

use annals::DeleteRangeRequest;
use annals::vfs::Fault;

use crate::support::check::Found;
use crate::support::model::Request;
use crate::workloads::run::Run;
use crate::workloads::{Step, Workload};
use crate::{each, scripts};

/// The process ends, another one opens the store, and reads; it deletes and compacts, or is refused. Then there is room.
fn afterwards(mut run: Run) -> Found {
    run.step(&Step::Kill)?;
    let newest = run.driver.model().model.revision();
    run.script(&[
        Step::Open,
        Step::Look,
        Step::Do(Request::DeleteRange(DeleteRangeRequest::prefix("key/"))),
        Step::Do(Request::Compact(newest)),
        Step::Background(100),
        Step::Look,
        Step::Kill,
        Step::Open,
        Step::Look,
    ])?;
    run.disk.set_capacity(None);
    run.recover()
}

fn of_size(workload: &Workload, capacity: u64) -> Found {
    let mut run = Run::new(workload.sync);
    run.disk.set_capacity(Some(capacity));
    run.script(&workload.steps)?;
    afterwards(run)
}

fn from_operation(workload: &Workload, operation: u64) -> Found {
    let mut run = Run::new(workload.sync);
    run.faulty.fail(None, operation, Fault::NoSpace, true);
    run.script(&workload.steps)?;
    // Reads are no business of a full disk: from here on it is one that has just no room left.
    run.faulty.heal();
    let used = run.disk.used_bytes();
    run.disk.set_capacity(Some(used));
    afterwards(run)
}

#[test]
fn the_disk_is_full_at_every_size() {
    let mut sizes = 0;
    for workload in scripts::chosen() {
        let name = workload.name;
        let dry = Run::strictly(&workload).unwrap_or_else(|found| panic!("{name}: {found}"));
        let used = dry.disk.used_bytes() + (64 << 10);
        drop(dry);
        let cases: Vec<u64> = (0..used).step_by(512).collect();
        sizes += each(name, "sizes", 60, &cases, |size| of_size(&workload, *size));
    }
    println!("in all: {sizes} sizes");
}

#[test]
fn the_disk_is_full_from_every_operation_on() {
    let mut operations = 0;
    for workload in scripts::chosen() {
        let name = workload.name;
        let dry = Run::strictly(&workload).unwrap_or_else(|found| panic!("{name}: {found}"));
        let cases: Vec<u64> = (0..dry.faulty.op_count()).collect();
        drop(dry);
        operations += each(name, "full from", 60, &cases, |at| from_operation(&workload, *at));
    }
    println!("in all: {operations} operations");
}
