//! Rules of retention: set, list, apply.

use crate::error::Result;

use super::Store;
use crate::kv::eval::check;
use crate::kv::range::AsKeyRange;
use crate::kv::retention::{Retention, RetentionRule};
use crate::kv::space;

impl Store {
    /// Says how long the versions of the keys with `prefix` are kept, or with `None` takes that back. The
    /// longest prefix decides; the empty one is for all keys that no other is for. Without any rule nothing
    /// is forgotten but by [`compact`](Self::compact).
    ///
    /// What a rule no longer keeps is forgotten when rules are applied: by the background thread, every
    /// [`retention_interval_seconds`](crate::Options::retention_interval_seconds), or by
    /// [`apply_retention`](Self::apply_retention). A read below that answers
    /// [`Compacted`](crate::ErrorKind::Compacted), which names the prefix; live views and iterators go on.
    /// The rule of the empty prefix does what `compact` does. `compact` in turn forgets nothing of keys
    /// that have a rule of their own: only that rule does.
    ///
    /// What was forgotten once stays so, whatever rule follows. To take a rule back (`None`) leaves its keys to what is
    /// around them, a shorter prefix or [`compact`](Self::compact), at once: what only the rule has kept is forgotten for
    /// ever. The call is durable when it returns, and takes no revision.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// use annals::{ErrorKind, Retention};
    ///
    /// store.set_retention("/audit/", Some(Retention::forever()))?;
    /// store.set_retention("/events/", Some(Retention::forever().keep_revisions(1)))?;
    /// for n in 0..3 {
    ///     store.put("/audit/a", n.to_string())?;
    ///     store.put("/events/a", n.to_string())?;
    /// }
    /// store.compact(7)?;
    /// store.apply_retention()?;
    ///
    /// let view = store.at(3)?;
    /// assert_eq!(view.get("/audit/a")?.expect("kept").value, "0");
    /// let refused = view.get("/events/a").expect_err("forgotten").into_kind();
    /// let ErrorKind::Compacted { compacted, prefix, .. } = refused else { unreachable!() };
    /// assert_eq!((compacted, prefix.as_deref()), (6, Some(&b"/events/"[..])));
    /// # Ok::<(), annals::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`KeyTooLong`](crate::ErrorKind::KeyTooLong) for a prefix of more than 1 KiB,
    /// [`TooManyRules`](crate::ErrorKind::TooManyRules) where there are 64. As every write:
    /// [`Closed`](crate::ErrorKind::Closed), [`ReadOnly`](crate::ErrorKind::ReadOnly),
    /// [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown), [`Poisoned`](crate::ErrorKind::Poisoned).
    pub fn set_retention(
        &self,
        prefix: impl AsRef<[u8]>,
        retention: Option<Retention>,
    ) -> Result<()> {
        let prefix = prefix.as_ref();
        check::retention_prefix(prefix)?;
        self.engine.set_rule(prefix, retention.map(Retention::rule))
    }

    /// Every rule, by prefix, with how far back its keys can be read now.
    pub fn retention(&self) -> Vec<RetentionRule> {
        let rules = self.engine.rules();
        rules.into_iter().map(|(prefix, rule)| RetentionRule::new(prefix, &rule)).collect()
    }

    /// The oldest revision at which every key of a range can be read; 0 if nothing of them was ever
    /// forgotten. Unless rules say otherwise it is the [compacted](Self::compacted_revision) one.
    pub fn oldest_readable(&self, range: impl AsKeyRange) -> u64 {
        let (start, end) = space::user_range(&range.to_key_range());
        self.engine.oldest_of(&start..&end)
    }

    /// Forgets at once what the rules no longer keep, as the background thread does from time to time.
    /// Answers whether that was anything. Space is given back as after [`compact`](Self::compact). The files of
    /// the log of changes hold those of all keys: where other rules keep as old revisions, one is written again
    /// once all its revisions are forgotten for some of its keys, if these are a quarter of it.
    ///
    /// # Errors
    ///
    /// As [`set_retention`](Self::set_retention); [`Corrupt`](crate::ErrorKind::Corrupt) or
    /// [`Io`](crate::ErrorKind::Io) from the files that have the times of the commits.
    pub fn apply_retention(&self) -> Result<bool> {
        self.engine.apply_retention()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::Store;
    use crate::error::{ErrorKind, Result};
    use crate::kv::eval::Evaluation;
    use crate::kv::request::CommitOptions;
    use crate::kv::seam::Plan;
    use crate::kv::{Op, RangeRequest, Retention, TxnRequest, TxnResponse, put, txn, version};
    use crate::options::Options;
    use crate::vfs::MemoryVfs;

    /// Revisions 2, 3 and 4 of `a` and 5, 6 and 7 of `k`.
    fn store() -> Store {
        let options = Options::new().vfs(Arc::new(MemoryVfs::new())).background(false);
        let store = options.open("store").unwrap();
        for key in ["a", "k"] {
            for value in ["one", "two", "three"] {
                store.put(key, value).unwrap();
            }
        }
        store
    }

    fn past(key: &str, revision: u64) -> Op {
        Op::from(RangeRequest::new(key).at(revision))
    }

    #[test]
    fn a_transaction_reads_what_its_rule_keeps_below_the_watermark() {
        let store = store();
        store.set_retention("a", Some(Retention::forever())).unwrap();
        store.compact(7).unwrap();
        let done = store.transact(txn().then([past("a", 3), put("b", "")])).unwrap();
        assert_eq!(done.responses[0].kvs()[0].value, "two");
        let refused = store.transact(txn().then([past("k", 6), put("b", "")])).unwrap_err();
        let refused = refused.into_kind();
        let ErrorKind::Compacted { requested: 6, compacted: 7, prefix: None } = refused else {
            panic!("{refused:?}")
        };
        let both = RangeRequest::new("a").range_end("l").at(3);
        let refused = store.transact(txn().then([Op::from(both), put("b", "")])).unwrap_err();
        assert!(matches!(refused.into_kind(), ErrorKind::Compacted { compacted: 7, .. }));
        assert_eq!(store.revision(), 8);
    }

    /// At no time is `k` as the comparison wants it and revision 6 forgotten.
    fn delete_and_forget(store: &Store) {
        store.delete("k").unwrap();
        store.set_retention("k", Some(Retention::forever().keep_revisions(0))).unwrap();
        assert!(store.apply_retention().unwrap());
    }

    fn if_unchanged() -> TxnRequest {
        txn().when([version("k").eq(3)]).then([past("k", 6)])
    }

    fn is_not_refused(store: &Store, answer: Result<TxnResponse>, evaluations: u32) {
        let answer = answer.unwrap();
        assert!(!answer.succeeded && answer.revision == 8, "{answer:?}");
        assert_eq!(evaluations, 2);
        let refused = store.at(6).unwrap().get("k").unwrap_err().into_kind();
        assert!(matches!(refused, ErrorKind::Compacted { compacted: 8, prefix: Some(_), .. }));
    }

    #[test]
    fn a_transaction_is_not_refused_by_a_rule_for_what_it_would_not_read_any_more() {
        let (store, request) = (store(), if_unchanged());
        let mut evaluations = 0;
        let decided = store.write(&CommitOptions::default(), |evaluation| {
            evaluations += 1;
            if evaluations == 1 {
                delete_and_forget(&store);
            }
            evaluation.transaction(&request)
        });
        let answer = decided.map(|(mut answer, done)| {
            answer.revision = done.revision();
            answer
        });
        is_not_refused(&store, answer, evaluations);
    }

    #[test]
    fn nor_is_one_that_only_reads() {
        let (store, request) = (store(), if_unchanged());
        let mut evaluations = 0;
        let answer = store.on_newest(|newest| {
            evaluations += 1;
            if evaluations == 1 {
                delete_and_forget(&store);
            }
            Evaluation::new(newest, &mut Plan::default(), store.limits(), false)
                .transaction(&request)
        });
        is_not_refused(&store, answer, evaluations);
    }

    #[test]
    fn there_are_not_more_rules_than_allowed() {
        let store = store();
        let forever = Some(Retention::forever());
        for n in 0..64 {
            store.set_retention(format!("{n:02}"), forever).unwrap();
        }
        let refused = store.set_retention("64", forever).unwrap_err().into_kind();
        assert!(matches!(refused, ErrorKind::TooManyRules { max: 64 }), "{refused:?}");
        store.set_retention("63", forever).unwrap();
        store.set_retention("63", None).unwrap();
        store.set_retention("64", forever).unwrap();
        let long = store.set_retention([b'p'; 1025], forever).unwrap_err().into_kind();
        assert!(matches!(long, ErrorKind::KeyTooLong { bytes: 1025, max: 1024 }), "{long:?}");
        assert_eq!(store.retention().len(), 64);
    }
}
