//! Watches of a run: told each transaction once, in order, as the model has it, and only what survives.

use annals::{Batch, ChangeKind, ErrorKind, KeyRange, KeyValue, Store, Watch};

use crate::support::check::{Found, good, same};
use crate::support::drive::Truth;

/// A watch, and what it must tell next.
pub(crate) struct Watched {
    range: KeyRange,
    watch: Watch,
    /// All before this revision has been told, or was not asked for.
    next: u64,
}

/// What became of asking.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Told(u64),
    Nothing,
    /// The watch has ended; another one goes on.
    Ended,
    /// The machine was to blame.
    Failed,
}

impl Watched {
    pub(crate) fn begin(store: &Store, range: KeyRange, from: u64) -> annals::Result<Self> {
        let from = from.max(2);
        let watch = store.watch_range(&range).from(from).prev_kv().catch_up_bytes(1_000).start()?;
        Ok(Self { range, watch, next: from })
    }

    /// Goes on in another session of the store.
    pub(crate) fn resume(self, store: &Store) -> annals::Result<Self> {
        Self::begin(store, self.range, self.next)
    }

    /// Asks once, and holds the answer against the model. What is told is durable in a `Sync` store.
    pub(crate) fn ask(
        &mut self,
        store: &Store,
        truth: &mut Truth,
        sync: bool,
        tolerant: bool,
    ) -> Result<Asked, String> {
        let model = &truth.model;
        let known = |from: u64, to: u64| {
            (from..=to).find(|at| {
                let changes = &model.transaction(*at).changes;
                changes.iter().any(|change| self.range.contains(&change.key))
            })
        };
        match self.watch.try_next() {
            None => {
                let told = if tolerant || !sync {
                    model.entry_after(truth.acknowledged).revision
                } else {
                    model.revision()
                };
                same(|| "left out".into(), &None, &known(self.next, told))?;
                Ok(Asked::Nothing)
            }
            Some(Ok(batch)) => {
                let due = known(self.next, model.revision());
                same(|| "the next revision".into(), &Some(batch.revision()), &due)?;
                self.batch(&batch, truth)?;
                self.next = batch.revision() + 1;
                if sync {
                    let told = |changes: &usize| {
                        truth.model.entry_after(*changes).revision >= batch.revision()
                    };
                    let durable = (0..=truth.model.len()).find(told).expect("it was told");
                    truth.acknowledged = truth.acknowledged.max(durable);
                }
                Ok(Asked::Told(batch.len() as u64))
            }
            Some(Err(error)) => match *error.kind() {
                ErrorKind::Compacted { requested, compacted, .. }
                    if compacted > requested && compacted <= model.compacted() =>
                {
                    let again = Self::begin(store, self.range.clone(), compacted);
                    *self = match again {
                        Err(_) if tolerant => return Ok(Asked::Failed),
                        again => good(|| "watch again".into(), again)?,
                    };
                    Ok(Asked::Ended)
                }
                _ if tolerant => Ok(Asked::Failed),
                _ => Err(format!("a watch: {error:?}")),
            },
        }
    }

    fn batch(&self, batch: &Batch, truth: &Truth) -> Found {
        let revision = batch.revision();
        let transaction = truth.model.transaction(revision);
        let before = truth.model.state_at(revision - 1);
        let changes = transaction.changes.iter().filter(|change| self.range.contains(&change.key));
        let expected: Vec<(ChangeKind, KeyValue, Option<KeyValue>)> = changes
            .map(|change| {
                let kv = KeyValue {
                    key: change.key.clone(),
                    value: change.value.clone().unwrap_or_default(),
                    create_revision: change.create_revision,
                    mod_revision: revision,
                    version: change.version,
                    lease: change.lease,
                };
                (change.kind, kv, before.get(&change.key).cloned())
            })
            .collect();
        let events = batch.events().iter();
        let told: Vec<_> =
            events.map(|event| (event.kind, event.kv.clone(), event.prev_kv.clone())).collect();
        same(|| format!("events of {revision}"), &told, &expected)?;
        same(|| format!("time of {revision}"), &batch.time(), &transaction.time)?;
        same(|| format!("metadata of {revision}"), batch.metadata(), &transaction.metadata)
    }
}
