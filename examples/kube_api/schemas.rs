//! What objects of the kinds look like: which fields there are, and how their lists are merged.
//!
//! Clients are told the same in `openapi.rs`. Of fields that are named here and nothing more, anything is taken.

use serde_json::{Map, Value, json};

/// Any object.
pub(crate) fn anything() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Any value.
fn any_value() -> Value {
    json!({"x-kubernetes-preserve-unknown-fields": true})
}

pub(crate) fn namespace() -> Value {
    root(json!({"spec": object(json!({}), "finalizers"), "status": status()}))
}

pub(crate) fn config_map() -> Value {
    root(json!({"data": texts(), "binaryData": texts(), "immutable": {"type": "boolean"}}))
}

pub(crate) fn pod() -> Value {
    root(json!({"spec": pod_spec(), "status": status()}))
}

pub(crate) fn deployment() -> Value {
    let template = json!({"metadata": metadata(), "spec": pod_spec()});
    let spec = json!({
        "replicas": {"type": "integer"},
        "template": object(template, ""),
    });
    let others =
        "minReadySeconds paused progressDeadlineSeconds revisionHistoryLimit selector strategy";
    root(json!({"spec": object(spec, others), "status": status()}))
}

/// What all objects have, and these fields.
fn root(fields: Value) -> Value {
    let text = json!({"type": "string"});
    let mut root = json!({"apiVersion": text, "kind": text, "metadata": metadata()});
    if let (Some(root), Value::Object(mut fields)) = (root.as_object_mut(), fields) {
        root.append(&mut fields);
    }
    object(root, "")
}

fn metadata() -> Value {
    let strings = json!({
        "type": "array", "items": {"type": "string"},
        "x-kubernetes-list-type": "set", "x-kubernetes-patch-strategy": "merge",
    });
    let described = json!({
        "labels": texts(), "annotations": texts(), "finalizers": strings,
        "ownerReferences": list_by("uid", anything()),
    });
    let others = "name generateName namespace uid resourceVersion generation creationTimestamp deletionTimestamp \
                  deletionGracePeriodSeconds managedFields selfLink";
    object(described, others)
}

fn pod_spec() -> Value {
    let container = list_by("name", container());
    let described = json!({
        "containers": container, "initContainers": container, "ephemeralContainers": container,
        "volumes": list_by("name", anything()),
        "imagePullSecrets": list_by("name", anything()),
        "hostAliases": list_by("ip", anything()),
        "nodeName": {"type": "string"},
    });
    let others = "activeDeadlineSeconds affinity automountServiceAccountToken dnsConfig dnsPolicy \
                  enableServiceLinks hostIPC hostNetwork hostPID hostUsers hostname nodeSelector os overhead \
                  preemptionPolicy priority priorityClassName readinessGates resourceClaims resources restartPolicy \
                  runtimeClassName schedulerName schedulingGates securityContext serviceAccount serviceAccountName \
                  setHostnameAsFQDN shareProcessNamespace subdomain terminationGracePeriodSeconds tolerations \
                  topologySpreadConstraints";
    object(described, others)
}

fn container() -> Value {
    let described = json!({
        "name": {"type": "string"}, "image": {"type": "string"},
        "env": list_by("name", anything()),
        "ports": list_by("containerPort", anything()),
        "volumeMounts": list_by("mountPath", anything()),
        "volumeDevices": list_by("devicePath", anything()),
    });
    let others = "args command envFrom imagePullPolicy lifecycle livenessProbe readinessProbe resizePolicy resources \
                  restartPolicy securityContext startupProbe stdin stdinOnce terminationMessagePath \
                  terminationMessagePolicy tty workingDir";
    object(described, others)
}

/// Any status, whose conditions are merged by their types.
fn status() -> Value {
    let mut status = anything();
    status["properties"] = json!({"conditions": list_by("type", anything())});
    status
}

/// An object with fields that are described, and others that are named.
fn object(described: Value, named: &str) -> Value {
    let mut fields: Map<String, Value> =
        named.split_whitespace().map(|name| (name.into(), any_value())).collect();
    if let Value::Object(mut described) = described {
        fields.append(&mut described);
    }
    json!({"type": "object", "properties": fields})
}

fn texts() -> Value {
    json!({"type": "object", "additionalProperties": {"type": "string"}})
}

/// A list whose items are known by one of their fields.
fn list_by(key: &str, mut item: Value) -> Value {
    if item["properties"].is_null() {
        item["properties"] = json!({key: any_value()});
    }
    json!({
        "type": "array", "items": item,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key],
        "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": key,
    })
}
