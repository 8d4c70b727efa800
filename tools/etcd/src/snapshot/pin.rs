//! All that a database takes from a store, of one moment.

use annals::{ErrorKind, Lease, LeaseIter, Log, Result, Store, Transaction, View};

/// How often a moment is looked for at which there are no leases, between two looks at the revision that find the same.
const LOOKS_MAX: u32 = 10_000;
/// The first revision at which anything changes.
const FIRST: u64 = 2;

/// A store as of one revision, with all before it that is kept.
pub(super) struct Pinned {
    pub(super) store: Store,
    pub(super) revision: u64,
    /// The oldest revision at which all keys can be read; 0 if nothing was ever forgotten.
    pub(super) compacted: u64,
    /// The state at that, if anything was before it.
    pub(super) base: Option<View>,
    /// The transactions from that revision on, this one too if it is still told: the first, and the rest.
    pub(super) first: Option<Transaction>,
    pub(super) rest: Option<Log>,
    /// The leases: each that a key has at `revision` is there.
    pub(super) leases: Leases,
    /// Whether a key is alive at `revision`.
    pub(super) is_alive: bool,
}

pub(super) type Leases = std::iter::Chain<std::option::IntoIter<Result<Lease>>, LeaseIter>;

impl Pinned {
    pub(super) fn of(store: &Store) -> Result<Self> {
        loop {
            let compacted = store.oldest_readable(..);
            match Self::since(store, compacted) {
                // A compaction came between two looks at the store.
                Err(error) if is_compacted(&error) => {
                    if store.oldest_readable(..) == compacted {
                        return Err(error);
                    }
                }
                pinned => return pinned,
            }
        }
    }

    fn since(store: &Store, compacted: u64) -> Result<Self> {
        let base = if compacted >= FIRST { Some(store.at(compacted)?) } else { None };
        let (revision, leases) = leases(store)?;
        let first = compacted.max(FIRST);
        let mut rest = (first <= revision).then(|| store.log(first..=revision).with_values());
        // That it is refused is told by the first item.
        let first = rest.as_mut().and_then(Iterator::next).transpose()?;
        let newest = store.at(revision.max(1))?;
        let is_alive = newest.range(..).keys_only().limit(1).next().transpose()?.is_some();
        Ok(Self { store: store.clone(), revision, compacted, base, first, rest, leases, is_alive })
    }
}

/// The leases, and the revision they are of. A lease ends in one transaction with its keys, and begins before them:
/// so no key of that revision has a lease that is not there.
fn leases(store: &Store) -> Result<(u64, Leases)> {
    let mut looks = 0;
    loop {
        let before = store.latest()?.revision();
        let mut leases = store.leases();
        let first = leases.next().transpose()?;
        let revision = match &first {
            Some(lease) => lease.revision,
            None => store.latest()?.revision(),
        };
        looks += 1;
        // Of no lease nobody tells the revision.
        if first.is_some() || revision == before || looks == LOOKS_MAX {
            return Ok((revision, first.map(Ok).into_iter().chain(leases)));
        }
    }
}

fn is_compacted(error: &annals::Error) -> bool {
    matches!(error.kind(), ErrorKind::Compacted { .. })
}
