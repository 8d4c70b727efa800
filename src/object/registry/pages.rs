//! Lists page by page.

use std::fmt;
use std::iter::FusedIterator;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::object::kv::Kv;
use crate::object::status::{Reason, Result};
use crate::object::storage::{List, ListOptions};

use super::{Objects, Typed};

/// So many objects are on a page unless something else is wanted.
const PAGE: u64 = 500;

/// The pages of a list, each of them the list of a part; made by [`Objects::pages`].
///
/// It ends behind the last page, and after an error of the list, but for the one that its version has been compacted between two
/// pages: then the next item, if it is asked for, goes on behind the last page at the newest version.
#[must_use = "iterators are lazy"]
pub struct Pages<T = Value> {
    pages: Box<dyn Iterator<Item = Result<List<T>>> + Send>,
}

impl<T> Iterator for Pages<T> {
    type Item = Result<List<T>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.pages.next()
    }
}

/// What it is made of ends once.
impl<T> FusedIterator for Pages<T> {}

impl<T> fmt::Debug for Pages<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").finish_non_exhaustive()
    }
}

impl<K: Kv> Objects<K> {
    /// The [lists](Self::list) of all pages, one after the other, each read when it is asked for; of `limit` objects each, or of 500.
    /// So all objects can be seen in the memory of one page.
    ///
    /// All pages are of one version. Where that is compacted before the last of them is read, the next item is an error of 410. Whoever
    /// stops there, as by `?`, has seen nothing that does not fit together. Whoever goes on gets the rest of the objects as
    /// they are by then, which is another version.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use annals::object::{Kind, ListOptions, Objects};
    /// # use serde_json::json;
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Arc::new(annals::Store::open(directory.path())?);
    /// # let pods = Objects::new(store, Kind::new("v1", "Pod", "pods"));
    /// for number in 0..5 {
    ///     let pod = json!({"metadata": {"name": format!("web-{number}")}});
    ///     pods.create("default", pod, &Default::default())?;
    /// }
    /// let mut sizes = Vec::new();
    /// for page in pods.pages("default", &ListOptions { limit: 2, ..Default::default() }) {
    ///     sizes.push(page?.items.len());
    /// }
    /// assert_eq!(sizes, [2, 2, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The errors of a page are those of [`list`](Self::list).
    pub fn pages(&self, namespace: &str, options: &ListOptions) -> Pages {
        let next = Some(options.in_pages(PAGE));
        let walk = Walk { objects: self.clone(), namespace: namespace.into(), next };
        Pages { pages: Box::new(walk) }
    }
}

impl<T: Serialize + DeserializeOwned, K: Kv> Typed<T, K> {
    /// [`Objects::pages`]. A page with an object that is no `T` is an error; the next page follows.
    pub fn pages(&self, namespace: &str, options: &ListOptions) -> Pages<T>
    where
        T: 'static,
    {
        let typed = self.clone();
        let pages = self.objects().pages(namespace, options);
        Pages { pages: Box::new(pages.map(move |page| typed.decode_list(page?))) }
    }
}

/// One list on its way.
struct Walk<K: Kv> {
    objects: Objects<K>,
    namespace: String,
    /// What asks for the next page.
    next: Option<ListOptions>,
}

impl<K: Kv> Iterator for Walk<K> {
    type Item = Result<List>;

    fn next(&mut self) -> Option<Self::Item> {
        let options = self.next.take()?;
        let page = self.objects.list(&self.namespace, &options);
        let token = match &page {
            Ok(page) => page.continue_token.clone(),
            Err(status) if status.reason() == Reason::Expired => {
                status.continue_token().unwrap_or_default().to_owned()
            }
            Err(_) => String::new(),
        };
        if !token.is_empty() {
            self.next = Some(ListOptions {
                continue_token: token,
                resource_version: String::new(),
                resource_version_match: None,
                ..options
            });
        }
        Some(page)
    }
}
