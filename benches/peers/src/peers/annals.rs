//! annals itself: a compare-and-swap is a compare-and-put, a modification is one, a window is as many tickets.

use std::ops::{Bound, ControlFlow};
use std::path::Path;

use annals::{Durability, Modified, Modify, Options, Outcome, Store, Ticket, put};

use crate::peer::{Cas, Groups, Level, Peer, Result, Visit, VisitKey};

#[derive(Debug)]
pub struct Annals(Store);

pub fn open(dir: &Path, level: Level) -> Result<Box<dyn Peer>> {
    let durability = if level == Level::Sync { Durability::Sync } else { Durability::Buffered };
    Ok(Box::new(Annals(Options::new().durability(durability).open(dir)?)))
}

impl Annals {
    fn submit(&self, cas: Cas<'_>) -> Result<Ticket> {
        Ok(match cas.seen {
            Some(seen) => self.0.submit_compare_and_put(cas.key, seen, cas.value)?,
            None => self.0.submit_modify(cas.key, |_| Modify::put(cas.value))?,
        })
    }
}

impl Peer for Annals {
    fn load(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<u64> {
        let submit =
            |(key, value): &(Vec<u8>, Vec<u8>)| self.0.txn().then([put(key, value)]).submit();
        let tickets: Vec<Ticket> = pairs.iter().map(submit).collect::<annals::Result<_>>()?;
        let mut last = 1;
        for ticket in tickets {
            last = ticket.wait()?.revision;
        }
        Ok(last)
    }

    fn cas(&self, cas: Cas<'_>) -> Result<Option<u64>> {
        Ok(match cas.seen {
            Some(seen) => match self.0.compare_and_put(cas.key, seen, cas.value)? {
                Outcome::Committed { revision } => Some(revision),
                _ => None,
            },
            None => match self.0.modify(cas.key, |_| Modify::put(cas.value))? {
                Modified::Committed { revision } => Some(revision),
                Modified::Unchanged { .. } => None,
            },
        })
    }

    fn cas_window(&self, window: &[Cas<'_>]) -> Result<Vec<Option<u64>>> {
        let tickets: Vec<Ticket> =
            window.iter().map(|&cas| self.submit(cas)).collect::<Result<_>>()?;
        let mut answers = Vec::with_capacity(tickets.len());
        for ticket in tickets {
            let answer = ticket.wait()?;
            answers.push(answer.succeeded.then_some(answer.revision));
        }
        Ok(answers)
    }

    fn groups(&self) -> Option<Groups> {
        let stats = self.0.stats();
        Some(Groups { commits: stats.batch_transactions, syncs: stats.batches })
    }

    fn get(&self, key: &[u8], at: Option<u64>, visit: Visit<'_>) -> Result<bool> {
        let found = match at {
            None => self.0.get(key)?,
            Some(at) => self.0.get_at(key, at)?,
        };
        if let Some(kv) = &found {
            visit(kv.mod_revision, &kv.value);
        }
        Ok(found.is_some())
    }

    fn scan(
        &self,
        from: &[u8],
        below: &[u8],
        limit: usize,
        at: Option<u64>,
        visit: VisitKey<'_>,
    ) -> Result<usize> {
        let view = match at {
            None => self.0.latest()?,
            Some(at) => self.0.at(at)?,
        };
        let mut count = 0;
        let bounds = (Bound::Included(from), Bound::Excluded(below));
        for kv in view.range(bounds).limit(limit as u64) {
            let kv = kv?;
            visit(&kv.key, kv.mod_revision, &kv.value);
            count += 1;
        }
        Ok(count)
    }

    fn replay(&self, from: u64, limit: usize, visit: VisitKey<'_>) -> Result<Option<usize>> {
        let mut told = 0;
        let broke = self.0.log(from..).with_values().visit(|transaction| {
            for change in transaction.changes() {
                visit(change.key, transaction.revision(), change.value.unwrap_or(&[]));
                told += 1;
            }
            if told >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        broke?;
        Ok(Some(told))
    }

    fn forget(&self, upto: u64, _: usize) -> Result<Option<bool>> {
        if upto > 0 {
            self.0.compact(upto)?;
        }
        Ok(Some(false))
    }

    fn settle(&mut self) -> Result<()> {
        Ok(self.0.reorganise()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.0.close()?;
        Ok(())
    }
}
