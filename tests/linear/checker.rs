//! Whether a recorded history is linearizable: whether its operations have an order, one after
//! another, in which the model gives every one of the answers, and in which an operation that began
//! after another had answered comes after it.
//!
//! In general that is a search among all orders. Here it is not, because answers name revisions.
//! Call a *change* what took a revision or set the watermark.
//!
//! **There is one order of the changes.** In any order that gives these answers the model's revision
//! grows by one with every transaction that changes something, and that one's answer names it; a
//! compaction names the revision it found, and the watermark, which only rises, orders those at the
//! same one. So the changes of the history, sorted by that, are the only candidate, a sequence of
//! numbered *slots* (0 is the empty store), and what each must answer follows by replaying them.
//!
//! **What changed nothing lies between two changes**, that is, in a slot, and must answer what the
//! model says there. Most answers name their revision, and so their slot (among a few where
//! compactions have the same revision). Not exact are only these: `get`, whose answer has no
//! revision; a view taken at a past revision, which says nothing of the present one; a refusal for a
//! compacted revision, which names the watermark. For them every slot is possible whose model state
//! gives the answer.
//!
//! **The earliest place is the best.** Go through the operations in the order in which they began, and
//! give each the first possible slot that is not before the slot of an operation that had
//! answered by then (for a change: its own slot, which must be after those). *Sound*: sort by slot,
//! in a slot the change first and then by beginning; that order gives the answers, and if A answered
//! before B began, then A is in an earlier slot, or A is the change of B's slot, or A began before B
//! in the same one. *Complete*: take any order that is right. By induction nobody's slot here is
//! later than its slot there: those that had answered are not, and the first possible slot from there
//! on cannot be after a possible one. So if an operation finds no slot here, it has none there.
//!
//! Sorting costs O(n log n); the search for a place ends at the first change that began after the
//! operation had answered.
//!
//! **Durability.** What an operation of a `Sync` store was placed at must be durable when it answers.
//! That everything acknowledged before it began shows is the order in real time.

use super::history::{Answer, Found, KEYS_MAX, Operation, Refusal};
use super::model::Model;

/// What a history that passed was like.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Every version there was.
    pub model: Model,
    /// The revision after the slot in which an operation was placed, by its index.
    pub revisions: Vec<u64>,
    /// Operations whose answer was not bound to one slot by time: a change was under way meanwhile.
    pub concurrent: usize,
    /// Changes that were under way together with the change directly before them, by another client,
    /// which has to do with one of the same keys.
    pub contended: usize,
}

/// One change and the state after it.
#[derive(Clone, Copy, Debug)]
struct Slot {
    revision: u64,
    watermark: u64,
    /// The operation; `None` for the empty store.
    operation: Option<usize>,
    /// When the last of the operations up to this slot began.
    began: u64,
}

/// Checks a history.
///
/// # Errors
///
/// What is wrong, with the two operations that cannot both be right.
pub fn check(history: &[Operation]) -> Result<Checked, String> {
    let slots = slots(history)?;
    let mut checker = Checker { history, slots, model: Model::default() };
    checker.replay()?;
    checker.place()
}

/// The changes in their order, which must have every revision once.
fn slots(history: &[Operation]) -> Result<Vec<Slot>, String> {
    let mut changes = Vec::new();
    for (index, operation) in history.iter().enumerate() {
        if let Answer::Broken(what) = &operation.answer {
            return Err(format!("{what}: {}", show(history, index)));
        }
        changes.extend(operation.changed_at().map(|at| (at, index)));
    }
    changes.sort_unstable();
    let mut slots = vec![Slot { revision: 1, watermark: 0, operation: None, began: 0 }];
    for ((revision, watermark), index) in changes {
        let before = slots[slots.len() - 1];
        let pair = || two(history, before.operation, index);
        // A compaction takes no revision.
        let expected = before.revision + u64::from(watermark == 0);
        if revision < expected {
            return Err(format!("revision {revision} was given twice: {}", pair()));
        }
        if revision > expected {
            return Err(format!("nobody made revision {expected}, between {}", pair()));
        }
        let watermark = if watermark == 0 { before.watermark } else { watermark };
        let began = before.began.max(history[index].began);
        slots.push(Slot { revision, watermark, operation: Some(index), began });
    }
    Ok(slots)
}

struct Checker<'h> {
    history: &'h [Operation],
    slots: Vec<Slot>,
    /// The versions of all slots replayed so far.
    model: Model,
}

impl Checker<'_> {
    /// Holds the answers of the changes against the model, and fills it.
    fn replay(&mut self) -> Result<(), String> {
        for number in 1..self.slots.len() {
            let (before, slot) = (self.slots[number - 1], self.slots[number]);
            let Some(index) = slot.operation else { continue };
            let operation = &self.history[index];
            let (expected, effects) =
                self.model.evaluate(&operation.request, before.revision, before.watermark);
            if expected != operation.answer {
                let blamed = self.blamed(index, number - 1);
                return Err(self.wrong(index, &expected, before, blamed));
            }
            self.model.apply(slot.revision, effects);
        }
        Ok(())
    }

    /// Finds every operation its slot.
    fn place(self) -> Result<Checked, String> {
        let mut events: Vec<(u64, usize, bool)> = Vec::with_capacity(2 * self.history.len());
        for (index, operation) in self.history.iter().enumerate() {
            assert!(operation.began < operation.answered, "the clock of the history goes forward");
            events.push((operation.began, index, false));
            events.push((operation.answered, index, true));
        }
        events.sort_unstable();
        let mut own = vec![None; self.history.len()];
        for (number, slot) in self.slots.iter().enumerate() {
            if let Some(index) = slot.operation {
                own[index] = Some(number);
            }
        }
        let mut placed = vec![0; self.history.len()];
        // The last slot of those that have answered, and whose it is.
        let mut bound: (usize, Option<usize>) = (0, None);
        let mut concurrent = 0;
        for (_, index, answered) in events {
            if answered {
                if placed[index] > bound.0 || bound.1.is_none() {
                    bound = (placed[index], Some(index));
                }
                continue;
            }
            let limit = self.limit(index);
            placed[index] = match own[index] {
                Some(slot) if slot > bound.0 => slot,
                // Only an operation that has answered can be at or behind the slot of a change.
                Some(_) => return Err(self.late(bound.1, index)),
                None => self.find(index, bound, limit)?,
            };
            let possible = bound.0 + usize::from(own[index].is_some());
            concurrent += usize::from(limit > possible);
            self.durable(index, placed[index])?;
        }
        let contended = self.contended();
        let revisions = placed.into_iter().map(|slot| self.slots[slot].revision).collect();
        Ok(Checked { model: self.model, revisions, concurrent, contended })
    }

    /// The last slot that can be shown by an operation: of the changes up to there, none began after
    /// it had answered.
    fn limit(&self, index: usize) -> usize {
        let answered = self.history[index].answered;
        self.slots.partition_point(|slot| slot.began <= answered) - 1
    }

    /// The first possible slot for what changed nothing.
    fn find(
        &self,
        index: usize,
        (bound, by): (usize, Option<usize>),
        limit: usize,
    ) -> Result<usize, String> {
        let operation = &self.history[index];
        let Some((first, last)) = self.named(&operation.answer) else {
            let blamed = self.blamed(index, limit);
            let answer = &operation.answer;
            return Err(format!(
                "{answer:?} names a state that never was: {}",
                self.two(blamed, index)
            ));
        };
        if first > limit {
            return Err(self.future(limit, index));
        }
        if last < bound {
            return Err(self.late(by, index));
        }
        for number in first.max(bound)..=last.min(limit) {
            let slot = self.slots[number];
            let (expected, effects) =
                self.model.evaluate(&operation.request, slot.revision, slot.watermark);
            if expected == operation.answer && effects.is_empty() {
                return Ok(number);
            }
        }
        Err(self.misplaced(index, (first, last), (bound, by), limit))
    }

    /// Why there is no slot for what changed nothing.
    fn misplaced(
        &self,
        index: usize,
        (first, last): (usize, usize),
        (bound, by): (usize, Option<usize>),
        limit: usize,
    ) -> String {
        let request = &self.history[index].request;
        let expected = |number: usize| {
            let slot = self.slots[number];
            self.model.evaluate(request, slot.revision, slot.watermark).0
        };
        let fits = |number: &usize| expected(*number) == self.history[index].answer;
        if (first..bound).any(|number| fits(&number)) {
            return self.late(by, index);
        }
        if (limit + 1..=last).any(|number| fits(&number)) {
            return self.future(limit, index);
        }
        let number = first.max(bound);
        self.wrong(index, &expected(number), self.slots[number], self.blamed(index, number))
    }

    /// The first and the last slot that an answer names.
    fn named(&self, answer: &Answer) -> Option<(usize, usize)> {
        let of_revision = |revision| {
            let first = self.slots.partition_point(|slot| slot.revision < revision);
            let end = self.slots.partition_point(|slot| slot.revision <= revision);
            (first < end).then(|| (first, end - 1))
        };
        match answer {
            Answer::Got(_) | Answer::At(_) => Some((0, self.slots.len() - 1)),
            Answer::Step(
                Found::Put { revision, .. }
                | Found::Delete { revision, .. }
                | Found::Range { revision, .. },
            )
            | Answer::Txn { revision, .. }
            | Answer::Latest { revision, .. }
            | Answer::Compacted { revision }
            | Answer::Refused(Refusal::Future { current: revision, .. }) => of_revision(*revision),
            Answer::Refused(Refusal::Compacted { compacted, .. }) => {
                let first = self.slots.partition_point(|slot| slot.watermark < *compacted);
                let end = self.slots.partition_point(|slot| slot.watermark <= *compacted);
                (first < end).then(|| (first, end - 1))
            }
            Answer::Broken(_) => None,
        }
    }

    fn durable(&self, index: usize, slot: usize) -> Result<(), String> {
        let shown = self.slots[slot].revision;
        match self.history[index].durable {
            Some(durable) if durable < shown => Err(format!(
                "revision {shown} was shown when {durable} was durable: {}",
                self.two(self.slots[slot].operation, index)
            )),
            _ => Ok(()),
        }
    }

    fn contended(&self) -> usize {
        let mut contended = 0;
        for pair in self.slots.windows(2) {
            let (Some(a), Some(b)) = (pair[0].operation, pair[1].operation) else { continue };
            let (a, b) = (&self.history[a], &self.history[b]);
            let together = a.began < b.answered && b.began < a.answered;
            let shared = || (0..KEYS_MAX).any(|key| a.touches(key) && b.touches(key));
            contended += usize::from(together && a.client != b.client && shared());
        }
        contended
    }

    /// The change that an operation in a slot should know of: the last of one of its keys, or else
    /// that of the slot.
    fn blamed(&self, index: usize, slot: usize) -> Option<usize> {
        let operation = &self.history[index];
        let at = self.slots[slot].revision;
        let last = self.model.last_change(at, |key| operation.touches(key));
        let found = last.map(|at| self.slots.partition_point(|slot| slot.revision < at));
        self.slots[found.unwrap_or(slot)].operation
    }

    fn late(&self, first: Option<usize>, then: usize) -> String {
        let two = self.two(first, then);
        format!("the second began after the first had answered, and comes before it: {two}")
    }

    fn future(&self, limit: usize, index: usize) -> String {
        // The first of the changes that began too late to be seen.
        let two = self.two(self.slots[limit + 1].operation, index);
        format!("the second shows the first, which began after the second had answered: {two}")
    }

    fn wrong(&self, index: usize, expected: &Answer, slot: Slot, blamed: Option<usize>) -> String {
        let Slot { revision, watermark, .. } = slot;
        format!(
            "after revision {revision} (compacted to {watermark}) the second must answer \
             {expected:?}: {}",
            self.two(blamed, index)
        )
    }

    fn two(&self, first: Option<usize>, then: usize) -> String {
        two(self.history, first, then)
    }
}

fn two(history: &[Operation], first: Option<usize>, then: usize) -> String {
    let first = first.map_or_else(|| "(the empty store)".into(), |first| show(history, first));
    format!("\n  {first}\n  {}", show(history, then))
}

fn show(history: &[Operation], index: usize) -> String {
    let Operation { client, began, answered, request, answer, .. } = &history[index];
    format!("#{index} of client {client}, {began} to {answered}: {request:?} -> {answer:?}")
}
