//! From a transaction to what one watch tells of it.

use bytes::Bytes;

use crate::engine::{Door, Event as Changed, Log, Scope, Transaction, View};
use crate::error::{ErrorKind, Result};
use crate::kv::{ChangeKind, KeyRange, KeyValue, key_value, space};

use super::batch::{Batch, Event, Events};

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

/// As [`tell`], of a transaction that was read for this watch, and tells what is in its range only.
///
/// # Errors
/// What `view` and its reads answer.
pub(super) fn tell_own(
    transaction: Transaction,
    wants: &Wants,
    view: impl Fn() -> Result<View>,
    each: &mut impl FnMut(Batch),
) -> Result<()> {
    let Transaction { revision, time, metadata, events } = transaction;
    tell_changes((revision, time, &metadata), events.into_iter(), wants, view, |value| value, each)
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
