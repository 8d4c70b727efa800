//! `/scale`: how many there are to be, as one small object that is the same for every kind that has it.

use annals::object::{Cause, GetOptions, Result, Schema, Status, meta};
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::call::Call;
use super::router::{Answer, Target, not_allowed};

pub(crate) fn serve(target: &Target<'_>, call: &Call) -> Result<Answer> {
    let Target { served, namespace, name, .. } = target;
    let objects = &served.objects;
    let object = match call.method.as_str() {
        "GET" => objects.get(namespace, name, &GetOptions::default())?,
        "PUT" => {
            let scale = serde_json::from_slice(&call.json()?)
                .map_err(|bad| Status::bad_request(bad.to_string()))?;
            agree("name", meta::name(&scale), name)?;
            agree("namespace", meta::namespace(&scale), namespace)?;
            let options = call.put_options()?;
            objects.modify(namespace, name, &options, |object| set(object, &scale))?
        }
        "PATCH" => {
            let (patch_type, options) = (call.patch_type()?, call.put_options()?);
            let patch = call.patch(patch_type)?;
            objects.modify(namespace, name, &options, |object| {
                let scale = patch_type.patch(&scale_of(object), &patch, &Schema::any())?;
                set(object, &scale)
            })?
        }
        _ => return Err(not_allowed()),
    };
    Ok(Answer::Json(StatusCode::OK, scale_of(&object)))
}

/// What the body says of itself is nothing, or what the URL says.
fn agree(what: &str, said: &str, meant: &str) -> Result<()> {
    if said.is_empty() || said == meant {
        return Ok(());
    }
    let why =
        format!("the {what} of the object ({said}) does not match the {what} on the URL ({meant})");
    Err(Status::bad_request(why))
}

/// A `Scale` of `autoscaling/v1`.
fn scale_of(object: &Value) -> Value {
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let metadata = &object["metadata"];
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {"replicas": count(&object["spec"]["replicas"])},
        "status": {"replicas": count(&object["status"]["replicas"])},
    })
}

/// As many as the scale says. A version in it is a lock, as in any other update.
fn set(object: &mut Value, scale: &Value) -> Result<()> {
    let replicas = &scale["spec"]["replicas"];
    if replicas.as_u64().is_none() {
        let cause = Cause::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
        return Err(Status::invalid("autoscaling", "Scale", meta::name(object), vec![cause]));
    }
    let version = meta::resource_version(scale);
    if !version.is_empty() {
        object["metadata"]["resourceVersion"] = version.into();
    }
    if !object["spec"].is_object() {
        object["spec"] = json!({});
    }
    object["spec"]["replicas"] = replicas.clone();
    Ok(())
}
