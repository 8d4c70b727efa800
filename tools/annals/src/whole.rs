//! A store as lines of JSON that say everything: what `export --base` writes and `import history` makes a new
//! store of, with the same revisions, versions, leases and hash.
//!
//! ```json
//! {"annals":"export/2","compacted":7,"time":1700000000,"metadata":"..."}
//! {"base":"/a","value":"v","create_revision":2,"mod_revision":5,"version":3,"lease":7,"sub":0}
//! {"base":"/b","deleted":true,"sub":1}
//! {"lease":7,"ttl":60,"remaining_ms":59000}
//! {"revision":8,"time":1700000001.5,"metadata":"...","changes":[{"put":"/a","value":"w","create_revision":2,"version":4},{"delete":"/c"}]}
//! {"end":8,"hash":3572163927,"lines":5}
//! ```
//!
//! In this order: the revision compacted to with its time and metadata; of each key that lived then, in their
//! order, that version, and of each that was deleted at just that revision the deletion; the leases; every later
//! transaction; the newest revision with its hash, and how many lines came before. What is 0 or empty may be left out, nothing else.

use annals::{Change, ChangeKind, KeyValue, Load, Loading, Options, Origin, Store, Transaction};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::bytes::{Given, Spelled};
use crate::exit::{Failure, Outcome};
use crate::import::{Micros, Summary, seconds};

/// How the first line begins.
pub(crate) const BEGINS: &[u8] = b"{\"annals\":";

/// What the first line says this is.
const FORM: &str = "export/2";

#[derive(Serialize)]
struct Put<'a> {
    #[serde(rename = "put")]
    key: Spelled<'a>,
    value: Spelled<'a>,
    create_revision: u64,
    version: u64,
    #[serde(skip_serializing_if = "is_zero")]
    lease: i64,
}

#[derive(Serialize)]
struct Delete<'a> {
    delete: Spelled<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Done<'a> {
    Put(Put<'a>),
    Delete(Delete<'a>),
}

#[derive(Serialize)]
#[serde(untagged)]
enum Line<'a> {
    Head {
        annals: &'static str,
        compacted: u64,
        time: serde_json::Value,
        #[serde(skip_serializing_if = "is_empty")]
        metadata: Spelled<'a>,
    },
    Base {
        base: Spelled<'a>,
        value: Spelled<'a>,
        create_revision: u64,
        mod_revision: u64,
        version: u64,
        #[serde(skip_serializing_if = "is_zero")]
        lease: i64,
        sub: u32,
    },
    Deleted {
        base: Spelled<'a>,
        deleted: bool,
        sub: u32,
    },
    Lease {
        lease: i64,
        ttl: i64,
        remaining_ms: u64,
    },
    Transaction {
        revision: u64,
        time: serde_json::Value,
        #[serde(skip_serializing_if = "is_empty")]
        metadata: Spelled<'a>,
        changes: Vec<Done<'a>>,
    },
    End {
        end: u64,
        hash: u32,
        lines: u64,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(lease: &i64) -> bool {
    *lease == 0
}

fn is_empty(bytes: &Spelled<'_>) -> bool {
    bytes.0.is_empty()
}

fn bytes_of(line: &Line<'_>) -> Outcome<Vec<u8>> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Writes all that can be read of a store.
pub(crate) fn write(store: &Store, out: &mut dyn FnMut(&[u8]) -> Outcome) -> Outcome {
    let mut lines = 0;
    let mut line = |line: &Line<'_>| {
        lines += 1;
        out(&bytes_of(line)?)
    };
    let oldest = store.oldest_readable(..);
    // Before revision 2 there is nothing.
    let compacted = if oldest < 2 { 0 } else { oldest };
    let newest = store.latest()?.revision();
    let mut first = match compacted {
        0 => None,
        _ => store.log(compacted..=compacted).next().transpose()?,
    };
    let (time, metadata) =
        first.as_ref().map_or((0, Bytes::new()), |first| (first.time, first.metadata.clone()));
    let (time, metadata) = (seconds(time), Spelled(&metadata));
    line(&Line::Head { annals: FORM, compacted, time, metadata })?;
    if compacted > 0 {
        let changes = first.take().map(|first| first.changes).unwrap_or_default();
        let mut deleted: Vec<Change> =
            changes.into_iter().filter(|change| change.kind == ChangeKind::Delete).collect();
        deleted.sort_unstable_by(|one, next| next.key.cmp(&one.key));
        let mut tombstones =
            |before: Option<&Bytes>, line: &mut dyn FnMut(&Line<'_>) -> Outcome| {
                while let Some(change) =
                    deleted.pop_if(|next| before.is_none_or(|key| next.key < *key))
                {
                    line(&Line::Deleted {
                        base: Spelled(&change.key),
                        deleted: true,
                        sub: change.sub,
                    })?;
                }
                Outcome::Ok(())
            };
        let view = store.at(compacted)?;
        for kv in view.range(..) {
            let KeyValue { key, value, create_revision, mod_revision, version, lease } = kv?;
            tombstones(Some(&key), &mut line)?;
            let sub = view.sub_of(&key)?.unwrap_or_default();
            let (base, value) = (Spelled(&key), Spelled(&value));
            line(&Line::Base { base, value, create_revision, mod_revision, version, lease, sub })?;
        }
        tombstones(None, &mut line)?;
    }
    for lease in store.leases() {
        let lease = lease?.id;
        let Some(status) = store.lease_time_to_live(lease, false)? else { continue };
        let remaining_ms = u64::try_from(status.remaining.as_millis()).unwrap_or(u64::MAX);
        line(&Line::Lease { lease, ttl: status.granted_ttl, remaining_ms })?;
    }
    for transaction in store.log(compacted.max(1) + 1..=newest).with_values() {
        let Transaction { revision, time, metadata, changes } = transaction?;
        let changes = changes.iter().map(done).collect();
        let (time, metadata) = (seconds(time), Spelled(&metadata));
        line(&Line::Transaction { revision, time, metadata, changes })?;
    }
    let hash = store.hash_at(newest)?.hash;
    out(&bytes_of(&Line::End { end: newest, hash, lines })?)
}

fn done(change: &Change) -> Done<'_> {
    match change.kind {
        ChangeKind::Delete => Done::Delete(Delete { delete: Spelled(&change.key) }),
        ChangeKind::Put => Done::Put(Put {
            key: Spelled(&change.key),
            value: Spelled(change.value.as_deref().unwrap_or_default()),
            create_revision: change.create_revision,
            version: change.version,
            lease: change.lease,
        }),
    }
}

/// Any line: which one it is is told by the member that only that one has.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Read {
    annals: Option<String>,
    compacted: u64,
    base: Option<Given>,
    deleted: bool,
    value: Given,
    create_revision: u64,
    mod_revision: u64,
    version: u64,
    lease: i64,
    sub: u32,
    ttl: i64,
    remaining_ms: Option<u64>,
    revision: Option<u64>,
    time: Option<Micros>,
    metadata: Given,
    changes: Vec<ReadChange>,
    end: Option<u64>,
    hash: u32,
    lines: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ReadChange {
    put: Option<Given>,
    delete: Option<Given>,
    value: Given,
    create_revision: u64,
    version: u64,
    lease: i64,
}

/// A store that is being read.
#[derive(Debug)]
enum Stage {
    Nothing,
    Base(Box<Load>),
    Loading(Loading),
    Ended(Loading),
}

/// Reads the lines.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    directory: &'a std::path::Path,
    options: Options,
    stage: Stage,
    /// Lines read.
    lines: u64,
    /// Transactions read, and what they did.
    pub(crate) summary: Summary,
}

impl<'a> Reader<'a> {
    /// Lines of which a store in this directory is made, which must be absent or empty.
    pub(crate) fn new(directory: &'a std::path::Path, options: Options) -> Self {
        // Leases do not end before the store is in use.
        let options = options.lease_expiry(false);
        Self { directory, options, stage: Stage::Nothing, lines: 0, summary: Summary::default() }
    }

    /// Reads the next line.
    pub(crate) fn line(&mut self, name: &str, text: &[u8]) -> Outcome {
        let refused = |what: &str| Err(Failure::Other(format!("{name}: {what}")));
        let read: Read = match serde_json::from_slice(text) {
            Ok(read) => read,
            Err(error) => {
                return refused(&format!("malformed: {}", crate::bytes::json_error(&error)));
            }
        };
        let about = |error| Failure::about(name, error);
        self.stage = match (std::mem::replace(&mut self.stage, Stage::Nothing), read) {
            (Stage::Nothing, Read { annals: Some(form), compacted, time, metadata, .. }) => {
                if form != FORM {
                    return refused(&format!("the form {form:?} is not known, only {FORM}"));
                }
                let time = time.map_or(0, |time| time.0);
                let origin = Origin { time, metadata: metadata.0 };
                // What is about the directory is about the command line.
                let load = Load::create(self.directory, &self.options, compacted, &origin)?;
                Stage::Base(Box::new(load))
            }
            (Stage::Base(mut load), Read { base: Some(Given(key)), deleted: true, sub, .. }) => {
                load.base_deleted(&key, sub).map_err(about)?;
                Stage::Base(load)
            }
            (Stage::Base(mut load), read @ Read { base: Some(_), .. }) => {
                let Read { create_revision, mod_revision, version, lease, sub, .. } = read;
                let key = read.base.unwrap_or_default().0;
                let value = read.value.0;
                let kv = KeyValue { key, value, create_revision, mod_revision, version, lease };
                load.base(&kv, sub).map_err(about)?;
                Stage::Base(load)
            }
            (stage @ (Stage::Base(_) | Stage::Loading(_)), read) => {
                let mut loading = match stage {
                    Stage::Base(load) => load.begin().map_err(about)?,
                    Stage::Loading(loading) | Stage::Ended(loading) => loading,
                    Stage::Nothing => return refused("unexpected"),
                };
                match read {
                    Read { revision: Some(revision), time, metadata, changes, .. } => {
                        let Some(time) = time else { return refused("malformed: no time") };
                        let changes = (0..).zip(changes).map(change).collect::<Option<Vec<_>>>();
                        let Some(changes) = changes else {
                            return refused("malformed: a change that is neither put nor delete");
                        };
                        let metadata = metadata.0;
                        let time = time.0;
                        let transaction = Transaction { revision, time, metadata, changes };
                        loading.transaction(&transaction).map_err(about)?;
                        self.summary.add(&transaction);
                        Stage::Loading(loading)
                    }
                    Read { end: Some(end), hash, lines, .. } => {
                        if lines != self.lines {
                            let found = self.lines;
                            return refused(&format!(
                                "{found} lines came before this, not {lines}"
                            ));
                        }
                        let found = loading.hash().map_err(about)?;
                        if (found.revision, found.hash) != (end, hash) {
                            return refused(&format!(
                                "what was read has revision {} and hash {}, not {end} and {hash}",
                                found.revision, found.hash
                            ));
                        }
                        Stage::Ended(loading)
                    }
                    Read { ttl, lease, remaining_ms, .. } if ttl != 0 => {
                        loading.lease(lease, ttl, remaining_ms).map_err(about)?;
                        Stage::Loading(loading)
                    }
                    _ => return refused("malformed: a line that has no place here"),
                }
            }
            _ => return refused("malformed: a line that has no place here"),
        };
        self.lines += 1;
        Ok(())
    }

    /// The store, after the last line.
    pub(crate) fn finish(self, name: &str) -> Outcome<Store> {
        match self.stage {
            Stage::Ended(loading) => Ok(loading.finish()?),
            _ => Err(Failure::Other(format!(
                "{name}: it is cut: the last line, with the hash, is missing"
            ))),
        }
    }
}

fn change((sub, read): (u32, ReadChange)) -> Option<Change> {
    let ReadChange { put, delete, value, create_revision, version, lease } = read;
    let (kind, key, value) = match (put, delete) {
        (Some(Given(key)), None) => (ChangeKind::Put, key, Some(value.0)),
        (None, Some(Given(key))) => (ChangeKind::Delete, key, None),
        _ => return None,
    };
    Some(Change { kind, key, sub, create_revision, version, lease, value })
}
