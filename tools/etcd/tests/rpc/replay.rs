//! Replays recorded operations of a real etcd 3.4.23 over gRPC, and expects the same answers.
//!
//! 100 sequences of some 68 steps (the folder's README has the schema): every answer, code, text and event. Allowed
//! differences: what newer versions of etcd say otherwise, see [`said_newer`].

use std::collections::HashMap;
use std::time::Duration;

use annals_etcd::proto::etcdserverpb as pb;
use serde_json::{Value, json};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use crate::recorded::{bytes, json_lines, path, to_json};
use crate::spelled;
use crate::support::{Clients, Ours, alone};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_recorded_answer_is_given_over_grpc() {
    let Some(path) = path("etcd-ops.jsonl.zst") else { return };
    let _alone = alone().await;
    let mut sequence = Value::Null;
    let mut ours = None;
    let mut watches = HashMap::new();
    let (mut compared, mut told) = (0, 0);
    let mut wrong = Vec::new();
    for step in json_lines(path) {
        if step["seq"] != sequence {
            sequence = step["seq"].clone();
            watches.clear();
            ours = Some(Ours::start().await);
        }
        let clients = &mut ours.as_mut().expect("a server").clients;
        let (op, request) = (step["op"].as_str().expect("an operation"), &step["req"]);
        let answer = match op {
            "watch_create" => {
                let (watch, answer) = Watch::create(clients, request).await;
                watches.insert(request["id"].to_string(), watch);
                Ok(answer)
            }
            "watch_result" => {
                let mut watch = watches.remove(&request["id"].to_string()).expect("made before");
                let answer = watch.result(clients).await;
                told += answer["events"].as_array().map_or(0, Vec::len);
                Ok(answer)
            }
            _ => {
                if op == "compact" {
                    // On a slow machine it would overtake them, and end them.
                    let now = newest(clients).await;
                    let begun = watches.values_mut().filter(|watch| watch.start_revision <= now);
                    for watch in begun {
                        watch.catch_up(now).await;
                    }
                }
                play(clients, op, request).await
            }
        };
        let answer = match answer {
            Ok(answer) => json!({ "resp": answer }),
            Err(status) => json!({ "err": {
                "code": format!("{:?}", status.code()),
                "message": status.message(),
            }}),
        };
        let expected = match step.get("err") {
            Some(error) => json!({ "err": error }),
            None => json!({ "resp": step["resp"] }),
        };
        compared += 1;
        if answer != expected && !said_newer(&expected, &answer) {
            wrong.push(format!("{step}\n  answered {answer}"));
        }
    }
    println!("{compared} answers compared, {told} events");
    assert!(compared > 6000 && told > 800, "{compared} answers, {told} events");
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
}

/// What etcd says otherwise since 3.4.23: a watch from a negative revision is refused at once.
fn said_newer(expected: &Value, answer: &Value) -> bool {
    let reason = &answer["resp"]["cancel_reason"];
    reason == "etcdserver: mvcc: required revision has been compacted" && expected != answer
}

async fn play(clients: &mut Clients, op: &str, request: &Value) -> Result<Value, Status> {
    let id = request["id"].as_i64().unwrap_or_default();
    Ok(match op {
        "put" => spelled::put_answer(&clients.kv.put(spelled::put(request)).await?.into_inner()),
        "range" => {
            spelled::range_answer(&clients.kv.range(spelled::range(request)).await?.into_inner())
        }
        "delete_range" => {
            let request = spelled::delete_range(request);
            spelled::delete_answer(&clients.kv.delete_range(request).await?.into_inner())
        }
        "txn" => spelled::txn_answer(&clients.kv.txn(spelled::txn(request)).await?.into_inner()),
        "compact" => {
            let revision = request["revision"].as_i64().unwrap_or_default();
            let request = pb::CompactionRequest { revision, physical: false };
            json!({ "revision": revision_of(clients.kv.compact(request).await?.into_inner().header) })
        }
        "lease_grant" => {
            let ttl = request["ttl"].as_i64().unwrap_or_default();
            let answer = clients.lease.lease_grant(pb::LeaseGrantRequest { id, ttl }).await?;
            let answer = answer.into_inner();
            json!({ "revision": revision_of(answer.header), "id": answer.id, "ttl": answer.ttl })
        }
        "lease_revoke" => {
            let answer = clients.lease.lease_revoke(pb::LeaseRevokeRequest { id }).await?;
            json!({ "revision": revision_of(answer.into_inner().header) })
        }
        "lease_ttl" => {
            let keys = request["keys"].as_bool().unwrap_or_default();
            let request = pb::LeaseTimeToLiveRequest { id, keys };
            let answer = clients.lease.lease_time_to_live(request).await?.into_inner();
            let mut keys = answer.keys.clone();
            keys.sort();
            json!({
                "revision": revision_of(answer.header),
                "id": answer.id,
                "granted_ttl": answer.granted_ttl,
                "keys": keys.iter().map(|key| to_json(key)).collect::<Vec<_>>(),
                "alive": answer.ttl > 0,
            })
        }
        "lease_keepalive" => {
            let one = tokio_stream::once(pb::LeaseKeepAliveRequest { id });
            let mut answers = clients.lease.lease_keep_alive(one).await?.into_inner();
            let answer = answers.message().await?.expect("an answer");
            json!({ "revision": revision_of(answer.header), "id": answer.id, "ttl": answer.ttl })
        }
        "lease_leases" => {
            let answer = clients.lease.lease_leases(pb::LeaseLeasesRequest {}).await?.into_inner();
            let mut ids: Vec<i64> = answer.leases.iter().map(|lease| lease.id).collect();
            ids.sort_unstable();
            json!({ "revision": revision_of(answer.header), "ids": ids })
        }
        other => panic!("the recording has an operation {other}"),
    })
}

fn revision_of(header: Option<pb::ResponseHeader>) -> i64 {
    header.expect("a head").revision
}

/// A watch, on a stream of its own.
struct Watch {
    to: tokio::sync::mpsc::Sender<pb::WatchRequest>,
    answers: Streaming<pb::WatchResponse>,
    events: Vec<Value>,
    last: Option<pb::WatchResponse>,
    start_revision: i64,
}

impl Watch {
    async fn create(clients: &mut Clients, request: &Value) -> (Self, Value) {
        let filters = request["filters"].as_array().cloned().unwrap_or_default();
        let create = pb::WatchCreateRequest {
            key: bytes(&request["key"]),
            range_end: bytes(&request["range_end"]),
            start_revision: request["start_revision"].as_i64().unwrap_or_default(),
            prev_kv: request["prev_kv"].as_bool().unwrap_or_default(),
            filters: filters.iter().map(|filter| i32::from(filter == "NODELETE")).collect(),
            ..Default::default()
        };
        let (to, requests) = tokio::sync::mpsc::channel(4);
        to.send(asks(pb::watch_request::RequestUnion::CreateRequest(create))).await.expect("sent");
        let answers = clients.watch.watch(ReceiverStream::new(requests)).await.expect("a stream");
        let mut answers = answers.into_inner();
        let first = answers.message().await.expect("a stream").expect("an answer");
        let mut answer = json!({ "revision": revision_of(first.header) });
        for (name, value) in [("created", first.created), ("canceled", first.canceled)] {
            if value {
                answer[name] = true.into();
            }
        }
        if !first.cancel_reason.is_empty() {
            answer["cancel_reason"] = first.cancel_reason.clone().into();
        }
        let last = first.canceled.then_some(first);
        let start_revision = request["start_revision"].as_i64().unwrap_or_default();
        (Self { to, answers, events: Vec::new(), last, start_revision }, answer)
    }

    /// Takes all that was told until now: until a notice of progress of the newest revision; or, of a watch that begins
    /// later, for which none comes, until nothing came for a while.
    async fn catch_up(&mut self, now: i64) {
        let progress =
            pb::watch_request::RequestUnion::ProgressRequest(pb::WatchProgressRequest {});
        let _ = self.to.send(asks(progress)).await;
        while self.last.is_none() {
            // Of one that has begun the notice comes, however slow the machine is.
            let wait = if self.start_revision > now {
                Duration::from_millis(500)
            } else {
                Duration::from_secs(120)
            };
            let Ok(answer) = tokio::time::timeout(wait, self.answers.message()).await else {
                break;
            };
            let Some(answer) = answer.expect("a stream") else { break };
            self.events.extend(answer.events.iter().map(spelled::event));
            if answer.canceled {
                self.last = Some(answer);
            } else if answer.watch_id == -1 && revision_of(answer.header) >= now {
                break;
            }
        }
    }

    /// All that was told until now.
    async fn result(&mut self, clients: &mut Clients) -> Value {
        self.catch_up(newest(clients).await).await;
        let mut answer = json!({ "events": std::mem::take(&mut self.events) });
        if let Some(last) = &self.last {
            answer["canceled"] = true.into();
            if last.compact_revision != 0 {
                answer["compact_revision"] = last.compact_revision.into();
            }
            if !last.cancel_reason.is_empty() {
                answer["cancel_reason"] = last.cancel_reason.clone().into();
            }
        }
        answer
    }
}

async fn newest(clients: &mut Clients) -> i64 {
    let any = pb::RangeRequest { key: "a".into(), ..Default::default() };
    revision_of(clients.kv.range(any).await.expect("read").into_inner().header)
}

fn asks(request: pb::watch_request::RequestUnion) -> pb::WatchRequest {
    pb::WatchRequest { request_union: Some(request) }
}
