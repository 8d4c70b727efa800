//! Under which keys objects lie.

use super::error::StorageError;
use crate::object::status::Status;

/// A path with one slash before each of its parts, and none behind: `path.Join("/", path)` of Go, but `/` is empty.
pub(super) fn join(path: &str) -> String {
    path.split('/').filter(|part| !part.is_empty()).flat_map(|part| ["/", part]).collect()
}

/// The full key of one: `path_prefix` and the key, which must begin with the prefix of the resource and must not lead
/// elsewhere. `PrepareKey` of `k8s.io/apiserver/pkg/storage/interfaces.go`.
pub(super) fn prepare(
    path_prefix: &str,
    resource_prefix: &str,
    key: &str,
    recursive: bool,
) -> Result<String, StorageError> {
    let refuse = |what: String| Err(Status::bad_request(what).into());
    // Upstream takes an empty part for none when it makes a key of it; here it would be another key.
    if key.split('/').any(|part| part == "." || part == "..") || key.contains("//") {
        return refuse(format!("invalid key: {key:?}"));
    }
    if key.is_empty() || key == "/" {
        return refuse(format!("empty key: {key:?}"));
    }
    let mut full = key.to_owned();
    if recursive && !full.ends_with('/') {
        full.push('/');
    }
    let rest = full.strip_prefix(resource_prefix.trim_end_matches('/'));
    if rest.is_none_or(|rest| !rest.starts_with('/')) {
        return refuse(format!("invalid key: {full:?} lacks resource prefix: {resource_prefix:?}"));
    }
    full.insert_str(0, path_prefix);
    Ok(full)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `TestPrefix` of `k8s.io/apiserver/pkg/storage/etcd3`.
    #[test]
    fn prefixes_have_one_form() {
        for (given, full) in [
            ("custom_prefix", "/custom_prefix"),
            ("/custom_prefix", "/custom_prefix"),
            ("/custom//prefix//one/two", "/custom/prefix/one/two"),
            ("/registry/", "/registry"),
            ("/", ""),
            ("", ""),
        ] {
            assert_eq!(join(given), full);
        }
    }

    /// `TestPrepareKey` of `k8s.io/apiserver/pkg/storage`.
    #[test]
    fn keys_lead_nowhere_else() {
        for bad in [
            "",
            "/",
            ".",
            "..",
            "/.",
            "/..",
            "./",
            "../",
            "/./",
            "/../",
            "/a/../b",
            "/pods/./a",
            "/pods/..",
            "//",
            "/pods//a",
        ] {
            assert!(prepare("", "", bad, false).is_err(), "{bad}");
            assert!(prepare("", "", bad, true).is_err(), "{bad}");
        }
        for resource_prefix in ["/pods/", "/pods"] {
            for other in ["/services/a", "/pods2/a", "/pods2"] {
                assert!(prepare("", resource_prefix, other, false).is_err(), "{other}");
            }
        }
        assert_eq!(prepare("/r", "/pods/", "/pods/...", false).unwrap(), "/r/pods/...");
        assert_eq!(prepare("/r", "/pods/", "/pods/..a", false).unwrap(), "/r/pods/..a");
        assert_eq!(prepare("/r", "/a", "/a", true).unwrap(), "/r/a/");
        assert_eq!(prepare("/r", "/a", "/a/", true).unwrap(), "/r/a/");
        assert!(prepare("/r", "/a", "/a", false).is_err());
        assert_eq!(prepare("/r", "/a", "/a/b", false).unwrap(), "/r/a/b");
    }
}
