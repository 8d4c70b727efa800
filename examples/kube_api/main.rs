//! The REST of a Kubernetes API server over a store, as far as `kubectl` asks for it every day. All rules are the
//! library's: what is here reads requests and writes answers.
//!
//! - `kinds`, `schemas`: what is served;
//! - `discovery`, `openapi`: how clients find out what that is;
//! - `call`, `body`, `protobuf`: what a request says; `router`: which call of the library it is;
//! - `scale`: a subresource of its own; `table`: objects as lines of a table; `watching`: watches as lines of JSON.
//!
//! Run with `cargo run --example kube_api --features object [-- DIRECTORY]`, then in another terminal:
//!
//! ```text
//! alias k='kubectl --server=http://127.0.0.1:8001 --kubeconfig=/dev/null'
//! k api-resources
//! k run web --image=web:1
//! k get pods -o wide
//! k get pods -w &
//! k label pod web tier=front
//! k patch pod web --type=merge -p '{"spec": {"nodeName": "one"}}'
//! k run web --image=web:2 --dry-run=client -o yaml > web.yaml; k diff -f web.yaml; k apply -f web.yaml
//! k apply --server-side -f web.yaml --force-conflicts
//! k edit pod web
//! k delete pod web
//! k create deployment web --image=web:1
//! k scale deployment web --replicas=3
//! k explain deployment.spec
//! ```
//!
//! or, without `kubectl`:
//!
//! ```text
//! PODS=http://127.0.0.1:8001/api/v1/namespaces/default/pods
//! curl -N "$PODS?watch=true" &
//! curl -H 'Content-Type: application/json' -d '{"metadata": {"name": "web"}}' $PODS
//! curl -X PATCH -H 'Content-Type: application/merge-patch+json' -d '{"spec": {"nodeName": "one"}}' $PODS/web
//! curl -X DELETE $PODS/web
//! ```
//!
//! Nobody is asked who he is, there are no logs and no `exec`, and nobody makes Pods of Deployments.

#![allow(
    dead_code,
    clippy::print_stdout,
    reason = "it says where it listens; its test needs a part of it"
)]

mod body;
mod call;
mod discovery;
mod kinds;
mod openapi;
mod protobuf;
mod router;
mod scale;
mod schemas;
mod table;
mod watching;

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use annals::Store;
use annals::object::{FieldValidation, PATCH_BYTES_MAX, Reason, Result, Status};
use axum::body::to_bytes;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use call::Call;
use kinds::Api;
use router::Answer;
pub(crate) use watching::Limits;

/// So many bytes of warnings go into the head of an answer.
const WARNINGS_BYTES_MAX: usize = 4 << 10;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> std::result::Result<(), Box<dyn Error>> {
    let temporary = tempfile::tempdir()?;
    let directory =
        std::env::args().nth(1).unwrap_or_else(|| temporary.path().display().to_string());
    let store = Arc::new(Store::open(directory)?);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8001").await?;
    println!("listening on http://{}", listener.local_addr()?);
    serve(listener, store, Limits::default()).await
}

/// Answers requests until it is dropped.
pub(crate) async fn serve(
    listener: tokio::net::TcpListener,
    store: Arc<Store>,
    limits: Limits,
) -> std::result::Result<(), Box<dyn Error>> {
    let api = Arc::new(Api::new(&store, limits)?);
    let router = axum::Router::new().fallback(handle).with_state(api);
    Ok(axum::serve(listener, router).await?)
}

async fn handle(State(api): State<Arc<Api>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, PATCH_BYTES_MAX).await else {
        let message = format!("Request entity too large: limit is {PATCH_BYTES_MAX}");
        return refuse(&Status::new(Reason::RequestEntityTooLarge, message));
    };
    let path = parts.uri.path().split('/').filter(|part| !part.is_empty());
    let path = path.map(str::to_owned).collect();
    let asked = query(&parts.uri).and_then(|query| {
        let writes = [Method::POST, Method::PUT, Method::PATCH].contains(&parts.method);
        let field_validation = query.get("fieldValidation").filter(|_| writes);
        let field_validation = FieldValidation::parse(field_validation.map_or("", String::as_str))?;
        Ok((query, field_validation))
    });
    let (query, field_validation) = match asked {
        Ok(asked) => asked,
        Err(status) => return refuse(&status),
    };
    let call = Call {
        method: parts.method,
        path,
        query,
        headers: parts.headers,
        body,
        field_validation: field_validation.clone(),
    };
    // The store waits for its disk: not here, where all other requests would wait, too.
    let answer = tokio::task::spawn_blocking(move || api.answer(&call)).await;
    let answer = answer.unwrap_or_else(|panicked| Err(Status::internal(panicked)));
    let mut response = match answer {
        Ok(Answer::Json(code, value)) => json_of(code, &value),
        Ok(Answer::Bytes(content_type, bytes)) => {
            ([(header::CONTENT_TYPE, content_type)], bytes).into_response()
        }
        Ok(Answer::Watch(watching)) => {
            watching.into_response().unwrap_or_else(|status| refuse(&status))
        }
        Err(status) => refuse(&status),
    };
    warn(&mut response, &field_validation.take_warnings());
    response
}

/// A parameter that comes twice, and says two things, is refused: either may be the one that holds back a write.
fn query(uri: &Uri) -> Result<HashMap<String, String>> {
    let query = Query::<Vec<(String, String)>>::try_from_uri(uri);
    let query = query.map_err(|bad| Status::bad_request(bad.body_text()))?;
    let mut parameters = HashMap::new();
    for (name, value) in query.0 {
        if parameters.get(&name).is_some_and(|other| *other != value) {
            return Err(Status::bad_request(format!("the parameter {name:?} says two things")));
        }
        parameters.insert(name, value);
    }
    Ok(parameters)
}

fn json_of(code: StatusCode, value: &Value) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (code, headers, value.to_string()).into_response()
}

fn refuse(status: &Status) -> Response {
    let code = StatusCode::from_u16(status.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_of(code, &json!(status));
    let seconds = status.details().retry_after_seconds;
    if seconds > 0 {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// One header for each warning, as long as there is room for it.
fn warn(response: &mut Response, warnings: &[String]) {
    let mut room = WARNINGS_BYTES_MAX;
    for warning in warnings {
        let text: String = warning.chars().filter(|c| !c.is_control()).collect();
        let quoted = format!("299 - \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        let Some(left) = room.checked_sub(quoted.len()) else { break };
        if let Ok(value) = HeaderValue::from_bytes(quoted.as_bytes()) {
            response.headers_mut().append(header::WARNING, value);
        }
        room = left;
    }
}
