//! Objects of a kind as values of a Rust type.

use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::kv::Store;
use crate::object::kv::Kv;
use crate::object::status::{Result, Status};
use crate::object::storage::{GetOptions, List, ListOptions};

use super::Objects;
use super::delete::Deletion;
use super::options::{CreateOptions, DeleteOptions, PutOptions};

/// [`Objects`] that are read and written as a type of their own, by `serde`.
///
/// What the type does not know of an object is lost when it is written back: flatten what is left into a map to keep it.
///
/// ```
/// use std::sync::Arc;
/// use annals::object::{Kind, Objects};
/// use serde::{Deserialize, Serialize};
/// # let directory = tempfile::tempdir().expect("a temporary directory");
/// # let store = Arc::new(annals::Store::open(directory.path())?);
///
/// #[derive(Serialize, Deserialize)]
/// struct Light {
///     metadata: serde_json::Value,
///     is_on: bool,
/// }
///
/// let lights = Objects::new(store, Kind::new("home/v1", "Light", "lights")).typed::<Light>();
/// let kitchen = Light { metadata: serde_json::json!({"name": "kitchen"}), is_on: false };
/// lights.create("ground-floor", &kitchen, &Default::default())?;
/// lights.modify("ground-floor", "kitchen", &Default::default(), |light| {
///     light.is_on = true;
///     Ok(())
/// })?;
/// assert!(lights.get("ground-floor", "kitchen", &Default::default())?.is_on);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Typed<T, K: Kv = Store> {
    objects: Objects<K>,
    of: PhantomData<fn() -> T>,
}

impl<K: Kv> Objects<K> {
    /// The same objects as values of a type.
    pub fn typed<T: Serialize + DeserializeOwned>(&self) -> Typed<T, K> {
        Typed { objects: self.clone(), of: PhantomData }
    }
}

impl<T: Serialize + DeserializeOwned, K: Kv> Typed<T, K> {
    /// The objects as JSON.
    pub fn objects(&self) -> &Objects<K> {
        &self.objects
    }

    /// [`Objects::create`].
    ///
    /// # Errors
    ///
    /// Those of it; 400 for what is no JSON, 500 for a stored object that is no `T`.
    pub fn create(&self, namespace: &str, object: &T, options: &CreateOptions) -> Result<T> {
        from_value(self.objects.create(namespace, to_value(object)?, options)?)
    }

    /// [`Objects::get`].
    ///
    /// # Errors
    ///
    /// Those of it; 500 for an object that is no `T`.
    pub fn get(&self, namespace: &str, name: &str, options: &GetOptions) -> Result<T> {
        from_value(self.objects.get(namespace, name, options)?)
    }

    /// [`Objects::list`]: the objects, and what is told of the list beside them.
    ///
    /// # Errors
    ///
    /// Those of it; 500 for an object that is no `T`.
    pub fn list(&self, namespace: &str, options: &ListOptions) -> Result<(Vec<T>, List)> {
        let mut list = self.objects.list(namespace, options)?;
        let items = std::mem::take(&mut list.items);
        let items = items.into_iter().map(from_value).collect::<Result<_>>()?;
        Ok((items, list))
    }

    /// [`Objects::update`]: the object, and whether it has been created.
    ///
    /// # Errors
    ///
    /// Those of it, and of [`create`](Self::create).
    pub fn update(
        &self,
        namespace: &str,
        name: &str,
        object: &T,
        options: &PutOptions,
    ) -> Result<(T, bool)> {
        let (object, is_new) = self.objects.update(namespace, name, to_value(object)?, options)?;
        Ok((from_value(object)?, is_new))
    }

    /// [`Objects::update_status`].
    ///
    /// # Errors
    ///
    /// Those of it, and of [`create`](Self::create).
    pub fn update_status(
        &self,
        namespace: &str,
        name: &str,
        object: &T,
        options: &PutOptions,
    ) -> Result<T> {
        let object = to_value(object)?;
        from_value(self.objects.update_status(namespace, name, object, options)?.0)
    }

    /// [`Objects::modify`].
    ///
    /// # Errors
    ///
    /// Those of it, and of [`create`](Self::create).
    pub fn modify(
        &self,
        namespace: &str,
        name: &str,
        options: &PutOptions,
        mut change: impl FnMut(&mut T) -> Result<()>,
    ) -> Result<T> {
        let modified = self.objects.modify(namespace, name, options, |object| {
            let mut typed = from_value(object.take())?;
            change(&mut typed)?;
            *object = to_value(&typed)?;
            Ok(())
        });
        from_value(modified?)
    }

    /// [`Objects::delete`].
    ///
    /// # Errors
    ///
    /// Those of it.
    pub fn delete(&self, namespace: &str, name: &str, options: &DeleteOptions) -> Result<Deletion> {
        self.objects.delete(namespace, name, options)
    }
}

impl<T, K: Kv> Clone for Typed<T, K> {
    fn clone(&self) -> Self {
        Self { objects: self.objects.clone(), of: PhantomData }
    }
}

impl<T, K: Kv> fmt::Debug for Typed<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.objects.fmt(f)
    }
}

fn to_value<T: Serialize>(object: &T) -> Result<Value> {
    serde_json::to_value(object).map_err(|bad| Status::bad_request(bad.to_string()))
}

fn from_value<T: DeserializeOwned>(object: Value) -> Result<T> {
    serde_json::from_value(object).map_err(Status::internal)
}
