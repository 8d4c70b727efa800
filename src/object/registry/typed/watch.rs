//! What happens to objects of a kind, as values of a Rust type.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::kv::Store;
use crate::object::kind::GroupResource;
use crate::object::kv::{Kv, PollKvWatch};
use crate::object::meta;
use crate::object::status::{Result, Status};
use crate::object::storage::{
    INITIAL_EVENTS_END, ObjectWatch, WatchEvent, WatchEventKind, WatchHandle, WatchOptions,
};

use super::{Typed, not_decoded};

/// Something that has happened to objects that are read as a `T`: a [`WatchEvent`] with its object decoded.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TypedEvent<T> {
    /// The object was not there, or not wanted, before.
    Added(T),
    /// It is another.
    Modified(T),
    /// It is gone, or not wanted any more; as it was last.
    Deleted(T),
    /// Nothing has happened: everything up to a version has been told.
    Bookmark {
        /// From where another watch can go on.
        resource_version: String,
        /// Whether this is the end of what there was when the watch began.
        ends_initial_events: bool,
    },
    /// An object of which this has happened is no `T`. The watch goes on behind it.
    Unreadable {
        /// What has happened to it.
        kind: WatchEventKind,
        /// As it is stored.
        object: Value,
        /// 500: names the object and its version, and says why it is none.
        why: Status,
    },
    /// The watch has ended; with 410 what there is has to be listed anew.
    Error(Status),
}

/// Tells what happens to objects as values of a type; made by [`Typed::watch`].
///
/// It is an iterator that waits for the next event, and ends after an [error](TypedEvent::Error) or when it is
/// [cancelled](WatchHandle::cancel).
pub struct TypedWatch<T, K: Kv = Store> {
    watch: ObjectWatch<K>,
    resource: GroupResource,
    of: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned, K: Kv> Typed<T, K> {
    /// [`Objects::watch`](super::super::Objects::watch), with every object decoded.
    ///
    /// One that is no `T` does not end the watch, nor is it left out: it is an event
    /// [of its own](TypedEvent::Unreadable), with the object as it is stored.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use annals::object::{Kind, Objects, TypedEvent};
    /// use serde::{Deserialize, Serialize};
    /// use serde_json::json;
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Arc::new(annals::Store::open(directory.path())?);
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Light {
    ///     metadata: serde_json::Value,
    ///     is_on: bool,
    /// }
    ///
    /// let objects = Objects::new(store, Kind::new("home/v1", "Light", "lights"));
    /// objects.create("home", json!({"metadata": {"name": "hall"}, "is_on": true}), &Default::default())?;
    /// objects.create("home", json!({"metadata": {"name": "odd"}}), &Default::default())?;
    ///
    /// let mut watch = objects.typed::<Light>().watch("home", &Default::default())?;
    /// assert!(matches!(watch.next(), Some(TypedEvent::Added(light)) if light.is_on));
    /// let Some(TypedEvent::Unreadable { why, .. }) = watch.next() else { panic!("it is no light") };
    /// assert!(why.message().contains("lights.home \"home/odd\""), "{why}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of it.
    pub fn watch(&self, namespace: &str, options: &WatchOptions) -> Result<TypedWatch<T, K>> {
        let watch = self.objects.watch(namespace, options)?;
        Ok(TypedWatch { watch, resource: self.objects.kind().group_resource(), of: PhantomData })
    }
}

impl<T: DeserializeOwned, K: Kv> TypedWatch<T, K> {
    /// [`ObjectWatch::next_timeout`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Option<TypedEvent<T>> {
        self.watch.next_timeout(timeout).map(|event| self.typed(event))
    }

    /// What ends the watch from anywhere.
    pub fn handle(&self) -> WatchHandle {
        self.watch.handle()
    }

    fn typed(&self, event: WatchEvent) -> TypedEvent<T> {
        let WatchEvent { kind, object } = event;
        let typed = match kind {
            WatchEventKind::Added => TypedEvent::Added,
            WatchEventKind::Modified => TypedEvent::Modified,
            WatchEventKind::Deleted => TypedEvent::Deleted,
            WatchEventKind::Bookmark => {
                return TypedEvent::Bookmark {
                    resource_version: meta::resource_version(&object).to_owned(),
                    ends_initial_events: meta::annotation(&object, INITIAL_EVENTS_END).is_some(),
                };
            }
            WatchEventKind::Error(status) => return TypedEvent::Error(status),
        };
        // A reference can be decoded as well: the object is still there if it is no `T`.
        match T::deserialize(&object) {
            Ok(object) => typed(object),
            Err(bad) => {
                let why = not_decoded::<T>(&self.resource, &object, &bad);
                TypedEvent::Unreadable { kind, object, why }
            }
        }
    }
}

impl<T: DeserializeOwned, K: Kv> Iterator for TypedWatch<T, K> {
    type Item = TypedEvent<T>;

    /// Waits for the next event; `None` once the watch has ended.
    fn next(&mut self) -> Option<Self::Item> {
        self.watch.next().map(|event| self.typed(event))
    }
}

impl<T: DeserializeOwned, K: Kv> FusedIterator for TypedWatch<T, K> {}

/// As an [`ObjectWatch`].
impl<T: DeserializeOwned, K: Kv> Stream for TypedWatch<T, K>
where
    K::Watch: PollKvWatch,
{
    type Item = TypedEvent<T>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let watch = self.get_mut();
        let event = Pin::new(&mut watch.watch).poll_next(context);
        event.map(|event| event.map(|event| watch.typed(event)))
    }
}

impl<T, K: Kv> fmt::Debug for TypedWatch<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.watch.fmt(f)
    }
}
