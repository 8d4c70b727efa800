//! Lists and watches of the objects of a kind, and the deletion of what a list names.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::object::kv::Kv;
use crate::object::meta;
use crate::object::names::path_segment;
use crate::object::selector::FieldSelector;
use crate::object::status::{Reason, Result, Status};
use crate::object::storage::{List, ListOptions, ObjectWatch, Predicate, WatchOptions};

use super::Objects;
use super::options::DeleteOptions;

/// So many objects are listed at a time to be deleted.
const DELETED_PAGE: u64 = 10_000;

/// What every object can be selected by.
const OWN_FIELDS: [&str; 2] = ["metadata.name", "metadata.namespace"];

impl<K: Kv> Objects<K> {
    /// The objects of a namespace, or of all if it is empty, in the order of their keys; as of one revision, from which a
    /// [`watch`](Self::watch) can go on. Selectors, limits and versions are in the options; `recursive` and how
    /// fields are read are known here. A list of an older version is one of the objects as they then were, also of
    /// those that are gone.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use annals::object::{CreateOptions, Kind, LabelSelector, ListOptions, Objects, Predicate};
    /// # use serde_json::json;
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Arc::new(annals::Store::open(directory.path())?);
    /// # let pods = Objects::new(store, Kind::new("v1", "Pod", "pods"));
    /// for (name, tier) in [("web", "front"), ("api", "back"), ("log", "back")] {
    ///     let pod = json!({"metadata": {"name": name, "labels": {"tier": tier}}});
    ///     pods.create("default", pod, &CreateOptions::default())?;
    /// }
    /// let predicate = Predicate { label: LabelSelector::parse("tier=back")?, ..Default::default() };
    /// let list = pods.list("default", &ListOptions { predicate, ..Default::default() })?;
    /// let names: Vec<_> = list.items.iter().map(|pod| &pod["metadata"]["name"]).collect();
    /// assert_eq!(names, ["api", "log"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// 400 for a field that no selector of this kind may name; 410 for a version that has been compacted; those of
    /// [`Storage::list`](crate::object::Storage::list).
    pub fn list(&self, namespace: &str, options: &ListOptions) -> Result<List> {
        let mut options = options.clone();
        let token = &options.continue_token;
        let (key, recursive) = self.scope(namespace, token, &mut options.predicate)?;
        options.recursive = recursive;
        let list = self.storage.list(&key, &options);
        let mut list = list.map_err(|error| error.into_status(self.storage.resource(), ""))?;
        list.items.iter_mut().for_each(|object| self.strategy.decorate(object));
        Ok(list)
    }

    /// What happens to the objects of a namespace, or of all if it is empty: from a version on, or beginning with what there
    /// is, as [`WatchOptions`] says. Each change is told once, in the order of the versions, and none is left out.
    ///
    /// A watch that begins with what there is reads that lazily as of one revision, while the changes are kept from the next
    /// one on: nothing is told twice, and it takes no more memory where there is much. As long as the beginning has not
    /// been told, it keeps what was there from being reclaimed, and the store open; later it keeps neither.
    ///
    /// It ends with an [error](crate::object::WatchEventKind::Error): with 410 where a version has been compacted or no key
    /// opens it any more. Then what there is has to be listed anew:
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use annals::object::{Kind, Objects, Status};
    /// # use serde_json::json;
    /// use annals::object::{ListOptions, WatchEventKind, WatchOptions, meta};
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Arc::new(annals::Store::open(directory.path())?);
    /// # let pods = Objects::new(store, Kind::new("v1", "Pod", "pods"));
    /// # pods.create("default", json!({"metadata": {"name": "web"}}), &Default::default())?;
    ///
    /// let list = pods.list("", &ListOptions::default())?; // as it is now
    /// let mut seen = list.resource_version; // from here a watch tells everything that comes
    /// let from = |version: &str| WatchOptions { resource_version: version.into(), ..Default::default() };
    /// let watch = pods.watch("", &from(&seen))?;
    /// # pods.delete("default", "web", &Default::default())?;
    /// for event in watch {
    ///     match event.kind {
    ///         WatchEventKind::Added | WatchEventKind::Modified => println!("is: {}", event.object),
    ///         WatchEventKind::Deleted => println!("was: {}", event.object),
    ///         WatchEventKind::Error(status) if status.code() == 410 => break, // list anew, and watch from there
    ///         WatchEventKind::Error(status) => return Err(status.into()), // wait a while before
    ///         _ => {} // a bookmark: nothing has happened up to this version
    ///     }
    ///     seen = meta::resource_version(&event.object).to_owned(); // from here another watch goes on
    /// #   break;
    /// }
    /// # assert_eq!(seen, "3");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list), but that a version has been compacted is told as the first event.
    pub fn watch(&self, namespace: &str, options: &WatchOptions) -> Result<ObjectWatch<K>> {
        let mut options = options.clone();
        let (key, recursive) = self.scope(namespace, "", &mut options.predicate)?;
        options.recursive = recursive;
        if options.bookmark.is_null() {
            options.bookmark = json!({"apiVersion": self.kind.api_version, "kind": self.kind.kind});
        }
        let watch = self.storage.watch(&key, &options);
        let watch = watch.map_err(|error| error.into_status(self.storage.resource(), ""))?;
        let strategy = Arc::clone(&self.strategy);
        Ok(watch.decorated(Arc::new(move |object| strategy.decorate(object))))
    }

    /// Deletes what a list names, one object after the other, and answers the list. It is not one transaction: where it fails,
    /// some of them are gone. What is no longer the object of the list, or no longer selected, when its turn comes is
    /// left alone. Takes the memory of the whole list, unless that has a limit.
    ///
    /// # Errors
    ///
    /// Those of [`list`](Self::list) and [`delete`](Self::delete), but that an object is gone already.
    pub fn delete_collection(
        &self,
        namespace: &str,
        options: &DeleteOptions,
        list: &ListOptions,
    ) -> Result<List> {
        options.check_of_many()?;
        let mut selected = list.predicate.clone();
        self.scope(namespace, "", &mut selected)?;
        let pages_max = if list.limit == 0 { usize::MAX } else { 1 };
        let mut all: Option<List> = None;
        for page in self.pages(namespace, &list.in_pages(DELETED_PAGE)).take(pages_max) {
            let mut page = page?;
            for object in &page.items {
                let is_wanted = |there: &Value| {
                    meta::uid(there) == meta::uid(object) && selected.matches(there)
                };
                let (namespace, name) = (meta::namespace(object), meta::name(object));
                match self.delete_wanted(namespace, name, options, &is_wanted) {
                    Err(status) if status.reason() != Reason::NotFound => return Err(status),
                    _ => {}
                }
            }
            match &mut all {
                None => all = Some(page),
                Some(all) => all.items.append(&mut page.items),
            }
        }
        let mut all = all.unwrap_or_default();
        if list.limit == 0 {
            // They were those behind the first page.
            (all.continue_token, all.remaining_item_count) = (String::new(), None);
        }
        Ok(all)
    }

    /// Under which key the objects lie that are wanted, and whether below it; tells the predicate how to read fields. A list
    /// that goes on by a token goes on as it began: not as one object.
    fn scope(
        &self,
        namespace: &str,
        continue_token: &str,
        wanted: &mut Predicate,
    ) -> Result<(String, bool)> {
        let mut known = self.strategy.selectable_fields();
        known.extend(OWN_FIELDS.map(str::to_owned));
        check_fields(&wanted.field, &known)?;
        wanted.fields = Some(Arc::new(move |object: &Value, field: &str| {
            known.iter().any(|known| known == field).then(|| field_of(object, field))?
        }));
        let mut namespace = namespace;
        if namespace.is_empty()
            && let Some(exact) = wanted.field.requires_exact("metadata.namespace")
            && path_segment(exact, false).is_empty()
        {
            namespace = exact;
        }
        if continue_token.is_empty()
            && let Some(name) = wanted.field.requires_exact("metadata.name")
            && let Ok(key) = self.path(namespace, name)
        {
            return Ok((key, false));
        }
        Ok((self.root(namespace)?, true))
    }
}

/// Refuses selectors of fields that the kind does not know.
fn check_fields(selector: &FieldSelector, known: &[String]) -> Result<()> {
    for requirement in selector.requirements() {
        let field = &requirement.field;
        if known.iter().any(|known| known == field) {
            continue;
        }
        let more = known.iter().map(String::as_str).filter(|known| !OWN_FIELDS.contains(known));
        let all: Vec<_> =
            OWN_FIELDS.into_iter().chain(more).map(|known| format!("{known:?}")).collect();
        let message = format!("{field:?} is not a known field selector: only {}", all.join(", "));
        return Err(Status::bad_request(message));
    }
    Ok(())
}

/// A field by its path; what is no single value is as good as absent.
fn field_of(object: &Value, path: &str) -> Option<String> {
    let mut value = object;
    for part in path.split('.') {
        value = value.get(part)?;
    }
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    }
}
