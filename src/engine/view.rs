//! A reader's fixed revision.

use std::ops::Range;

use annals_format::space::is_system;

use crate::error::{ErrorKind, Result};
use crate::index::{Place, Position, Stub};
use crate::sync::Arc;
use crate::sync::epoch::{self, Guard};

use super::core::Core;
use super::count::count;
use super::diff::Diff;
use super::history::History;
use super::log::Held;
use super::pins::Pin;
use super::read;
use super::record::Record;
use super::retention::Limits;
use super::scan::{Scan, end_of_space};
use super::tables::Tables;

/// The store as of one revision. It stays readable whatever is written or compacted meanwhile, and
/// keeps nobody waiting; all it costs is that reclaim leaves what it can see. After the store is
/// closed it answers `Closed`.
///
/// Each read of the system space is as of now, unless the view was taken
/// [of both spaces](Self::latest_of_both_spaces).
#[derive(Clone, Debug)]
pub(crate) struct View {
    core: Arc<Core>,
    pin: Arc<Pin>,
    /// The state: its position, and the watermark when the view was taken.
    place: Place,
    /// Which keys can be read, where not all can: as it was when the view was taken.
    limits: Option<Arc<Limits>>,
    /// Where the system space is found as of the position; without it, it is read as of now.
    system: Option<Arc<Tables>>,
}

impl View {
    /// The newest visible state.
    pub(super) fn latest(core: &Arc<Core>) -> Result<Self> {
        loop {
            core.check_open()?;
            let place = core.visible_place();
            // If it is compacted, or a part of it, very much happened since: then the newest is another
            // one by now.
            let revision = place.position.revision;
            if let Ok((pin, None)) = core.pins.pin(revision, || core.limits_at(revision)) {
                return Ok(Self::new(core, pin, place, None));
            }
        }
    }

    /// The newest visible state, the system space included: what is read there belongs to the
    /// revision of the view, however many reads it takes.
    ///
    /// It keeps the tables of its moment, since those of later ones may know only newer versions.
    pub(super) fn latest_of_both_spaces(core: &Arc<Core>) -> Result<Self> {
        loop {
            let tables = core.shared.tables();
            let view = Self::latest(core)?;
            // These are the tables of the moment at which the view was taken, if they are still in
            // force: they know everything up to its position, and their files nothing after it.
            if core.shared.tables.load(&epoch::pin()).is_same(&tables) {
                return Ok(Self { system: Some(Arc::new(tables)), ..view });
            }
        }
    }

    /// The state as of a visible revision.
    pub(super) fn at(core: &Arc<Core>, revision: u64) -> Result<Self> {
        core.check_open()?;
        // Held to the end: what asks for a guard meanwhile gets it without a fence.
        let guard = epoch::pin();
        Self::within(core, revision, core.visible_place_under(&guard))
    }

    /// The state as of a revision that is not above that of `newest`.
    pub(super) fn within(core: &Arc<Core>, revision: u64, newest: Place) -> Result<Self> {
        let position = newest.position;
        Self::check_revision(revision, position)?;
        let (pin, limits) = core.pins.pin(revision, || core.limits_at(revision))?;
        let time = if revision == position.revision { position.time } else { i64::MIN };
        let position = Position { revision, time, ..position };
        Ok(Self::new(core, pin, Place { position, ..newest }, limits))
    }

    /// Refuses a revision that is none, or not yet one of the newest state.
    pub(super) fn check_revision(revision: u64, newest: Position) -> Result<()> {
        if revision > newest.revision {
            let (requested, current) = (revision, newest.revision);
            return Err(ErrorKind::FutureRevision { requested, current }.into());
        }
        if revision == 0 {
            return Err(crate::Error::invalid("revisions begin with 1"));
        }
        Ok(())
    }

    /// The state as of a transaction that a log has told, also when it has been compacted since: what
    /// the log holds on to keeps it readable.
    pub(super) fn of_log(core: &Arc<Core>, held: &Held, revision: u64) -> Self {
        debug_assert!(revision >= held.from, "the log holds on to nothing older");
        let newest = core.visible_place();
        let position = Position { revision, time: i64::MIN, ..newest.position };
        let place = Place { position, ..newest };
        let (pin, limits) = (Arc::clone(&held.pin), held.limits.clone());
        Self { core: Arc::clone(core), pin, place, limits, system: None }
    }

    fn new(core: &Arc<Core>, pin: Pin, place: Place, limits: Option<Arc<Limits>>) -> Self {
        Self { core: Arc::clone(core), pin: Arc::new(pin), place, limits, system: None }
    }

    /// The revision it shows.
    pub(crate) fn revision(&self) -> u64 {
        self.place.position.revision
    }

    /// The revision it shows, with the seq that was visible when the view was taken. The time is
    /// that of the newest transaction seen, or `i64::MIN` in a view of an older revision.
    pub(crate) fn position(&self) -> Position {
        self.place.position
    }

    /// The watermark when the view was taken.
    pub(crate) fn compacted(&self) -> u64 {
        self.place.compacted
    }

    /// Fails where the key cannot be read: the store is closed, or it is not kept that far back.
    fn check_key(&self, key: &[u8]) -> Result<()> {
        self.core.check_open()?;
        self.limits.as_ref().map_or(Ok(()), |limits| limits.check_key(key, self.revision()))
    }

    /// The same for a range; an empty `end` is the end of the space.
    fn check_range(&self, start: &[u8], end: &[u8]) -> Result<()> {
        self.core.check_open()?;
        let Some(limits) = &self.limits else { return Ok(()) };
        match end {
            [] => limits.check(start..&end_of_space(start), self.revision()),
            _ if start < end => limits.check(start..end, self.revision()),
            _ => Ok(()),
        }
    }

    /// Refuses to read a half-open range of internal keys, which may be empty, as of `requested`.
    ///
    /// # Errors
    /// `Compacted`.
    pub(crate) fn check_past(&self, range: Range<&[u8]>, requested: u64) -> Result<()> {
        self.core.check_past(range, requested, self.compacted())
    }

    /// The value of an internal key.
    ///
    /// # Errors
    /// `Compacted` if the rule of the key does not keep it that far back; `Closed`.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Record>> {
        self.check_key(key)?;
        let guard = epoch::pin();
        read::get(self.tables_for(key, &guard), key, self.at_for(key))
    }

    /// The newest version of a key, tombstones included, without its value.
    pub(crate) fn newest(&self, key: &[u8]) -> Result<Option<Stub>> {
        self.check_key(key)?;
        let guard = epoch::pin();
        let tables = self.tables_for(key, &guard);
        read::newest(tables, key, self.at_for(key))
    }

    /// The living keys of a range of internal keys; an empty `end` is the end of the space.
    pub(crate) fn scan(&self, start: &[u8], end: &[u8], keys_only: bool) -> Scan {
        let (at, pin) = (self.at_for(start), Some(Arc::clone(&self.pin)));
        let tables = self.tables_for(start, &epoch::pin()).clone();
        let mut scan = Scan::new(tables, at, (start, end), keys_only, pin);
        scan.refused = self.check_range(start, end).err();
        scan
    }

    /// How many keys of a range live; an empty `end` is the end of the space. What it costs is said in
    /// [`count`](super::count).
    pub(crate) fn count(&self, start: &[u8], end: &[u8]) -> Result<u64> {
        self.check_range(start, end)?;
        let tables = self.tables_for(start, &epoch::pin()).clone();
        count(&tables, (start, end), self.at_for(start))
    }

    /// All versions of a key up to the view's revision, newest first.
    pub(crate) fn history(&self, key: &[u8], keys_only: bool) -> History {
        // In this order: what is missing in the tables died before a watermark that is seen then.
        let tables = self.core.shared.tables();
        let watermark = self.core.floor_of(key).min(self.revision());
        let span = (self.at_for(key), if is_system(key) { u64::MAX } else { watermark });
        let pin = Some(Arc::clone(&self.pin));
        let mut history = History::new(&tables, key, span, keys_only, pin);
        history.refused = self.check_key(key).err();
        history
    }

    /// The keys of a range whose state differs between revision `from` and the view's.
    ///
    /// # Errors
    /// `Compacted`, or `FutureRevision` if `from` is above the view's revision; `Closed`.
    pub(crate) fn diff(&self, from: u64, start: &[u8], end: &[u8]) -> Result<Diff> {
        self.core.check_open()?;
        let older = Self::within(&self.core, from, self.place)?;
        older.check_range(start, end)?;
        let end = if end.is_empty() { end_of_space(start) } else { end.to_vec() };
        let pins = vec![Arc::clone(&self.pin), older.pin];
        Ok(Diff::new(self.core.shared.tables(), (from, self.revision()), start, end, pins))
    }

    /// The state of a user's key just before the view's revision: what an event there has replaced. It is
    /// there also for events exactly at the watermark, since a version is kept as long as its death may be.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(crate) fn previous(&self, key: &[u8]) -> Result<Option<Record>> {
        self.check_key(key)?;
        let guard = epoch::pin();
        read::get(self.tables_for(key, &guard), key, self.revision().saturating_sub(1))
    }

    fn at_for(&self, key: &[u8]) -> u64 {
        if !is_system(key) {
            return self.revision();
        }
        // Without the tables of its moment the system space is read as of now, as far as it is
        // visible.
        self.system.as_ref().map_or_else(|| self.core.visible().seq, |_| self.place.position.seq)
    }

    fn tables_for<'a>(&'a self, key: &[u8], guard: &'a Guard) -> &'a Tables {
        match &self.system {
            Some(tables) if is_system(key) => tables,
            _ => self.core.shared.tables.load(guard),
        }
    }
}
