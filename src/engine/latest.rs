//! One read, of the newest visible state or of an earlier one, without a view.
//!
//! A [`View`](super::view::View) costs a pin, an allocation and several counts that committers share
//! cache lines with. It needs them because its reads come later than the moment it shows. One read,
//! answered at once, needs none of that, by this argument:
//!
//! 1. The place (the newest visible state) is taken *while certain tables are in force*: they are loaded
//!    before and after, and are the same value. It cannot be another value at the same address, as the
//!    guard keeps the first from being freed.
//! 2. Tables have everything that is visible while they are in force: a generation is published before the
//!    first version in it becomes visible, so had the place been one that needs newer tables, the second
//!    load would have found these.
//! 3. What background work left out of them when it made them, it left out by the durable watermark of
//!    then, or by less because of pins. The place is not before that watermark: a watermark is never
//!    above the last revision of its state, durable states come one after the other, and the place was
//!    taken after the tables were found in force. At a watermark and after it everything can be read. The
//!    same goes for the floor of a rule of retention, which is durable before anything is left out by it.
//! 4. Their files hold only what was durable when they were made, so nothing after the place: which
//!    would matter in the system space, where newer versions take the place of older ones.
//! 5. Tables never change, and stay until the guard is gone: the memory with their generations, the files
//!    with what keeps them readable when they have lost their names. What a read returns owns its bytes.
//!
//! A read as of an earlier revision goes by the same tables, which have what it asks for: everything up to the
//! place, as its revision is not after that, but for what was left out when they were made. That was decided
//! by floors (the watermark, and those of rules) that were in force before the tables were. The reader looks
//! at the floors after it has loaded them, so it finds those or later ones, and floors never fall: if it may
//! read the revision by these, nothing was left out that it can see.
//!
//! So nothing that becomes of the store meanwhile changes the answer. A thread that holds the guard
//! delays the freeing of memory by one read, as any other reader does.

use std::ptr;

use crate::error::Result;
use crate::index::Place;
use crate::sync::epoch::{self, Guard};

use super::core::Core;
use super::read;
use super::record::Record;
use super::scan::at_for;
use super::tables::Tables;
use super::view::View;

impl Core {
    /// The value of an internal key in the newest visible state, and the revision of that state.
    pub(super) fn get_latest(&self, key: &[u8]) -> Result<(u64, Option<Record>)> {
        let guard = epoch::pin();
        let (tables, place) = self.settled(&guard, || self.visible_place_under(&guard))?;
        let found = read::get(tables, key, at_for(key, place.position))?;
        Ok((place.position.revision, found))
    }

    /// The value of an internal key of users as of a revision.
    ///
    /// # Errors
    /// As `View::at` and `View::get`.
    pub(super) fn get_at(&self, key: &[u8], revision: u64) -> Result<Option<Record>> {
        let guard = epoch::pin();
        let (tables, place) = self.settled(&guard, || self.visible_place_under(&guard))?;
        View::check_revision(revision, place.position)?;
        if let Some(limits) = self.limits_at(revision)? {
            limits.check_key(key, revision)?;
        }
        read::get(tables, key, revision)
    }

    /// A place that `now` answers, and tables that were in force at that moment.
    pub(super) fn settled<'g>(
        &self,
        guard: &'g Guard,
        mut now: impl FnMut() -> Place,
    ) -> Result<(&'g Tables, Place)>
    where
        Self: 'g,
    {
        loop {
            self.check_open()?;
            let tables = self.shared.tables.load(guard);
            let place = now();
            if ptr::eq(tables, self.shared.tables.load(guard)) {
                return Ok((tables, place));
            }
        }
    }
}
