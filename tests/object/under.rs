//! What objects lie in while they are tested: a store, or a real etcd.
//!
//! The environment variable `ANNALS_OBJECT_KV` chooses, where the feature `etcd` is on:
//!
//! | value | each store of a test is |
//! | --- | --- |
//! | none | an embedded store |
//! | `etcd` | an etcd of its own, started for it; the variable `ETCD` names another server, such as `annals-etcd` |
//! | `http://HOST:PORT` | a prefix of its own of the keys of this server; to be run with `--test-threads=1`, since the tests count revisions; those that count from a fresh store's fail |
//!
//! Tests that ask for more than etcd has say so in their first line by `needs_the_store!()`, and are named in [`SKIPPED`] with the
//! reason. Those of `calls`, `documents` and `model` have stores of their own making, and are embedded always.

#![allow(clippy::print_stdout, reason = "what is not run, and where, is told")]

use std::ops::Deref;
use std::task::{Context, Poll};
use std::time::Duration;

#[cfg(feature = "etcd")]
use annals::DeleteRangeRequest;
use annals::object::kv::{
    Changes, Kv, KvEvent, KvWatch, PollKvWatch, ScanRequest, StoreWatch, WatchRequest,
};
use annals::{KeyValue, PutRequest, RangeIter, Result, TxnRequest, TxnResponse};

/// Tests that are not run on etcd, and why.
pub const SKIPPED: &[(&str, &str)] = &[
    ("encrypt::nothing_of_an_object_is_seen_in_the_store", "it looks into the files"),
    (
        "encrypt::what_is_stale_is_written_anew_and_the_old_key_can_go",
        "it reads the history of a key",
    ),
    ("encrypted::every_call_answers_as_if_nothing_were_encrypted", "etcd tells no deletions"),
    ("guaranteed::objects_of_one_lease_end_together", "the clock of etcd is not moved by hand"),
    ("guaranteed::what_has_a_time_to_live_ends", "the clock of etcd is not moved by hand"),
    ("history::a_history_goes_back_beyond_deletions", "etcd tells no deletions"),
    ("history::objects_of_the_cluster_have_a_history_and_a_key", "it reads the history of a key"),
    (
        "watch::a_watch_begins_behind_its_version",
        "etcd 3.4 forgets a deletion at the revision up to which it is compacted (issue 19179)",
    ),
];

/// Ends a test that etcd has not what it needs for.
macro_rules! needs_the_store {
    () => {{
        fn here() {}
        if $crate::under::is_skipped(std::any::type_name_of_val(&here)) {
            return;
        }
    }};
}
pub(crate) use needs_the_store;

/// Objects in what is tested.
pub type Objects<K = Store> = annals::object::Objects<K>;
/// Objects as a type, in what is tested.
pub type Typed<T, K = Store> = annals::object::Typed<T, K>;
/// A watch of those.
pub type TypedWatch<T, K = Store> = annals::object::TypedWatch<T, K>;

/// What the environment asks for; empty for a store.
fn chosen() -> String {
    let chosen = std::env::var("ANNALS_OBJECT_KV").unwrap_or_default();
    assert!(chosen.is_empty() || cfg!(feature = "etcd"), "build with the feature `etcd`");
    chosen
}

/// Whether a test is to end at once, since it needs the store; `here` is the path of something in it.
pub fn is_skipped(here: &str) -> bool {
    let name = here.trim_end_matches("::here").split_once("::").map_or("", |(_, name)| name);
    let found = SKIPPED.iter().find(|(skipped, _)| *skipped == name);
    let (_, why) = found.unwrap_or_else(|| panic!("{name} is not in the list"));
    let is = !chosen().is_empty();
    if is {
        println!("{name} is not run on etcd: {why}");
    }
    is
}

/// A store, or what is in its place.
pub enum Store {
    Embedded(annals::Store),
    #[cfg(feature = "etcd")]
    Etcd(Box<remote::Remote>),
}

pub enum Scan {
    Embedded(Box<RangeIter>),
    #[cfg(feature = "etcd")]
    Etcd(annals::object::EtcdScan),
}

pub enum Watch {
    Embedded(StoreWatch),
    #[cfg(feature = "etcd")]
    Etcd(annals::object::EtcdWatch),
}

/// Does it with whatever the keys lie in.
macro_rules! on {
    ($on:expr, $it:ident => $what:expr) => {
        match $on {
            Store::Embedded($it) => $what,
            #[cfg(feature = "etcd")]
            Store::Etcd(remote) => {
                let $it: &annals::object::EtcdKv = remote;
                $what
            }
        }
    };
}

/// Does it with whatever it is.
macro_rules! either {
    ($on:expr, $it:ident => $what:expr) => {
        match $on {
            Self::Embedded($it) => $what,
            #[cfg(feature = "etcd")]
            Self::Etcd($it) => $what,
        }
    };
}

impl From<annals::Store> for Store {
    fn from(store: annals::Store) -> Self {
        Self::Embedded(store)
    }
}

/// All that only a store has. A test that uses it is one of those that are skipped.
impl Deref for Store {
    type Target = annals::Store;

    fn deref(&self) -> &annals::Store {
        self.embedded().expect("etcd has not what this test uses: it is to be skipped")
    }
}

impl Store {
    /// An empty one: what the environment asks for, or what `embedded` makes.
    pub fn or(embedded: impl FnOnce() -> annals::Store) -> Self {
        match chosen().as_str() {
            "" => Self::Embedded(embedded()),
            #[cfg(feature = "etcd")]
            chosen => Self::Etcd(Box::new(remote::Remote::start(chosen))),
            #[cfg(not(feature = "etcd"))]
            _ => unreachable!(),
        }
    }

    /// The store itself, if it is one.
    #[cfg_attr(
        not(feature = "etcd"),
        expect(clippy::unnecessary_wraps, reason = "of an etcd there is none")
    )]
    pub fn embedded(&self) -> Option<&annals::Store> {
        match self {
            Self::Embedded(store) => Some(store),
            #[cfg(feature = "etcd")]
            Self::Etcd(_) => None,
        }
    }

    pub fn revision(&self) -> u64 {
        on!(self, kv => Kv::revision(kv).unwrap())
    }

    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<KeyValue>> {
        on!(self, kv => Ok(Kv::get(kv, key.as_ref(), None)?.0))
    }

    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        match self {
            Self::Embedded(store) => store.put(key, value).map(|_| ()),
            #[cfg(feature = "etcd")]
            Self::Etcd(remote) => remote.write(PutRequest::new(key, value).into()),
        }
    }

    /// All of them by one transaction.
    pub fn put_all(&self, all: impl Iterator<Item = (String, String)>) {
        let success = all.map(|(key, value)| PutRequest::new(key, value).into()).collect();
        let request = TxnRequest { success, ..TxnRequest::default() };
        Kv::transact(self, request).unwrap();
    }

    /// Of all that is there, beside what leases there are; of an etcd the revision says it.
    pub fn hash(&self) -> u64 {
        match self {
            Self::Embedded(store) => store.hash_at(store.revision()).unwrap().hash.into(),
            #[cfg(feature = "etcd")]
            Self::Etcd(_) => 0,
        }
    }

    pub fn leases(&self) -> usize {
        match self {
            Self::Embedded(store) => store.lease_list().unwrap().len(),
            #[cfg(feature = "etcd")]
            Self::Etcd(remote) => remote.leases(),
        }
    }

    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        match self {
            Self::Embedded(store) => store.delete(key).map(|_| ()),
            #[cfg(feature = "etcd")]
            Self::Etcd(remote) => remote.write(DeleteRangeRequest::new(key).into()),
        }
    }

    pub fn compact(&self, revision: u64) -> Result<()> {
        match self {
            Self::Embedded(store) => store.compact(revision).map(|_| ()),
            #[cfg(feature = "etcd")]
            Self::Etcd(remote) => remote.compact(revision),
        }
    }

    pub fn lease_revoke(&self, lease: i64) -> Result<()> {
        match self {
            Self::Embedded(store) => store.lease_revoke(lease).map(|_| ()),
            #[cfg(feature = "etcd")]
            Self::Etcd(remote) => remote.revoke(lease),
        }
    }
}

impl Kv for Store {
    type Scan = Scan;
    type Watch = Watch;

    fn revision(&self) -> Result<u64> {
        on!(self, kv => Kv::revision(kv))
    }

    fn get(&self, key: &[u8], at: Option<u64>) -> Result<(Option<KeyValue>, u64)> {
        on!(self, kv => Kv::get(kv, key, at))
    }

    fn last_change(&self, key: &[u8], at: u64) -> Result<Option<KvEvent>> {
        on!(self, kv => kv.last_change(key, at))
    }

    fn scan(&self, request: ScanRequest<'_>) -> Result<(Scan, u64)> {
        Ok(match self {
            Self::Embedded(store) => {
                let (scan, revision) = Kv::scan(store, request)?;
                (Scan::Embedded(Box::new(scan)), revision)
            }
            #[cfg(feature = "etcd")]
            Self::Etcd(remote) => {
                let (scan, revision) = Kv::scan(&***remote, request)?;
                (Scan::Etcd(scan), revision)
            }
        })
    }

    fn count(&self, request: ScanRequest<'_>) -> Result<u64> {
        on!(self, kv => Kv::count(kv, request))
    }

    fn transact(&self, request: TxnRequest) -> Result<TxnResponse> {
        on!(self, kv => Kv::transact(kv, request))
    }

    fn grant(&self, ttl: i64) -> Result<i64> {
        on!(self, kv => Kv::grant(kv, ttl))
    }

    fn watch(&self, request: WatchRequest<'_>) -> Result<Watch> {
        Ok(match self {
            Self::Embedded(store) => Watch::Embedded(Kv::watch(store, request)?),
            #[cfg(feature = "etcd")]
            Self::Etcd(remote) => Watch::Etcd(Kv::watch(&***remote, request)?),
        })
    }
}

impl Iterator for Scan {
    type Item = Result<KeyValue>;

    fn next(&mut self) -> Option<Self::Item> {
        either!(self, scan => scan.next())
    }
}

impl KvWatch for Watch {
    fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Changes>> {
        either!(self, watch => watch.next_timeout(timeout))
    }

    fn canceller(&self) -> Box<dyn Fn() + Send + Sync> {
        either!(self, watch => watch.canceller())
    }
}

impl PollKvWatch for Watch {
    fn poll_changes(&mut self, context: &mut Context<'_>) -> Poll<Result<Changes>> {
        either!(self, watch => watch.poll_changes(context))
    }
}

#[cfg(feature = "etcd")]
mod remote {
    //! A part of an etcd, or all of it.

    use std::ops::Deref;
    use std::sync::atomic::{AtomicU64, Ordering};

    use annals::object::kv::Kv;
    use annals::object::{EtcdKv, EtcdOptions};
    use annals::{Op, Result, TxnRequest};

    use crate::etcd::{Etcd, etcdctl};

    static PREFIXES: AtomicU64 = AtomicU64::new(0);

    pub struct Remote {
        kv: EtcdKv,
        endpoint: String,
        /// Behind the client, so that it is gone first.
        _etcd: Option<Etcd>,
    }

    impl Deref for Remote {
        type Target = EtcdKv;

        fn deref(&self) -> &EtcdKv {
            &self.kv
        }
    }

    impl Remote {
        pub fn start(chosen: &str) -> Self {
            let (etcd, endpoint, prefix) = if chosen == "etcd" {
                let etcd = Etcd::start();
                let endpoint = etcd.endpoint();
                (Some(etcd), endpoint, String::new())
            } else {
                let number = PREFIXES.fetch_add(1, Ordering::Relaxed);
                (None, chosen.to_owned(), format!("test-{}-{number}/", std::process::id()))
            };
            println!("in the etcd at {endpoint} {prefix}");
            let options = EtcdOptions::new().key_prefix(prefix);
            let kv = EtcdKv::connect([&endpoint], options).expect("it is reached");
            Self { kv, endpoint, _etcd: etcd }
        }

        pub fn write(&self, op: Op) -> Result<()> {
            let request = TxnRequest { success: vec![op], ..TxnRequest::default() };
            self.kv.transact(request).map(|_| ())
        }

        pub fn leases(&self) -> usize {
            etcdctl(&self.endpoint, &["lease", "list"]).lines().count()
        }

        #[expect(clippy::unnecessary_wraps, reason = "as a store does")]
        pub fn compact(&self, revision: u64) -> Result<()> {
            etcdctl(&self.endpoint, &["compact", &revision.to_string()]);
            Ok(())
        }

        #[expect(clippy::unnecessary_wraps, reason = "as a store does")]
        pub fn revoke(&self, lease: i64) -> Result<()> {
            etcdctl(&self.endpoint, &["lease", "revoke", &format!("{lease:x}")]);
            Ok(())
        }
    }
}
