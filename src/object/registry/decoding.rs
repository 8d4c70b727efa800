//! Objects and patches as clients send them, and what is said of fields that nobody knows.

use serde_json::Value;

use crate::object::decode::{FieldValidation, new_problems, problems_of_patch, problems_of_text};
use crate::object::kv::Kv;
use crate::object::patch::PatchType;
use crate::object::status::{Cause, Result, Status};

use super::Objects;
use super::patching::shown;

impl<K: Kv> Objects<K> {
    /// Reads an object of JSON that a client has sent, for [`create`](Self::create) or [`update`](Self::update).
    ///
    /// What the [`schema`](Self::schema) does not know is a problem, and so is what is said twice. Of metadata it is known
    /// what there is, also without a schema. Unless problems are ignored, the text is read twice.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use annals::object::{FieldValidation, Kind, Objects, Schema};
    /// # use serde_json::json;
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Arc::new(annals::Store::open(directory.path())?);
    /// let spec = json!({"type": "object", "properties": {"size": {"type": "integer"}}});
    /// let schema = Schema::from_openapi(&json!({"type": "object", "properties": {"spec": spec}}))?;
    /// let disks = Objects::new(store, Kind::new("v1", "Disk", "disks")).schema(schema);
    ///
    /// let sent = br#"{"metadata": {"name": "a"}, "spec": {"sice": 1}}"#;
    /// let warn = FieldValidation::parse("Warn")?;
    /// let disk = disks.decode(sent, &warn)?;
    /// assert_eq!(warn.take_warnings(), [r#"unknown field "spec.sice""#]);
    /// disks.create("default", disk, &Default::default())?;
    ///
    /// let refused = disks.decode(sent, &FieldValidation::Strict).unwrap_err();
    /// assert!(refused.message().ends_with(r#"strict decoding error: unknown field "spec.sice""#));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// 400 for what is no JSON, and for what [`FieldValidation::Strict`] refuses.
    pub fn decode(&self, json: &[u8], validation: &FieldValidation) -> Result<Value> {
        let (kind, version) = (&self.kind.kind, self.kind.version());
        let object = serde_json::from_slice(json).map_err(|error| {
            Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): json parse error: {error}"
            ))
        })?;
        if !validation.is_ignore() {
            validation.judge(problems_of_text(json, &self.schema), |problems| {
                Status::bad_request(format!(
                    "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {problems}"
                ))
            })?;
        }
        Ok(object)
    }

    /// Judges a patch, and what it makes of what is there. What is unknown there already is no fault of the patch.
    pub(super) fn judge_patch(
        &self,
        patch_type: PatchType,
        patch: &[u8],
        there: &Value,
        patched: &Value,
        validation: &FieldValidation,
    ) -> Result<()> {
        if validation.is_ignore() {
            return Ok(());
        }
        let mut problems = problems_of_patch(patch);
        if patch_type == PatchType::Apply {
            // What its schema does not know it does not take at all.
            return validation.judge(problems, |problems| {
                Status::bad_request(format!("error strict decoding patch: {problems}"))
            });
        }
        problems.extend(new_problems(there, patched, &self.schema));
        validation.judge(problems, |problems| {
            let why = format!("strict decoding error: {problems}");
            let cause = Cause::invalid("patch", &shown(patch), why);
            Status::invalid("", "", "", vec![cause])
        })
    }
}
