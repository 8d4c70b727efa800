//! Objects of a kind as they were.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::object::kv::Kv;
use crate::object::status::Result;
use crate::object::storage::{HistoryOptions, ObjectHistory};

use super::{Objects, Typed};

impl<K: Kv> Objects<K> {
    /// An object as it was at a version: that of its own, of a list, or of anything else in the store.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use annals::object::{Kind, Objects};
    /// # use serde_json::json;
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Arc::new(annals::Store::open(directory.path())?);
    /// # let pods = Objects::new(store, Kind::new("v1", "Pod", "pods"));
    /// let pod = json!({"metadata": {"name": "web"}, "spec": {"image": "web:1"}});
    /// pods.create("default", pod, &Default::default())?;
    /// let before = pods.list("default", &Default::default())?.resource_version;
    /// pods.delete("default", "web", &Default::default())?;
    ///
    /// let web = pods.get_at("default", "web", &before)?;
    /// assert_eq!(web["spec"]["image"], "web:1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`list`](Self::list) does the same for many, with [`ResourceVersionMatch::Exact`](crate::object::ResourceVersionMatch::Exact).
    ///
    /// # Errors
    ///
    /// 404 where there was none then; 410 for a version that has been compacted, 504 for one that is still to come, 400 for what
    /// is no version; those of [`get`](Self::get) for what cannot be read.
    pub fn get_at(&self, namespace: &str, name: &str, resource_version: &str) -> Result<Value> {
        let key = self.path(namespace, name)?;
        let found = self.storage.get_at(&key, resource_version);
        let mut object = found.map_err(|error| error.into_status(self.storage.resource(), name))?;
        self.strategy.decorate(&mut object);
        Ok(object)
    }

    /// What has become of an object, the newest version first: its changes, its deletion, and what bore the name before it,
    /// as far back as the store knows. Nothing where it knows of no such object.
    ///
    /// It is lazy: each version is looked up when it is asked for. A version that cannot be read tells why and does not
    /// end it. Where older versions of the object have been compacted, 410 is the last item.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use annals::object::{HistoryOptions, Kind, ObjectState, Objects};
    /// # use serde_json::json;
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Arc::new(annals::Store::open(directory.path())?);
    /// # let pods = Objects::new(store, Kind::new("v1", "Pod", "pods"));
    /// pods.create("default", json!({"metadata": {"name": "web"}, "replicas": 1}), &Default::default())?;
    /// pods.modify("default", "web", &Default::default(), |web| {
    ///     web["replicas"] = 2.into();
    ///     Ok(())
    /// })?;
    /// pods.delete("default", "web", &Default::default())?;
    ///
    /// let mut told = Vec::new();
    /// for version in pods.history("default", "web", &HistoryOptions::default())? {
    ///     let version = version?;
    ///     told.push(match &version.state {
    ///         ObjectState::Created(web) => format!("created with {}", web["replicas"]),
    ///         ObjectState::Changed(web) => format!("{} from {} on", web["replicas"], version.resource_version),
    ///         ObjectState::Deleted => "deleted".into(),
    ///         other => format!("{other:?}"),
    ///     });
    /// }
    /// assert_eq!(told, ["deleted", "2 from 3 on", "created with 1"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// For the version in the options: 400 where it is none, 504 where it is still to come, 410 where it has been compacted.
    pub fn history(
        &self,
        namespace: &str,
        name: &str,
        options: &HistoryOptions,
    ) -> Result<ObjectHistory> {
        let key = self.path(namespace, name)?;
        let history = self.storage.history(&key, options);
        let history = history.map_err(|error| error.into_status(self.storage.resource(), name))?;
        let strategy = Arc::clone(&self.strategy);
        Ok(history.map_objects(move |mut object| {
            strategy.decorate(&mut object);
            Ok(object)
        }))
    }

    /// The key of the store under which an object lies, for what the store itself is asked: who has written it and when, or
    /// how it differs between two revisions. Its value is what the [transformer](Self::transformer) has made of it.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use annals::object::{Kind, Objects};
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Arc::new(annals::Store::open(directory.path())?);
    /// let things = Objects::new(store, Kind::new("acme.io/v1", "Thing", "things"));
    /// assert_eq!(things.key("default", "a")?, "/registry/acme.io/things/default/a");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// 400 for what cannot be a namespace or a name.
    pub fn key(&self, namespace: &str, name: &str) -> Result<String> {
        let key = self.storage.key(&self.path(namespace, name)?);
        key.map_err(|error| error.into_status(self.storage.resource(), name))
    }
}

impl<T: Serialize + DeserializeOwned, K: Kv> Typed<T, K> {
    /// [`Objects::get_at`].
    ///
    /// # Errors
    ///
    /// Those of it; 500 for what was no `T` then.
    pub fn get_at(&self, namespace: &str, name: &str, resource_version: &str) -> Result<T> {
        self.decode(self.objects().get_at(namespace, name, resource_version)?)
    }

    /// [`Objects::history`]; what was no `T` is a version that [cannot be read](crate::object::ObjectState::Unreadable).
    ///
    /// # Errors
    ///
    /// Those of it.
    pub fn history(
        &self,
        namespace: &str,
        name: &str,
        options: &HistoryOptions,
    ) -> Result<ObjectHistory<T>>
    where
        T: 'static,
    {
        let typed = self.clone();
        let history = self.objects().history(namespace, name, options)?;
        Ok(history.map_objects(move |object| typed.decode(object)))
    }
}
