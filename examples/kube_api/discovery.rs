//! How clients find out what is served: `/api`, `/apis` and `/apis/GROUP/VERSION`, each alone or all at once.

use annals::object::{Kind, Result};
use serde_json::{Value, json};

use super::kinds::{Api, Served};
use super::router::nowhere;

/// The answer to who asks for all groups at once, which has to say that it is that.
pub(crate) const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

const VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

impl Api {
    /// `/apis`.
    pub(crate) fn groups(&self) -> Value {
        let named = self.versions().into_iter().filter(|kind| !kind.group().is_empty());
        let groups = named.map(|kind| {
            let version = json!({"groupVersion": kind.api_version, "version": kind.version()});
            json!({"name": kind.group(), "versions": [version], "preferredVersion": version})
        });
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups.collect::<Vec<_>>()})
    }

    /// `/api/VERSION` and `/apis/GROUP/VERSION`.
    pub(crate) fn resources(&self, api_version: &str) -> Result<Value> {
        let mut resources = Vec::new();
        for served in self.of_version(api_version) {
            let kind = served.objects.kind();
            resources.push(json!({
                "name": kind.resource, "singularName": kind.kind.to_lowercase(), "kind": kind.kind,
                "namespaced": kind.namespaced, "verbs": VERBS, "shortNames": served.short_names,
                "categories": served.categories,
            }));
            for subresource in served.subresources {
                let mut resource = answered_by(kind, subresource);
                resource["name"] = format!("{}/{subresource}", kind.resource).into();
                resource["singularName"] = "".into();
                resource["namespaced"] = kind.namespaced.into();
                resource["verbs"] = json!(SUBRESOURCE_VERBS);
                resources.push(resource);
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

    /// All of it, of the core group or of all others.
    pub(crate) fn aggregated(&self, is_core: bool) -> Value {
        let versions =
            self.versions().into_iter().filter(|kind| kind.group().is_empty() == is_core);
        let groups = versions.map(|kind| {
            let served = self.of_version(&kind.api_version);
            let resources: Vec<_> = served.into_iter().map(|served| discovered(served)).collect();
            let version =
                json!({"version": kind.version(), "resources": resources, "freshness": "Current"});
            json!({"metadata": {"name": kind.group()}, "versions": [version]})
        });
        json!({
            "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {}, "items": groups.collect::<Vec<_>>(),
        })
    }
}

fn discovered(served: &Served) -> Value {
    let kind = served.objects.kind();
    let subresources = served.subresources.iter().map(|name| {
        json!({"subresource": name, "responseKind": answered_by(kind, name), "verbs": SUBRESOURCE_VERBS})
    });
    json!({
        "resource": kind.resource, "singularResource": kind.kind.to_lowercase(),
        "responseKind": group_version_kind(kind),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "verbs": VERBS, "shortNames": served.short_names, "categories": served.categories,
        "subresources": subresources.collect::<Vec<_>>(),
    })
}

/// The kind that a subresource answers with.
fn answered_by(kind: &Kind, subresource: &str) -> Value {
    match subresource {
        "scale" => json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}),
        _ => group_version_kind(kind),
    }
}

pub(crate) fn group_version_kind(kind: &Kind) -> Value {
    json!({"group": kind.group(), "version": kind.version(), "kind": kind.kind})
}
