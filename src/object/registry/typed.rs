//! Objects of a kind as values of a Rust type.

mod watch;

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::kv::Store;
use crate::object::kind::GroupResource;
use crate::object::kv::Kv;
use crate::object::meta;
use crate::object::patch::PatchType;
use crate::object::status::{Result, Status};
use crate::object::storage::{GetOptions, List, ListOptions};
use crate::object::value;

use super::Objects;
use super::delete::Deletion;
use super::options::{CreateOptions, DeleteOptions, UpdateOptions};
use super::patching::PatchOptions;

pub use watch::{TypedEvent, TypedWatch};

/// [`Objects`] that are read and written as a type of their own, by `serde`.
///
/// What the type does not know of an object is lost when it is written back: flatten what is left into a map to keep it,
/// or [`patch`](Self::patch), or [`apply`](Self::apply) what is wanted and nothing else. An object in the store that is no
/// `T` fails the call that reads it, with 500 and its name; a [`watch`](Self::watch) tells of it and goes on.
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
        self.decode(self.objects.create(namespace, to_value(object)?, options)?)
    }

    /// [`Objects::get`].
    ///
    /// # Errors
    ///
    /// Those of it; 500 for an object that is no `T`.
    pub fn get(&self, namespace: &str, name: &str, options: &GetOptions) -> Result<T> {
        self.decode(self.objects.get(namespace, name, options)?)
    }

    /// [`Objects::list`].
    ///
    /// # Errors
    ///
    /// Those of it; 500 for an object that is no `T`.
    pub fn list(&self, namespace: &str, options: &ListOptions) -> Result<List<T>> {
        self.decode_list(self.objects.list(namespace, options)?)
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
        options: &UpdateOptions,
    ) -> Result<(T, bool)> {
        let object = to_value(object)?;
        self.decode_written(self.objects.update(namespace, name, object, options)?)
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
        options: &UpdateOptions,
    ) -> Result<T> {
        let object = to_value(object)?;
        self.decode(self.objects.update_status(namespace, name, object, options)?)
    }

    /// [`Objects::patch`]: the object, and whether it has been created. A patch is bytes whatever the type: it says of an object
    /// what is to change, and is no `T` itself.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use annals::object::{Kind, Objects, PatchType};
    /// # use serde::{Deserialize, Serialize};
    /// # use serde_json::json;
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Arc::new(annals::Store::open(directory.path())?);
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Light { metadata: serde_json::Value, is_on: bool }
    /// # let objects = Objects::new(store, Kind::new("home/v1", "Light", "lights"));
    /// let lights = objects.typed::<Light>();
    /// # objects.create("home", json!({"metadata": {"name": "hall"}, "is_on": false}), &Default::default())?;
    /// let patch = br#"{"is_on": true}"#;
    /// let (hall, _) = lights.patch("home", "hall", PatchType::Merge, patch, &Default::default())?;
    /// assert!(hall.is_on);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of it; 500 for what is no `T` after the patch, which has been made all the same.
    pub fn patch(
        &self,
        namespace: &str,
        name: &str,
        patch_type: PatchType,
        patch: &[u8],
        options: &PatchOptions,
    ) -> Result<(T, bool)> {
        let patched = self.objects.patch(namespace, name, patch_type, patch, options);
        self.decode_written(patched?)
    }

    /// Server-side apply: [`Objects::patch`] with [`PatchType::Apply`]. The object becomes what is wanted of it, or is created;
    /// what this manager has wanted before and does not any more is taken away, and what others own is a conflict unless
    /// the options force it. Answers the object, and whether it has been created.
    ///
    /// `wanted` has the fields that matter to the manager and no others: mostly it is a type of its own, all of whose fields are
    /// left out where they are `None`. `apiVersion`, `kind` and the name may be left out, too.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use annals::object::{Kind, Objects, PatchOptions};
    /// # use serde::{Deserialize, Serialize};
    /// # use serde_json::json;
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Arc::new(annals::Store::open(directory.path())?);
    /// #[derive(Debug, Serialize, Deserialize)]
    /// struct Light {
    ///     metadata: serde_json::Value,
    ///     #[serde(default)]
    ///     is_on: bool,
    ///     #[serde(default)]
    ///     color: String,
    /// }
    ///
    /// #[derive(Default, Serialize)]
    /// struct Wanted {
    ///     #[serde(skip_serializing_if = "Option::is_none")]
    ///     is_on: Option<bool>,
    ///     #[serde(skip_serializing_if = "Option::is_none")]
    ///     color: Option<String>,
    /// }
    ///
    /// let lights = Objects::new(store, Kind::new("home/v1", "Light", "lights")).typed::<Light>();
    /// let by = |name: &str| PatchOptions { field_manager: name.into(), ..Default::default() };
    /// let on = Wanted { is_on: Some(true), ..Wanted::default() };
    /// let red = Wanted { color: Some("red".into()), ..Wanted::default() };
    /// assert!(lights.apply("home", "hall", &on, &by("switch"))?.1, "it is created");
    /// let (hall, _) = lights.apply("home", "hall", &red, &by("painter"))?;
    /// assert!(hall.is_on && hall.color == "red");
    ///
    /// // The color is the painter's.
    /// let green = Wanted { color: Some("green".into()), ..Wanted::default() };
    /// let conflict = lights.apply("home", "hall", &green, &by("switch")).unwrap_err();
    /// assert_eq!(conflict.code(), 409);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Objects::patch`]: 422 where the options name no manager, 409 for fields of others; 400 for what is no JSON
    /// object; 500 for what is no `T` then, though it has been applied.
    pub fn apply<W: Serialize + ?Sized>(
        &self,
        namespace: &str,
        name: &str,
        wanted: &W,
        options: &PatchOptions,
    ) -> Result<(T, bool)> {
        let mut wanted = to_value(wanted)?;
        self.objects.kind.accept(&mut wanted)?;
        if meta::name(&wanted).is_empty() {
            meta::set_text(&mut wanted, "name", name);
        }
        let wanted = serde_json::to_vec(&wanted).map_err(Status::internal)?;
        self.patch(namespace, name, PatchType::Apply, &wanted, options)
    }

    /// [`Objects::delete`].
    ///
    /// # Errors
    ///
    /// Those of it.
    pub fn delete(&self, namespace: &str, name: &str, options: &DeleteOptions) -> Result<Deletion> {
        self.objects.delete(namespace, name, options)
    }

    pub(super) fn decode(&self, object: Value) -> Result<T> {
        // A reference can be decoded as well, and the object still be named.
        T::deserialize(&object)
            .map_err(|bad| not_decoded::<T>(self.objects.storage().resource(), &object, &bad))
    }

    pub(super) fn decode_list(&self, list: List) -> Result<List<T>> {
        list.try_map(|object| self.decode(object))
    }

    fn decode_written(&self, (object, is_new): (Value, bool)) -> Result<(T, bool)> {
        Ok((self.decode(object)?, is_new))
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

pub(super) fn to_value<T: Serialize + ?Sized>(object: &T) -> Result<Value> {
    serde_json::to_value(object).map_err(|bad| Status::bad_request(bad.to_string()))
}

/// 500: names the object that is no `T`, and why it is none.
fn not_decoded<T>(resource: &GroupResource, object: &Value, bad: &serde_json::Error) -> Status {
    let (namespace, name) = (meta::namespace(object), meta::name(object));
    let slash = if namespace.is_empty() { "" } else { "/" };
    let version = meta::resource_version(object);
    let why = format!(
        "{resource} \"{namespace}{slash}{name}\" of resource version {version} is no {}: {bad}",
        type_name::<T>(),
        bad = value::without_texts(bad),
    );
    Status::internal(why)
}
