//! The scripts. Each is short, and does one thing that touches the disk in a way of its own; together they do all.

use annals::vfs::CrashMode;
use annals::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, Op, PutRequest, TxnRequest,
};
use bytes::Bytes;

use super::{Step, Workload};
use crate::support::model::Request;

/// More units of background work than there ever are.
const ALL: u64 = 100_000;

fn put(key: &str, value: &str) -> Step {
    Step::Do(Request::Put(PutRequest::new(key, value)))
}

fn delete(prefix: &str) -> Step {
    Step::Do(Request::DeleteRange(DeleteRangeRequest::prefix(prefix)))
}

fn compact(revision: u64) -> Step {
    Step::Do(Request::Compact(revision))
}

pub fn txn(ops: impl IntoIterator<Item = Op>) -> Request {
    let request = TxnRequest { success: ops.into_iter().collect(), ..TxnRequest::default() };
    Request::Txn { request, time: None, metadata: Bytes::from_static(b"by the script") }
}

/// Puts to some of twenty keys, with values that fill files soon.
fn round(number: u64, puts: u64, bytes: usize) -> impl Iterator<Item = Step> {
    (0..puts).map(move |n| {
        let at = usize::try_from(n * 5).unwrap();
        let value = format!("round {number} ").repeat(bytes / 8 + at);
        put(&format!("key/{}", (n * 7 + number) % 20), &value)
    })
}

/// Making a store, and opening it again with nothing in it.
fn create() -> Vec<Step> {
    use Step::{Close, Drop, Kill, Open};
    vec![Open, Close, Open, Drop, Open, Kill, Open, Kill, Open, Close]
}

fn puts() -> Vec<Step> {
    let mut steps = vec![Step::Open];
    for n in 0..14_u64 {
        let value = "value ".repeat(usize::try_from(n * 8).unwrap());
        steps.push(put(&format!("key/{}", n % 5), &value));
    }
    steps.extend([delete("key/2"), put("key/2", ""), delete("key/"), put("last", "one")]);
    steps.push(Step::Look);
    steps
}

fn transactions() -> Vec<Step> {
    let mut steps = vec![Step::Open];
    for n in 0..8_u64 {
        let version = Compare {
            key: Bytes::from("counter"),
            range_end: Bytes::new(),
            result: CompareResult::Equal,
            target: CompareTarget::Version(n / 2),
        };
        let inner = TxnRequest {
            success: vec![PutRequest::new("inner", format!("{n}")).into()],
            ..TxnRequest::default()
        };
        let success = vec![
            PutRequest::new("counter", "c".repeat(300)).into(),
            Op::Txn(inner),
            DeleteRangeRequest::prefix(format!("side/{}", n / 2)).into(),
        ];
        let failure = vec![
            PutRequest::new(format!("side/{n}"), "s".repeat(600)).into(),
            PutRequest::new(format!("side/{n}/more"), "").into(),
        ];
        let request = TxnRequest { compare: vec![version], success, failure };
        let metadata = Bytes::from(format!("transaction {n}"));
        steps.push(Step::Do(Request::Txn { request, time: None, metadata }));
    }
    steps.push(Step::Look);
    steps
}

/// Many transactions that share a sync.
fn burst(number: u64, count: u64, bytes: usize) -> Step {
    let one = |n: u64| {
        txn([
            PutRequest::new(format!("burst/{n}"), "b".repeat(bytes)).into(),
            PutRequest::new(format!("burst/{}", n + 1), format!("{number}")).into(),
        ])
    };
    Step::Burst((0..count).map(one).collect())
}

fn groups() -> Vec<Step> {
    let mut steps = vec![Step::Open];
    for n in 0..6 {
        steps.push(burst(n, 3 + 2 * n, 40 * usize::try_from(n * n).unwrap()));
    }
    steps.extend([Step::Kill, Step::Open, burst(9, 9, 200), Step::Look]);
    steps
}

/// What is answered before it is durable.
fn buffered() -> Vec<Step> {
    let mut steps = vec![Step::Open];
    for n in 0..5 {
        steps.push(burst(n, 4, 300));
        steps.push(put("alone", "a"));
        if n % 2 == 1 {
            steps.push(Step::Flush);
        }
    }
    steps.extend([Step::Cut(3, CrashMode::Random), Step::Open, put("alone", "b"), Step::Close]);
    steps
}

/// The log goes over from file to file.
fn roll() -> Vec<Step> {
    let mut steps = vec![Step::Open];
    for n in 0..14_u64 {
        steps.push(put(&format!("key/{}", n % 3), &format!("{n}").repeat(6_000)));
    }
    steps.extend([Step::Kill, Step::Open, Step::Look]);
    steps
}

/// Values larger than a memtable, and than a file of the log.
fn large() -> Vec<Step> {
    let mut steps = vec![Step::Open, put("small", "s")];
    for (n, kib) in [64, 65, 100, 200].into_iter().enumerate() {
        steps.push(put(&format!("large/{}", n % 2), &format!("{n}").repeat(kib << 10)));
        steps.push(put("small", &format!("{n}")));
    }
    steps.extend([Step::Background(ALL), Step::Look, Step::Drop, Step::Open]);
    steps.extend([Step::Background(ALL), Step::Look, Step::Close]);
    steps
}

fn flush() -> Vec<Step> {
    let mut steps = vec![Step::Open];
    for number in 0..3 {
        steps.extend(round(number, 6, 300));
        steps.extend([Step::Flush, Step::Background(1)]);
    }
    steps.extend([Step::Kill, Step::Open, Step::Look]);
    steps
}

/// Flushes until files of L0 are merged and folded, step by step.
fn fold() -> Vec<Step> {
    let mut steps = vec![Step::Open];
    for number in 0..6 {
        steps.extend(round(number, 7, 500));
        steps.extend([Step::Background(2), put("between", "steps"), Step::Background(ALL)]);
    }
    steps.push(Step::Look);
    steps
}

/// Windows of history are trimmed, merged and dropped as the watermark passes them.
fn windows() -> Vec<Step> {
    let mut steps = vec![Step::Open];
    for number in 0..7 {
        steps.extend(round(number, 7, 600));
        steps.push(Step::Background(ALL));
        if number % 2 == 1 {
            steps.extend([compact(7 * number - 4), Step::Background(ALL)]);
        }
    }
    steps.extend([compact(50), Step::Background(ALL), Step::Look]);
    steps
}

fn compactions() -> Vec<Step> {
    let mut steps = vec![Step::Open];
    for number in 0..4 {
        steps.extend(round(number, 6, 200));
        steps.push(compact(6 * number + 3));
        steps.push(delete("key/3"));
        steps.push(Step::Background(1));
    }
    steps.extend([Step::Kill, Step::Open, Step::Background(ALL), Step::Look]);
    steps
}

fn reorganise() -> Vec<Step> {
    let mut steps = vec![Step::Open];
    for number in 0..3 {
        steps.extend(round(number, 8, 500));
        steps.push(delete("key/1"));
        steps.push(Step::Reorganise);
    }
    steps.extend([compact(20), Step::Reorganise, Step::Look, Step::Close]);
    steps
}

fn leases() -> Vec<Step> {
    let mut steps = vec![Step::Open];
    for id in 1..=4 {
        steps.push(Step::Do(Request::Grant { id, ttl: 60 }));
        for n in 0..id {
            let request = PutRequest::new(format!("leased/{n}"), "x".repeat(200)).lease(id);
            steps.push(Step::Do(Request::Put(request)));
        }
    }
    steps.extend([Step::Do(Request::Revoke(2)), Step::Kill, Step::Open]);
    steps.extend([Step::Do(Request::Revoke(4)), Step::Reorganise]);
    steps.extend([Step::Do(Request::Grant { id: 2, ttl: 9 }), Step::Do(Request::Revoke(1))]);
    steps.push(Step::Close);
    steps
}

fn retention() -> Vec<Step> {
    let mut steps = vec![Step::Open, Step::Keep(9)];
    for number in 0..4 {
        steps.extend(round(number, 6, 400));
        if number > 0 {
            steps.extend([Step::Apply, Step::Background(ALL)]);
        }
    }
    steps.extend([Step::Kill, Step::Open, put("more", ""), Step::Apply, Step::Look]);
    steps
}

/// Sessions that end in every way.
fn reopen() -> Vec<Step> {
    let mut steps = Vec::new();
    for number in 0..5_u64 {
        steps.push(Step::Open);
        for n in 0..number {
            steps.push(put(&format!("key/{n}"), &format!("{number}").repeat(1_500)));
        }
        steps.push(
            [Step::Close, Step::Kill, Step::Drop][usize::try_from(number % 3).unwrap()].clone(),
        );
    }
    steps.extend([Step::Open, burst(7, 12, 700), Step::Background(ALL), Step::Kill]);
    steps.extend([Step::Open, Step::Background(ALL), put("last", "one"), Step::Close]);
    steps
}

/// One power cut after the other: the recovery is a part of the script.
fn power() -> Vec<Step> {
    let mut steps = Vec::new();
    let modes = [CrashMode::Random, CrashMode::LoseAll, CrashMode::Random, CrashMode::KeepAll];
    for (mode, number) in modes.into_iter().cycle().zip(0..7) {
        steps.push(Step::Open);
        steps.extend(round(number, 4, 500));
        steps.push(burst(number, 5, 900));
        if number % 3 == 2 {
            steps.push(Step::Background(3));
        }
        steps.push(Step::Cut(number, mode));
    }
    steps.extend([Step::Open, Step::Look, Step::Close]);
    steps
}

fn checkpoints() -> Vec<Step> {
    let mut steps = vec![Step::Open];
    steps.extend(round(0, 9, 500));
    steps.extend([Step::Background(ALL), Step::Checkpoint("copy-1".into())]);
    steps.extend(round(1, 5, 500));
    steps.extend([compact(6), Step::Checkpoint("copy-2".into()), Step::Reorganise, put("k", "v")]);
    steps
}

fn restores() -> Vec<Step> {
    let mut steps = vec![Step::Open];
    steps.extend(round(0, 9, 500));
    steps.extend([Step::Background(ALL), Step::Restore("restored-1".into())]);
    steps.extend(round(1, 5, 500));
    steps.extend([compact(6), Step::Restore("restored-2".into()), put("k", "v")]);
    steps
}

/// Everything, one after the other.
fn reclaim() -> Vec<Step> {
    let mut steps = vec![Step::Open];
    for number in 0..6 {
        steps.extend(round(number, 8, 560));
        if number == 3 {
            let some = DeleteRangeRequest::new("key/3").range_end("key/5");
            steps.extend([Step::Do(Request::DeleteRange(some)), compact(20)]);
        }
        steps.extend([Step::Background(ALL), Step::Look]);
    }
    steps.extend([Step::Close, Step::Open, Step::Background(ALL), Step::Look, Step::Close]);
    steps
}

/// Makes the steps of one.
type Script = fn() -> Vec<Step>;

/// All of them.
pub fn all() -> Vec<Workload> {
    let scripts: [(&'static str, Script); 19] = [
        ("create", create),
        ("puts", puts),
        ("transactions", transactions),
        ("groups", groups),
        ("buffered", buffered),
        ("roll", roll),
        ("large", large),
        ("flush", flush),
        ("fold", fold),
        ("windows", windows),
        ("compactions", compactions),
        ("reorganise", reorganise),
        ("leases", leases),
        ("retention", retention),
        ("reopen", reopen),
        ("power", power),
        ("checkpoints", checkpoints),
        ("restores", restores),
        ("reclaim", reclaim),
    ];
    let named = |(name, steps): (&'static str, Script)| {
        let sync = name != "buffered";
        Workload { name, steps: steps(), sync }
    };
    scripts.into_iter().map(named).collect()
}

/// Those that are asked for: with `ANNALS_WORKLOAD=text` those whose names contain it, else all.
pub fn chosen() -> Vec<Workload> {
    let part = std::env::var("ANNALS_WORKLOAD").unwrap_or_default();
    let mut chosen = all();
    chosen.retain(|workload| workload.name.contains(&part));
    assert!(!chosen.is_empty(), "no script has {part:?} in its name");
    chosen
}
