//! What a request asks for: its parameters, headers and body as options of the library.

use std::collections::HashMap;

use annals::object::{
    Cause, CreateOptions, DeleteOptions, FieldValidation, ListOptions, PatchOptions, PatchType,
    Preconditions, Predicate, PropagationPolicy, ResourceVersionMatch, Result, Status,
    UpdateOptions, WatchOptions,
};
use axum::body::Bytes;
use axum::http::{HeaderMap, Method, header};
use serde::Deserialize;
use serde_json::json;

/// What a request asks for.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: Vec<String>,
    pub(crate) query: HashMap<String, String>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// What is said of fields that nobody knows, and where.
    pub(crate) field_validation: FieldValidation,
}

/// What the parameters, headers and the body of a request say.
impl Call {
    pub(crate) fn text(&self, name: &str) -> String {
        self.query.get(name).cloned().unwrap_or_default()
    }

    fn read<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>> {
        let Some(text) = self.query.get(name).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let bad =
            || Status::bad_request(format!("invalid value of the parameter {name}: {text:?}"));
        text.parse().map(Some).map_err(|_| bad())
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>> {
        self.read(name)
    }

    pub(crate) fn is(&self, name: &str) -> Result<bool> {
        match self.text(name).as_str() {
            "1" => Ok(true),
            "0" => Ok(false),
            _ => Ok(self.read(name)?.unwrap_or(false)),
        }
    }

    pub(crate) fn header(&self, name: &header::HeaderName) -> String {
        let value = self.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    }

    fn dry_run(&self) -> Result<bool> {
        dry_run(self.query.get("dryRun").map(String::as_str).into_iter())
    }

    /// Who does not say who he is is called by the program that he uses.
    fn field_manager(&self) -> String {
        let agent = self.header(&header::USER_AGENT);
        let agent = agent.split('/').next().unwrap_or_default();
        self.query.get("fieldManager").map_or(agent, String::as_str).to_owned()
    }

    fn predicate(&self) -> Result<Predicate> {
        Predicate::parse(&self.text("labelSelector"), &self.text("fieldSelector"))
    }

    pub(crate) fn list_options(&self) -> Result<ListOptions> {
        if self.query.contains_key("sendInitialEvents") {
            let why = "sendInitialEvents is forbidden for list";
            let cause = Cause::forbidden("sendInitialEvents", why);
            return Err(Status::invalid("meta.k8s.io", "ListOptions", "", vec![cause]));
        }
        Ok(ListOptions {
            resource_version: self.text("resourceVersion"),
            resource_version_match: ResourceVersionMatch::parse(
                &self.text("resourceVersionMatch"),
            )?,
            limit: self.number("limit")?.unwrap_or(0),
            continue_token: self.text("continue"),
            predicate: self.predicate()?,
            ..ListOptions::default()
        })
    }

    pub(crate) fn watch_options(&self) -> Result<WatchOptions> {
        let send_initial_events: Option<bool> = self.read("sendInitialEvents")?;
        let wanted = ResourceVersionMatch::parse(&self.text("resourceVersionMatch"))?;
        let field = "resourceVersionMatch";
        let cause = match (send_initial_events, wanted) {
            (None, None) | (Some(_), Some(ResourceVersionMatch::NotOlderThan)) => None,
            (None, Some(_)) => Some(Cause::forbidden(
                field,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )),
            (Some(_), _) => Some(Cause::forbidden(
                field,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )),
        };
        if let Some(cause) = cause {
            return Err(Status::invalid("meta.k8s.io", "ListOptions", "", vec![cause]));
        }
        Ok(WatchOptions {
            resource_version: self.text("resourceVersion"),
            send_initial_events,
            allow_bookmarks: self.is("allowWatchBookmarks")?,
            predicate: self.predicate()?,
            ..WatchOptions::default()
        })
    }

    pub(crate) fn create_options(&self) -> Result<CreateOptions> {
        let (dry_run, field_manager) = (self.dry_run()?, self.field_manager());
        Ok(CreateOptions { dry_run, field_manager, ..CreateOptions::default() })
    }

    pub(crate) fn put_options(&self) -> Result<UpdateOptions> {
        let (dry_run, field_manager) = (self.dry_run()?, self.field_manager());
        Ok(UpdateOptions { dry_run, field_manager, ..UpdateOptions::default() })
    }

    pub(crate) fn patch_type(&self) -> Result<PatchType> {
        PatchType::from_content_type(&self.header(&header::CONTENT_TYPE))
    }

    pub(crate) fn patch_options(
        &self,
        patch_type: PatchType,
        subresource: &str,
    ) -> Result<PatchOptions> {
        let subresource = subresource.to_owned();
        // Who applies has to give his name.
        let field_manager = match patch_type {
            PatchType::Apply => self.text("fieldManager"),
            _ => self.field_manager(),
        };
        let (dry_run, force) = (self.dry_run()?, self.read("force")?);
        let field_validation = self.field_validation.clone();
        Ok(PatchOptions { dry_run, field_manager, force, subresource, field_validation })
    }

    /// From the body, or from the parameters where it does not say.
    pub(crate) fn delete_options(&self) -> Result<DeleteOptions> {
        let said: Said = if self.body.is_empty() {
            Said::default()
        } else {
            serde_json::from_slice(&self.json()?).map_err(|bad| {
                Status::bad_request(format!("the body is no DeleteOptions: {bad}"))
            })?
        };
        let in_body = dry_run(said.dry_run.unwrap_or_default().iter().map(String::as_str))?;
        let policy =
            said.propagation_policy.or_else(|| self.query.get("propagationPolicy").cloned());
        let Conditions { uid, resource_version } = said.preconditions.unwrap_or_default();
        Ok(DeleteOptions {
            dry_run: self.dry_run()? || in_body,
            grace_period_seconds: match said.grace_period_seconds {
                Some(seconds) => Some(seconds),
                None => self.read("gracePeriodSeconds")?,
            },
            preconditions: Preconditions { uid, resource_version },
            propagation_policy: policy
                .map(|policy| PropagationPolicy::parse(&policy))
                .transpose()?,
            orphan_dependents: match said.orphan_dependents {
                Some(orphans) => Some(orphans),
                None => self.read("orphanDependents")?,
            },
            ignore_store_read_error: match said.ignores_read_error {
                Some(ignores) => ignores,
                None => {
                    self.read("ignoreStoreReadErrorWithClusterBreakingPotential")?.unwrap_or(false)
                }
            },
        })
    }
}

/// `DeleteOptions` of `meta/v1`. What has another type is no wish that could be passed over.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Said {
    dry_run: Option<Vec<String>>,
    grace_period_seconds: Option<i64>,
    preconditions: Option<Conditions>,
    propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
    #[serde(rename = "ignoreStoreReadErrorWithClusterBreakingPotential")]
    ignores_read_error: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Conditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

/// Whether all stages are to be run dry: there are no others to choose from.
fn dry_run<'a>(stages: impl Iterator<Item = &'a str>) -> Result<bool> {
    let mut is_dry = false;
    for stage in stages {
        if stage != "All" {
            let cause = Cause::not_supported("dryRun", &json!([stage]), &["All"]);
            return Err(Status::invalid("meta.k8s.io", "Options", "", vec![cause]));
        }
        is_dry = true;
    }
    Ok(is_dry)
}
