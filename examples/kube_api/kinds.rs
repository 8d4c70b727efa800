//! The kinds that are served, and how clients discover them.

use std::sync::Arc;

use annals::Store;
use annals::object::{GenerationRule, Kind, KindStrategy, Objects, Result, Schema};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{WATCHES_MAX, nowhere};

/// The kinds that are served.
pub(crate) struct Api {
    kinds: Vec<Served>,
    /// What is left of the watches that may be open.
    pub(crate) watches: Arc<Semaphore>,
}

pub(crate) struct Served {
    pub(crate) objects: Objects,
    short_names: &'static [&'static str],
    pub(crate) has_status: bool,
}

impl Api {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        let served = |kind: Kind, strategy: KindStrategy, short_names, has_status| {
            let strategy = if has_status { strategy.with_status() } else { strategy };
            let objects = Objects::new(Arc::clone(&store), kind).strategy(strategy);
            Served { objects, short_names, has_status }
        };
        let plain = || KindStrategy::new().generation(GenerationRule::Never);
        let by_spec = |rule| KindStrategy::new().generation(rule);
        let mut kinds = vec![
            served(
                Kind::new("v1", "Namespace", "namespaces").cluster_scoped(),
                plain(),
                &["ns"],
                true,
            ),
            served(Kind::new("v1", "ConfigMap", "configmaps"), plain(), &["cm"], false),
            served(
                Kind::new("v1", "Pod", "pods"),
                by_spec(GenerationRule::Spec).field("spec.nodeName").field("status.phase"),
                &["po"],
                true,
            ),
            served(
                Kind::new("apps/v1", "Deployment", "deployments"),
                by_spec(GenerationRule::SpecAndAnnotations),
                &["deploy"],
                true,
            ),
            served(Kind::new("example.com/v1", "Foo", "foos"), KindStrategy::new(), &[], false),
        ];
        for served in &mut kinds {
            let schema = match served.objects.kind().resource.as_str() {
                "pods" => json!({"type": "object", "properties": {"spec": pod_spec()}}),
                "deployments" => json!({"type": "object", "properties": {"spec": {
                    "type": "object", "properties": {"template": {
                        "type": "object", "properties": {"spec": pod_spec()},
                    }},
                }}}),
                _ => continue,
            };
            if let Ok(schema) = Schema::from_openapi(&schema) {
                served.objects = served.objects.clone().schema(schema);
            }
        }
        Self { kinds, watches: Arc::new(Semaphore::new(WATCHES_MAX)) }
    }

    pub(crate) fn groups(&self) -> Value {
        let versions = self.kinds.iter().map(|served| served.objects.kind());
        let mut versions: Vec<_> = versions.filter(|kind| !kind.group().is_empty()).collect();
        versions.dedup_by_key(|kind| &kind.api_version);
        let groups = versions.into_iter().map(|kind| {
            let version = json!({"groupVersion": kind.api_version, "version": kind.version()});
            json!({"name": kind.group(), "versions": [version], "preferredVersion": version})
        });
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups.collect::<Vec<_>>()})
    }

    pub(crate) fn resources(&self, api_version: &str) -> Result<Value> {
        let mut resources = Vec::new();
        for served in &self.kinds {
            let kind = served.objects.kind();
            if kind.api_version != api_version {
                continue;
            }
            let verbs =
                ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
            resources.push(json!({
                "name": kind.resource, "singularName": kind.kind.to_lowercase(), "kind": kind.kind,
                "namespaced": kind.namespaced, "verbs": verbs, "shortNames": served.short_names,
            }));
            if served.has_status {
                resources.push(json!({
                    "name": format!("{}/status", kind.resource), "singularName": "", "kind": kind.kind,
                    "namespaced": kind.namespaced, "verbs": ["get", "patch", "update"],
                }));
            }
        }
        if resources.is_empty() {
            return Err(nowhere());
        }
        Ok(json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version,
            "resources": resources,
        }))
    }

    pub(crate) fn find(&self, api_version: &str, resource: &str) -> Option<&Served> {
        self.kinds.iter().find(|served| {
            let kind = served.objects.kind();
            kind.api_version == api_version && kind.resource == resource
        })
    }
}

fn pod_spec() -> Value {
    json!({"type": "object", "properties": {"containers": {
        "type": "array",
        "items": {"type": "object", "properties": {"name": {"type": "string"}}, "x-kubernetes-preserve-unknown-fields": true},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "x-kubernetes-patch-strategy": "merge",
        "x-kubernetes-patch-merge-key": "name",
    }}, "x-kubernetes-preserve-unknown-fields": true})
}
