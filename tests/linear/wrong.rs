//! The checker rejects what is wrong, and nothing else.
//!
//! One history that is right is spoilt in every way that matters, and each time the message names the
//! two operations that cannot both be right. Then thousands of small histories, right and wrong, are
//! held against a search through all orders.

use super::checker::check;
use super::generate::Source;
use super::history::{
    Answer, Compare, Found, Key, Kv, Operation, Range, Refusal, Relation, Request, Span, Step,
    Target, Txn,
};
use super::model::Model;
use super::random::Random;

/// Requests done one after another, at whatever times they are said to have been under way.
#[derive(Default)]
struct Script {
    model: Model,
    revision: u64,
    watermark: u64,
    history: Vec<Operation>,
}

impl Script {
    fn new() -> Self {
        Self { revision: 1, ..Self::default() }
    }

    fn add(
        &mut self,
        client: usize,
        (began, answered): (u64, u64),
        request: Request,
    ) -> &Operation {
        let (answer, effects) = self.model.evaluate(&request, self.revision, self.watermark);
        if !effects.is_empty() {
            self.revision += 1;
            self.model.apply(self.revision, effects);
        }
        if let (Request::Compact(to), Answer::Compacted { .. }) = (&request, &answer) {
            self.watermark = *to;
        }
        let durable = Some(self.revision);
        self.history.push(Operation { client, began, answered, request, answer, durable });
        self.history.last().expect("just pushed")
    }
}

const A: Key = 0;
const B: Key = 1;
const C: Key = 2;
const ALL: Span = Span { from: A, to: C + 1 };

fn put(key: Key, value: u64) -> Step {
    Step::Put { key, value, prev: false }
}

/// Writes a key if it is still as of a revision, else reads it.
fn swap(key: Key, modified: u64, value: u64) -> Request {
    let (span, relation, target) = (Span::one(key), Relation::Equal, Target::Mod(modified));
    Request::Txn(Txn {
        compare: vec![Compare { span, relation, target }],
        success: vec![put(key, value)],
        failure: vec![Step::Range(Range::all(span))],
    })
}

/// A history that is right. Only 2 and 3, and 9 and 10, are under way at the same time.
fn right() -> Vec<Operation> {
    let both = Txn { compare: vec![], success: vec![put(A, 5), put(B, 6)], failure: vec![] };
    let mut script = Script::new();
    for (client, times, request) in [
        (0, (0, 10), Request::Step(put(A, 1))),
        (1, (11, 20), Request::Step(put(B, 2))),
        (0, (21, 40), swap(A, 2, 3)),
        (1, (22, 41), swap(A, 2, 4)),
        (0, (42, 60), Request::Txn(both)),
        (1, (61, 70), Request::Latest(ALL)),
        (0, (71, 80), Request::Get(A)),
        (1, (90, 100), Request::Step(put(C, 7))),
        (0, (101, 110), Request::Step(Step::Range(Range::all(ALL)))),
        (1, (120, 140), Request::Compact(5)),
        (0, (121, 141), Request::At { revision: 5, span: ALL }),
        (0, (150, 160), Request::At { revision: 4, span: ALL }),
        (1, (161, 170), Request::Step(Step::Delete { span: ALL, prev: true })),
    ] {
        script.add(client, times, request);
    }
    assert_eq!((script.revision, script.watermark), (7, 5));
    script.history
}

/// The answer a request has at a revision of the right history.
fn answer_at(history: &[Operation], index: usize, revision: u64, watermark: u64) -> Answer {
    let checked = check(history).expect("a history that is right");
    checked.model.evaluate(&history[index].request, revision, watermark).0
}

/// The history must be rejected, with a message that names the two.
fn rejected(history: &[Operation], first: usize, second: usize) {
    let wrong = check(history).expect_err("it is wrong");
    for index in [first, second] {
        assert!(
            wrong.contains(&format!("\n  #{index} of client")),
            "{index} is not named: {wrong}"
        );
    }
}

#[test]
fn what_is_right_passes() {
    let history = right();
    let checked = check(&history).expect("it is right");
    assert_eq!(checked.revisions, [2, 3, 4, 4, 5, 5, 5, 6, 6, 6, 6, 6, 7]);
    // Only the second of each pair has a choice, and only the swaps are on the same key.
    assert!(checked.concurrent > 0 && checked.contended == 0, "{checked:?}");
    // Which of two puts at the same time came first, their answers tell.
    let mut script = Script::new();
    script.add(0, (0, 10), Request::Step(put(A, 1)));
    script.add(1, (1, 9), Request::Step(put(A, 2)));
    assert_eq!(check(&script.history).expect("right").contended, 1);
    let mut script = Script::new();
    script.add(1, (1, 9), Request::Step(put(A, 2)));
    script.add(0, (0, 10), Request::Step(put(A, 1)));
    assert_eq!(check(&script.history).expect("right, too").contended, 1);
}

#[test]
fn a_lost_update_is_rejected() {
    let mut history = right();
    history.truncate(4);
    // The second swap pretends not to have seen the first.
    let found = vec![Found::Put { revision: 5, prev: None }];
    history[3].answer = Answer::Txn { revision: 5, changed: true, succeeded: true, found };
    rejected(&history, 2, 3);
}

#[test]
fn a_failure_for_no_reason_is_rejected() {
    let mut history = right();
    history.truncate(3);
    let found = answer_at(&history, 1, 3, 0);
    assert!(matches!(found, Answer::Step(Found::Put { .. })));
    let kvs = check(&history).expect("right").model.span(Span::one(A), 3);
    let found = vec![Found::Range { revision: 3, kvs, count: 1, more: false }];
    history[2].answer = Answer::Txn { revision: 3, changed: false, succeeded: false, found };
    rejected(&history, 0, 2);
}

#[test]
fn stale_reads_are_rejected() {
    // Without a revision in the answer, with one, and of several keys.
    for (index, revision, newer) in [(6, 4, 4), (8, 5, 7), (5, 4, 4)] {
        let mut history = right();
        history[index].answer = answer_at(&history, index, revision, 0);
        rejected(&history, newer, index);
    }
}

#[test]
fn reads_from_the_future_are_rejected() {
    let mut history = right();
    history[6].request = Request::Get(C);
    history[6].answer = answer_at(&right(), 8, 6, 0);
    let Answer::Step(Found::Range { kvs, .. }) = &history[6].answer else { panic!("a range") };
    history[6].answer = Answer::Got(kvs.last().copied());
    rejected(&history, 7, 6);
    let mut history = right();
    history[5].answer = answer_at(&history, 5, 6, 0);
    rejected(&history, 7, 5);
    // A commit that comes before one that had answered when it began.
    let mut history = right();
    history.truncate(8);
    (history[7].began, history[7].answered) = (43, 44);
    (history[4].began, history[4].answered) = (61, 62);
    history.drain(5..7);
    rejected(&history, 5, 4);
}

#[test]
fn swapped_revisions_are_rejected() {
    let mut history = right();
    history.truncate(2);
    for (index, revision) in [(0, 3), (1, 2)] {
        history[index].answer = Answer::Step(Found::Put { revision, prev: None });
        history[index].durable = Some(3);
    }
    rejected(&history, 0, 1);
    // At the same time it would have been right.
    history[1].began = 5;
    check(&history).expect("either order is right");
}

#[test]
fn half_a_transaction_is_rejected() {
    let history = right();
    let (old, new) = (answer_at(&history, 5, 4, 0), answer_at(&history, 5, 5, 0));
    let (Answer::Latest { kvs: old, .. }, Answer::Latest { kvs: new, revision }) = (old, new)
    else {
        panic!("views");
    };
    for kvs in [vec![old[0], new[1]], vec![new[0], old[1]]] {
        let mut history = right();
        history[5].answer = Answer::Latest { revision, kvs };
        rejected(&history, 4, 5);
    }
}

#[test]
fn revisions_given_twice_or_never_are_rejected() {
    let mut history = right();
    history[1].answer = Answer::Step(Found::Put { revision: 2, prev: None });
    rejected(&history, 0, 1);
    let mut history = right();
    history.remove(1);
    rejected(&history, 0, 1);
    let mut history = right();
    history.truncate(6);
    history[5].answer = Answer::Latest { revision: 9, kvs: Vec::new() };
    rejected(&history, 4, 5);
}

#[test]
fn wrong_watermarks_are_rejected() {
    // Read although it was compacted before, and refused although it was not.
    let mut history = right();
    history[11].answer = answer_at(&history, 11, 6, 0);
    rejected(&history, 9, 11);
    let mut history = right();
    let refusal = Refusal::Compacted { requested: 4, compacted: 5 };
    history[6].request = Request::At { revision: 4, span: ALL };
    history[6].answer = Answer::Refused(refusal);
    // The compaction came even after the next put.
    rejected(&history, 7, 6);
    let mut history = right();
    history[11].answer = Answer::Refused(Refusal::Compacted { requested: 4, compacted: 6 });
    rejected(&history, 7, 11);
}

#[test]
fn what_is_not_durable_is_rejected() {
    let mut history = right();
    history[6].durable = Some(4);
    rejected(&history, 4, 6);
}

#[test]
fn every_spoilt_number_of_a_change_is_rejected() {
    let spoilt = |kv: &Kv, how: u64| match how {
        0 => Kv { create: kv.create + 1, ..*kv },
        1 => Kv { modified: kv.modified + 1, ..*kv },
        2 => Kv { version: kv.version + 1, ..*kv },
        _ => Kv { value: kv.value.map(|value| value + 1), ..*kv },
    };
    for how in 0..6 {
        let mut history = right();
        let Answer::Step(Found::Delete { prev, deleted, .. }) = &mut history[12].answer else {
            panic!("a delete");
        };
        match how {
            4 => *deleted -= 1,
            5 => drop(prev.pop()),
            _ => prev[1] = spoilt(&prev[1], how),
        }
        rejected(&history, 7, 12);
    }
}

/// A history of a few clients, right as it is made, with operations under way at the same time.
fn random_history(seed: u64, count: usize) -> Vec<Operation> {
    let mut random = Random::new(seed);
    let mut sources: Vec<_> = (0..3).map(|client| Source::new(seed, client, 2, true)).collect();
    let mut script = Script::new();
    for number in 0..count as u64 {
        let client = random.index(3);
        let request = match random.below(8) {
            // Otherwise they are too rare among so few.
            0 => Request::Compact(random.between(1, 5)),
            1 => Request::At { revision: random.between(1, 5), span: Span { from: 0, to: 2 } },
            2 => Request::Get(A),
            _ => sources[client].request(),
        };
        // Around its turn, and every time once.
        let turn = 100 + 10 * number;
        let unique = |time: u64, last: u64| 100 * time + 2 * number + last;
        let reach = random.between(1, 40);
        let began = unique(turn - random.below(reach), 0);
        let answered = unique(turn + 1 + random.below(reach), 1);
        let operation = script.add(client, (began, answered), request);
        sources[client].learn(operation);
    }
    script.history.iter_mut().for_each(|operation| operation.durable = None);
    script.history
}

/// Something that may make it wrong: an answer of another state, or at another time.
fn spoil(history: &mut [Operation], random: &mut Random) {
    let model = check(history).expect("right as it was made").model;
    let index = random.index(history.len());
    let operation = &mut history[index];
    match random.below(3) {
        0 => {
            let took = operation.answered - operation.began;
            operation.began = 10_000 + 1_000 * random.below(6) + 500 + 2 * index as u64;
            operation.answered = operation.began + took;
        }
        1 => {
            let (revision, watermark) = (random.between(1, 5), random.below(4));
            operation.answer = model.evaluate(&operation.request, revision, watermark).0;
        }
        _ => match &mut operation.answer {
            Answer::Step(
                Found::Put { revision, .. }
                | Found::Delete { revision, .. }
                | Found::Range { revision, .. },
            )
            | Answer::Txn { revision, .. }
            | Answer::Latest { revision, .. }
            | Answer::Compacted { revision } => {
                *revision = (*revision + random.below(3)).saturating_sub(1);
            }
            Answer::Got(kv) => *kv = None,
            _ => {}
        },
    }
}

/// Whether any order of the operations at all is right.
fn has_an_order(left: &[&Operation], model: &Model, revision: u64, watermark: u64) -> bool {
    if left.is_empty() {
        return true;
    }
    (0..left.len()).any(|next| {
        let operation = left[next];
        if left.iter().any(|other| other.answered < operation.began) {
            return false;
        }
        let (answer, effects) = model.evaluate(&operation.request, revision, watermark);
        if answer != operation.answer {
            return false;
        }
        let (mut model, mut revision, mut watermark) = (model.clone(), revision, watermark);
        if !effects.is_empty() {
            revision += 1;
            model.apply(revision, effects);
        }
        if let (Request::Compact(to), Answer::Compacted { .. }) = (&operation.request, &answer) {
            watermark = *to;
        }
        let mut left = left.to_vec();
        left.remove(next);
        has_an_order(&left, &model, revision, watermark)
    })
}

#[test]
fn the_checker_decides_as_a_search_through_all_orders_does() {
    let (mut right, mut wrong) = (0, 0);
    for seed in 0..20_000 {
        let mut random = Random::new(seed);
        let count = random.index(6) + 1;
        let mut history = random_history(seed, count);
        assert!(check(&history).is_ok(), "seed {seed}");
        for _ in 0..random.below(3) {
            if check(&history).is_ok() {
                spoil(&mut history, &mut random);
            }
        }
        let all: Vec<&Operation> = history.iter().collect();
        let expected = has_an_order(&all, &Model::default(), 1, 0);
        let found = check(&history);
        assert_eq!(found.is_ok(), expected, "seed {seed}: {found:?}\n{history:#?}");
        if expected { right += 1 } else { wrong += 1 }
    }
    assert!(right > 5_000 && wrong > 5_000, "{right} right, {wrong} wrong");
}
