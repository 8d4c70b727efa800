//! Writes a rebuilt store: the base, what came behind it, and what the system knows.
//!
//! A version of which the value is lost stands in the new store without it. When all is written, the keys of which that is the
//! newest are brought back to what they were before, or deleted; and every key that has one gives up its past up to what
//! superseded it. Until then the directory is no store, so nobody is ever told such a version.

use std::collections::BTreeMap;
use std::path::Path;

use annals::inspect::{LostPast, StoreFiles};
use annals::{
    Change, ChangeKind, ErrorKind, KeyValue, LEASE_TTL_MAX, Load, Loading, Origin, Transaction,
};
use bytes::Bytes;

use super::past::{self, Past};
use super::rebuild::{Gathered, retention};
use super::salvage::Salvage;
use crate::args::Global;
use crate::exit::Outcome;

/// What values that keys are brought back to may take. Keys of which the value is more are deleted.
const BROUGHT_BACK_BYTES: usize = 32 << 20;

/// What was made.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// The leases that are lost, with how many keys have each.
    pub(super) dangling: BTreeMap<i64, u64>,
    /// The keys of which some of the past is lost.
    pub(super) past: Vec<LostPast>,
    /// The revision that brought keys back to what they were before what is lost.
    pub(super) brought_back: Option<u64>,
    /// One that changes nothing.
    pub(super) added: Option<u64>,
}

/// A version of a key that is lost, and was not superseded so far.
#[derive(Clone, Copy, Debug)]
struct Pending {
    revision: u64,
    stands: Stands,
}

/// What is in the place of a version that is lost.
#[derive(Clone, Copy, Debug)]
enum Stands {
    /// The version itself, without its value.
    Bare,
    /// An older one, of this revision, or none.
    Older(Option<u64>),
}

/// The versions that are lost.
#[derive(Debug, Default)]
struct LostVersions {
    pending: BTreeMap<Bytes, Pending>,
    /// Keys whose past is lost, and up to where.
    past: BTreeMap<Bytes, u64>,
}

impl LostVersions {
    fn superseded(&mut self, key: &Bytes, revision: u64) {
        if self.pending.remove(key).is_some() {
            let upto = self.past.entry(key.clone()).or_default();
            *upto = revision.max(*upto);
        }
    }
}

/// Writes the store, and notes the keys of which something newer was written than what was found. No key has a lease that
/// is not there, so leases that are lost are granted anew, with the longest time there is. `None` where the past does not
/// follow from what it begins with.
pub(super) fn load(
    global: &Global,
    (files, to): (&StoreFiles, &Path),
    gathered: &mut Gathered,
    past: Option<&Past>,
) -> Outcome<Option<Made>> {
    let Gathered { salvage, rules_known, lost, .. } = gathered;
    let mut rules = Vec::new();
    if *rules_known {
        rules.extend(salvage.rules().map(|(prefix, rule)| (prefix.to_vec(), *rule)));
    }
    if salvage.events_damaged {
        // What they say of a key may have been long over.
        salvage.unknown.forget();
    }
    // The keys whose lease is lost.
    let mut dangling: BTreeMap<Bytes, i64> = BTreeMap::new();
    let mut versions = LostVersions::default();
    let load = base(global, to, salvage, past, &mut dangling, &mut versions)?;
    let Salvage { leases, newest_gaps, unknown, .. } = salvage;
    let is_lost =
        |lease: i64| lease != 0 && !leases.get(&lease).is_some_and(|(_, lease)| lease.is_some());
    let mut loading = load.begin()?;
    let mut time = 0;
    if let Some(past) = past {
        for transaction in past.transactions() {
            let transaction = transaction?;
            match loading.transaction(&transaction) {
                Err(error) if matches!(error.kind(), ErrorKind::InvalidArgument { .. }) => {
                    return Ok(None);
                }
                done => done?,
            }
            let revision = transaction.revision;
            time = transaction.time;
            for change in transaction.changes {
                unknown.written(&change.key, revision);
                dangling.remove(&change.key);
                versions.superseded(&change.key, revision);
                if is_lost(change.lease) {
                    dangling.insert(change.key.clone(), change.lease);
                }
                if past.is_lost(revision, &change.key) {
                    versions.pending.insert(change.key, Pending { revision, stands: Stands::Bare });
                }
            }
        }
    }
    lost.entries(unknown.left(), newest_gaps);
    let mut made = Made::default();
    let pending = std::mem::take(&mut versions.pending);
    let (mut back, mut bytes) = (Vec::new(), 0_usize);
    for (key, Pending { revision, stands }) in &pending {
        let kept = match stands {
            Stands::Older(kept) => *kept,
            Stands::Bare => {
                let mut before = before(&loading, past, key, *revision)?;
                bytes += before.as_ref().map_or(0, |before| before.value.len());
                before.take_if(|_| bytes > BROUGHT_BACK_BYTES);
                let kept = before.as_ref().map(|before| before.mod_revision);
                dangling.remove(key);
                if let Some(before) = before.as_ref().filter(|before| is_lost(before.lease)) {
                    dangling.insert(key.clone(), before.lease);
                }
                back.push((key, before));
                kept
            }
        };
        lost.key(key, *revision, kept);
    }
    made.brought_back = bring_back(&mut loading, time, back)?;
    let newest = loading.revision();
    versions.past.extend(pending.into_keys().map(|key| (key, newest)));
    for (id, (_, lease)) in &*leases {
        if let Some(lease) = lease {
            loading.lease(*id, lease.ttl, lease.remaining)?;
        }
    }
    for lease in dangling.into_values() {
        *made.dangling.entry(lease).or_default() += 1;
    }
    for id in made.dangling.keys() {
        loading.lease(*id, LEASE_TTL_MAX, None)?;
    }
    for (prefix, rule) in rules {
        loading.set_retention(prefix, retention(&rule))?;
    }
    // Without a past there is none to give up.
    if versions.past.is_empty() || past.is_none() {
        loading.finish()?.close()?;
        return Ok(Some(made));
    }
    let past = files.past_of_keys(versions.past.iter().map(|(key, upto)| (&key[..], *upto)));
    let (target, given_up) = loading.finish_apart()?.give_up(&past)?;
    target.finish()?;
    (made.past, made.added) = (given_up.past, given_up.added);
    Ok(Some(made))
}

/// Writes what the store begins with.
fn base(
    global: &Global,
    to: &Path,
    salvage: &mut Salvage,
    past: Option<&Past>,
    dangling: &mut BTreeMap<Bytes, i64>,
    versions: &mut LostVersions,
) -> Outcome<Load> {
    let compacted = match past {
        // Of one that was never compacted there is no base.
        Some(past) if past.from <= 1 => 0,
        Some(past) => past.from,
        // What follows the base begins with the next revision.
        None => salvage.revision.max(2),
    };
    let origin = match past {
        None => Origin { time: salvage.time, ..Origin::default() },
        Some(past) if salvage.last.0 == past.from => {
            Origin { time: salvage.last.1, metadata: salvage.last.2.clone() }
        }
        // It is not known when that was, but that it was not later than this.
        Some(past) => Origin { time: past.time_behind()?, ..Origin::default() },
    };
    let Salvage { keys, leases, .. } = salvage;
    let is_lost =
        |lease: i64| lease != 0 && !leases.get(&lease).is_some_and(|(_, lease)| lease.is_some());
    let mut load = Load::create(to, &past::sparing(global)?, compacted, &origin)?;
    let none = BTreeMap::new();
    let mut stand_ins = past.map_or(&none, |past| &past.stand_ins).iter().peekable();
    let stand = |load: &mut Load, versions: &mut LostVersions, stands: &Option<KeyValue>| {
        let Some(kv) = stands else { return Ok(()) };
        let pending = Pending { revision: kv.mod_revision, stands: Stands::Bare };
        versions.pending.insert(kv.key.clone(), pending);
        load.base(kv, 0)
    };
    keys.each(&mut |key, found| {
        while let Some((other, stands)) = stand_ins.next_if(|(other, _)| *other <= key) {
            stand(&mut load, versions, stands)?;
            if other == key {
                return Ok(());
            }
        }
        if let Some((revision, kept)) = found.lost() {
            versions.pending.insert(key.clone(), Pending { revision, stands: Stands::Older(kept) });
        }
        let Some(newest) = &found.newest else { return Ok(()) };
        match &newest.alive {
            Some(kv) => {
                if is_lost(kv.lease) {
                    dangling.insert(key.clone(), kv.lease);
                }
                Ok(load.base(kv, newest.sub)?)
            }
            None if past.is_some() && newest.revision == compacted => {
                Ok(load.base_deleted(key, newest.sub)?)
            }
            None => Ok(()),
        }
    })?;
    for (_, stands) in stand_ins {
        stand(&mut load, versions, stands)?;
    }
    Ok(load)
}

/// What a key was before a revision, as far as it is known; `None` where it was not there, or nothing is known of it.
fn before(
    loading: &Loading,
    past: Option<&Past>,
    key: &Bytes,
    mut revision: u64,
) -> Outcome<Option<KeyValue>> {
    let Some(past) = past else { return Ok(None) };
    while revision > past.from.max(1) {
        let Some(found) = loading.get_at(key, revision - 1)? else { return Ok(None) };
        if !past.is_lost(found.mod_revision, key) {
            // What stands for the base's is not what there was.
            let is_known = found.mod_revision > past.from || !past.stand_ins.contains_key(key);
            return Ok(Some(found).filter(|_| is_known));
        }
        revision = found.mod_revision;
    }
    Ok(None)
}

/// Brings keys back to what they were, or deletes them, in one transaction; answers its revision.
fn bring_back(
    loading: &mut Loading,
    time: i64,
    keys: Vec<(&Bytes, Option<KeyValue>)>,
) -> Outcome<Option<u64>> {
    let newest = loading.revision();
    let mut changes = Vec::new();
    for (key, before) in keys {
        let Some(now) = loading.get_at(key, newest)? else { continue };
        changes.push(back(now, before, changes.len()));
    }
    if changes.is_empty() {
        return Ok(None);
    }
    let revision = newest + 1;
    loading.transaction(&Transaction { revision, time, metadata: Bytes::new(), changes })?;
    Ok(Some(revision))
}

/// The change that brings a key back to what it was, or deletes it.
fn back(now: KeyValue, before: Option<KeyValue>, place: usize) -> Change {
    let sub = u32::try_from(place).unwrap_or(u32::MAX);
    match before {
        Some(before) => Change {
            kind: ChangeKind::Put,
            key: now.key,
            sub,
            create_revision: now.create_revision,
            version: now.version + 1,
            lease: before.lease,
            value: Some(before.value),
        },
        None => Change {
            kind: ChangeKind::Delete,
            key: now.key,
            sub,
            create_revision: 0,
            version: 0,
            lease: 0,
            value: None,
        },
    }
}
