//! The REST of a Kubernetes API server over a store, as far as clients ask for it every day: discovery; get,
//! list, create, replace, patch and delete; watches as lines of JSON. All rules are the library's: what is here
//! reads requests and writes answers.
//!
//! Run with `cargo run --example kube_api --features object [-- DIRECTORY]`, then in another terminal:
//!
//! ```text
//! PODS=http://127.0.0.1:8001/api/v1/namespaces/default/pods
//! curl -N "$PODS?watch=true" &
//! curl -H 'Content-Type: application/json' -d '{"metadata": {"name": "web"}}' $PODS
//! curl -X PATCH -H 'Content-Type: application/merge-patch+json' -d '{"spec": {"nodeName": "one"}}' $PODS/web
//! curl -X DELETE $PODS/web
//! ```

#![allow(
    dead_code,
    clippy::print_stdout,
    reason = "it says where it listens; its test needs a part of it"
)]

mod call;
mod kinds;

use std::collections::HashMap;
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use annals::Store;
use annals::object::{
    GetOptions, Kind, List, ObjectWatch, PATCH_BYTES_MAX, PatchType, Reason, Result, Status,
};
use axum::body::{Body, to_bytes};
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{self, error::TrySendError};

use call::Call;
use kinds::{Api, Served};

/// So many watches may be open at the same time.
const WATCHES_MAX: usize = 1_000;

/// So long a watch waits for a client that does not read, once what may lie between them is full.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> std::result::Result<(), Box<dyn Error>> {
    let temporary = tempfile::tempdir()?;
    let directory =
        std::env::args().nth(1).unwrap_or_else(|| temporary.path().display().to_string());
    let store = Arc::new(Store::open(directory)?);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8001").await?;
    println!("listening on http://{}", listener.local_addr()?);
    serve(listener, store).await?;
    Ok(())
}

/// Answers requests until it is dropped.
pub(crate) async fn serve(
    listener: tokio::net::TcpListener,
    store: Arc<Store>,
) -> std::io::Result<()> {
    let router = axum::Router::new().fallback(handle).with_state(Arc::new(Api::new(store)));
    axum::serve(listener, router).await
}

enum Answer {
    Json(StatusCode, Value),
    Watch(Box<ObjectWatch<Store>>, Option<Duration>, OwnedSemaphorePermit),
}

/// Where a request points to.
struct Target<'a> {
    served: &'a Served,
    namespace: String,
    name: String,
    subresource: String,
}

async fn handle(State(api): State<Arc<Api>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, PATCH_BYTES_MAX).await else {
        let message = format!("Request entity too large: limit is {PATCH_BYTES_MAX}");
        return refuse(&Status::new(Reason::RequestEntityTooLarge, message));
    };
    let path = parts.uri.path().split('/').filter(|part| !part.is_empty());
    let path = path.map(str::to_owned).collect();
    let query = match query(&parts.uri) {
        Ok(query) => query,
        Err(status) => return refuse(&status),
    };
    let call = Call { method: parts.method, path, query, headers: parts.headers, body };
    // The store waits for its disk: not here, where all other requests would wait, too.
    match tokio::task::spawn_blocking(move || api.answer(&call)).await {
        Ok(Ok(Answer::Json(code, value))) => json_of(code, &value),
        Ok(Ok(Answer::Watch(watch, timeout, slot))) => lines_of(*watch, timeout, slot),
        Ok(Err(status)) => refuse(&status),
        Err(panicked) => refuse(&Status::internal(panicked)),
    }
}

/// The last of several parameters of a name counts.
fn query(uri: &Uri) -> Result<HashMap<String, String>> {
    let query = Query::<HashMap<String, String>>::try_from_uri(uri);
    query.map(|query| query.0).map_err(|bad| Status::bad_request(bad.body_text()))
}

fn json_of(code: StatusCode, value: &Value) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (code, headers, value.to_string()).into_response()
}

fn refuse(status: &Status) -> Response {
    let code = StatusCode::from_u16(status.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json_of(code, &json!(status))
}

/// One line of JSON for each event, as it happens. A watch waits in a thread of its own: those that answer requests are
/// for requests.
fn lines_of(
    mut watch: ObjectWatch<Store>,
    timeout: Option<Duration>,
    slot: OwnedSemaphorePermit,
) -> Response {
    let (lines, receiver) = mpsc::channel::<String>(64);
    let begin = Instant::now();
    let is_over = move || timeout.is_some_and(|timeout| begin.elapsed() >= timeout);
    let waits = move || {
        let _slot = slot;
        let handle = watch.handle();
        while !lines.is_closed() && !is_over() {
            let Some(event) = watch.next_timeout(Duration::from_millis(200)) else {
                if handle.is_ended() {
                    break;
                }
                continue;
            };
            if !send(&lines, format!("{}\n", json!(event)), &is_over) {
                break;
            }
        }
    };
    if let Err(error) = thread::Builder::new().name("watch".into()).spawn(waits) {
        return refuse(&too_many_watches(&error.to_string()));
    }
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (headers, Body::from_stream(Lines(receiver))).into_response()
}

/// Whether somebody takes the line: who does not read for a while, or is gone, does not.
fn send(lines: &mpsc::Sender<String>, mut line: String, is_over: &dyn Fn() -> bool) -> bool {
    let begin = Instant::now();
    loop {
        match lines.try_send(line) {
            Ok(()) => return true,
            Err(TrySendError::Full(back)) if begin.elapsed() < PATIENCE && !is_over() => {
                line = back;
                thread::sleep(Duration::from_millis(20));
            }
            Err(_) => return false,
        }
    }
}

fn too_many_watches(why: &str) -> Status {
    let message = format!("too many watches at the same time, please try again later: {why}");
    Status::new(Reason::TooManyRequests, message)
}

struct Lines(mpsc::Receiver<String>);

impl futures_core::Stream for Lines {
    type Item = std::result::Result<String, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|line| line.map(Ok))
    }
}

impl Api {
    fn answer(&self, call: &Call) -> Result<Answer> {
        let path: Vec<_> = call.path.iter().map(String::as_str).collect();
        let ok = |value| Ok(Answer::Json(StatusCode::OK, value));
        match path.as_slice() {
            ["version"] => ok(json!({"major": "1", "minor": "35", "gitVersion": "v1.35.0-annals"})),
            ["api"] => ok(json!({"kind": "APIVersions", "versions": ["v1"]})),
            ["apis"] => ok(self.groups()),
            ["api", version] => ok(self.resources(version)?),
            ["apis", group, version] => ok(self.resources(&format!("{group}/{version}"))?),
            ["api", version, rest @ ..] => self.serve(version, rest, call),
            ["apis", group, version, rest @ ..] => {
                self.serve(&format!("{group}/{version}"), rest, call)
            }
            _ => Err(nowhere()),
        }
    }

    fn locate(&self, api_version: &str, path: &[&str]) -> Result<Target<'_>> {
        let at = |served, namespace: &str, rest: &[&str]| {
            let part = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
            let namespace = namespace.to_owned();
            Target { served, namespace, name: part(0), subresource: part(1) }
        };
        match path {
            ["namespaces", namespace, resource, rest @ ..] if rest.len() <= 2 => {
                if let Some(served) = self.find(api_version, resource)
                    && served.objects.kind().namespaced
                {
                    return Ok(at(served, namespace, rest));
                }
            }
            _ => {}
        }
        match path {
            [resource, rest @ ..] if rest.len() <= 2 => {
                self.find(api_version, resource).map(|served| at(served, "", rest))
            }
            _ => None,
        }
        .ok_or_else(nowhere)
    }

    fn serve(&self, api_version: &str, path: &[&str], call: &Call) -> Result<Answer> {
        let Target { served, namespace, name, subresource } = self.locate(api_version, path)?;
        let objects = &served.objects;
        let is_status = match subresource.as_str() {
            "" => false,
            "status" if served.has_status => true,
            _ => return Err(nowhere()),
        };
        let (code, value) = match (call.method.as_str(), name.is_empty()) {
            ("GET", true) if call.is("watch")? => {
                let options = call.watch_options()?;
                let timeout = call.number("timeoutSeconds")?.map(Duration::from_secs);
                let slot = Arc::clone(&self.watches).try_acquire_owned();
                let slot =
                    slot.map_err(|_| too_many_watches(&format!("{WATCHES_MAX} are open")))?;
                let watch = objects.watch(&namespace, &options)?;
                return Ok(Answer::Watch(Box::new(watch), timeout, slot));
            }
            ("GET", true) => {
                let list = objects.list(&namespace, &call.list_options()?)?;
                (StatusCode::OK, list_of(objects.kind(), list))
            }
            ("POST", true) => {
                let made = objects.create(&namespace, call.object()?, &call.create_options()?)?;
                (StatusCode::CREATED, made)
            }
            ("DELETE", true) => {
                let (options, list) = (call.delete_options()?, call.list_options()?);
                let deleted = objects.delete_collection(&namespace, &options, &list)?;
                (StatusCode::OK, list_of(objects.kind(), deleted))
            }
            ("GET", false) => {
                let options = GetOptions {
                    resource_version: call.text("resourceVersion"),
                    ..GetOptions::default()
                };
                (StatusCode::OK, objects.get(&namespace, &name, &options)?)
            }
            ("PUT", false) => {
                let (object, options) = (call.object()?, call.put_options()?);
                let (object, is_new) = if is_status {
                    objects.update_status(&namespace, &name, object, &options)?
                } else {
                    objects.update(&namespace, &name, object, &options)?
                };
                (if is_new { StatusCode::CREATED } else { StatusCode::OK }, object)
            }
            ("PATCH", false) => {
                let patch_type = PatchType::from_content_type(&call.header(&header::CONTENT_TYPE))?;
                let options = call.patch_options(patch_type, subresource)?;
                let (object, is_new) =
                    objects.patch(&namespace, &name, patch_type, &call.body, &options)?;
                (if is_new { StatusCode::CREATED } else { StatusCode::OK }, object)
            }
            ("DELETE", false) if !is_status => {
                let options = call.delete_options()?;
                let deletion = objects.delete(&namespace, &name, &options)?;
                // Who wanted its dependents to go as well has to wait for it.
                let waits = !deletion.is_deleted && options.orphan_dependents == Some(false);
                let code = if waits { StatusCode::ACCEPTED } else { StatusCode::OK };
                (code, deletion.into_answer())
            }
            _ => {
                let message = "the server does not allow this method on the requested resource";
                return Err(Status::new(Reason::MethodNotAllowed, message));
            }
        };
        Ok(Answer::Json(code, value))
    }
}

fn nowhere() -> Status {
    Status::new(Reason::NotFound, "the server could not find the requested resource")
}

fn list_of(kind: &Kind, list: List) -> Value {
    let mut metadata = json!({"resourceVersion": list.resource_version});
    if !list.continue_token.is_empty() {
        metadata["continue"] = list.continue_token.into();
    }
    if let Some(remaining) = list.remaining_item_count {
        metadata["remainingItemCount"] = remaining.into();
    }
    json!({
        "kind": format!("{}List", kind.kind), "apiVersion": kind.api_version,
        "metadata": metadata, "items": list.items,
    })
}
