//! Where an object's resource version comes from, and where it is put: `storage.Versioner` of Kubernetes.
//!
//! It is never stored: what is written has none, what is read gets that of its revision.

use serde_json::Value;

use super::meta;
use super::status::{Cause, Details, Reason, Result, Status};

/// Attaches versions to objects and lists, and reads them: the five operations of
/// `k8s.io/apiserver/pkg/storage.Versioner`.
pub trait Versioner: Send + Sync + 'static {
    /// Sets the version of an object that has been read; 0 takes it away.
    ///
    /// # Errors
    ///
    /// 500 for what has no metadata. What was read can be used all the same.
    fn update_object(&self, object: &mut Value, resource_version: u64) -> Result<()>;

    /// Sets the version of a list, from where to continue it, and how many there still are.
    ///
    /// # Errors
    ///
    /// 500 for version 0, and for what has no metadata.
    fn update_list(
        &self,
        list: &mut Value,
        resource_version: u64,
        continue_token: &str,
        remaining: Option<u64>,
    ) -> Result<()>;

    /// Takes away what is not to be stored: the version and the link to itself.
    ///
    /// # Errors
    ///
    /// 500 for what has no metadata.
    fn prepare_for_storage(&self, object: &mut Value) -> Result<()>;

    /// The version of an object; 0 where it has none.
    ///
    /// # Errors
    ///
    /// 422 for one that is no version.
    fn object_resource_version(&self, object: &Value) -> Result<u64>;

    /// A version that a client gives, of an object or to watch from; 0 for none. A watch from version 1 shows
    /// what changes from 2 on.
    ///
    /// # Errors
    ///
    /// 422 for one that is no version.
    fn parse_resource_version(&self, resource_version: &str) -> Result<u64>;
}

/// Versions are revisions in decimal digits.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "it has no state")]
pub struct ApiVersioner;

fn no_metadata() -> Status {
    Status::internal("object does not implement the Object interfaces")
}

impl Versioner for ApiVersioner {
    fn update_object(&self, object: &mut Value, resource_version: u64) -> Result<()> {
        let metadata = meta::metadata_mut(object).ok_or_else(no_metadata)?;
        if resource_version == 0 {
            metadata.remove("resourceVersion");
        } else {
            metadata.insert("resourceVersion".into(), resource_version.to_string().into());
        }
        Ok(())
    }

    fn update_list(
        &self,
        list: &mut Value,
        resource_version: u64,
        continue_token: &str,
        remaining: Option<u64>,
    ) -> Result<()> {
        if resource_version == 0 {
            let message = "illegal resource version from storage: 0";
            return Err(Status::internal(message));
        }
        self.update_object(list, resource_version)?;
        let metadata = meta::metadata_mut(list).ok_or_else(no_metadata)?;
        if continue_token.is_empty() {
            metadata.remove("continue");
        } else {
            metadata.insert("continue".into(), continue_token.into());
        }
        match remaining {
            Some(remaining) => metadata.insert("remainingItemCount".into(), remaining.into()),
            None => metadata.remove("remainingItemCount"),
        };
        Ok(())
    }

    fn prepare_for_storage(&self, object: &mut Value) -> Result<()> {
        let metadata = meta::metadata_mut(object).ok_or_else(no_metadata)?;
        metadata.remove("resourceVersion");
        metadata.remove("selfLink");
        Ok(())
    }

    fn object_resource_version(&self, object: &Value) -> Result<u64> {
        if object.get("metadata").is_none_or(|metadata| !metadata.is_object()) {
            return Err(no_metadata());
        }
        match object["metadata"].get("resourceVersion") {
            None | Some(Value::Null) => Ok(0),
            Some(Value::String(version)) => self.parse_resource_version(version),
            Some(other) => Err(invalid(&other.to_string())),
        }
    }

    fn parse_resource_version(&self, resource_version: &str) -> Result<u64> {
        if resource_version.is_empty() {
            return Ok(0);
        }
        // Go's ParseUint takes digits alone; Rust's takes a plus sign, too.
        let is_decimal = resource_version.bytes().all(|byte| byte.is_ascii_digit());
        let parsed = is_decimal.then(|| resource_version.parse().ok()).flatten();
        parsed.ok_or_else(|| invalid(resource_version))
    }
}

fn invalid(version: &str) -> Status {
    let is_decimal = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    let why = if is_decimal { "value out of range" } else { "invalid syntax" };
    let why = format!("strconv.ParseUint: parsing {version:?}: {why}");
    let cause = Cause::invalid("resourceVersion", &version.into(), why);
    // Of which object it is, nobody knows here.
    let message = format!("resourceVersion: {}", cause.message);
    let details = Details { causes: vec![cause], ..Details::default() };
    Status::new(Reason::Invalid, message).with_details(details)
}
