//! Which call of the library a request is.

use std::sync::Arc;
use std::time::Duration;

use annals::object::{GetOptions, Reason, Result, Status};
use axum::http::{StatusCode, header};
use serde_json::{Value, json};

use super::call::Call;
use super::discovery::AGGREGATED;
use super::kinds::{Api, Served};
use super::openapi::OPENAPI_V2;
use super::scale;
use super::table::View;
use super::watching::Watching;

pub(crate) enum Answer {
    Json(StatusCode, Value),
    /// Bytes of a type of their own.
    Bytes(&'static str, Vec<u8>),
    Watch(Box<Watching>),
}

/// Where a request points to.
pub(crate) struct Target<'a> {
    pub(crate) served: &'a Arc<Served>,
    pub(crate) namespace: String,
    pub(crate) name: String,
    subresource: String,
}

impl Api {
    pub(crate) fn answer(&self, call: &Call) -> Result<Answer> {
        let path: Vec<_> = call.path.iter().map(String::as_str).collect();
        let ok = |value| Ok(Answer::Json(StatusCode::OK, value));
        let all_at_once = || {
            let accepted = call.header(&header::ACCEPT);
            accepted.split(',').any(|one| {
                let has = |wanted| one.split(';').any(|part| part.trim() == wanted);
                has("as=APIGroupDiscoveryList") && has("v=v2")
            })
        };
        match path.as_slice() {
            ["version"] => ok(json!({"major": "1", "minor": "32", "gitVersion": "v1.32.0-annals"})),
            [root @ ("api" | "apis")] if all_at_once() => {
                let groups = self.aggregated(*root == "api").to_string();
                Ok(Answer::Bytes(AGGREGATED, groups.into_bytes()))
            }
            ["api"] => ok(json!({"kind": "APIVersions", "versions": ["v1"]})),
            ["apis"] => ok(self.groups()),
            // Of version 2 there is no more than the beginning, in its binary form: nothing.
            ["openapi", "v2"] => Ok(Answer::Bytes(OPENAPI_V2, Vec::new())),
            ["openapi", "v3"] => ok(self.openapi()),
            ["openapi", "v3", "api", version] => ok(self.openapi_of(version)?),
            ["openapi", "v3", "apis", group, version] => {
                ok(self.openapi_of(&format!("{group}/{version}"))?)
            }
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
        let target = self.locate(api_version, path)?;
        match target.subresource.as_str() {
            "" if target.name.is_empty() => self.serve_all(&target, call),
            "" => serve_one(&target, call),
            subresource if !target.served.subresources.contains(&subresource) => Err(nowhere()),
            "scale" => scale::serve(&target, call),
            _ => serve_one(&target, call),
        }
    }

    /// The objects of a namespace, or of all.
    fn serve_all(&self, target: &Target<'_>, call: &Call) -> Result<Answer> {
        let Target { served, namespace, .. } = target;
        let objects = &served.objects;
        let view = View::of(&call.headers, &call.text("includeObject"));
        match call.method.as_str() {
            "GET" if call.is("watch")? => {
                let options = call.watch_options()?;
                let timeout = call.number("timeoutSeconds")?.map(Duration::from_secs);
                let open = || objects.watch(namespace, &options);
                let watching = Watching::open(self, served, view, timeout, open)?;
                Ok(Answer::Watch(Box::new(watching)))
            }
            "GET" => {
                let list = objects.list(namespace, &call.list_options()?)?;
                Ok(Answer::Json(StatusCode::OK, view.many(served, list)))
            }
            "POST" => {
                let object = objects.decode(&call.json()?, &call.field_validation)?;
                let made = objects.create(namespace, object, &call.create_options()?)?;
                Ok(Answer::Json(StatusCode::CREATED, view.one(served, made)))
            }
            "DELETE" => {
                let (options, list) = (call.delete_options()?, call.list_options()?);
                let deleted = objects.delete_collection(namespace, &options, &list)?;
                Ok(Answer::Json(StatusCode::OK, view.many(served, deleted)))
            }
            _ => Err(not_allowed()),
        }
    }
}

/// One object, or its status.
fn serve_one(target: &Target<'_>, call: &Call) -> Result<Answer> {
    let Target { served, namespace, name, subresource } = target;
    let objects = &served.objects;
    let is_status = subresource == "status";
    let (object, is_new) = match call.method.as_str() {
        "GET" => {
            let resource_version = call.text("resourceVersion");
            let options = GetOptions { resource_version, ..GetOptions::default() };
            (objects.get(namespace, name, &options)?, false)
        }
        "PUT" => {
            let object = objects.decode(&call.json()?, &call.field_validation)?;
            let options = call.put_options()?;
            if is_status {
                (objects.update_status(namespace, name, object, &options)?, false)
            } else {
                objects.update(namespace, name, object, &options)?
            }
        }
        "PATCH" => {
            let patch_type = call.patch_type()?;
            let options = call.patch_options(patch_type, subresource)?;
            objects.patch(namespace, name, patch_type, &call.patch(patch_type)?, &options)?
        }
        "DELETE" if !is_status => {
            let options = call.delete_options()?;
            let deletion = objects.delete(namespace, name, &options)?;
            // Who wanted its dependents to go as well has to wait for it.
            let waits = !deletion.is_deleted && options.orphan_dependents == Some(false);
            let code = if waits { StatusCode::ACCEPTED } else { StatusCode::OK };
            return Ok(Answer::Json(code, deletion.into_answer()));
        }
        _ => return Err(not_allowed()),
    };
    let code = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let view = View::of(&call.headers, &call.text("includeObject"));
    Ok(Answer::Json(code, view.one(served, object)))
}

pub(crate) fn not_allowed() -> Status {
    let message = "the server does not allow this method on the requested resource";
    Status::new(Reason::MethodNotAllowed, message)
}

pub(crate) fn nowhere() -> Status {
    Status::new(Reason::NotFound, "the server could not find the requested resource")
}
