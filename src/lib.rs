//! A store that remembers: an embeddable key-value engine that keeps every version of every key.
//!
//! Every transaction gets one global **revision**. Reads name a revision and see the store as it
//! then was. Writes are if-then-else transactions decided by compare-and-swap. What nobody can read
//! any more is forgotten when it is asked for ([`Store::compact`]), and not before. The semantics are
//! those of etcd's version 3 interface, to the letter; the store lives in your process.
//!
//! ```
//! use annals::{get, mod_revision, put, Store};
//! # let directory = tempfile::tempdir().expect("a temporary directory");
//! # let path = directory.path();
//!
//! let store = Store::open(path)?;
//! let first = store.put("/pods/a", "v1")?; // durable when it returns, at revision 2
//!
//! // Compare and swap: write only if nobody has in between.
//! let kv = store.get("/pods/a")?.expect("just written");
//! let done = store
//!     .txn()
//!     .when([mod_revision("/pods/a").eq(kv.mod_revision)])
//!     .then([put("/pods/a", "v2")])
//!     .or_else([get("/pods/a")])
//!     .commit()?;
//! assert!(done.succeeded);
//!
//! // Then and now.
//! assert_eq!(store.at(first.revision)?.get("/pods/a")?.expect("then").value, "v1");
//! assert_eq!(store.get("/pods/a")?.expect("now").value, "v2");
//! for version in store.history("/pods/a") {
//!     let version = version?; // newest first
//!     println!("revision {}: {:?}", version.mod_revision, version.value);
//! }
//! # Ok::<(), annals::Error>(())
//! ```
//!
//! # Words
//!
//! | word | meaning |
//! | --- | --- |
//! | revision | the global number of a transaction that changed something; a fresh store is at 1, the first write makes 2, none is left out |
//! | `create_revision`, `mod_revision` | of a key: the revision that created it, the one that last changed it |
//! | `version` | of a key: how often it was written since it was created; 1 on creation |
//! | tombstone | the version a delete leaves: the key is absent from there on, until it is written again |
//! | view | a reader's fixed revision; see [`View`] |
//! | watch | a reader of what changes, revision by revision; see [`Watch`] |
//! | compact | to forget what only reads below a revision could see; that revision itself stays readable |
//! | floor | the oldest revision at which a key can be read: that of the last compaction ([`Store::compacted_revision`]; the watermark, in the specification and the code), or of the key's own [rule of retention](Store::set_retention); [`Store::oldest_readable`] tells it of any range |
//! | lease | something keys can be attached to, so as to be deleted together when it is not renewed for its time to live |
//!
//! # Where to begin
//!
//! * [`Store`] has every call. [`Store::put`], [`Store::get`], [`Store::delete`] are the short ones.
//! * [`Store::compare_and_put`] is the usual compare-and-swap, [`Store::modify`] tries as often as it takes,
//!   [`Store::submit_compare_and_put`] and [`Store::submit`] give a [`Ticket`] to wait for or to await ([`Store::try_submit`]: by who must not wait for the disk before, either).
//! * [`Store::update`] is for all that reads several keys or ranges and decides by them: serializable transactions by a function,
//!   which is asked again if something that it read has changed. [`Update::revert`] takes keys back to what they were.
//! * [`Store::txn`] builds transactions, with [`put`], [`get`], [`delete`] and the comparisons
//!   [`mod_revision`], [`create_revision`], [`version`], [`value`], [`lease()`].
//! * [`Store::latest`], [`Store::at`] return a [`View`], which reads keys and
//!   ranges from both ends.
//! * [`Store::history`], [`Store::diff`], [`Store::log`] tell what changed ([`Log::visit`] much of it, fast); [`Store::time_of`] when. Points in history
//!   are revisions, times or [`At::Latest`]: see [`At`].
//! * [`Store::watch`] and [`Store::watch_range`] tell what changes as it changes, from any revision on: a
//!   [`Watch`].
//! * [`Store::hash_at`] is etcd's hash of all keys and values, to compare stores with.
//! * [`RangeRequest`], [`PutRequest`], [`DeleteRangeRequest`], [`TxnRequest`] are etcd's requests
//!   with all their fields.
//! * [`Store::lease_grant`] grants a lease, [`Store::lease_keep_alive`] renews it; [`Store::lease`] is one that
//!   renews itself.
//! * [`Store::compact`] forgets the past, [`Store::set_retention`] says how long which keys are kept.
//! * [`Load`] makes a store out of what another one had, of whatever kind, with the same revisions.
//! * [`Store::checkpoint`] makes a copy in the time it takes to link the files, while others write.
//! * [`Store::backup`] writes the store to a stream, compressed and with checksums, while others write,
//!   [`Store::backup_from`] what came since; [`restore`] makes a store of both.
//! * [`Options`] has every knob.
//!
//! # Objects
//!
//! With the feature `object` the module `annals::object` keeps versioned JSON objects in a store, as a Kubernetes API server does
//! under its REST layer: optimistic concurrency by `resourceVersion`, watches, selectors, patches, server-side apply,
//! finalizers. With the feature `encryption` they can be encrypted at rest, and with the feature `etcd` the same program keeps them in
//! an etcd cluster.
//!
//! # Features
//!
//! | feature | what |
//! | --- | --- |
//! | `object` | versioned objects, as a Kubernetes API server keeps them: the module `object` |
//! | `etcd` | `object`, and an etcd cluster as what objects lie in: `object::EtcdKv` |
//! | `encryption` | `object`, and AES-GCM for what it stores: `object::AesGcm` |
//! | `serde` | answers can be serialized |
//! | `tracing`, `metrics` | [what it tells about itself](#what-it-tells-about-itself) |
//!
//! None is on by default.
//!
//! # Durability
//!
//! By default a write has reached the disk (`fdatasync`) when its call returns, and no answer, not
//! even a failed comparison, shows anything that has not. Concurrent writers share their syncs; one
//! thread keeps many writes in flight with [`Store::submit`] and [`Ticket`]s, which can be waited for
//! or awaited. With [`Durability::Buffered`] a write returns when it is ordered, and a crash may take back
//! the last of them; never one out of the middle. In a `Buffered` store it is then visible; one
//! `Buffered` commit in a `Sync` store becomes visible when it is durable, a few milliseconds later.
//! [`Store::flush`] makes everything durable, and [`Store::stats`] tells how many syncs there were, how
//! many commits shared them, how long syncs and commits take, and whether commits were slowed down because
//! flush was behind.
//!
//! A reader sees a new value only once it is durable, so threads that read, change and swap *one* key get
//! one commit a sync. [`Store::modify`] has the store do all three, and goes on from what is not durable yet:
//! those that change one key then share their syncs, too. One thread may also take the revision of
//! [`Ticket::outcome`] for the next comparison.
//!
//! # Errors
//!
//! An [`Error`] has an [`ErrorKind`], to match on, and an [`Effect`]: whether the call changed
//! nothing, or whether that is unknown. A refused request has changed nothing.
//!
//! # Limits
//!
//! Checked on writing, so that whatever is accepted can be read back. All can be changed in
//! [`Options`].
//!
//! | limit | default | error |
//! | --- | --- | --- |
//! | length of a key | 64 KiB | [`KeyTooLong`](ErrorKind::KeyTooLong) |
//! | length of a value | 16 MiB | [`ValueTooLong`](ErrorKind::ValueTooLong) |
//! | bytes of a transaction, as it is encoded in the log | 64 MiB | [`TransactionTooLarge`](ErrorKind::TransactionTooLarge) |
//! | operations of a transaction, and keys it changes | 1,000,000 | [`TooManyOperations`](ErrorKind::TooManyOperations) |
//! | metadata of a transaction | 64 KiB | [`MetadataTooLong`](ErrorKind::MetadataTooLong) |
//! | nesting of transactions | 128 | [`InvalidArgument`](ErrorKind::InvalidArgument) |
//! | rules of retention, and length of a prefix | 64, 1 KiB; fixed | [`TooManyRules`](ErrorKind::TooManyRules), [`KeyTooLong`](ErrorKind::KeyTooLong) |
//!
//! # What it tells about itself
//!
//! [`Store::stats`] answers with figures. With the feature `tracing` the library also makes spans and events of the
//! crate `tracing`, and with `metrics` it keeps the metrics below by the crate `metrics`, for whatever collects them
//! in the program. With `serde` all answers can be serialized; keys, values and metadata are byte strings, which JSON
//! writes as arrays of numbers, and times are microseconds since the Unix epoch. None of the three is on
//! by default.
//!
//! Whoever listens is called by the thread that does the work, which may be one that makes the commits of others
//! durable: commits wait for what it does, and it must not call the store. A panic in there is caught, and nothing
//! is told.
//!
//! Spans have the fields `revision`, `files`, `bytes` and `micros`, as far as they apply.
//!
//! | span or event | level | what |
//! | --- | --- | --- |
//! | `annals.open` | info | opening a store for writing |
//! | `annals.recover` | info | reading the log back while opening |
//! | `annals.commit` | trace | a transaction that waits for its sync: being ordered, and waiting |
//! | `annals.sync` | trace | one write of the log with its sync |
//! | `annals.flush` | debug | writing a memtable generation to files |
//! | `annals.fold` | debug | a step of a fold of L0 files into HEAD and HISTORY |
//! | `annals.merge` | debug | merging files, or writing one again without what is dead in it |
//! | `annals.checkpoint` | info | [`Store::checkpoint`] |
//! | `annals.backup` | info | [`Store::backup`] |
//! | `annals.restore` | info | [`restore`] |
//! | `annals.lease_expiry` | debug | ending up to 16 leases whose time is over |
//! | `annals.no_space` | warn | event: background work found no space, or no descriptor for a file, and waits for some |
//! | `annals.poisoned` | error | event: the store accepts no more writes, and why |
//! | `annals.torn_tail` | warn | event: a batch at the end of the log was dropped; it was never acknowledged |
//! | `annals.manifest_damaged` | warn | event: `CURRENT` or the manifest is damaged, and what it says stands in another place, too |
//! | `annals.damaged` | warn | event: newest versions are damaged, and nothing is forgotten any more |
//! | `annals.left_alone` | warn | event: background work has met damage, and goes on without the file |
//! | `annals.object_slow` | warn | event: a call of the storage of objects has taken more than 500 ms; with `verb`, `resource`, `key` and `micros` |
//!
//! Counters and histograms are those of all stores of the process; that of objects has the labels `verb` (`create`, `get`,
//! `list`, `count`, `update`, `delete`; histories, watches and what is written anew are not measured) and `resource`. Gauges
//! have the label `store`, the directory, and are brought up to date by [`Store::stats`]: call it before they are collected,
//! and not for a closed store, nor in the process of a writer for another handle that only reads. For a look from outside
//! the process there is [`Options::live_interval_seconds`].
//!
//! | metric | kind | what |
//! | --- | --- | --- |
//! | `annals_commits_total` | counter | commits made durable, grants of leases and compactions too |
//! | `annals_conflicts_total` | counter | transactions evaluated again inside their call |
//! | `annals_flush_total` | counter | memtable generations written to files |
//! | `annals_fold_total` | counter | folds of L0 files into HEAD and HISTORY |
//! | `annals_merge_total` | counter | merges of files, files written again for what is dead in them, moves of blobs |
//! | `annals_background_bytes_total` | counter | bytes written by background work |
//! | `annals_lease_expired_total` | counter | leases that ended because their time was over |
//! | `annals_commit_seconds` | histogram | commits from call to answer; of those that wait for no sync one in 64 |
//! | `annals_sync_seconds` | histogram | writes of the log, each with its sync |
//! | `annals_batch_commits` | histogram | commits that share a sync |
//! | `annals_object_seconds` | histogram | calls of the storage of objects |
//! | `annals_revision` | gauge | newest visible revision |
//! | `annals_durable_revision` | gauge | newest durable revision |
//! | `annals_memtable_bytes` | gauge | memory of the memtable generations |
//! | `annals_l0_bytes` | gauge | files of flushed generations |
//! | `annals_head_bytes` | gauge | files of newest versions |
//! | `annals_history_bytes` | gauge | files of superseded versions |
//! | `annals_events_bytes` | gauge | files of what changed |
//! | `annals_blobs_bytes` | gauge | files of large values |
//! | `annals_wal_bytes` | gauge | files of the log |
//! | `annals_watches` | gauge | watches that have not ended |
//! | `annals_watch_lag_revisions` | gauge | revisions the watch that is furthest behind has yet to look at |
//! | `annals_leases` | gauge | leases with a time |
//! | `annals_pinned_oldest` | gauge | oldest revision that a view or iterator holds; 0 if none does |
//! | `annals_failed` | gauge | 1 if the store accepts no more writes |
//! | `annals_no_space` | gauge | 1 if background work waits for space, or for a descriptor |
//! | `annals_keeps_all` | gauge | 1 if nothing is forgotten, as newest versions are damaged |
//! | `annals_damaged_files` | gauge | damaged files that background work leaves alone |
//!
//! # What is not as in etcd
//!
//! * Revision 0 is an error: "the newest" is [`Store::latest`] or a `revision` of `None`.
//! * In one transaction a delete of a range "from the key on" covers every key from there, so that a
//!   put of one of them is a duplicate. (etcd overlooks it, and with `ignore_lease` then crashes.)
//! * A put that a later nested transaction of the same transaction deletes leaves one version, the
//!   tombstone, not two; if the key was absent before, none.
//! * A tombstone exactly at the compacted revision stays readable, as in newer etcd.
//! * [`Store::hash_at`] tells where a hash can differ from etcd's.
//! * A watch is told the previous key-value also of a change exactly at the compacted revision.
//! * Sorts are stable: equal ones stay in key order.
//! * What is left of the time of a lease survives a restart to the second, and a crash to
//!   [a minute](Options::lease_checkpoint_interval_seconds); time passes while the store is open. A lease
//!   whose time is over is not renewed any more, also if its end has not come yet.

// A model checker's build ends with the commit chain: see src/sync.rs.
pub mod clock;
mod commit;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod engine;
mod error;
mod index;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
pub mod kv;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod lease;
mod manifest;
#[cfg(all(feature = "object", not(any(feature = "loom", feature = "shuttle"))))]
pub mod object;
mod observe;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod open;
mod options;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod reclaim;
mod segment;
mod sync;
pub mod vfs;
mod wal;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod watch;

#[doc(hidden)]
#[cfg(all(
    any(test, feature = "bench-internals"),
    not(any(feature = "loom", feature = "shuttle"))
))]
pub use crate::commit::rivals;
#[doc(hidden)]
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
pub use crate::engine::inspect;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
pub use crate::engine::{
    CheckReport, Checkpoint, DroppedTail, FileStats, Latency, OpenReport, PrefixSpace, Space,
    Stats, TornTail, check,
};
pub use crate::error::{Corruption, Effect, Error, ErrorKind, Result};
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
#[doc(inline)]
pub use crate::kv::{
    AsKeyRange, At, COMMIT_TIME_MAX, COMMIT_TIME_MIN, Change, ChangeKind, ChangeRef, Commit,
    CommitOptions, Compare, CompareResult, CompareTarget, Comparing, ComparingValue,
    DeleteRangeRequest, DeleteRangeResponse, Deleted, Diff, DiffIter, History, KeyRange, KeyValue,
    KvHash, LEASE_TTL_MAX, LEASE_TTL_MIN, Lease, LeaseGrantRequest, LeaseRevokeResponse, Load,
    Loading, Log, Modified, Modify, Op, OpResponse, Origin, Outcome, PutRequest, PutResponse,
    RangeIter, RangeRequest, RangeResponse, Retention, RetentionRule, SortOrder, SortTarget,
    SpaceOptions, SpaceSurvey, Store, Ticket, Transaction, TransactionRef, TxnBuilder, TxnRequest,
    TxnResponse, Update, Updated, Version, View, create_revision, delete, delete_prefix, get,
    lease, mod_revision, prefix_range_end, put, range, txn, value, version,
};
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
#[doc(inline)]
pub use crate::kv::{
    BackupInfo, BackupReport, RestoreOptions, RestoreReport, inspect_backup, restore,
};
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
pub use crate::lease::{LeaseGuard, LeaseIter, LeaseStatus};
pub use crate::options::{Durability, HistoryCodec, KNOBS, Knob, KnobRange, Options, ReadMode};
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
pub use crate::watch::{Batch, Event, Slow, Watch, WatchBuilder, WatchHandle};
