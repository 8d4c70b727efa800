//! Read, change, write: as often as it takes, and without waiting for the disk in between.
//!
//! **The problem.** Who reads a key, changes it, and writes it back by compare-and-swap is often too late
//! where others change the same key. A read shows what is durable, and a failed comparison is answered when
//! what it failed on is durable: so each further try waits for a sync, and however many change one key, one
//! of them succeeds a sync.
//!
//! **What is done.** The change is made here, on the newest state in the order, durable or not; only the
//! answer waits. If a sync fails, what was seen is lost together with all that was made of it, since whatever
//! comes later in the order is durable later, and nobody is told of either. So all the changes of one key
//! that are ordered during one sync share the next.
//!
//! The caller's function runs between two evaluations and not within one, with nothing pinned or held: it may
//! take long, panic, or use the store.

use std::borrow::Cow;

use crate::error::Result;

use super::Store;
use super::write::Done;
use crate::kv::response::TxnResponse;
use crate::kv::ticket::Ticket;
use crate::kv::types::KeyValue;

/// What becomes of a key: the answer of the function given to [`Store::modify`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Modify {
    /// It stays as it is.
    Keep,
    /// It gets a value; the same bytes are a new version, too.
    Put {
        /// The value.
        value: Vec<u8>,
        /// The lease it is attached to; 0 for none.
        lease: i64,
    },
    /// It is deleted, if it is there.
    Delete,
}

/// What a key came to by [`Store::modify`]. There is no third case: a lost comparison is none of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Modified {
    /// It was changed, at this revision.
    Committed {
        /// The transaction's revision.
        revision: u64,
    },
    /// It stays as it is.
    Unchanged {
        /// The revision it was decided at.
        as_of: u64,
    },
}

impl Modify {
    /// A value, attached to no lease.
    pub fn put(value: impl Into<Vec<u8>>) -> Self {
        Self::Put { value: value.into(), lease: 0 }
    }
}

impl Store {
    /// Changes a key by what it is: reads it, asks `change` what is to become of it (`None`: the key is not
    /// alive), and writes that if nobody has changed the key in between, or else begins anew. Nothing is lost
    /// between any number of threads, and those that change one key share their syncs, which a loop of
    /// [`get`](Store::get) and [`compare_and_put`](Store::compare_and_put) cannot.
    ///
    /// `change` may be called several times, and sees the newest state, which may not be durable yet: only when
    /// this call has returned `Ok` is it certain that there has ever been such a state. So it should do nothing but
    /// decide. An answer of [`Unchanged`](Modified::Unchanged), too, waits until what `change` saw is durable.
    ///
    /// A call costs two look-ups of the key, one copy of its value, and a commit. It is not fair: a `change`
    /// that takes long, beside fast ones of the same key, may be asked again for as long as they come.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// use annals::{Modified, Modify};
    ///
    /// let next = |current: Option<&annals::KeyValue>| {
    ///     let count = current.map_or(0, |kv| kv.value.len());
    ///     if count == 3 { Modify::Keep } else { Modify::put("x".repeat(count + 1)) }
    /// };
    /// std::thread::scope(|scope| {
    ///     for _ in 0..8 {
    ///         scope.spawn(|| store.modify("/counter", next));
    ///     }
    /// });
    /// assert_eq!(store.get("/counter")?.expect("it is there").value, "xxx");
    /// assert_eq!(store.modify("/counter", next)?, Modified::Unchanged { as_of: 4 });
    /// # Ok::<(), annals::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Store::put`]; [`LeaseNotFound`](crate::ErrorKind::LeaseNotFound).
    pub fn modify(
        &self,
        key: impl AsRef<[u8]>,
        mut change: impl FnMut(Option<&KeyValue>) -> Modify,
    ) -> Result<Modified> {
        let done = self.changed(key.as_ref(), &mut change)?;
        let (changed, revision) = (done.changed(), done.revision());
        done.wait()?;
        Ok(if changed {
            Modified::Committed { revision }
        } else {
            Modified::Unchanged { as_of: revision }
        })
    }

    /// As [`Store::modify`], with a ticket for the answer, which lists no responses. `change` is called
    /// before this returns, and never after.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// use annals::Modify;
    ///
    /// let tickets: Vec<_> = (0..64)
    ///     .map(|n| {
    ///         store.submit_modify("/log", |current| {
    ///             let before = current.map_or(Vec::new(), |kv| kv.value.to_vec());
    ///             Modify::put([before, format!("{n} ").into_bytes()].concat())
    ///         })
    ///     })
    ///     .collect::<annals::Result<_>>()?;
    /// for ticket in tickets {
    ///     ticket.wait()?; // durable; one sync for all of them
    /// }
    /// assert!(store.get("/log")?.expect("it is there").value.starts_with(b"0 1 2 3 "));
    /// # Ok::<(), annals::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Store::modify`].
    pub fn submit_modify(
        &self,
        key: impl AsRef<[u8]>,
        mut change: impl FnMut(Option<&KeyValue>) -> Modify,
    ) -> Result<Ticket> {
        let done = self.changed(key.as_ref(), &mut change)?;
        let response =
            TxnResponse { revision: done.revision(), succeeded: true, responses: Vec::new() };
        Ok(done.ticket(response))
    }

    fn changed(
        &self,
        key: &[u8],
        change: &mut dyn FnMut(Option<&KeyValue>) -> Modify,
    ) -> Result<Done<'_>> {
        self.limits().sizes(key, &[])?;
        let (mut current, mut done) =
            self.write(self.defaults(), |evaluation| evaluation.base_key(key))?;
        loop {
            let modify = change(current.as_ref());
            let put = match &modify {
                Modify::Put { value, lease } => {
                    if let Err(error) = self.limits().sizes(key, value) {
                        // An answer like any other: what it was decided on is to be certain first.
                        done.wait()?;
                        return Err(error);
                    }
                    Some((Cow::Borrowed(&value[..]), *lease))
                }
                Modify::Delete if current.is_some() => None,
                Modify::Delete | Modify::Keep => return Ok(done),
            };
            let seen = current.as_ref().map_or(0, |kv| kv.mod_revision);
            let ((replaced, newer), written) = self.write(self.defaults(), |evaluation| {
                let replaced = evaluation.replace(key, seen, put.clone())?;
                let newer = if replaced { None } else { evaluation.base_key(key)? };
                Ok((replaced, newer))
            })?;
            if replaced {
                return Ok(written);
            }
            (current, done) = (newer, written);
        }
    }
}
