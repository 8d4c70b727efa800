//! Writes a rebuilt store: the base, what came behind it, and what the system knows.
//!
//! A version of which the value is lost stands in the new store without it, unless it belongs to the base, where an older one
//! stands for it, or none. When all is written, the keys of which that is the
//! newest are brought back to what they were before, or deleted; and every key that has one gives up its past up to what
//! superseded it. Until then the directory is no store, so nobody is ever told such a version.

use std::collections::BTreeMap;
use std::path::Path;

use annals::inspect::{LostPast, StoreFiles};
use annals::{ErrorKind, KeyValue, LEASE_TTL_MAX, Load, Loading, Origin};
use bytes::Bytes;

use super::lost::Lost;
use super::past::{self, Past};
use super::rebuild::{Gathered, retention};
use super::salvage::Salvage;
use crate::args::Global;
use crate::exit::Outcome;

/// What was made.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// The leases that are lost, with how many keys have each.
    pub(super) dangling: BTreeMap<i64, u64>,
    /// The keys of which some of the past is lost.
    pub(super) past: Vec<LostPast>,
    /// The revisions that brought keys back to what they were before what is lost, the first and the last.
    pub(super) brought_back: Option<(u64, u64)>,
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
    /// The version itself, without its value, as all since this revision.
    Bare(u64),
    /// An older one, of this revision, or none.
    Older(Option<u64>),
}

/// The versions that are lost.
#[derive(Debug, Default)]
struct LostVersions {
    pending: BTreeMap<Bytes, Pending>,
    /// Keys whose past is lost, and up to where.
    past: BTreeMap<Bytes, u64>,
    /// Whether any stands in the new store without its value.
    has_bare: bool,
}

impl LostVersions {
    /// What was lost of a key was superseded.
    fn superseded(&mut self, key: &Bytes, revision: u64) -> Option<Pending> {
        let before = self.pending.remove(key)?;
        let upto = self.past.entry(key.clone()).or_default();
        *upto = revision.max(*upto);
        Some(before)
    }

    /// A version that is lost has superseded what was there `before`.
    fn bare(&mut self, key: Bytes, revision: u64, before: Option<Pending>) {
        let since = match before.map(|before| before.stands) {
            Some(Stands::Bare(since)) => since,
            _ => revision,
        };
        self.has_bare = true;
        self.pending.insert(key, Pending { revision, stands: Stands::Bare(since) });
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
            for change in transaction.changes {
                unknown.written(&change.key, revision);
                dangling.remove(&change.key);
                let before = versions.superseded(&change.key, revision);
                if is_lost(change.lease) {
                    dangling.insert(change.key.clone(), change.lease);
                }
                if past.is_lost(revision, &change.key) {
                    versions.bare(change.key, revision, before);
                }
            }
        }
    }
    lost.entries(unknown.left(), newest_gaps);
    let mut made = Made::default();
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
    finish(files, loading, versions, past.is_some(), (&mut made, lost))?;
    Ok(Some(made))
}

/// Makes it a store, when nobody can read any more what is lost.
fn finish(
    files: &StoreFiles,
    loading: Loading,
    versions: LostVersions,
    has_past: bool,
    (made, lost): (&mut Made, &mut Lost),
) -> Outcome {
    let LostVersions { pending, mut past, has_bare } = versions;
    let mut newest = loading.revision();
    let mut target = loading.finish_apart()?;
    let bare = pending.iter().filter_map(|(key, pending)| match pending.stands {
        Stands::Bare(since) => Some((key.to_vec(), since)),
        Stands::Older(_) => None,
    });
    let bare: Vec<_> = bare.collect();
    let back;
    (target, back) = target.bring_back(&bare)?;
    let mut kept = back.kept.into_iter();
    for (key, Pending { revision, stands }) in &pending {
        let kept = match stands {
            Stands::Older(kept) => *kept,
            Stands::Bare(_) => kept.next().flatten(),
        };
        lost.key(key, *revision, kept);
    }
    newest = back.revisions.map_or(newest, |(_, last)| last);
    past.extend(pending.into_keys().map(|key| (key, newest)));
    // Without a past there is none to give up.
    if has_past && !past.is_empty() {
        let past = files.past_of_keys(past.iter().map(|(key, upto)| (&key[..], *upto)));
        let given_up;
        (target, given_up) = target.give_up(&past, has_bare)?;
        (made.past, made.added) = (given_up.past, given_up.added);
    }
    made.brought_back = back.revisions;
    Ok(target.finish()?)
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
        versions.bare(kv.key.clone(), kv.mod_revision, None);
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
