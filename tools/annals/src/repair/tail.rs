//! The past that the log alone tells: of a store that cannot be opened, as something of its log is lost, say.
//!
//! Frames behind damage are as true as those before, and each says which versions it made. What they begin with is what was
//! found up to there, from which some may be missing: where the first change of a key behind that does not follow from it, the
//! key gives up its past up to that change ([`Past::follows`]).

use std::collections::BTreeMap;

use annals::inspect::StoreFiles;
use annals::{Change, ChangeKind, Transaction};
use annals_format::frame::{Frame, Op};
use annals_format::retention::Rule;
use annals_format::space::Key;
use bytes::Bytes;

use super::log::LogRead;
use super::past::Past;
use crate::exit::Outcome;
use crate::files::logs;

/// What the transactions may take in memory, about. Of more the oldest are given up: then they are what the others begin with.
const BYTES: usize = 32 << 20;

/// What a transaction, and each change, takes beside its bytes: about.
const OVERHEAD: usize = 128;

/// The transactions that follow each other, up to the newest.
#[derive(Default)]
struct Tail {
    transactions: BTreeMap<u64, Transaction>,
    bytes: usize,
    /// The sequence number that comes next.
    next_seq: u64,
    /// The newest revision so far.
    newest: u64,
    /// The last that is lost.
    lost: Option<u64>,
    /// What was before this revision is forgotten, by whatever rule of compaction or retention.
    floor: u64,
}

/// What the log tells behind the last that is lost of it, and behind what is in segments; `None` where that is nothing.
pub(super) fn of_log(files: &StoreFiles) -> Outcome<Option<Past>> {
    let manifest = files.manifest();
    let floors = manifest.floors.iter().map(|(_, floor)| *floor);
    let floor = floors.fold(manifest.compacted.max(manifest.flushed_revision), u64::max);
    let next_seq = manifest.flushed_seq.saturating_add(1);
    let newest = manifest.flushed_revision.max(1);
    let mut tail = Tail { next_seq, newest, floor, ..Tail::default() };
    let mut log = LogRead::new(manifest, false);
    for name in logs(files) {
        log.read(files, name, &mut |frame| tail.frame(frame))?;
    }
    let Tail { mut transactions, lost, floor, .. } = tail;
    // One that is in the log before what forgot it is forgotten.
    let transactions = transactions.split_off(&floor.saturating_add(1));
    Ok(Past::of_log(transactions, lost))
}

impl Tail {
    fn frame(&mut self, frame: &Frame<'_>) {
        let mut changes = Vec::new();
        for op in frame.ops() {
            let (key, value, lease) = match op.op {
                Op::Put { key, value, lease } => (key, Some(value), lease),
                Op::Delete { key } => (key, None, 0),
                Op::Compact { revision } => {
                    self.floor = self.floor.max(revision);
                    continue;
                }
            };
            match Key::decode(key) {
                Ok(Key::User(key)) => changes.push(Change {
                    kind: if value.is_some() { ChangeKind::Put } else { ChangeKind::Delete },
                    key: Bytes::copy_from_slice(key),
                    sub: op.sub,
                    create_revision: op.create_revision,
                    version: op.version,
                    lease,
                    value: value.map(Bytes::copy_from_slice),
                }),
                Ok(Key::Retention { .. }) => {
                    let rule = value.and_then(|value| Rule::decode(value).ok());
                    self.floor = self.floor.max(rule.map_or(0, |rule| rule.floor));
                }
                _ => {}
            }
        }
        let revision = frame.revision;
        let before = revision.saturating_sub(u64::from(frame.takes_revision()));
        if frame.seq != self.next_seq || before != self.newest {
            // A compaction, or what else forgets something, may be lost, too.
            self.begin_anew();
            self.lost = if before > self.newest { Some(before) } else { self.lost };
        }
        (self.next_seq, self.newest) = (frame.seq.saturating_add(1), revision);
        if !frame.takes_revision() {
            return;
        }
        if changes.is_empty() {
            // One that changes nothing cannot be written again.
            return self.begin_anew();
        }
        self.bytes += size(&changes);
        let (time, metadata) = (frame.time, Bytes::copy_from_slice(frame.metadata));
        self.transactions.insert(revision, Transaction { revision, time, metadata, changes });
        while self.bytes > BYTES
            && let Some((_, first)) = self.transactions.pop_first()
        {
            self.bytes -= size(&first.changes);
        }
    }

    /// What there is so far is not what follows.
    fn begin_anew(&mut self) {
        self.transactions.clear();
        self.bytes = 0;
    }
}

fn size(changes: &[Change]) -> usize {
    let value = |change: &Change| change.value.as_ref().map_or(0, Bytes::len);
    OVERHEAD + changes.iter().map(|one| OVERHEAD + one.key.len() + value(one)).sum::<usize>()
}
