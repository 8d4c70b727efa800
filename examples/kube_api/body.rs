//! Bodies of requests: JSON as it is, YAML and protocol buffers as JSON.

use annals::object::{PATCH_BYTES_MAX, PatchType, Reason, Result, Status};
use axum::body::Bytes;
use axum::http::header;
use serde_json::Value;

use super::call::Call;
use super::protobuf;

impl Call {
    /// The JSON of the body.
    ///
    /// What says nothing of what it is is JSON.
    pub(crate) fn json(&self) -> Result<Bytes> {
        let content_type = self.header(&header::CONTENT_TYPE);
        match content_type.split(';').next().unwrap_or_default().trim() {
            "" | "application/json" => Ok(self.body.clone()),
            "application/yaml" | "application/x-yaml" | "text/yaml" => json_of_yaml(&self.body),
            "application/vnd.kubernetes.protobuf" => {
                Ok(protobuf::json(&self.body)?.to_string().into())
            }
            _ => {
                let message = "the body of the request was in an unknown format - accepted media types include: \
                               application/json, application/yaml, application/vnd.kubernetes.protobuf";
                Err(Status::new(Reason::UnsupportedMediaType, message))
            }
        }
    }

    /// The JSON of a patch: what is applied may be YAML.
    pub(crate) fn patch(&self, patch_type: PatchType) -> Result<Bytes> {
        let is_json = self.body.trim_ascii_start().starts_with(b"{");
        if patch_type == PatchType::Apply && !is_json {
            return json_of_yaml(&self.body);
        }
        Ok(self.body.clone())
    }
}

/// What YAML says in JSON, of which there may be no more than of JSON itself: a few aliases say the same many times. A key
/// that it says twice is an error, whatever `fieldValidation` says. `0644` is octal, as the manifests of Kubernetes mean it.
fn json_of_yaml(body: &[u8]) -> Result<Bytes> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_total_scalar_bytes: PATCH_BYTES_MAX,
            max_recorded_anchor_bytes: PATCH_BYTES_MAX,
        },
        legacy_octal_numbers: true,
        // A message is no place for the lines around the fault, as those of a Secret.
        with_snippet: false,
    };
    let value: Value = serde_saphyr::from_slice_with_options(body, options)
        .map_err(|error| Status::bad_request(format!("error converting YAML to JSON: {error}")))?;
    let json = value.to_string();
    if json.len() > PATCH_BYTES_MAX {
        let message = format!("Request entity too large: limit is {PATCH_BYTES_MAX}");
        return Err(Status::new(Reason::RequestEntityTooLarge, message));
    }
    Ok(json.into())
}
