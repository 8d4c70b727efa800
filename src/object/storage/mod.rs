//! Objects under keys: what a Kubernetes API server asks of its storage.
//!
//! `storage.Interface` of `k8s.io/apiserver/pkg/storage`, with the behaviour of its store on etcd
//! (`pkg/storage/etcd3/store.go`). Each write is one transaction, `If mod_revision(key) == r Then put or delete Else
//! get(key)`; who loses goes on with what the `Else` has read, without another round. A dry run is the same, but for
//! what is written.
//!
//! ```text
//!   object --versioner: takes the version away--> JSON --transformer--> value of the key
//!   object <--versioner: attaches mod_revision--- JSON <--transformer-- value, mod_revision
//! ```
//!
//! The bytes of an object are JSON with sorted names, so that equal objects have equal bytes: an update that changes
//! nothing writes nothing.

mod codec;
mod commit;
mod convert;
mod delete;
mod error;
mod history;
mod keys;
mod list;
mod predicate;
mod rewrite;
mod stream;
mod token;
mod ttl;
mod update;
mod watch;

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::clock::{Clock, SystemClock};
use crate::kv::KeyValue;
use crate::observe::ObjectCall;

use super::kind::GroupResource;
use super::kv::{Kv, ScanRequest};
use super::meta;
use super::status::{Cause, Status};
use super::transform::{Identity, Transformer};
use super::value::{DEPTH_MAX, is_object_within_depth};
use super::versioner::{ApiVersioner, Versioner};
use codec::{Codec, Decoded, Unreadable};
use commit::{Lease, Outcome};
use convert::Conversions;
use ttl::Lent;

pub use delete::Deleted;
pub use error::{StorageError, StorageErrorKind};
pub use history::{HistoryOptions, ObjectHistory, ObjectState, ObjectVersion};
pub use list::{List, ListOptions, ResourceVersionMatch};
pub use predicate::{FieldsOf, Predicate};
pub use rewrite::Rewritten;
pub use update::{GuaranteedUpdateOptions, ResponseMeta};
pub(super) use watch::INITIAL_EVENTS_END;
pub use watch::{ObjectWatch, WatchEvent, WatchEventKind, WatchHandle, WatchOptions};

/// Objects of one resource in a store.
///
/// Keys are paths, as `/pods/default/web`; full keys begin with a prefix, as `/registry`. A clone is another handle on
/// the same.
///
/// ```
/// use std::sync::Arc;
/// use annals::object::{GetOptions, GroupResource, Storage};
/// use serde_json::json;
/// # let directory = tempfile::tempdir().expect("a temporary directory");
///
/// let store = Arc::new(annals::Store::open(directory.path())?);
/// let pods = Storage::new(store, "/registry", GroupResource::new("", "pods"), "/pods");
/// let made = pods.create("/pods/default/web", json!({"metadata": {"name": "web"}}), 0)?;
/// assert_eq!(made["metadata"]["resourceVersion"], "2");
/// let read = pods.get("/pods/default/web", &GetOptions::default())?;
/// assert_eq!(read, made);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Storage<K: Kv> {
    kv: Arc<K>,
    prefix: Arc<str>,
    resource: Arc<GroupResource>,
    resource_prefix: Arc<str>,
    codec: Codec,
    leases: Arc<ttl::Leases>,
    /// Whether nothing is written.
    is_dry: bool,
}

/// What has to be true of an object for a call to have an effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "both are all that Kubernetes has")]
pub struct Preconditions {
    /// Its UID.
    pub uid: Option<String>,
    /// Its resource version.
    pub resource_version: Option<String>,
}

impl Preconditions {
    /// None at all.
    pub fn none() -> Self {
        Self::default()
    }

    /// That it is this very object.
    pub fn uid(uid: impl Into<String>) -> Self {
        Self { uid: Some(uid.into()), resource_version: None }
    }

    pub(super) fn check(&self, key: &str, object: &Value) -> Result<(), StorageError> {
        let unmet = |what: &str, wanted: &str, found: &str| {
            let message = format!(
                "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            );
            Err(StorageError::invalid_object(key, message))
        };
        let (uid, version) = (meta::uid(object), meta::resource_version(object));
        match (&self.uid, &self.resource_version) {
            (Some(wanted), _) if wanted != uid => unmet("UID", wanted, uid),
            (_, Some(wanted)) if wanted != version => unmet("ResourceVersion", wanted, version),
            _ => Ok(()),
        }
    }
}

/// How to get an object.
#[derive(Clone, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "both are all that Kubernetes has")]
pub struct GetOptions {
    /// The store has to have come as far as this resource version; empty or `0` for any.
    pub resource_version: String,
    /// Whether null is the answer where there is no such object, instead of an error.
    pub ignore_not_found: bool,
}

/// An object as it lies in the store.
#[derive(Clone, Debug)]
struct State {
    /// With its version; empty where there is none.
    object: Value,
    /// Its JSON, without the version.
    data: Vec<u8>,
    /// 0 where there is none.
    revision: u64,
    lease: i64,
    /// Whether it is to be written anew whatever happens.
    is_stale: bool,
}

impl<K: Kv> Storage<K> {
    /// The objects of `resource` below `prefix`, all of whose keys begin with `resource_prefix` and a slash.
    /// Slashes before and behind the two prefixes make no difference.
    pub fn new(kv: Arc<K>, prefix: &str, resource: GroupResource, resource_prefix: &str) -> Self {
        let codec = Codec {
            versioner: Arc::new(ApiVersioner),
            transformer: Arc::new(Identity),
            conversions: Conversions::default(),
        };
        Self {
            kv,
            prefix: keys::join(prefix).into(),
            resource: Arc::new(resource),
            resource_prefix: keys::join(resource_prefix).into(),
            codec,
            leases: Arc::new(ttl::Leases::new(Arc::new(SystemClock::new()))),
            is_dry: false,
        }
    }

    /// With full keys that begin with another prefix.
    pub(super) fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = keys::join(prefix).into();
        self
    }

    /// With keys that begin with another prefix.
    pub(super) fn resource_prefix(mut self, prefix: &str) -> Self {
        self.resource_prefix = keys::join(prefix).into();
        self
    }

    /// What all keys begin with, without a slash behind.
    pub(super) fn root(&self) -> &str {
        &self.resource_prefix
    }

    /// With other versions.
    #[must_use]
    pub fn versioner(mut self, versioner: Arc<dyn Versioner>) -> Self {
        self.codec.versioner = versioner;
        self
    }

    /// With objects changed on their way to the store and back, as by encryption.
    #[must_use]
    pub fn transformer(mut self, transformer: Arc<dyn Transformer>) -> Self {
        self.codec.transformer = transformer;
        self
    }

    /// With another clock, by which objects share leases: not with those of the handle that this one is made of.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.leases = Arc::new(ttl::Leases::new(clock));
        self
    }

    /// The same, all of whose writes do everything but write: they are checked, refused and answered as they would be.
    /// What they answer has the version of what is there, and that of what is not there none.
    ///
    /// The store is asked, so that it refuses what is too large for it; but of a bound on the bytes of a transaction
    /// ([`transaction_bytes_max`](crate::Options::transaction_bytes_max)) that is below that of a value, it says nothing.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use annals::object::{GroupResource, Storage};
    /// # use serde_json::json;
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Arc::new(annals::Store::open(directory.path())?);
    /// # let pods = Storage::new(store, "/registry", GroupResource::new("", "pods"), "/pods");
    /// let web = json!({"metadata": {"name": "web"}});
    /// assert_eq!(pods.clone().dry_run().create("/pods/web", web.clone(), 0)?, web);
    /// assert_eq!(pods.count("/pods")?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.is_dry = true;
        self
    }

    /// The store below.
    pub fn kv(&self) -> &Arc<K> {
        &self.kv
    }

    /// What messages call the resource.
    pub fn resource(&self) -> &GroupResource {
        &self.resource
    }

    /// Stores an object under a key that is free; with a time to live of so many seconds, unless that is 0. Answers it
    /// with its version.
    ///
    /// What has a time to live may live a twentieth of it longer, up to a minute, or a second where that is more: so
    /// objects share [leases](Kv::grant), and not each of them writes one.
    ///
    /// # Errors
    ///
    /// [`KeyExists`](StorageErrorKind::KeyExists); 400 for an object that has a version.
    pub fn create(&self, key: &str, mut object: Value, ttl: u64) -> Result<Value, StorageError> {
        let _call = self.timed("create", key);
        let key = self.key(key)?;
        // A version that is none is no obstacle: it is taken away.
        if self.codec.versioner.object_resource_version(&object).is_ok_and(|version| version != 0) {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Status::bad_request(message).into());
        }
        self.codec.versioner.prepare_for_storage(&mut object)?;
        let data = encode(&mut object)?;
        let mut own = Lent::default();
        let Outcome::Done(revision) = self.put(&key, &data, 0, Lease::Ttl(ttl), &mut own)? else {
            return Err(StorageError::exists(&key));
        };
        self.codec.attach(&mut object, revision);
        Ok(object)
    }

    /// The object under a key.
    ///
    /// # Errors
    ///
    /// [`KeyNotFound`](StorageErrorKind::KeyNotFound); 504 where the store has not come as far as the version asked
    /// for; [`CorruptObject`](StorageErrorKind::CorruptObject) or [`Internal`](StorageErrorKind::Internal) for what
    /// cannot be read.
    pub fn get(&self, key: &str, options: &GetOptions) -> Result<Value, StorageError> {
        let _call = self.timed("get", key);
        let key = self.key(key)?;
        let (found, current) = self.kv.get(key.as_bytes(), None)?;
        self.check_minimum(&options.resource_version, current)?;
        match found {
            Some(kv) => Ok(self.state(&key, &kv)?.object),
            None if options.ignore_not_found => Ok(Value::Null),
            None => Err(StorageError::not_found(&key, 0)),
        }
    }

    /// How many objects there are whose keys begin with `key` and a slash, also such as cannot be read. It takes
    /// [what a count takes](crate::View::count).
    ///
    /// # Errors
    ///
    /// 400 for a key that leads elsewhere.
    pub fn count(&self, key: &str) -> Result<u64, StorageError> {
        let _call = self.timed("count", key);
        let prefix = self.prefix_of(key)?;
        let prefix = prefix.as_bytes();
        Ok(self.kv.count(ScanRequest { prefix, start: prefix, at: None })?)
    }

    /// Whoever wants to know is told how long the call takes.
    fn timed<'c>(&'c self, verb: &'static str, key: &'c str) -> ObjectCall<'c> {
        ObjectCall::begin(verb, &*self.resource, key)
    }

    /// The full key of an object, under which it lies in the store.
    pub(in crate::object) fn key(&self, key: &str) -> Result<String, StorageError> {
        keys::prepare(&self.prefix, &self.resource_prefix, key, false)
    }

    fn prefix_of(&self, key: &str) -> Result<String, StorageError> {
        keys::prepare(&self.prefix, &self.resource_prefix, key, true)
    }

    /// The version that a reader gives; 0 for none.
    fn minimum(&self, resource_version: &str) -> Result<u64, StorageError> {
        if resource_version.is_empty() {
            return Ok(0);
        }
        self.codec.versioner.parse_resource_version(resource_version).map_err(|bad| {
            let told = match bad.details().causes.first() {
                Some(Cause { message, field, .. }) => format!("{field}: {message}"),
                None => bad.to_string(),
            };
            Status::bad_request(format!("invalid resource version: {told}")).into()
        })
    }

    /// "Not older than": the store must have come as far.
    fn check_minimum(&self, resource_version: &str, current: u64) -> Result<(), StorageError> {
        let minimum = self.minimum(resource_version)?;
        if minimum > current {
            return Err(Status::too_large_resource_version(minimum, current, 0).into());
        }
        Ok(())
    }

    /// The object in a key-value.
    fn state(&self, key: &str, kv: &KeyValue) -> Result<State, StorageError> {
        let read = self.codec.decode(key.as_bytes(), &kv.value, kv.mod_revision);
        let Decoded { object, data, is_stale } = read.map_err(|why| match why {
            Unreadable::Transform(bad) => StorageError::internal(key, bad),
            Unreadable::Decode(bad) => StorageError::corrupt(key, kv.mod_revision, bad),
        })?;
        Ok(State { object, data, revision: kv.mod_revision, lease: kv.lease, is_stale })
    }

    /// Reads what is there now.
    fn current(&self, key: &str, ignore_not_found: bool) -> Result<State, StorageError> {
        let found = self.kv.get(key.as_bytes(), None)?.0;
        self.state_or_none(key, found, ignore_not_found)
    }

    fn state_or_none(
        &self,
        key: &str,
        found: Option<KeyValue>,
        ignore_not_found: bool,
    ) -> Result<State, StorageError> {
        match found {
            Some(kv) => self.state(key, &kv),
            None if ignore_not_found => Ok(State {
                object: Value::Object(serde_json::Map::new()),
                data: Vec::new(),
                revision: 0,
                lease: 0,
                is_stale: false,
            }),
            None => Err(StorageError::not_found(key, 0)),
        }
    }

    /// What somebody believes to be there. Its lease is not known.
    fn suggested(&self, object: &Value) -> Result<State, StorageError> {
        let revision = self.codec.versioner.object_resource_version(object)?;
        let mut object = object.clone();
        self.codec.versioner.prepare_for_storage(&mut object)?;
        let data = encode(&mut object)?;
        self.codec.attach(&mut object, revision);
        Ok(State { object, data, revision, lease: 0, is_stale: false })
    }
}

/// Refuses an object that nests so deep that it could not be read again.
fn check_depth(object: &Value) -> super::status::Result<()> {
    if is_object_within_depth(object) {
        return Ok(());
    }
    Err(Status::bad_request(format!("the object nests deeper than {DEPTH_MAX}")))
}

/// The bytes of an object: equal for equal objects.
fn encode(object: &mut Value) -> Result<Vec<u8>, StorageError> {
    check_depth(object)?;
    object.sort_all_objects();
    serde_json::to_vec(object).map_err(|bad| Status::internal(bad).into())
}

impl<K: Kv> Clone for Storage<K> {
    fn clone(&self) -> Self {
        Self {
            kv: Arc::clone(&self.kv),
            prefix: Arc::clone(&self.prefix),
            resource: Arc::clone(&self.resource),
            resource_prefix: Arc::clone(&self.resource_prefix),
            codec: self.codec.clone(),
            leases: Arc::clone(&self.leases),
            is_dry: self.is_dry,
        }
    }
}

impl<K: Kv> fmt::Debug for Storage<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prefix, resource, resource_prefix, .. } = self;
        write!(f, "Storage({resource} at {prefix}{resource_prefix})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_can_be_read_again_however_deep() {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(crate::kv::Store::open(directory.path()).unwrap());
        let storage = Storage::new(store, "/registry", GroupResource::new("", "pods"), "/pods");
        let nested = |depth: usize| {
            let mut value = Value::Null;
            for _ in 1..depth {
                value = Value::Array(vec![value]);
            }
            serde_json::json!({ "metadata": {}, "spec": value })
        };
        let made = storage.create("/pods/deepest", nested(DEPTH_MAX), 0).unwrap();
        assert_eq!(storage.get("/pods/deepest", &GetOptions::default()).unwrap(), made);
        let refused = storage.create("/pods/deeper", nested(DEPTH_MAX + 1), 0).unwrap_err();
        assert_eq!(refused.status().map(Status::code), Some(400));
        assert_eq!(storage.count("/pods").unwrap(), 1);
    }
}
