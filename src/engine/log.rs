//! The log of transactions: what changed, in revision order.
//!
//! Old transactions lie in the EVENTS files, the ones not yet flushed in the frames of the memtable
//! generations. The log is one piece after the other, read as it is asked for.

use std::collections::VecDeque;

use annals_format::events::{self, EventKind, EventRef};
use annals_format::{DecodeError, Frame, space};
use bytes::Bytes;
use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::index::{Change, FrameCursor, FrameRef, Version};
use crate::segment::{Replay, Replayed, Segment};
use crate::sync::Arc;

use super::copies::Copies;
use super::core::Core;
use super::pins::Pin;
use super::record::{Event, Events, Gather, Transaction};
use super::retention::Limits;
use super::scan::end_of_space;
use super::tables::{FileSet, SealedFile, Tables};

/// Events for which room is made before they are read.
const EVENTS_BELIEVED: usize = 64;

/// Values in memory up to this size are copied where they are met; longer ones are looked up, and then
/// shared.
const COPIED_BYTES_MAX: usize = 1024;

/// The transactions of a span of revisions, ascending. After an error it ends.
///
/// From when it is made it holds on to its first revision: a compaction that overtakes it takes nothing
/// from it, nor from the [states](super::View::of_log) at its transactions.
#[derive(Debug)]
pub(crate) struct Log {
    upto: u64,
    /// Frames beyond this are not visible.
    seq: u64,
    files: VecDeque<Arc<SealedFile>>,
    replay: Option<Replay>,
    /// Where what is told of files is copied to.
    copies: Copies,
    /// Oldest first.
    generations: VecDeque<FrameCursor>,
    done: bool,
    with_values: bool,
    /// What is told, if not every change.
    told: Option<Told>,
    held: Held,
}

/// What a log holds on to: the states from its first revision on. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(super) from: u64,
    pub(super) pin: Arc<Pin>,
    /// Which keys can be read as of `from`, where not all can.
    pub(super) limits: Option<Arc<Limits>>,
}

/// A transaction where it lies: in memory, or in a block of a file.
#[derive(Debug)]
pub(crate) struct TransactionRef<'a> {
    pub(crate) revision: u64,
    pub(crate) time: i64,
    pub(crate) metadata: &'a [u8],
    /// What it changed, by sub.
    pub(crate) events: SmallVec<[EventRef<'a>; 1]>,
}

/// The changes that are told: those in a half-open range of users' keys, without the space byte.
#[derive(Debug)]
pub(super) struct Told {
    start: Vec<u8>,
    /// None is the end of the space.
    end: Option<Vec<u8>>,
}

impl Told {
    fn has(&self, key: &[u8]) -> bool {
        key >= &self.start[..] && self.end.as_ref().is_none_or(|end| key < &end[..])
    }
}

/// What of the transactions somebody wants to know.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scope<'a> {
    /// All that they changed.
    All,
    /// What they changed in a half-open range of internal keys of users; the empty end is the end of
    /// the space. Transactions that changed nothing there are left out.
    Range(&'a [u8], &'a [u8]),
}

impl Log {
    /// The visible transactions with a revision in [`from`, `upto`].
    ///
    /// # Errors
    /// `Compacted` if a key that is asked about is not kept as far back as `from`; `Closed`.
    pub(super) fn open(core: &Core, from: u64, upto: u64, scope: Scope<'_>) -> Result<Self> {
        core.check_open()?;
        let visible = core.visible();
        let oldest = from.max(1);
        let (start, end) = match scope {
            Scope::All => (&[space::USER][..], end_of_space(&[space::USER])),
            Scope::Range(start, []) => (start, end_of_space(start)),
            Scope::Range(start, end) => (start, end.to_vec()),
        };
        let pinned = core.pins.pin(oldest, || core.limits_at(oldest));
        let limits = match &pinned {
            Ok((_, limits)) => limits.clone(),
            // No key can be read there; but say from where on these can.
            Err(_) => Some(Arc::new(core.limits_with(core.compacted()))),
        };
        if let Some(limits) = &limits
            && start < end.as_slice()
        {
            limits.check(start..&end, oldest)?;
        }
        let (pin, limits) = pinned?;
        let span = (from, upto.min(visible.revision));
        let mut log = Self::new(&core.shared.tables(), span, visible.seq, (pin, limits));
        if let Scope::Range(start, end) = scope {
            let user = |key: &[u8]| key.get(1..).unwrap_or_default().to_vec();
            let end = (!end.is_empty()).then(|| user(end));
            log.told = Some(Told { start: user(start), end });
        }
        Ok(log)
    }

    /// The transactions with a revision in [`from`, `upto`] that lie in files, with the values these repeat.
    /// `pin` holds on to `from`.
    pub(super) fn of_files(files: &FileSet, (from, upto): (u64, u64), pin: &Arc<Pin>) -> Self {
        Self {
            upto,
            seq: 0,
            files: events_of(files, from, upto),
            replay: None,
            copies: Copies::default(),
            generations: VecDeque::new(),
            done: from > upto,
            with_values: true,
            told: None,
            held: Held { from, pin: Arc::clone(pin), limits: None },
        }
    }

    /// The transactions with a revision in [`from`, `upto`], of those visible at `seq`.
    fn new(
        tables: &Tables,
        (from, upto): (u64, u64),
        seq: u64,
        (pin, limits): (Pin, Option<Arc<Limits>>),
    ) -> Self {
        let generations = tables.generations.iter().rev();
        let generations = generations.filter(|g| g.last().is_none_or(|last| last.revision >= from));
        Self {
            upto,
            seq,
            files: events_of(&tables.files, from, upto),
            replay: None,
            copies: Copies::default(),
            generations: generations.map(|g| g.frames_before(from)).collect(),
            done: from > upto,
            with_values: false,
            told: None,
            held: Held { from, pin: Arc::new(pin), limits },
        }
    }

    /// Gives the values that are at hand: those in memory, and those that EVENTS repeat.
    pub(crate) fn with_values(&mut self) {
        self.with_values = true;
    }

    /// What keeps the states at its transactions readable.
    pub(crate) fn held(&self) -> &Held {
        &self.held
    }

    /// The next transaction, its changes gathered as whoever asks wants them.
    pub(crate) fn next_as<C: Gather>(&mut self) -> Option<Result<C::Whole>> {
        self.step(|found, told, values| match found {
            Found::Entry(entry, copies) => transaction_of_events::<C>(copies, entry, told, values),
            Found::Frame(frame) => transaction_of_frame::<C>(&frame, told, values).map(Some),
        })
    }

    /// Shows `see` the next transaction where it lies. Copies nothing.
    pub(crate) fn see_next<T>(
        &mut self,
        mut see: impl FnMut(TransactionRef<'_>) -> T,
    ) -> Option<Result<T>> {
        self.step(|found, told, values| match found {
            Found::Entry(entry, _) => Ok(entry_in_place(entry, told, values)?.map(&mut see)),
            Found::Frame(frame) => {
                frame_in_place(&frame, told, values).map(|found| Some(see(found)))
            }
        })
    }

    /// What `read` makes of the next transaction of which something is told. After an error, or the end, there is
    /// none.
    #[inline]
    fn step<T>(
        &mut self,
        read: impl FnMut(Found<'_>, Option<&Told>, bool) -> std::result::Result<Option<T>, DecodeError>,
    ) -> Option<Result<T>> {
        if self.done {
            return None;
        }
        let step = self.find(read);
        self.done |= !matches!(step, Ok(Some(_)));
        step.transpose()
    }

    #[inline]
    fn find<T>(
        &mut self,
        mut read: impl FnMut(
            Found<'_>,
            Option<&Told>,
            bool,
        ) -> std::result::Result<Option<T>, DecodeError>,
    ) -> Result<Option<T>> {
        let (from, told, values) = (self.held.from, self.told.as_ref(), self.with_values);
        loop {
            if let Some(replay) = &mut self.replay {
                while let Some(entry) = replay.next()? {
                    if entry.revision >= self.upto {
                        if entry.revision > self.upto {
                            return Ok(None);
                        }
                        // What comes behind it is not looked at, which might be damaged.
                        self.done = true;
                    }
                    match read(Found::Entry(&entry, &mut self.copies), told, values) {
                        Ok(None) if self.done => return Ok(None),
                        Ok(None) => {}
                        Ok(made) => return Ok(made),
                        Err(error) => return Err(replay.damaged(&error)),
                    }
                }
                self.replay = None;
            }
            let Some(file) = self.files.pop_front() else { break };
            self.replay = Some(file.open()?.replay(from)?);
        }
        while let Some(frames) = self.generations.front_mut() {
            while let Some(frame) = frames.next(self.seq) {
                let revision = frame.position().revision;
                if !frame.takes_revision() || revision < from {
                    continue;
                }
                if revision > self.upto {
                    return Ok(None);
                }
                if told.is_some_and(|told| !users_changes(&frame).any(|(key, _)| told.has(key))) {
                    continue;
                }
                let read = read(Found::Frame(frame), told, values);
                return read.map_err(|error| damaged_frame(&error));
            }
            self.generations.pop_front();
        }
        Ok(None)
    }
}

/// Where a transaction was found.
enum Found<'a> {
    /// In EVENTS, with the place where copies of it are made.
    Entry(&'a Replayed<'a>, &'a mut Copies),
    /// In memory.
    Frame(FrameRef<'a>),
}

impl Iterator for Log {
    type Item = Result<Transaction>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_as::<Events>()
    }
}

impl std::iter::FusedIterator for Log {}

/// The EVENTS files with revisions in [`from`, `upto`], oldest first.
fn events_of(files: &FileSet, from: u64, upto: u64) -> VecDeque<Arc<SealedFile>> {
    let wanted = |file: &&Arc<SealedFile>| {
        file.meta().max_revision >= from && file.meta().min_revision <= upto
    };
    files.events.iter().filter(wanted).cloned().collect()
}

/// A transaction from EVENTS; `None` if it changed nothing of what is told.
///
/// All of it is copied: who keeps a part of it does not keep a whole block. Where all of it is told it is
/// copied with what comes after it, else only what is told.
#[inline]
fn transaction_of_events<C: Gather>(
    copies: &mut Copies,
    found: &Replayed<'_>,
    told: Option<&Told>,
    with_values: bool,
) -> std::result::Result<Option<C::Whole>, DecodeError> {
    let revision = found.revision;
    if told.is_none()
        && with_values
        && let Some((piece, value)) = copies.ahead(found)
    {
        return transaction_of_value::<C>(revision, value, None, true, |part| {
            piece.slice_ref(part)
        });
    }
    transaction_of_value::<C>(revision, found.value, told, with_values, |part| copies.copy(part))
}

/// A transaction from its value in EVENTS, of which `keep` makes what outlives it.
#[inline]
fn transaction_of_value<C: Gather>(
    revision: u64,
    value: &[u8],
    told: Option<&Told>,
    with_values: bool,
    mut keep: impl FnMut(&[u8]) -> Bytes,
) -> std::result::Result<Option<C::Whole>, DecodeError> {
    let decoded = events::Transaction::decode(value)?;
    // More events have to prove first that they are there.
    let count = usize::try_from(decoded.count).unwrap_or(usize::MAX).min(EVENTS_BELIEVED);
    let mut events = C::with_room(if told.is_none() { count } else { 0 });
    let mut any = told.is_none();
    for event in decoded.events() {
        let event = event?;
        if told.is_some_and(|told| !told.has(event.key)) {
            continue;
        }
        any = true;
        events.add(Event {
            key: keep(event.key),
            value: event.value.filter(|_| with_values).map(&mut keep),
            delete: event.kind == EventKind::Delete,
            sub: event.sub,
            create_revision: event.create_revision,
            version: event.version,
            lease: event.lease,
        });
    }
    if !any {
        return Ok(None);
    }
    let metadata = keep(decoded.metadata);
    Ok(Some(events.whole(revision, decoded.time, metadata)))
}

/// A transaction in the memory of its block; `None` if it changed nothing of what is told.
#[inline]
fn entry_in_place<'a>(
    entry: &Replayed<'a>,
    told: Option<&Told>,
    with_values: bool,
) -> std::result::Result<Option<TransactionRef<'a>>, DecodeError> {
    let decoded = events::Transaction::decode(entry.value)?;
    let mut events = SmallVec::new();
    for event in decoded.events() {
        let event = event?;
        if told.is_none_or(|told| told.has(event.key)) {
            events.push(EventRef { value: event.value.filter(|_| with_values), ..event });
        }
    }
    if told.is_some() && events.is_empty() {
        return Ok(None);
    }
    let (revision, time, metadata) = (entry.revision, decoded.time, decoded.metadata);
    Ok(Some(TransactionRef { revision, time, metadata, events }))
}

/// Decodes all transactions of an EVENTS file.
///
/// # Errors
/// One cannot be decoded, or what reading the file answers.
pub(super) fn check_transactions(segment: &Arc<Segment>) -> Result<()> {
    let mut replay = segment.replay(0)?;
    while let Some(found) = replay.next()? {
        let decoded = events::Transaction::decode(found.value);
        let decoded = decoded
            .and_then(|transaction| transaction.events().try_for_each(|event| event.map(drop)));
        if let Err(error) = decoded {
            return Err(replay.damaged(&error));
        }
    }
    Ok(())
}

/// The transaction of a frame in place, with those of its changes that are told.
fn frame_in_place<'a>(
    frame: &FrameRef<'a>,
    told: Option<&Told>,
    with_values: bool,
) -> std::result::Result<TransactionRef<'a>, DecodeError> {
    let position = frame.position();
    let told = users_changes(frame).filter(|(key, _)| told.is_none_or(|told| told.has(key)));
    let events = told.map(|(key, Change { version, .. })| {
        let delete = version.is_tombstone();
        EventRef {
            kind: if delete { EventKind::Delete } else { EventKind::Put },
            key,
            sub: version.sub(),
            create_revision: version.create_revision(),
            version: version.version(),
            lease: version.lease(),
            value_bytes: version.value().len() as u64,
            value: (with_values && !delete).then(|| version.value()),
        }
    });
    Ok(TransactionRef {
        revision: position.revision,
        time: position.time,
        metadata: metadata_of(frame)?,
        events: events.collect(),
    })
}

/// The transaction of a frame, with those of its changes that are told.
pub(super) fn transaction_of_frame<C: Gather>(
    frame: &FrameRef<'_>,
    told: Option<&Told>,
    with_values: bool,
) -> std::result::Result<C::Whole, DecodeError> {
    let position = frame.position();
    let value = |version: &Version| {
        // A delete has none, in memory as in EVENTS.
        let wanted =
            with_values && !version.is_tombstone() && version.value().len() <= COPIED_BYTES_MAX;
        wanted.then(|| Bytes::copy_from_slice(version.value()))
    };
    let mut events = C::with_room(0);
    for (key, Change { version, .. }) in users_changes(frame) {
        if told.is_none_or(|told| told.has(key)) {
            events.add(Event {
                key: Bytes::copy_from_slice(key),
                value: value(version),
                delete: version.is_tombstone(),
                sub: version.sub(),
                create_revision: version.create_revision(),
                version: version.version(),
                lease: version.lease(),
            });
        }
    }
    let metadata = Bytes::copy_from_slice(metadata_of(frame)?);
    Ok(events.whole(position.revision, position.time, metadata))
}

/// The changes of users' keys, with these, without the space byte.
pub(super) fn users_changes<'a>(
    frame: &FrameRef<'a>,
) -> impl Iterator<Item = (&'a [u8], Change<'a>)> {
    frame.changes().filter_map(|change| {
        let (&space, key) = change.key.key().split_first()?;
        (space == space::USER).then_some((key, change))
    })
}

/// The metadata of a frame in memory.
pub(super) fn metadata_of<'a>(frame: &FrameRef<'a>) -> std::result::Result<&'a [u8], DecodeError> {
    Ok(Frame::view(frame.bytes())?.0.metadata)
}

/// The error for a frame in memory that does not decode.
pub(super) fn damaged_frame(error: &DecodeError) -> Error {
    Error::invalid(format!("a frame in memory is damaged: {error}"))
}
