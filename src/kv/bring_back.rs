//! Bringing keys of a store that is being put together back to what they were, or deleting them: those of which the newest
//! version has no value, as that is lost.

use annals_format::frame::PAYLOAD_BYTES_MAX;
use annals_format::limits::{KEY_BYTES_MAX, TRANSACTION_OPERATIONS_MAX, VALUE_BYTES_MAX};

use crate::engine::inspect::{BroughtBack, PutTogether};
use crate::error::{Error, ErrorKind, Result};
use crate::options::Options;

use super::build::delete;
use super::request::{Op, PutRequest};
use super::seam::Engine;
use super::store::Store;

/// What a transaction may take, unless one key takes more.
const BYTES_MAX: usize = 32 << 20;

/// How many keys it may have.
const KEYS_MAX: usize = 1_000_000;

impl PutTogether {
    /// Brings each of these keys back to what it was before a revision, as far as that can be read, else deletes it: in
    /// one transaction, or one for each 32 MiB and million keys. A key that is not deleted keeps its lease. The limits of
    /// the options do not hold.
    ///
    /// # Errors
    /// What opening, reading, writing and closing a store answer; `InvalidArgument` if somebody has put another store
    /// there meanwhile.
    pub fn bring_back(self, keys: &[(Vec<u8>, u64)]) -> Result<(Self, BroughtBack)> {
        if keys.is_empty() {
            return Ok((self, BroughtBack::default()));
        }
        let (path, options) = self.let_go();
        let (engine, report) = Engine::open_loading(&path, &unlimited(&options))?;
        let store = Store::over(engine, report)?;
        let mut back = BroughtBack::default();
        let (mut ops, mut bytes) = (Vec::<Op>::new(), 0);
        for (key, revision) in keys {
            let before = match store.get_at(key, revision.saturating_sub(1)) {
                Err(error) if !cannot_be_told(&error) => return Err(error),
                before => before.ok().flatten(),
            };
            let taken = key.len() + before.as_ref().map_or(0, |before| before.value.len());
            if ops.len() == KEYS_MAX || bytes + taken > BYTES_MAX && !ops.is_empty() {
                back.commit(&store, &mut ops)?;
                bytes = 0;
            }
            bytes += taken;
            back.kept.push(before.as_ref().map(|before| before.mod_revision));
            ops.push(match before {
                Some(before) => PutRequest::new(key, before.value).ignore_lease().into(),
                None => delete(key),
            });
        }
        back.commit(&store, &mut ops)?;
        store.close()?;
        Ok((Self::held(path, &options)?, back))
    }
}

impl BroughtBack {
    fn commit(&mut self, store: &Store, ops: &mut Vec<Op>) -> Result<()> {
        let done = store.txn().then(std::mem::take(ops)).commit()?;
        let (first, _) = self.revisions.unwrap_or((done.revision, 0));
        self.revisions = Some((first, done.revision));
        Ok(())
    }
}

/// What is forgotten, or damaged.
fn cannot_be_told(error: &Error) -> bool {
    error.corruption().is_some() || matches!(error.kind(), ErrorKind::Compacted { .. })
}

/// What the damaged store had, it could write.
fn unlimited(options: &Options) -> Options {
    let options = options.clone().background(false);
    options
        .key_bytes_max(KEY_BYTES_MAX)
        .value_bytes_max(VALUE_BYTES_MAX)
        .transaction_bytes_max(PAYLOAD_BYTES_MAX)
        .transaction_operations_max(TRANSACTION_OPERATIONS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Load, Origin, Store};

    const MIB: usize = 1 << 20;

    /// A store of ten values, each written twice, so far no store.
    fn put_together(dir: &std::path::Path, options: &Options) -> PutTogether {
        let original = tempfile::tempdir().unwrap();
        let store = Store::open(original.path()).unwrap();
        for value in [vec![1; 5 * MIB], vec![2; 10]] {
            for n in 0..10 {
                store.put(format!("k{n}"), value.clone()).unwrap();
            }
        }
        let mut loading =
            Load::create(dir, options, 0, &Origin::default()).unwrap().begin().unwrap();
        for transaction in store.log(1..).with_values() {
            loading.transaction(&transaction.unwrap()).unwrap();
        }
        loading.finish_apart().unwrap()
    }

    #[test]
    fn limits_of_the_options_and_room_in_a_transaction_keep_no_key_from_what_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Options::new().value_bytes_max(4).transaction_bytes_max(4096);
        let target = put_together(dir.path(), &limits);
        // Of the last nothing is there at that revision.
        let mut keys: Vec<_> = (0..9).map(|n| (format!("k{n}").into_bytes(), 12 + n)).collect();
        keys.push((b"k9".to_vec(), 3));
        let (target, back) = target.bring_back(&keys).unwrap();
        // 32 MiB have room for six.
        assert_eq!(back.revisions, Some((22, 23)));
        let kept = (2..11).map(Some).chain([None]).collect::<Vec<_>>();
        assert_eq!(back.kept, kept);
        target.finish().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let value = vec![1; 5 * MIB];
        for n in 0..9 {
            assert_eq!(store.get(format!("k{n}")).unwrap().unwrap().value, value, "{n}");
        }
        assert_eq!(store.get("k9").unwrap(), None);
        store.put("k0", "x").unwrap();
    }
}
