//! An HTTP client of a server of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;

use serde_json::{Value, json};
use ureq::Agent;

use crate::kube_api::Limits;
use crate::server;

pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const OPERATIONS: &str = "application/json-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";

pub(crate) struct Client {
    agent: Agent,
    pub(crate) address: SocketAddr,
}

impl Client {
    /// A client of a server of its own, which ends with the process.
    pub(crate) fn new() -> Self {
        Self::of(Limits::default())
    }

    /// The same of a server with other limits.
    pub(crate) fn of(limits: Limits) -> Self {
        let config = Agent::config_builder().http_status_as_error(false);
        let agent = config.user_agent("tester/1.0").build().into();
        Self { agent, address: server::start(limits) }
    }

    fn uri(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &str,
    ) -> (u16, Value) {
        let uri = self.uri(path);
        let request = match method {
            "POST" => self.agent.post(uri),
            "PUT" => self.agent.put(uri),
            "PATCH" => self.agent.patch(uri),
            _ => self.agent.delete(uri).force_send_body(),
        };
        let mut response = request.content_type(content_type).send(body).expect("an answer");
        let text = response.body_mut().read_to_string().expect("a text");
        let value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text}"));
        (response.status().as_u16(), value)
    }

    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        let mut response = self.agent.get(self.uri(path)).call().expect("an answer");
        let text = response.body_mut().read_to_string().expect("a text");
        (response.status().as_u16(), serde_json::from_str(&text).expect("JSON"))
    }

    /// How it is answered, whatever it is.
    pub(crate) fn code(&self, path: &str) -> u16 {
        let mut response = self.agent.get(self.uri(path)).call().expect("an answer");
        response.body_mut().read_to_string().expect("a text");
        response.status().as_u16()
    }

    pub(crate) fn delete(&self, path: &str) -> (u16, Value) {
        let mut response = self.agent.delete(self.uri(path)).call().expect("an answer");
        let text = response.body_mut().read_to_string().expect("a text");
        (response.status().as_u16(), serde_json::from_str(&text).expect("JSON"))
    }

    pub(crate) fn post(&self, path: &str, object: &Value) -> (u16, Value) {
        self.send("POST", path, JSON, &object.to_string())
    }

    pub(crate) fn put(&self, path: &str, object: &Value) -> (u16, Value) {
        self.send("PUT", path, JSON, &object.to_string())
    }

    pub(crate) fn patch(&self, path: &str, content_type: &str, patch: &Value) -> (u16, Value) {
        self.send("PATCH", path, content_type, &patch.to_string())
    }

    /// What is answered to a client that accepts this, and of what type it is.
    pub(crate) fn get_as(&self, path: &str, accept: &str) -> (String, Value) {
        let request = self.agent.get(self.uri(path)).header("Accept", accept);
        let mut response = request.call().expect("an answer");
        let content_type = response.headers()["content-type"].to_str().expect("a text").to_owned();
        let text = response.body_mut().read_to_string().expect("a text");
        (content_type, serde_json::from_str(&text).expect("JSON"))
    }

    /// The warnings that come with an answer to an object, and its code.
    pub(crate) fn warnings(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &str,
    ) -> (u16, Vec<String>) {
        let uri = self.uri(path);
        let request = match method {
            "POST" => self.agent.post(uri),
            "PUT" => self.agent.put(uri),
            _ => self.agent.patch(uri),
        };
        let response = request.content_type(content_type).send(body).expect("an answer");
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings.map(|text| text.to_str().expect("a text").to_owned()).collect();
        (response.status().as_u16(), warnings)
    }

    /// The lines of a watch, as they come.
    pub(crate) fn watch(&self, path: &str) -> impl Iterator<Item = Value> + use<> {
        self.watch_as(path, JSON)
    }

    pub(crate) fn watch_as(&self, path: &str, accept: &str) -> impl Iterator<Item = Value> + use<> {
        let request = self.agent.get(self.uri(path)).header("Accept", accept);
        let response = request.call().expect("an answer");
        assert_eq!(response.status(), 200);
        let lines = BufReader::new(response.into_body().into_reader()).lines();
        lines.map(|line| serde_json::from_str(&line.expect("a line")).expect("JSON"))
    }
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": "one", "containers": [{"name": "main", "image": "a:1"}]},
    })
}

#[track_caller]
pub(crate) fn assert_status(answer: &(u16, Value), code: u16, reason: &str) {
    let (told, status) = answer;
    assert_eq!(
        (*told, &status["code"], &status["reason"]),
        (code, &json!(code), &json!(reason)),
        "{status}"
    );
    assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Failure")));
}
