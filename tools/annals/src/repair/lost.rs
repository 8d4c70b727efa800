//! What a repair could not save, as far as it is known by name.

use annals_format::FileKind;
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};

use super::mend::Gap;
use super::salvage::KeyGap;
use crate::bytes::{json as bytes_json, show};
use crate::exit::Outcome;
use crate::files::key_cell;
use crate::output::Output;

/// Lines about keys on standard error; a document has all of them.
const KEYS_TOLD: usize = 20;

/// Transactions of the log that are lost.
#[derive(Debug, Serialize)]
pub(super) struct LostRevisions {
    from: u64,
    /// `None`: it is not known where they end.
    upto: Option<u64>,
    /// How many of them can be read, but were left out.
    readable: u64,
}

/// Keys and revisions that are lost.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// A key, the revision that is lost, and the one that is there instead, if any.
    pub(super) keys: Vec<Value>,
    pub(super) revisions: Vec<LostRevisions>,
    /// Whether something of the log is lost that was no transaction: of rules of retention, leases or compactions.
    pub(super) records: bool,
    /// Revisions, from the first to the last, of which it is not known who wrote them, and when.
    pub(super) origins: Vec<Gap>,
    /// Newest versions, at most, that are named nowhere else, and the keys that they are between.
    pub(super) entries: u64,
    between: Vec<String>,
    told: Vec<String>,
}

impl Lost {
    /// Whether nothing is known to be lost.
    pub(super) fn is_empty(&self) -> bool {
        self.has_all_written() && self.origins.is_empty()
    }

    /// Whether all that was written is there.
    pub(super) fn is_only_origins(&self) -> bool {
        self.has_all_written() && !self.origins.is_empty()
    }

    /// Before this revision nothing can be read, so it is no loss that it is not known who wrote it.
    pub(super) fn forget_origins(&mut self, floor: u64) {
        self.origins.retain(|(_, last)| *last >= floor);
        for (first, _) in &mut self.origins {
            *first = floor.max(*first);
        }
    }

    /// Whether every key is what it was last.
    pub(super) fn has_all_written(&self) -> bool {
        self.keys.is_empty() && self.revisions.is_empty() && self.entries == 0
    }

    /// Newest versions of keys within these gaps, of which nothing is known.
    pub(super) fn entries(&mut self, count: u64, gaps: &[KeyGap]) {
        self.entries += count;
        if count > 0 {
            let ends = |gap: &KeyGap| {
                let cell = |key: &[u8]| key_cell(FileKind::Head, key, 80);
                format!("{} and {}", cell(gap.start()), cell(gap.end()))
            };
            self.between.extend(gaps.iter().map(ends));
        }
    }

    /// The newest version of a key.
    pub(super) fn key(&mut self, key: &Bytes, revision: u64, kept: Option<u64>) {
        if self.told.len() < KEYS_TOLD {
            let kept =
                kept.map_or("it is not there".to_owned(), |kept| format!("it is as of {kept}"));
            self.told.push(format!("lost: {} at revision {revision}; {kept}", show(key, 80)));
        }
        self.keys.push(json!({ "key": bytes_json(key), "revision": revision, "kept": kept }));
    }

    /// Transactions of the log. `behind`: how many of those behind them are left out, too.
    pub(super) fn transactions(&mut self, from: u64, upto: Option<u64>, behind: u64) {
        self.revisions.push(LostRevisions { from, upto, readable: behind });
    }

    /// Whether a transaction after this revision, the newest that is left, is lost, as far as that is known.
    pub(super) fn reaches_behind(&self, newest: u64) -> bool {
        self.revisions.iter().any(|lost| lost.upto.is_none_or(|upto| upto > newest))
    }

    /// Whether no transaction is lost of those after `from`, up to `newest`.
    pub(super) fn has_all_between(&self, from: u64, newest: u64) -> bool {
        let is_outside =
            |lost: &LostRevisions| lost.from > newest || lost.upto.is_some_and(|upto| upto <= from);
        self.revisions.iter().all(is_outside)
    }

    /// Whether transactions can be read that are left out, as others before them are lost.
    pub(super) fn has_some_behind(&self) -> bool {
        self.revisions.iter().any(|lost| lost.readable > 0)
    }

    /// Says it on standard error.
    pub(super) fn tell(&self, out: &mut Output) -> Outcome {
        for line in &self.told {
            out.note(line)?;
        }
        if self.keys.len() > self.told.len() {
            let more = self.keys.len() - self.told.len();
            out.note(format_args!("lost: {more} keys more; -o json names them"))?;
        }
        for lost in &self.revisions {
            let LostRevisions { from, upto, readable } = lost;
            let upto = upto.map_or("on".to_owned(), |upto| format!("to {upto}"));
            let readable = match readable {
                0 => String::new(),
                count => format!("; {count} of these can be read: --newest saves them"),
            };
            out.note(format_args!("lost: revisions from {from} {upto}{readable}"))?;
        }
        if self.records {
            out.note("lost: of the log what was no transaction: rules of retention, leases or compactions")?;
        }
        if self.entries > 0 {
            let between = self.between.get(..KEYS_TOLD).unwrap_or(&self.between).join(", ");
            out.note(format_args!(
                "lost: up to {} newest versions, of keys between {between}: nothing tells which; such a key may be missing, or \
                 older than it was",
                self.entries
            ))?;
        }
        for (first, last) in &self.origins {
            out.note(format_args!("lost: who wrote revisions {first} to {last}, and when"))?;
        }
        Ok(())
    }
}
