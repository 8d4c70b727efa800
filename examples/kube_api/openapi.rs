//! `/openapi/v3`: the schemas of the kinds, and what their requests may say.
//!
//! `kubectl` asks for it before it sends an object: whether the server validates fields itself, and how the lists of a
//! kind are merged. `kubectl explain` reads it out.

use annals::object::{Kind, PatchType, Result};
use serde_json::{Map, Value, json};

use super::discovery::group_version_kind;
use super::kinds::{Api, Served};
use super::router::nowhere;
use super::schemas::anything;

/// The type of the older document. Nothing here needs it, but `kubectl` asks for it where it is to create a list.
pub(crate) const OPENAPI_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

impl Api {
    /// `/openapi/v3`: where the documents of the versions are.
    pub(crate) fn openapi(&self) -> Value {
        let paths: Map<_, _> = self
            .versions()
            .into_iter()
            .map(|kind| {
                let path = root(kind);
                let address = json!({"serverRelativeURL": format!("/openapi/v3{path}")});
                (path.trim_start_matches('/').to_owned(), address)
            })
            .collect();
        json!({"paths": paths})
    }

    /// `/openapi/v3/apis/GROUP/VERSION`: the document of a version.
    pub(crate) fn openapi_of(&self, api_version: &str) -> Result<Value> {
        let (mut schemas, mut paths) = (Map::new(), Map::new());
        for served in self.of_version(api_version) {
            let kind = served.objects.kind();
            let mut schema = served.schema.clone().unwrap_or_else(anything);
            schema["x-kubernetes-group-version-kind"] = json!([group_version_kind(kind)]);
            schemas.insert(kind.kind.clone(), schema);
            let namespace = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
            let path = format!("{}{namespace}/{}", root(kind), kind.resource);
            paths.insert(
                path.clone(),
                json!({
                    "get": operation(kind, "list", None),
                    "post": operation(kind, "post", Some(&["application/json", "application/yaml"])),
                    "delete": operation(kind, "deletecollection", None),
                }),
            );
            paths.insert(format!("{path}/{{name}}"), of_one(served));
        }
        if schemas.is_empty() {
            return Err(nowhere());
        }
        Ok(json!({
            "openapi": "3.0.0",
            "info": {"title": "annals", "version": "v1"},
            "paths": paths,
            "components": {"schemas": schemas},
        }))
    }
}

/// The requests for one object.
fn of_one(served: &Served) -> Value {
    let kind = served.objects.kind();
    let patches = [PatchType::Json, PatchType::Merge, PatchType::Apply, PatchType::StrategicMerge];
    let mut patches = patches.map(PatchType::content_type).to_vec();
    if served.schema.is_none() {
        // Nobody knows how to merge its lists.
        patches.pop();
    }
    json!({
        "get": operation(kind, "get", None),
        "put": operation(kind, "put", Some(&["application/json", "application/yaml"])),
        "patch": operation(kind, "patch", Some(&patches)),
        "delete": operation(kind, "delete", None),
    })
}

/// One request, and what may be in its body where it writes.
fn operation(kind: &Kind, action: &str, content_types: Option<&[&str]>) -> Value {
    let mut operation = json!({
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": group_version_kind(kind),
        "responses": {"200": {"description": "OK"}},
    });
    if let Some(content_types) = content_types {
        let schema = json!({"$ref": format!("#/components/schemas/{}", kind.kind)});
        let content: Map<_, _> =
            content_types.iter().map(|name| ((*name).into(), json!({"schema": schema}))).collect();
        operation["requestBody"] = json!({"content": content});
        let parameters = ["dryRun", "fieldManager", "fieldValidation"];
        let parameters = parameters
            .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string"}}));
        operation["parameters"] = json!(parameters);
    }
    operation
}

/// Where the resources of a version are.
fn root(kind: &Kind) -> String {
    let api_version = &kind.api_version;
    if kind.group().is_empty() {
        format!("/api/{api_version}")
    } else {
        format!("/apis/{api_version}")
    }
}
