//! Every operation of every script fails, in every way.

use annals::vfs::Fault;

use crate::support::check::Found;
use crate::workloads::Workload;
use crate::workloads::run::Run;
use crate::{each, scripts};

const WAYS: &[(Fault, bool)] = &[
    (Fault::Io, false),
    (Fault::Io, true),
    (Fault::NoSpace, false),
    (Fault::NoSpace, true),
    (Fault::Torn, false),
    (Fault::Short, false),
    (Fault::Interrupted, false),
];

/// The operation, and how it fails.
#[derive(Clone, Copy, Debug)]
struct Case {
    operation: u64,
    fault: Fault,
    sticky: bool,
}

fn one(workload: &Workload, case: Case) -> Found {
    let mut run = Run::new(workload.sync);
    run.faulty.fail(None, case.operation, case.fault, case.sticky);
    run.strict = case.fault == Fault::Short;
    run.script(&workload.steps)?;
    run.recover()
}

#[test]
fn every_operation_of_every_script_fails() {
    let (mut done, mut all) = (0, 0);
    for workload in scripts::chosen() {
        let name = workload.name;
        let dry = Run::strictly(&workload);
        let dry = dry.unwrap_or_else(|found| panic!("{name}: without a fault: {found}"));
        let cases: Vec<Case> = (0..dry.faulty.op_count())
            .flat_map(|operation| {
                WAYS.iter().map(move |&(fault, sticky)| Case { operation, fault, sticky })
            })
            .collect();
        drop(dry);
        all += cases.len();
        done += each(name, "faults", 250, &cases, |case| one(&workload, *case));
    }
    println!("in all: {done} of {all} faults");
}
