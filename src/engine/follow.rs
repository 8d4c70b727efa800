//! Following the store: every visible transaction from a revision on, each once, in order, for ever.
//!
//! Who follows reads frames in memory as they come, and falls back on the EVENTS files where it has lagged
//! behind the flush. It keeps a generation only while it reads in it and the tables have it, too: one that
//! is slow must not keep memory that commits need.
//!
//! What has not been told is pinned, so no compaction gets ahead of who follows; who has seen everything
//! pins the revision that comes next, which delays nothing.

use annals_format::space;

use crate::commit::Until;
use crate::error::{Error, Result};
use crate::index::{FrameCursor, FrameRef, Position};
use crate::options::Durability;
use crate::sync::Arc;
use crate::sync::epoch;

use super::attend::Attendant;
use super::core::Core;
use super::door::Door;
use super::log::{Log, damaged_frame, transaction_of_frame, users_changes};
use super::pins::Pin;
use super::record::{Events, Transaction};
use super::scan::end_of_space;

/// How much of frames one step goes through, about, unless a single one is larger.
const STEP_BYTES: usize = 1 << 20;

/// A place in the order of transactions that moves on with the store. It does not keep that open.
#[derive(Debug)]
pub(crate) struct Follow {
    core: Arc<Core>,
    pin: Arc<Pin>,
    /// The first revision that has not been told.
    next: u64,
    /// Everything visible up to this frame has been told.
    seen: u64,
    source: Source,
    /// Who is rung when there is more.
    called: Option<Attendant>,
}

/// Where the next transaction is read.
#[derive(Debug)]
enum Source {
    /// Not looked for yet.
    Unknown,
    /// In the frames of the generation of this number.
    Memory(FrameCursor, u64),
    /// In files; up to this revision.
    Files(Box<Log>, u64),
}

/// A transaction that somebody who follows sees.
#[derive(Debug)]
pub(crate) enum Seen<'a> {
    /// In memory.
    Frame(FrameRef<'a>),
    /// From a file, with the values that EVENTS repeat.
    Events(Transaction),
}

impl Seen<'_> {
    /// Its revision.
    pub(crate) fn revision(&self) -> u64 {
        match self {
            Self::Frame(frame) => frame.position().revision,
            Self::Events(transaction) => transaction.revision,
        }
    }

    /// The users' keys it changed, without the space byte, by sub. Copies nothing.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let (frame, transaction) = match self {
            Self::Frame(frame) => (Some(frame), None),
            Self::Events(transaction) => (None, Some(transaction)),
        };
        let of_frame = frame.into_iter().flat_map(users_changes).map(|(key, _)| key);
        let of_events = transaction.into_iter().flat_map(|transaction| &transaction.events);
        of_frame.chain(of_events.map(|event| &event.key[..]))
    }

    /// The whole of it, to keep; with `values` those that are at hand (see [`Log::with_values`]).
    ///
    /// # Errors
    /// A frame in memory is damaged.
    pub(crate) fn decode(&self, values: bool) -> Result<Transaction> {
        let mut decoded = match self {
            // Without a restriction there is always one.
            Self::Frame(frame) => transaction_of_frame::<Events>(frame, None, values)
                .map_err(|error| damaged_frame(&error))?,
            Self::Events(transaction) => transaction.clone(),
        };
        if !values {
            decoded.events.iter_mut().for_each(|event| event.value = None);
        }
        Ok(decoded)
    }

    /// About how much has been read for it.
    fn bytes(&self) -> usize {
        match self {
            Self::Frame(frame) => frame.bytes().len(),
            Self::Events(transaction) => {
                let value = |value: &bytes::Bytes| value.len();
                let sizes = transaction.events.iter();
                sizes.map(|event| event.key.len() + event.value.as_ref().map_or(0, value)).sum()
            }
        }
    }
}

impl Follow {
    /// Begins with revision `next`, which may be one that is not there yet.
    ///
    /// # Errors
    /// `Compacted` if any key is not kept as far back; `Closed`.
    pub(crate) fn at(door: &Door, next: u64) -> Result<Self> {
        let core = Arc::clone(&door.0);
        core.check_open()?;
        let next = next.max(1);
        let (pin, limits) = core.pins.pin(next, || core.limits_at(next))?;
        if let Some(limits) = limits {
            let start = [space::USER];
            limits.check(&start[..]..&end_of_space(&start), next)?;
        }
        let pin = Arc::new(pin);
        Ok(Self { core, pin, next, seen: 0, source: Source::Unknown, called: None })
    }

    /// The first revision that has not been told.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Tells `see` what is visible and has not been told: `most` transactions at most, and about 1 MiB.
    /// Answers the revision up to which everything has been told. Without background threads or beside
    /// them, it waits for nothing but files.
    ///
    /// # Errors
    /// What reading a file answers: then the same is tried again by the next step. `Poisoned` when all has
    /// been told and no more will come; `Closed`.
    pub(crate) fn step(&mut self, most: usize, see: &mut dyn FnMut(&Seen<'_>)) -> Result<u64> {
        self.core.check_open()?;
        self.let_go_of_what_is_flushed();
        // Before the tables: what is visible now is in them.
        let visible = self.core.visible();
        let (mut told, mut bytes) = (0, 0);
        let mut see = |seen: &Seen<'_>| {
            bytes += seen.bytes();
            see(seen);
            bytes
        };
        while self.next <= visible.revision && told < most {
            let before = self.next;
            let bytes = self.tell_next(visible, &mut see)?;
            told += usize::from(self.next > before);
            if bytes >= STEP_BYTES {
                break;
            }
        }
        self.pin.advance(self.next);
        if self.next > visible.revision {
            self.seen = visible.seq;
            if told == 0
                && let Some(error) = self.end(visible)
            {
                return Err(error);
            }
        }
        Ok(self.next - 1)
    }

    /// For the thread of an attendant, before it goes to sleep: has it rung once there is more, or never
    /// will be. False if that is so already; then it is not to sleep, but to take another step.
    pub(crate) fn rest(&mut self, me: &Attendant) -> bool {
        if self.called.is_none() {
            self.core.shared.add_follower(me);
            self.called = Some(me.clone());
        }
        self.let_go();
        let until = match self.core.options.durability {
            Durability::Buffered => Until::Applied,
            Durability::Sync => Until::Durable,
        };
        let sleeps = self.core.chain.tell_when(until, self.seen);
        // After that: who has failed since rings.
        sleeps && self.end(self.core.visible()).is_none()
    }

    /// Why nothing will come after what is visible, if so. After a failure of background work what was ordered
    /// before still does, but nobody begins to write any more.
    fn end(&self, visible: Position) -> Option<Error> {
        let core = &self.core;
        if let Some(cause) = core.chain.poison() {
            return Some(Core::poisoned(&cause));
        }
        let cause = core.failed.get()?;
        (visible.seq >= core.chain.applied().seq).then(|| Core::poisoned(cause))
    }

    /// For one who takes no step for long: keeps no memory, so that its generation may be flushed meanwhile.
    pub(crate) fn let_go(&mut self) {
        if matches!(self.source, Source::Memory(..)) {
            self.source = Source::Unknown;
        }
    }

    /// Tells the next transaction, or finds out where it is. Answers what `see` did, or 0.
    fn tell_next(
        &mut self,
        visible: Position,
        see: &mut dyn FnMut(&Seen<'_>) -> usize,
    ) -> Result<usize> {
        match &mut self.source {
            Source::Unknown => self.source = self.find(visible),
            Source::Memory(frames, _) => {
                while let Some(frame) = frames.next(visible.seq) {
                    let revision = frame.position().revision;
                    if frame.takes_revision() && revision >= self.next {
                        self.next = revision + 1;
                        return Ok(see(&Seen::Frame(frame)));
                    }
                }
                // The rest is in a later generation.
                self.source = Source::Unknown;
            }
            Source::Files(log, upto) => match log.next() {
                Some(Ok(transaction)) => {
                    self.next = transaction.revision + 1;
                    return Ok(see(&Seen::Events(transaction)));
                }
                Some(Err(error)) => {
                    self.source = Source::Unknown;
                    return Err(error);
                }
                None => {
                    self.next = self.next.max(*upto + 1);
                    self.source = Source::Unknown;
                }
            },
        }
        Ok(0)
    }

    /// Where the next transaction is, which is visible.
    fn find(&self, visible: Position) -> Source {
        let tables = self.core.shared.tables();
        // Newest first: every later one begins at or after the transaction.
        let found = tables.generations.iter().find(|g| g.first().revision < self.next);
        if let Some(generation) = found {
            return Source::Memory(generation.frames_before(self.next), generation.id());
        }
        // What is before the oldest generation is in files.
        let oldest = tables.generations.last().map_or(u64::MAX, |g| g.first().revision);
        let upto = visible.revision.min(oldest);
        let log = Log::of_files(&tables.files, (self.next, upto), &self.pin);
        Source::Files(Box::new(log), upto)
    }

    /// A generation that was flushed is read on in its files.
    fn let_go_of_what_is_flushed(&mut self) {
        if let Source::Memory(_, id) = self.source {
            let guard = epoch::pin();
            let generations = &self.core.shared.tables.load(&guard).generations;
            if generations.iter().all(|generation| generation.id() != id) {
                self.source = Source::Unknown;
            }
        }
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        if let Some(called) = &self.called {
            self.core.shared.remove_follower(called);
        }
    }
}
