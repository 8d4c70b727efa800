//! What happens to objects, from a version on: `Watch` of `k8s.io/apiserver/pkg/storage/etcd3`.
//!
//! A watch may begin with what there is. That is read lazily as of one revision, while the changes are already being
//! kept from the next revision on: nothing is told twice, nothing is left out, and it takes no more memory where
//! there is much.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use serde::ser::{Serialize, SerializeStruct, Serializer};
use serde_json::{Value, json};

use crate::ErrorKind;
use crate::clock::Stopwatch;
use crate::kv::KeyValue;
use crate::object::kv::{Changes, Kv, KvEvent, KvWatch, ScanRequest, WatchRequest};
use crate::object::meta;
use crate::object::status::{Reason, Status};
use crate::sync::plain::{AtomicBool, Ordering};

use super::Storage;
use super::codec::{Codec, Unreadable};
use super::error::StorageError;
use super::list;
use super::predicate::Predicate;

const EXPIRED: &str = "The resourceVersion for the provided watch is too old.";
/// How often bookmarks are told unless something else is wanted: as the watch cache of Kubernetes does.
const BOOKMARKS_EVERY: Duration = Duration::from_secs(60);
/// Not more often than this.
const BOOKMARKS_MIN: Duration = Duration::from_millis(100);
/// The annotation of the bookmark behind what there was when the watch began.
pub(in crate::object) const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What to watch.
///
/// | `resource_version` | `send_initial_events` | begins with | goes on from |
/// | --- | --- | --- | --- |
/// | empty, `0` | `None`, `true` | all objects that there are | the next revision |
/// | empty, `0` | `false` | nothing | the next revision |
/// | other | `None`, `false` | nothing | the revision after that |
/// | other | `true` | all objects that there are, at that version or a later one | the next revision |
#[derive(Clone, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "to be made with what is wanted of it")]
pub struct WatchOptions {
    /// The version that is known already.
    pub resource_version: String,
    /// Whether to begin with what there is.
    pub send_initial_events: Option<bool>,
    /// Whether to tell from time to time up to which version everything has been told, and, if
    /// `send_initial_events` is `true`, when the beginning has been.
    pub allow_bookmarks: bool,
    /// How often; a minute unless it is set, and not less than 100 ms.
    pub bookmarks_every: Option<Duration>,
    /// What a bookmark has beside its version, as `apiVersion` and `kind`.
    pub bookmark: Value,
    /// Which objects.
    pub predicate: Predicate,
    /// Whether all keys below the key are meant, instead of the key itself; `Objects` knows it.
    pub recursive: bool,
}

/// Something that has happened.
///
/// It serializes to what a Kubernetes API server tells: `{"type": "ADDED", "object": ..}`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WatchEvent {
    /// What.
    pub kind: WatchEventKind,
    /// The object, with the version of the change: as it is now, or, of one that is gone, as it was last. Of an error
    /// it is the [`Status`].
    pub object: Value,
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEventKind {
    /// The object was not there, or not wanted, before.
    Added,
    /// It is another.
    Modified,
    /// It is gone, or not wanted any more.
    Deleted,
    /// Nothing: everything up to the version of this object has been told.
    Bookmark,
    /// The watch has ended. With 410 what there is has to be listed anew: the version has been compacted, or the
    /// transformer cannot read it. With another code, too, but after a pause.
    Error(Status),
}

impl WatchEvent {
    fn new(kind: WatchEventKind, object: Value) -> Self {
        Self { kind, object }
    }

    fn error(status: Status) -> Self {
        let object = serde_json::to_value(&status).unwrap_or_default();
        Self { kind: WatchEventKind::Error(status), object }
    }
}

impl Serialize for WatchEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut event = serializer.serialize_struct("WatchEvent", 2)?;
        let kind = match self.kind {
            WatchEventKind::Added => "ADDED",
            WatchEventKind::Modified => "MODIFIED",
            WatchEventKind::Deleted => "DELETED",
            WatchEventKind::Bookmark => "BOOKMARK",
            WatchEventKind::Error(_) => "ERROR",
        };
        event.serialize_field("type", kind)?;
        event.serialize_field("object", &self.object)?;
        event.end()
    }
}

/// Tells what happens to objects, in the order of their versions; made by [`Storage::watch`].
///
/// It is an iterator that waits for the next event, and a [`Stream`](futures_core::Stream) of a task. It ends after an
/// [error](WatchEventKind::Error), or without one when it is [cancelled](WatchHandle::cancel) or the store is closed.
pub struct ObjectWatch<K: Kv> {
    codec: Codec,
    predicate: Predicate,
    bookmark: Value,
    bookmarks_every: Option<Duration>,
    /// What was there when it began, as far as it has not been told.
    initial: Option<K::Scan>,
    /// Whether what comes was there when it began.
    is_initial: bool,
    /// The version of the bookmark behind it.
    initial_end: Option<u64>,
    /// The changes of a revision, as far as they have not been told.
    pending: std::vec::IntoIter<KvEvent>,
    pending_revision: u64,
    live: Option<K::Watch>,
    /// Told as the last.
    error: Option<Status>,
    /// Since something was told.
    quiet: Stopwatch,
    handle: WatchHandle,
    decorate: Decorate,
}

/// Changes an object on its way to the client.
pub(in crate::object) type Decorate = Arc<dyn Fn(&mut Value) + Send + Sync>;

/// Ends an [`ObjectWatch`] from any thread.
#[derive(Clone)]
pub struct WatchHandle(Arc<Handle>);

#[derive(Default)]
struct Handle {
    is_ended: AtomicBool,
    cancel: Option<Box<dyn Fn() + Send + Sync>>,
}

impl WatchHandle {
    /// Ends the watch: it tells nothing more, and whoever waits for it is woken.
    pub fn cancel(&self) {
        self.0.is_ended.store(true, Ordering::Release);
        if let Some(cancel) = &self.0.cancel {
            cancel();
        }
    }

    /// Whether the watch has ended.
    pub fn is_ended(&self) -> bool {
        self.0.is_ended.load(Ordering::Acquire)
    }
}

impl<K: Kv> Storage<K> {
    /// Tells what happens to the objects below a key, or to that at it.
    ///
    /// - A deletion is told with the object as it was, and the version of the deletion.
    /// - An object that a change makes one of the wanted is [added](WatchEventKind::Added); one that is wanted no
    ///   longer is [deleted](WatchEventKind::Deleted), and told as it was before.
    /// - A version that is still to come is waited for.
    ///
    /// As long as the beginning has not been told, it keeps what was there from being reclaimed, and the store open.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use annals::object::{GroupResource, ListOptions, Storage, WatchEventKind, WatchOptions};
    /// # use serde_json::json;
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Arc::new(annals::Store::open(directory.path())?);
    /// # let pods = Storage::new(store, "/registry", GroupResource::new("", "pods"), "/pods");
    /// let list = pods.list("/pods", &ListOptions { recursive: true, ..Default::default() })?;
    /// let resource_version = list.resource_version;
    /// let options = WatchOptions { resource_version, recursive: true, ..Default::default() };
    /// let mut watch = pods.watch("/pods", &options)?;
    ///
    /// let made = pods.create("/pods/a", json!({"metadata": {"name": "a"}}), 0)?;
    /// let event = watch.next().expect("told");
    /// assert_eq!((event.kind, event.object), (WatchEventKind::Added, made));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// 400 for a key that leads elsewhere, 422 for a version that is none. All else is told as the first event.
    pub fn watch(&self, key: &str, options: &WatchOptions) -> Result<ObjectWatch<K>, StorageError> {
        let key = if options.recursive { self.prefix_of(key)? } else { self.key(key)? };
        let known = self.codec.versioner.parse_resource_version(&options.resource_version)?;
        let with_initial = options.send_initial_events.unwrap_or(known == 0);
        let bookmarks_every = options
            .allow_bookmarks
            .then(|| options.bookmarks_every.unwrap_or(BOOKMARKS_EVERY).max(BOOKMARKS_MIN));
        let mut watch = ObjectWatch {
            codec: self.codec.clone(),
            predicate: options.predicate.clone(),
            bookmark: options.bookmark.clone(),
            bookmarks_every,
            initial: None,
            is_initial: with_initial,
            initial_end: None,
            pending: Vec::new().into_iter(),
            pending_revision: 0,
            live: None,
            error: None,
            quiet: Stopwatch::start(),
            handle: WatchHandle(Arc::default()),
            decorate: Arc::new(|_| ()),
        };
        if let Err(why) = self.begin_watch(&mut watch, &key, known, with_initial, options) {
            watch.error = Some(why);
        }
        Ok(watch)
    }

    fn begin_watch(
        &self,
        watch: &mut ObjectWatch<K>,
        key: &str,
        known: u64,
        with_initial: bool,
        options: &WatchOptions,
    ) -> Result<(), Status> {
        let mut after = known;
        if with_initial {
            let current = self.kv.revision().map_err(told(EXPIRED))?;
            if known > current {
                return Err(Status::too_large_resource_version(known, current, 1));
            }
            after =
                self.begin_initial(watch, key, options.recursive).map_err(told(list::EXPIRED))?;
        } else if known == 0 {
            after = self.kv.revision().map_err(told(EXPIRED))?;
        }
        if options.send_initial_events == Some(true) && options.allow_bookmarks {
            watch.initial_end = Some(after);
        }
        let live = self.kv.watch(WatchRequest {
            key: key.as_bytes(),
            is_prefix: options.recursive,
            from: after.saturating_add(1),
            progress_every: watch.bookmarks_every,
        });
        let live = live.map_err(told(EXPIRED))?;
        let cancel = Some(live.canceller());
        watch.handle = WatchHandle(Arc::new(Handle { cancel, ..Handle::default() }));
        watch.live = Some(live);
        Ok(())
    }

    /// Prepares what there is to be told; answers its revision.
    fn begin_initial(
        &self,
        watch: &mut ObjectWatch<K>,
        key: &str,
        recursive: bool,
    ) -> crate::Result<u64> {
        let key = key.as_bytes();
        if recursive {
            let (kvs, revision) =
                self.kv.scan(ScanRequest { prefix: key, start: key, at: None })?;
            watch.initial = Some(kvs);
            return Ok(revision);
        }
        let (found, revision) = self.kv.get(key, None)?;
        let events = found.into_iter().map(initial).collect::<Vec<_>>();
        watch.pending = events.into_iter();
        watch.pending_revision = revision;
        Ok(revision)
    }
}

/// What there is, as if it had just been made.
fn initial(kv: KeyValue) -> KvEvent {
    let kv = KeyValue { create_revision: kv.mod_revision, ..kv };
    KvEvent { kv, is_delete: false, prev_kv: None }
}

impl<K: Kv> ObjectWatch<K> {
    /// The next event if it is there or comes within `timeout`; `None` also when the watch
    /// [has ended](WatchHandle::is_ended). Of what there was at the beginning it looks at a thousand objects
    /// whatever time that takes, and leaves the others to the next call.
    pub fn next_timeout(&mut self, timeout: Duration) -> Option<WatchEvent> {
        let watch = Stopwatch::start();
        let (mut left, mut looks) = (timeout, 0..1_000);
        loop {
            if let ControlFlow::Break(told) = self.turn(|live| live.next_timeout(left)) {
                return told;
            }
            // Of what was there already some is looked at in any case.
            let is_waiting = self.initial.is_none() && self.pending.len() == 0;
            let has_looked = looks.next().is_none();
            let passed = Duration::from_micros(watch.micros());
            left = timeout.saturating_sub(passed);
            if (is_waiting || has_looked) && left.is_zero() {
                return None;
            }
        }
    }

    /// Does the next thing there is to do, with what the live watch says to `ask` if that is it; breaks with what is to be
    /// told, and with nothing where it has ended.
    pub(super) fn turn(
        &mut self,
        ask: impl FnOnce(&mut K::Watch) -> crate::Result<Option<Changes>>,
    ) -> ControlFlow<Option<WatchEvent>> {
        if self.handle.is_ended() {
            return ControlFlow::Break(self.end());
        }
        match self.step(ask) {
            Ok(Some(mut event)) => {
                if event.kind != WatchEventKind::Bookmark {
                    (self.decorate)(&mut event.object);
                }
                self.quiet = Stopwatch::start();
                ControlFlow::Break(Some(event))
            }
            Ok(None) => ControlFlow::Continue(()),
            Err(why) => {
                let is_cancelled = self.handle.is_ended();
                self.end();
                ControlFlow::Break(why.filter(|_| !is_cancelled).map(WatchEvent::error))
            }
        }
    }

    /// With objects changed before they are told.
    pub(in crate::object) fn decorated(mut self, decorate: Decorate) -> Self {
        self.decorate = decorate;
        self
    }

    /// What ends the watch from anywhere.
    pub fn handle(&self) -> WatchHandle {
        self.handle.clone()
    }

    fn end(&mut self) -> Option<WatchEvent> {
        self.handle.0.is_ended.store(true, Ordering::Release);
        (self.initial, self.initial_end, self.live) = (None, None, None);
        self.pending = Vec::new().into_iter();
        None
    }

    /// Does the next thing there is to do; the error ends the watch, and is told unless it is none.
    fn step(
        &mut self,
        ask: impl FnOnce(&mut K::Watch) -> crate::Result<Option<Changes>>,
    ) -> Result<Option<WatchEvent>, Option<Status>> {
        if let Some(why) = self.error.take() {
            return Err(Some(why));
        }
        if let Some(event) = self.pending.next() {
            let told = self.tell(&event).map_err(Some)?;
            let is_last = self.pending.len() == 0;
            return Ok(told.or_else(|| is_last.then(|| self.late_bookmark()).flatten()));
        }
        if let Some(initial_kvs) = &mut self.initial {
            match initial_kvs.next() {
                Some(Ok(kv)) => return self.tell(&initial(kv)).map_err(Some),
                Some(Err(error)) => return Err(Some(told(list::EXPIRED)(error))),
                None => self.initial = None,
            }
        }
        if let Some(revision) = self.initial_end.take() {
            let mut event = self.bookmark(revision);
            if let Some(metadata) = meta::metadata_mut(&mut event.object) {
                metadata.insert("annotations".into(), json!({ INITIAL_EVENTS_END: "true" }));
            }
            return Ok(Some(event));
        }
        let Some(live) = &mut self.live else { return Err(None) };
        self.is_initial = false;
        match ask(live) {
            Ok(None) => Ok(None),
            Ok(Some(changes)) if changes.events.is_empty() => {
                Ok(self.bookmarks_every.map(|_| self.bookmark(changes.revision)))
            }
            Ok(Some(changes)) => {
                self.pending = changes.events.into_iter();
                self.pending_revision = changes.revision;
                Ok(None)
            }
            Err(error) if matches!(error.kind(), ErrorKind::Closed) => Err(None),
            Err(error) => Err(Some(told(EXPIRED)(error))),
        }
    }

    fn bookmark(&self, revision: u64) -> WatchEvent {
        let mut object = self.bookmark.clone();
        if !object.is_object() {
            object = json!({});
        }
        self.codec.attach(&mut object, revision);
        WatchEvent::new(WatchEventKind::Bookmark, object)
    }

    /// Of a range that changes all the time the store tells no progress: a client to which none of the changes
    /// matter has to learn of it here.
    fn late_bookmark(&self) -> Option<WatchEvent> {
        let every = self.bookmarks_every?;
        let is_due = Duration::from_micros(self.quiet.micros()) >= every;
        (is_due && self.initial_end.is_none()).then(|| self.bookmark(self.pending_revision))
    }

    /// What a change is to somebody who wants only some objects.
    fn tell(&self, event: &KvEvent) -> Result<Option<WatchEvent>, Status> {
        use WatchEventKind::{Added, Deleted, Modified};
        let KvEvent { kv, is_delete, prev_kv } = event;
        let is_created = !is_delete && kv.create_revision == kv.mod_revision;
        if !is_created && prev_kv.is_none() {
            return Err(Status::internal(format!(
                "event received with PrevKv=nil (key={:?}, modRevision={}, type={})",
                String::from_utf8_lossy(&kv.key),
                kv.mod_revision,
                if *is_delete { "DELETE" } else { "PUT" },
            )));
        }
        let wants_all = self.predicate.is_empty();
        // What was there before is told with the version of the change, too.
        let new = if *is_delete { None } else { Some(self.decode(kv, kv, *is_delete)?) };
        let old = match prev_kv {
            Some(prev) if *is_delete || !(is_created || wants_all) => {
                Some(self.decode(prev, kv, *is_delete)?)
            }
            _ => None,
        };
        let wanted = |object: &Value| wants_all || self.predicate.matches(object);
        let had_been = !is_created && !is_delete && wants_all;
        let (new, old) = (new.filter(wanted), old.filter(wanted));
        Ok(match (new, old) {
            (Some(new), None) if !had_been => Some(WatchEvent::new(Added, new)),
            (Some(new), _) => Some(WatchEvent::new(Modified, new)),
            (None, Some(old)) => Some(WatchEvent::new(Deleted, old)),
            (None, None) => None,
        })
    }

    fn decode(&self, kv: &KeyValue, at: &KeyValue, is_delete: bool) -> Result<Value, Status> {
        match self.codec.decode(&at.key, &kv.value, at.mod_revision) {
            Ok(read) => Ok(read.object),
            // With a key that has been left out since: what there is now may well be read.
            Err(why @ Unreadable::Transform(_)) if !self.is_initial => {
                Err(Status::expired(format!("{EXPIRED} {}", why.at(kv.mod_revision))))
            }
            Err(why) if is_delete => {
                let why = why.at(kv.mod_revision);
                let message = format!("saw a DELETED event, but object data is corrupt - {why}");
                Err(Status::new(Reason::StoreReadError, message))
            }
            Err(why) => Err(Status::internal(why)),
        }
    }
}

/// What the store says, with this for what has been compacted.
fn told(expired: &'static str) -> impl Fn(crate::Error) -> Status {
    move |error| match error.kind() {
        ErrorKind::Compacted { .. } => Status::expired(expired),
        _ => error.into(),
    }
}

impl<K: Kv> fmt::Debug for ObjectWatch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut watch = f.debug_struct("ObjectWatch");
        watch.field("predicate", &self.predicate).field("pending", &self.pending.len());
        watch.field("is_initial", &self.is_initial);
        watch.field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl fmt::Debug for WatchHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchHandle").field("is_ended", &self.is_ended()).finish()
    }
}
