//! Objects changed by a function, over and over until nobody has come in between.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::object::kv::Kv;
use crate::object::meta;
use crate::object::status::{Result, Status};

use super::options::UpdateOptions;
use super::typed::to_value;
use super::update::{Part, Write, check_name};
use super::{Objects, Typed};

impl<K: Kv> Objects<K> {
    /// Changes an object by a function, for certain: where others have changed it meanwhile, the function is called again with
    /// what is there then. The status, where it is a subresource, is kept whatever the function makes of it: see
    /// [`modify_status`](Self::modify_status). What is not there is not created, whatever the options say: see
    /// [`create_or_modify`](Self::create_or_modify).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use annals::object::{CreateOptions, Kind, Objects, UpdateOptions};
    /// # use serde_json::json;
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Arc::new(annals::Store::open(directory.path())?);
    /// # let counters = Objects::new(store, Kind::new("v1", "Counter", "counters"));
    /// # counters.create("default", json!({"metadata": {"name": "a"}, "count": 0}), &CreateOptions::default())?;
    /// let counted = counters.modify("default", "a", &UpdateOptions::default(), |counter| {
    ///     counter["count"] = (counter["count"].as_u64().unwrap_or(0) + 1).into();
    ///     Ok(())
    /// })?;
    /// assert_eq!(counted["count"], 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`update`](Self::update), and what the function says.
    pub fn modify(
        &self,
        namespace: &str,
        name: &str,
        options: &UpdateOptions,
        change: impl FnMut(&mut Value) -> Result<()>,
    ) -> Result<Value> {
        self.modify_part(Part::Main, namespace, name, options, change)
    }

    /// Changes the status of an object by a function, for certain: where others have changed the object meanwhile, the function is
    /// called again with what is there then. Of what it changes nothing but the status is written, and the generation
    /// stays.
    ///
    /// So a controller says how far it has come, without a loop of its own and without taking back what others have said.
    /// Where it sees that it need not say anything, it leaves the status as it is, and nothing is written.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use annals::object::{Kind, KindStrategy, Objects, meta};
    /// # use serde_json::json;
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Arc::new(annals::Store::open(directory.path())?);
    /// let sets = Objects::new(store, Kind::new("example.com/v1", "Set", "sets"))
    ///     .strategy(KindStrategy::new().with_status());
    /// # sets.create("default", json!({"metadata": {"name": "web"}, "spec": {"replicas": 3}}), &Default::default())?;
    /// let set = sets.modify_status("default", "web", &Default::default(), |set| {
    ///     set["status"] = json!({"observedGeneration": meta::generation(set), "replicas": 1});
    ///     set["spec"]["replicas"] = 0.into(); // is not written
    ///     Ok(())
    /// })?;
    /// assert_eq!((&set["status"]["replicas"], &set["spec"]["replicas"]), (&json!(1), &json!(3)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`update_status`](Self::update_status), and what the function says.
    pub fn modify_status(
        &self,
        namespace: &str,
        name: &str,
        options: &UpdateOptions,
        change: impl FnMut(&mut Value) -> Result<()>,
    ) -> Result<Value> {
        self.modify_part(self.part("status")?, namespace, name, options, change)
    }

    /// Changes an object by a function, as [`modify`](Self::modify), or, where there is none, creates what the function makes of
    /// `new`. Answers the object, and whether it has been created.
    ///
    /// The function is called for each attempt: with what is there, which has a resource version, or with `new`. To leave alone
    /// what is there, it changes nothing where it finds a version. `apiVersion`, `kind` and the name may be left out of
    /// `new`.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use annals::object::{Kind, Objects};
    /// # use serde_json::json;
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Arc::new(annals::Store::open(directory.path())?);
    /// # let counters = Objects::new(store, Kind::new("v1", "Counter", "counters"));
    /// let count = || counters.create_or_modify("default", "a", json!({}), &Default::default(), |counter| {
    ///     counter["count"] = (counter["count"].as_u64().unwrap_or(0) + 1).into();
    ///     Ok(())
    /// });
    /// assert!(count()?.1, "it is created");
    /// let (counter, is_new) = count()?;
    /// assert_eq!((&counter["count"], is_new), (&json!(2), false));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`create`](Self::create) and [`update`](Self::update), but that the object is there or is not; and what the
    /// function says.
    pub fn create_or_modify(
        &self,
        namespace: &str,
        name: &str,
        new: Value,
        options: &UpdateOptions,
        mut change: impl FnMut(&mut Value) -> Result<()>,
    ) -> Result<(Value, bool)> {
        options.check()?;
        let mut write = Write::new(Part::Main, namespace, name, options);
        write.force_allow_create = true;
        self.write(&write, &mut |there| {
            let mut object = if there.is_null() { self.named(&new, name)? } else { there.clone() };
            change(&mut object)?;
            check_name(&object, namespace, name)?;
            Ok(object)
        })
    }

    /// Changes a part of an object that is there.
    pub(super) fn modify_part(
        &self,
        part: Part,
        namespace: &str,
        name: &str,
        options: &UpdateOptions,
        mut change: impl FnMut(&mut Value) -> Result<()>,
    ) -> Result<Value> {
        options.check()?;
        let write = Write::new(part, namespace, name, options);
        let written = self.write(&write, &mut |there| {
            if there.is_null() {
                return Err(Status::not_found(self.storage.resource(), name));
            }
            let mut object = there.clone();
            change(&mut object)?;
            Ok(object)
        });
        Ok(written?.0)
    }

    /// A new object, with a name if it has none, and of this kind.
    fn named(&self, new: &Value, name: &str) -> Result<Value> {
        let mut object = new.clone();
        self.kind.accept(&mut object)?;
        meta::normalize(&mut object)?;
        if meta::name(&object).is_empty() {
            meta::set_text(&mut object, "name", name);
        }
        Ok(object)
    }
}

impl<T: Serialize + DeserializeOwned, K: Kv> Typed<T, K> {
    /// [`Objects::modify`].
    ///
    /// # Errors
    ///
    /// Those of it, and of [`create`](Self::create).
    pub fn modify(
        &self,
        namespace: &str,
        name: &str,
        options: &UpdateOptions,
        change: impl FnMut(&mut T) -> Result<()>,
    ) -> Result<T> {
        self.decode(self.objects().modify(namespace, name, options, self.on_value(change))?)
    }

    /// [`Objects::modify_status`]: of what the function changes, the status is written.
    ///
    /// # Errors
    ///
    /// Those of it, and of [`create`](Self::create).
    pub fn modify_status(
        &self,
        namespace: &str,
        name: &str,
        options: &UpdateOptions,
        change: impl FnMut(&mut T) -> Result<()>,
    ) -> Result<T> {
        let change = self.on_value(change);
        self.decode(self.objects().modify_status(namespace, name, options, change)?)
    }

    /// [`Objects::create_or_modify`]: the object, and whether it has been created.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use annals::object::{Kind, Objects};
    /// # use serde::{Deserialize, Serialize};
    /// # use serde_json::json;
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Arc::new(annals::Store::open(directory.path())?);
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Light { metadata: serde_json::Value, is_on: bool }
    /// let lights = Objects::new(store, Kind::new("home/v1", "Light", "lights")).typed::<Light>();
    /// let new = Light { metadata: json!({}), is_on: false };
    /// let (hall, is_new) = lights.create_or_modify("home", "hall", &new, &Default::default(), |light| {
    ///     light.is_on = true;
    ///     Ok(())
    /// })?;
    /// assert!(is_new && hall.is_on);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of it, and of [`create`](Self::create).
    pub fn create_or_modify(
        &self,
        namespace: &str,
        name: &str,
        new: &T,
        options: &UpdateOptions,
        change: impl FnMut(&mut T) -> Result<()>,
    ) -> Result<(T, bool)> {
        let (new, change) = (to_value(new)?, self.on_value(change));
        let written = self.objects().create_or_modify(namespace, name, new, options, change)?;
        Ok((self.decode(written.0)?, written.1))
    }

    /// A change of values as one of their JSON.
    pub(super) fn on_value(
        &self,
        mut change: impl FnMut(&mut T) -> Result<()>,
    ) -> impl FnMut(&mut Value) -> Result<()> {
        move |object| {
            let mut typed = self.decode(object.take())?;
            change(&mut typed)?;
            *object = to_value(&typed)?;
            Ok(())
        }
    }
}
