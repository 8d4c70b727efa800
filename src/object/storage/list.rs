//! Lists of objects, whole or in pages, as of one revision: `GetList` of `k8s.io/apiserver/pkg/storage/etcd3`.
//!
//! The keys are walked once, and each is decoded when the walk comes to it: what selectors leave out takes no memory.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::ErrorKind;
use crate::kv::KeyValue;
use crate::object::kind::Kind;
use crate::object::kv::{Kv, ScanRequest};
use crate::object::meta;
use crate::object::status::{Cause, Result as StatusResult, Status};

use super::Storage;
use super::codec::Unreadable;
use super::error::StorageError;
use super::predicate::Predicate;
use super::token::Token;

pub(super) const EXPIRED: &str = "The resourceVersion for the provided list is too old.";
const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a \
    consistent list result. You can start a new list without the continue parameter.";
const CONTINUE_INCONSISTENT: &str = "The provided continue parameter is too old to display a \
    consistent list result. You can start a new list without the continue parameter, or use the \
    continue token in this response to retrieve the remainder of the results. Continuing with the \
    provided token results in an inconsistent list - objects that were created, modified, or \
    deleted between the time the first chunk was returned and now may show up in the list.";

/// So many objects that cannot be read are told of one list.
pub(super) const UNREADABLE_MAX: usize = 100;

/// What the resource version of a list is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "both are all that Kubernetes has")]
pub enum ResourceVersionMatch {
    /// The one that is asked for, or a later one.
    NotOlderThan,
    /// The one that is asked for.
    Exact,
}

impl ResourceVersionMatch {
    /// Of the parameter `resourceVersionMatch`.
    ///
    /// # Errors
    ///
    /// 422 for what is none.
    pub fn parse(text: &str) -> StatusResult<Option<Self>> {
        match text {
            "" => Ok(None),
            "NotOlderThan" => Ok(Some(Self::NotOlderThan)),
            "Exact" => Ok(Some(Self::Exact)),
            _ => {
                let supported = ["Exact", "NotOlderThan", ""];
                let cause = Cause::not_supported("resourceVersionMatch", &text.into(), &supported);
                Err(Status::invalid("meta.k8s.io", "ListOptions", "", vec![cause]))
            }
        }
    }
}

/// What to list.
///
/// | `resource_version` | `resource_version_match` | the list is |
/// | --- | --- | --- |
/// | empty | none | of the newest revision |
/// | `0` | none, `NotOlderThan` | of the newest revision |
/// | other | `NotOlderThan`, or none without `limit` | of the newest revision, which must be as new |
/// | other | `Exact`, or none with `limit` | of this very revision |
#[derive(Clone, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "to be made with what is wanted of it")]
pub struct ListOptions {
    /// Of which version the list is to be.
    pub resource_version: String,
    /// Whether of that or a later one.
    pub resource_version_match: Option<ResourceVersionMatch>,
    /// At most so many objects; 0 for all.
    pub limit: u64,
    /// What the list of the page before has told; empty for the first.
    pub continue_token: String,
    /// Which objects.
    pub predicate: Predicate,
    /// Whether all keys below the key are meant, instead of the key itself; `Objects` knows it.
    pub recursive: bool,
}

impl ListOptions {
    /// The same list in pages of so many objects, unless it has a limit of its own.
    pub(in crate::object) fn in_pages(&self, of: u64) -> Self {
        let mut options = self.clone();
        if options.limit == 0 {
            options.limit = of;
            // With a limit, a version alone would be exactly that one.
            if !options.resource_version.is_empty() && options.resource_version_match.is_none() {
                options.resource_version_match = Some(ResourceVersionMatch::NotOlderThan);
            }
        }
        options
    }

    /// Whether they contradict each other: `ValidateListOptions` of `k8s.io/apimachinery`.
    fn check(&self) -> StatusResult<()> {
        let Some(wanted) = self.resource_version_match else { return Ok(()) };
        let table = [
            (
                self.resource_version.is_empty(),
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ),
            (
                !self.continue_token.is_empty(),
                "resourceVersionMatch is forbidden when continue is provided",
            ),
            (
                wanted == ResourceVersionMatch::Exact && self.resource_version == "0",
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ),
        ];
        let causes: Vec<_> = table
            .iter()
            .filter(|(is_so, _)| *is_so)
            .map(|(_, why)| Cause::forbidden("resourceVersionMatch", why))
            .collect();
        if causes.is_empty() {
            return Ok(());
        }
        Err(Status::invalid("meta.k8s.io", "ListOptions", "", causes))
    }
}

/// Some objects of one revision.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct List<T = Value> {
    /// The objects in the order of their keys.
    pub items: Vec<T>,
    /// The version of the list, from which to watch what happens to it.
    pub resource_version: String,
    /// What asks for the next page; empty where there is none.
    pub continue_token: String,
    /// How many objects are not in this list nor in those before, where that is known: not if there are selectors.
    pub remaining_item_count: Option<u64>,
}

impl<T> List<T> {
    /// The same list with each object made something else, as long as none fails.
    pub(in crate::object) fn try_map<U>(
        self,
        change: impl FnMut(T) -> StatusResult<U>,
    ) -> StatusResult<List<U>> {
        let Self { items, resource_version, continue_token, remaining_item_count } = self;
        let items = items.into_iter().map(change).collect::<StatusResult<_>>()?;
        Ok(List { items, resource_version, continue_token, remaining_item_count })
    }
}

impl List {
    /// What a REST server answers, as a `PodList`.
    pub fn into_answer(self, kind: &Kind) -> Value {
        let mut metadata = json!({"resourceVersion": self.resource_version});
        if !self.continue_token.is_empty() {
            metadata["continue"] = self.continue_token.into();
        }
        if let Some(remaining) = self.remaining_item_count {
            metadata["remainingItemCount"] = remaining.into();
        }
        json!({
            "kind": format!("{}List", kind.kind),
            "apiVersion": kind.api_version,
            "metadata": metadata,
            "items": self.items,
        })
    }
}

/// Where a list begins.
struct Begin {
    /// The full key, or what all begin with.
    prefix: String,
    start: String,
    at: Option<u64>,
    /// How many keys there are, where a page before has said so.
    remaining: Option<u64>,
    is_continued: bool,
}

impl<K: Kv> Storage<K> {
    /// The objects below a key, or at it, that a predicate wants.
    ///
    /// All pages of a list are of the revision of the first. A list takes time for the keys that it looks at, and
    /// memory for the objects that it answers. How many remain is counted with the first page alone, which takes
    /// [what a count takes](crate::View::count).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use annals::object::{GroupResource, ListOptions, Storage};
    /// # use serde_json::json;
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Arc::new(annals::Store::open(directory.path())?);
    /// # let pods = Storage::new(store, "/registry", GroupResource::new("", "pods"), "/pods");
    /// for name in ["a", "b", "c"] {
    ///     pods.create(&format!("/pods/{name}"), json!({"metadata": {"name": name}}), 0)?;
    /// }
    /// let mut options = ListOptions { limit: 2, recursive: true, ..Default::default() };
    /// let first = pods.list("/pods", &options)?;
    /// assert_eq!((first.items.len(), first.remaining_item_count), (2, Some(1)));
    ///
    /// pods.create("/pods/d", json!({"metadata": {"name": "d"}}), 0)?;
    /// options.continue_token = first.continue_token;
    /// let second = pods.list("/pods", &options)?;
    /// assert_eq!(second.items.len(), 1, "it came after the first page");
    /// assert_eq!(second.resource_version, first.resource_version);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// 422 for options that contradict each other, 400 for a version or a token that is none; 410 for a revision that
    /// has been compacted, between two pages with a [token](Status::continue_token) to go on at the newest state; 504
    /// for a revision that is still to come; 500 if objects cannot be read, which names up to a hundred of them.
    pub fn list(&self, key: &str, options: &ListOptions) -> Result<List, StorageError> {
        let _call = self.timed("list", key);
        options.check()?;
        let begin = self.begin(key, options)?;
        let (revision, kvs) = self.walk(&begin, options.recursive)?;
        if begin.at.is_none() {
            self.check_minimum(&options.resource_version, revision)?;
        }
        let limit = usize::try_from(options.limit).unwrap_or(usize::MAX);
        let (mut items, mut last, mut examined, mut has_more) = (Vec::new(), None, 0, false);
        let mut unreadable = Vec::new();
        for kv in kvs {
            let kv = kv.map_err(|error| Self::list_error(error, &begin))?;
            if limit != 0 && items.len() == limit {
                has_more = true;
                break;
            }
            match self.codec.decode(&kv.key, &kv.value, kv.mod_revision) {
                Ok(read) if options.predicate.matches(&read.object) => items.push(read.object),
                Ok(_) => {}
                Err(why) => unreadable.push(cause(&kv, &why)),
            }
            if unreadable.len() == UNREADABLE_MAX {
                break;
            }
            examined += 1;
            last = Some(kv.key);
        }
        if !unreadable.is_empty() {
            return Err(self.failed("read", unreadable));
        }
        let (mut token, mut remaining) = (String::new(), None);
        if has_more && let Some(last) = last {
            if options.predicate.is_empty() {
                remaining = self.remaining(&begin, revision, examined)?;
            }
            token = next(&begin, revision, &last, remaining)?;
        }
        self.finish(items, revision, token, remaining)
    }

    fn finish(
        &self,
        items: Vec<Value>,
        revision: u64,
        token: String,
        remaining_item_count: Option<u64>,
    ) -> Result<List, StorageError> {
        let mut told = serde_json::json!({});
        self.codec.versioner.update_list(&mut told, revision, &token, remaining_item_count)?;
        let resource_version = meta::resource_version(&told).to_owned();
        Ok(List { items, resource_version, continue_token: token, remaining_item_count })
    }

    /// `ValidateListOptions` of `k8s.io/apiserver/pkg/storage`.
    fn begin(&self, key: &str, options: &ListOptions) -> Result<Begin, StorageError> {
        let (asked, token) = (&options.resource_version, &options.continue_token);
        let prefix = if options.recursive { self.prefix_of(key)? } else { self.key(key)? };
        if options.recursive && !token.is_empty() {
            let token = Token::decode(token, &prefix)
                .map_err(|bad| Status::bad_request(format!("invalid continue token: {bad}")))?;
            if !asked.is_empty() && asked != "0" {
                let message = "specifying resource version is not allowed when using continue";
                return Err(Status::bad_request(message).into());
            }
            let Token { revision: at, start, remaining } = token;
            return Ok(Begin { prefix, start, at, remaining, is_continued: true });
        }
        let is_exact = match options.resource_version_match {
            Some(wanted) => wanted == ResourceVersionMatch::Exact,
            // What lists were before the parameter was there.
            None => options.recursive && options.limit > 0,
        };
        let version = self.minimum(asked)?;
        let at = (is_exact && version > 0).then_some(version);
        Ok(Begin { start: prefix.clone(), prefix, at, remaining: None, is_continued: false })
    }

    /// What there is, and of which revision that is.
    #[expect(clippy::type_complexity, reason = "it is taken apart where it is got")]
    fn walk(
        &self,
        begin: &Begin,
        recursive: bool,
    ) -> Result<(u64, Box<dyn Iterator<Item = crate::Result<KeyValue>>>), StorageError> {
        let failed = |error| Self::list_error(error, begin);
        if recursive {
            let (kvs, revision) = self.kv.scan(begin.request(begin.at)).map_err(failed)?;
            return Ok((revision, Box::new(kvs)));
        }
        let (found, current) = self.kv.get(begin.prefix.as_bytes(), begin.at).map_err(failed)?;
        Ok((begin.at.unwrap_or(current), Box::new(found.map(Ok).into_iter())))
    }

    /// How many keys lie behind those that have been examined.
    fn remaining(
        &self,
        begin: &Begin,
        revision: u64,
        examined: u64,
    ) -> Result<Option<u64>, StorageError> {
        let left = |of: u64| of.checked_sub(examined).filter(|left| *left > 0);
        if let Some(left) = begin.remaining.and_then(left) {
            return Ok(Some(left));
        }
        match self.kv.count(begin.request(Some(revision))) {
            Ok(count) => Ok(left(count)),
            // Compacted since the list was read.
            Err(error) if matches!(error.kind(), ErrorKind::Compacted { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn list_error(error: crate::Error, begin: &Begin) -> StorageError {
        match error.kind() {
            ErrorKind::Compacted { .. } if begin.is_continued => {
                let token = Token { revision: None, start: begin.start.clone(), remaining: None };
                match token.encode(&begin.prefix) {
                    Some(token) => {
                        Status::expired(CONTINUE_INCONSISTENT).with_continue(token).into()
                    }
                    None => Status::expired(CONTINUE_EXPIRED).into(),
                }
            }
            ErrorKind::Compacted { .. } => Status::expired(EXPIRED).into(),
            ErrorKind::FutureRevision { requested, current, .. } => {
                Status::too_large_resource_version(*requested, *current, 0).into()
            }
            _ => error.into(),
        }
    }

    /// `aggregatedStorageError` of `k8s.io/apiserver/pkg/storage/etcd3/corrupt_obj_deleter.go`.
    pub(super) fn failed(&self, what: &str, mut causes: Vec<Cause>) -> StorageError {
        let resource = &self.resource;
        let first = causes.first().map_or("", |cause| &cause.message);
        let mut message =
            format!("failed to {what} one or more {resource} from the storage: {first}");
        if causes.len() > 1 {
            message = format!("{message} (and {} more)", causes.len() - 1);
        }
        if causes.len() == UNREADABLE_MAX {
            let truncated = "too many errors, the list is truncated";
            causes.push(Cause::new("FieldValueTooMany", truncated, ""));
        }
        StorageError::corrupt_list(resource, message, causes)
    }
}

impl Begin {
    fn request(&self, at: Option<u64>) -> ScanRequest<'_> {
        ScanRequest { prefix: self.prefix.as_bytes(), start: self.start.as_bytes(), at }
    }
}

/// The token behind the last key that was examined.
fn next(
    begin: &Begin,
    revision: u64,
    last: &Bytes,
    remaining: Option<u64>,
) -> Result<String, StorageError> {
    let start = std::str::from_utf8(last).map(|last| format!("{last}\0"));
    let token = start.ok().and_then(|start| {
        Token { revision: Some(revision), start, remaining }.encode(&begin.prefix)
    });
    token.ok_or_else(|| {
        let message = "unable to encode next field: the key and key prefix do not match";
        StorageError::internal(&String::from_utf8_lossy(last), message)
    })
}

/// One object that cannot be read.
pub(super) fn cause(kv: &KeyValue, why: &Unreadable) -> Cause {
    let key = String::from_utf8_lossy(&kv.key);
    let error = StorageError::corrupt(&key, 0, why.at(kv.mod_revision));
    Cause::new("UnexpectedServerResponse", error.to_string(), key)
}
