//! Plays the watches of a recorded sequence: begins them, asks them after each step for all there is,
//! and says in the end what they told, as the recording does.

use std::collections::BTreeMap;
use std::time::Duration;

use annals::{Batch, ChangeKind, ErrorKind, KeyValue, Store, Watch, WatchBuilder};
use serde_json::{Map, Value, json};

use crate::recorded::bytes;

/// Longer than anything takes here.
const LONG: Duration = Duration::from_secs(60);

/// The watches of one sequence, by the numbers the recording gives them.
#[derive(Debug, Default)]
pub(crate) struct Watches(BTreeMap<i64, Played>);

#[derive(Debug)]
struct Played {
    request: Value,
    /// `None` once it has ended.
    watch: Option<Watch>,
    from: u64,
    told: Vec<Value>,
    end: Map<String, Value>,
}

impl Watches {
    /// Begins a watch. Answers as etcd does.
    pub(crate) fn create(&mut self, store: &Store, request: &Value) -> Value {
        let id = request["id"].as_i64().expect("a number");
        let mut played = Played {
            request: request.clone(),
            watch: None,
            from: 0,
            told: Vec::new(),
            end: Map::new(),
        };
        let mut answer = json!({ "created": true, "revision": store.revision() });
        let begun = match request["start_revision"].as_u64() {
            None => builder(store, request).start(),
            Some(from) => builder(store, request).from(from).start(),
        };
        match begun {
            Ok(watch) => {
                answer["revision"] = watch.created_at().into();
                played.watch = Some(watch);
            }
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error}");
                assert!(error.to_string().contains("range to watch is empty"), "{error}");
                played.end.insert("canceled".into(), true.into());
                played.end.insert("cancel_reason".into(), "mvcc: watcher range is empty".into());
                for (name, value) in &played.end {
                    answer[name] = value.clone();
                }
            }
        }
        self.0.insert(id, played);
        answer
    }

    /// Takes all that the watches have to tell by now. Answers how many events that was.
    pub(crate) fn drain(&mut self, store: &Store) -> usize {
        self.0.values_mut().map(|played| played.drain(store)).sum()
    }

    /// Ends all watches; others go on where they were, maybe in another session of the store.
    pub(crate) fn resume(&mut self, store: &Store) {
        for played in self.0.values_mut().filter(|played| played.watch.is_some()) {
            played.watch = None;
            let watch = builder(store, &played.request).from(played.from).start();
            played.watch = Some(watch.expect("it goes on"));
        }
    }

    /// What a watch has told.
    pub(crate) fn result(&mut self, request: &Value) -> Value {
        let id = request["id"].as_i64().expect("a number");
        let played = self.0.remove(&id).expect("it was created");
        let mut answer = Value::from(played.end);
        answer["events"] = played.told.into();
        answer
    }
}

impl Played {
    fn drain(&mut self, store: &Store) -> usize {
        let Some(watch) = &mut self.watch else { return 0 };
        let before = self.told.len();
        watch.handle().request_progress();
        // From a future revision there is no notice yet, nor anything else.
        while watch.resume_revision() <= store.revision() + 1 {
            match watch.next_timeout(LONG).expect("a notice or an end") {
                Ok(batch) if batch.is_progress() => {
                    assert_eq!(batch.revision(), store.revision(), "it comes in its place");
                    break;
                }
                Ok(batch) => self.told.extend(events(&batch)),
                Err(error) => {
                    let &ErrorKind::Compacted { requested, compacted, .. } = error.kind() else {
                        panic!("a watch ended with {error}");
                    };
                    assert!(requested == watch.resume_revision() && compacted > requested);
                    self.end.insert("canceled".into(), true.into());
                    self.end.insert("compact_revision".into(), compacted.into());
                    assert!(watch.next().is_none() && watch.handle().is_ended());
                    self.watch = None;
                    return self.told.len() - before;
                }
            }
        }
        assert!(watch.try_next().is_none());
        self.from = watch.resume_revision();
        self.told.len() - before
    }
}

fn builder(store: &Store, request: &Value) -> WatchBuilder {
    let mut builder = store.watch(bytes(&request["key"]));
    if !request["range_end"].is_null() {
        builder = builder.range_end(bytes(&request["range_end"]));
    }
    if request["prev_kv"] == true {
        builder = builder.prev_kv();
    }
    for filter in request["filters"].as_array().into_iter().flatten() {
        builder = match filter.as_str() {
            Some("NOPUT") => builder.no_puts(),
            Some("NODELETE") => builder.no_deletes(),
            other => panic!("a filter {other:?}"),
        };
    }
    builder
}

/// The events of a batch as the recording writes them.
fn events(batch: &Batch) -> Vec<Value> {
    let event = |event: &annals::Event| {
        assert_eq!(event.kv.mod_revision, batch.revision());
        let put = event.kind == ChangeKind::Put;
        let mut told = json!({
            "type": if put { "PUT" } else { "DELETE" },
            "kv": key_value(&event.kv),
        });
        if let Some(kv) = &event.prev_kv {
            told["prev_kv"] = key_value(kv);
        }
        told
    };
    batch.events().iter().map(event).collect()
}

fn key_value(kv: &KeyValue) -> Value {
    crate::key_value(kv)
}
