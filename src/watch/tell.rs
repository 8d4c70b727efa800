//! From a transaction to what one watch tells of it.

use bytes::Bytes;

use crate::engine::{Door, Event as Changed, Log, Scope, Transaction, View};
use crate::error::{ErrorKind, Result};
use crate::kv::{ChangeKind, KeyRange, KeyValue, key_value, space};

use super::batch::{Batch, Event};

/// What of the changes in its range a watch wants to know.
#[derive(Clone, Debug)]
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

/// What a watch of `range` tells of a transaction; `view` answers the state as of it.
///
/// # Errors
/// What `view` and its reads answer.
pub(super) fn tell(
    transaction: &Transaction,
    range: &KeyRange,
    wants: &Wants,
    view: impl Fn() -> Result<View>,
    each: &mut impl FnMut(Batch),
) -> Result<()> {
    let mut seen = None;
    let mut events = Vec::new();
    for changed in transaction.events.iter().filter(|changed| range.contains(&changed.key)) {
        if !(if changed.delete { wants.deletes } else { wants.puts }) {
            continue;
        }
        let internal = || space::user(&changed.key);
        let value = match &changed.value {
            _ if changed.delete || wants.keys_only => Bytes::new(),
            Some(value) => value.clone(),
            None => once(&mut seen, &view)?
                .get(&internal())?
                .map(|record| record.value)
                .unwrap_or_default(),
        };
        let prev_kv = if wants.prev_kv {
            once(&mut seen, &view)?.previous(&internal())?.map(key_value)
        } else {
            None
        };
        events.push(event(changed, transaction.revision, value, prev_kv, wants.keys_only));
    }
    let Transaction { revision, time, metadata, .. } = transaction;
    Batch::of((*revision, *time, metadata), events, wants.fragment, each);
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
    changed: &Changed,
    revision: u64,
    value: Bytes,
    prev_kv: Option<KeyValue>,
    keys_only: bool,
) -> Event {
    let kv = KeyValue {
        key: changed.key.clone(),
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
