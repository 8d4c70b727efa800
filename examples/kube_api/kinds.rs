//! The kinds that are served.

use std::sync::Arc;

use annals::Store;
use annals::object::{GenerationRule, Kind, KindStrategy, Objects, Result, Schema};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::schemas;
use super::table::Column;
use super::watching::Limits;

/// The kinds that are served, and how many may watch them.
pub(crate) struct Api {
    kinds: Vec<Arc<Served>>,
    pub(crate) limits: Limits,
    /// What is left of the watches that may be open.
    pub(crate) watches: Arc<Semaphore>,
}

/// A kind that is served.
pub(crate) struct Served {
    pub(crate) objects: Objects,
    pub(crate) short_names: &'static [&'static str],
    /// What else it is called by together with others, as `all`.
    pub(crate) categories: &'static [&'static str],
    /// `status` and `scale`, where it has them.
    pub(crate) subresources: &'static [&'static str],
    /// What a table shows between the name and the age.
    pub(crate) columns: Vec<Column>,
    /// Its schema, as clients are told it; none for a kind that takes whatever comes.
    pub(crate) schema: Option<Value>,
}

/// What is particular of a kind.
struct Traits {
    strategy: KindStrategy,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    subresources: &'static [&'static str],
    columns: Vec<Column>,
    schema: Option<Value>,
}

impl Served {
    fn new(store: &Arc<Store>, kind: Kind, traits: Traits) -> Result<Arc<Self>> {
        let Traits { strategy, short_names, categories, subresources, columns, schema } = traits;
        let has_status = subresources.contains(&"status");
        let strategy = if has_status { strategy.with_status() } else { strategy };
        let mut objects = Objects::new(Arc::clone(store), kind).strategy(strategy);
        if let Some(schema) = &schema {
            objects = objects.schema(Schema::from_openapi(schema)?);
        }
        Ok(Arc::new(Self { objects, short_names, categories, subresources, columns, schema }))
    }
}

impl Api {
    pub(crate) fn new(store: &Arc<Store>, limits: Limits) -> Result<Self> {
        let by_spec = |rule| KindStrategy::new().generation(rule);
        let namespaces = Traits {
            strategy: by_spec(GenerationRule::Never),
            short_names: &["ns"],
            categories: &[],
            subresources: &["status"],
            columns: vec![Column::new("Status", |object| object["status"]["phase"].clone())],
            schema: Some(schemas::namespace()),
        };
        let config_maps = Traits {
            strategy: by_spec(GenerationRule::Never),
            short_names: &["cm"],
            categories: &[],
            subresources: &[],
            columns: vec![Column::new("Data", |object| {
                object["data"].as_object().map_or(0, serde_json::Map::len).into()
            })],
            schema: Some(schemas::config_map()),
        };
        let pods = Traits {
            strategy: by_spec(GenerationRule::Spec).field("spec.nodeName").field("status.phase"),
            short_names: &["po"],
            categories: &["all"],
            subresources: &["status"],
            columns: vec![
                Column::new("Status", |object| object["status"]["phase"].clone()),
                Column::new("Node", |object| object["spec"]["nodeName"].clone()).wide(),
            ],
            schema: Some(schemas::pod()),
        };
        let deployments = Traits {
            strategy: by_spec(GenerationRule::SpecAndAnnotations),
            short_names: &["deploy"],
            categories: &["all"],
            subresources: &["status", "scale"],
            columns: vec![
                Column::new("Replicas", |object| object["spec"]["replicas"].clone()),
                Column::new("Ready", |object| object["status"]["readyReplicas"].clone()),
            ],
            schema: Some(schemas::deployment()),
        };
        let events = Traits {
            strategy: ["kind", "name", "namespace", "uid"]
                .iter()
                .fold(by_spec(GenerationRule::Never).ttl(3_600), |strategy, field| {
                    strategy.field(format!("involvedObject.{field}"))
                }),
            short_names: &["ev"],
            categories: &[],
            subresources: &[],
            columns: vec![
                Column::new("Type", |object| object["type"].clone()),
                Column::new("Reason", |object| object["reason"].clone()),
                Column::new("Object", |object| object["involvedObject"]["name"].clone()),
                Column::new("Message", |object| object["message"].clone()),
            ],
            schema: None,
        };
        let foos = Traits {
            strategy: KindStrategy::new(),
            short_names: &[],
            categories: &[],
            subresources: &[],
            columns: vec![],
            schema: None,
        };
        let namespace = Kind::new("v1", "Namespace", "namespaces").cluster_scoped();
        let kinds = vec![
            Served::new(store, namespace, namespaces)?,
            Served::new(store, Kind::new("v1", "ConfigMap", "configmaps"), config_maps)?,
            Served::new(store, Kind::new("v1", "Pod", "pods"), pods)?,
            Served::new(store, Kind::new("v1", "Event", "events"), events)?,
            Served::new(store, Kind::new("apps/v1", "Deployment", "deployments"), deployments)?,
            Served::new(store, Kind::new("example.com/v1", "Foo", "foos"), foos)?,
        ];
        let watches = Arc::new(Semaphore::new(limits.watches));
        Ok(Self { kinds, limits, watches })
    }

    /// The versions of groups that are served, each once.
    pub(crate) fn versions(&self) -> Vec<&Kind> {
        let mut versions: Vec<_> = self.kinds.iter().map(|served| served.objects.kind()).collect();
        versions.dedup_by_key(|kind| &kind.api_version);
        versions
    }

    /// What is served of a version.
    pub(crate) fn of_version(&self, api_version: &str) -> Vec<&Arc<Served>> {
        let is_of = |served: &&Arc<Served>| served.objects.kind().api_version == api_version;
        self.kinds.iter().filter(is_of).collect()
    }

    pub(crate) fn find(&self, api_version: &str, resource: &str) -> Option<&Arc<Served>> {
        let is = |served: &&Arc<Served>| served.objects.kind().resource == resource;
        self.of_version(api_version).into_iter().find(is)
    }
}
