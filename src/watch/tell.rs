//! From a transaction to what one watch tells of it.

use bytes::Bytes;

use crate::engine::{Door, Event as Changed, Log, Scope, Transaction, View};
use crate::error::{ErrorKind, Result};
use crate::kv::{ChangeKind, KeyRange, KeyValue, key_value, space};

use super::batch::{Batch, Event, Events, Gathering};

/// What of the changes in its range a watch wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a wish of its own")]
pub(super) struct Wants {
    pub(super) puts: bool,
    pub(super) deletes: bool,
    pub(super) keys_only: bool,
    pub(super) prev_kv: bool,
    /// Bytes after which a batch is cut.
    pub(super) fragment: Option<usize>,
}

impl Wants {
    /// Whether a transaction is told just as the log has it.
    const fn as_it_is(&self) -> bool {
        self.puts && self.deletes && !self.keys_only && !self.prev_kv && self.fragment.is_none()
    }
}

/// The log of what happened to a range within a span of revisions.
///
/// # Errors
/// `Compacted` if the range is not kept as far back as `from`; `Closed`.
pub(super) fn log_of(
    door: &Door,
    range: &KeyRange,
    (from, upto): (u64, u64),
    wants: &Wants,
) -> Result<Log> {
    let (start, end) = space::user_range(range);
    let mut log = door.log(from, upto, Scope::Range(&start, &end))?;
    if !wants.keys_only {
        log.with_values();
    }
    Ok(log)
}

/// What a watch of `range` tells of a transaction that others may want, too; `view` answers the state as
/// of it. Values of that up to `copied_max` are copied; answers whether all were: a longer one may be a part of a file.
///
/// # Errors
/// What `view` and its reads answer.
pub(super) fn tell(
    transaction: &Transaction,
    range: &KeyRange,
    wants: &Wants,
    copied_max: usize,
    view: impl Fn() -> Result<View>,
    each: &mut impl FnMut(Batch),
) -> Result<bool> {
    let Transaction { revision, time, metadata, events } = transaction;
    let events = events.iter().filter(|changed| range.contains(&changed.key)).cloned();
    let mut owned = true;
    let own = |value: Bytes| {
        if value.len() <= copied_max {
            return Bytes::copy_from_slice(&value);
        }
        owned = false;
        value
    };
    tell_changes((*revision, *time, metadata), events, wants, view, own, each)?;
    Ok(owned)
}

/// Tells what comes next in a log that was [read for this watch](log_of); answers its revision.
///
/// # Errors
/// What reading answers.
pub(super) fn tell_next(
    log: &mut Log,
    door: &Door,
    wants: &Wants,
    each: &mut impl FnMut(Batch),
) -> Result<Option<u64>> {
    if wants.as_it_is() {
        return tell_whole(log, door, each);
    }
    let Some(transaction) = log.next().transpose()? else { return Ok(None) };
    let Transaction { revision, time, metadata, events } = transaction;
    let (head, view) = ((revision, time, &metadata), || Ok(door.view_of_log(log.held(), revision)));
    tell_changes(head, events.into_iter(), wants, view, |value| value, each)?;
    Ok(Some(revision))
}

/// As [`tell_next`], to a watch that is told all just as it is.
fn tell_whole(log: &mut Log, door: &Door, each: &mut impl FnMut(Batch)) -> Result<Option<u64>> {
    let Some(mut gathered) = log.next_as::<Gathering>().transpose()? else { return Ok(None) };
    let revision = gathered.revision();
    if gathered.lacks_values {
        let view = door.view_of_log(log.held(), revision);
        // A value that is empty is looked up in vain, too.
        let lacks = |event: &&mut Event| event.kind == ChangeKind::Put && event.kv.value.is_empty();
        for event in gathered.events_mut().iter_mut().filter(lacks) {
            let record = view.get(&space::user(&event.kv.key))?;
            event.kv.value = record.map(|record| record.value).unwrap_or_default();
        }
    }
    each(gathered.into_batch());
    Ok(Some(revision))
}

fn tell_changes(
    head: (u64, i64, &Bytes),
    changes: impl Iterator<Item = Changed>,
    wants: &Wants,
    view: impl Fn() -> Result<View>,
    mut own: impl FnMut(Bytes) -> Bytes,
    each: &mut impl FnMut(Batch),
) -> Result<()> {
    let mut seen = None;
    // As many at most, and of most transactions these.
    let mut events = Events::with_capacity(changes.size_hint().1.unwrap_or(0));
    for mut changed in changes {
        if !(if changed.delete { wants.deletes } else { wants.puts }) {
            continue;
        }
        let internal = |changed: &Changed| space::user(&changed.key);
        let value = match changed.value.take() {
            _ if changed.delete || wants.keys_only => Bytes::new(),
            Some(value) => value,
            None => once(&mut seen, &view)?
                .get(&internal(&changed))?
                .map(|record| own(record.value))
                .unwrap_or_default(),
        };
        let prev_kv = if wants.prev_kv {
            let before = once(&mut seen, &view)?.previous(&internal(&changed))?;
            before.map(key_value).map(|kv| KeyValue { value: own(kv.value), ..kv })
        } else {
            None
        };
        events.push(event(changed, head.0, value, prev_kv, wants.keys_only));
    }
    // Of a large transaction few may be in the range.
    if events.len() < events.capacity() / 2 {
        events.shrink_to_fit();
    }
    Batch::of(head, events, wants.fragment, each);
    Ok(())
}

/// The view, made if it is not there yet.
fn once<'a>(seen: &'a mut Option<View>, view: &impl Fn() -> Result<View>) -> Result<&'a View> {
    if seen.is_none() {
        *seen = Some(view()?);
    }
    seen.as_ref().ok_or_else(|| ErrorKind::Closed.into())
}

fn event(
    changed: Changed,
    revision: u64,
    value: Bytes,
    prev_kv: Option<KeyValue>,
    keys_only: bool,
) -> Event {
    let kv = KeyValue {
        key: changed.key,
        value,
        create_revision: changed.create_revision,
        mod_revision: revision,
        version: changed.version,
        lease: changed.lease,
    };
    let prev_kv =
        prev_kv.map(|kv| if keys_only { KeyValue { value: Bytes::new(), ..kv } } else { kv });
    let kind = if changed.delete { ChangeKind::Delete } else { ChangeKind::Put };
    Event { kind, kv, prev_kv }
}
