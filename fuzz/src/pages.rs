//! Lists of objects in pages: tokens, versions and limits, by anybody who can send a request.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use annals::Store;
use annals::object::{GroupResource, List, ListOptions, Predicate, ResourceVersionMatch, Storage};
use annals::vfs::MemoryVfs;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use crate::input::Input;
use crate::{FIX, dir};

/// Objects there are.
const OBJECTS: usize = 12;

/// Twelve pods in two namespaces, the store compacted in between; nothing is written to it later.
static PODS: LazyLock<Storage<Store>> = LazyLock::new(|| {
    let disk = MemoryVfs::new();
    let store = Arc::new(Store::open_with(dir::DIR, &dir::options(&disk)).expect("a new store"));
    let pods =
        Storage::new(Arc::clone(&store), "/registry", GroupResource::new("", "pods"), "/pods");
    for number in 0..OBJECTS {
        let (namespace, name) = (["a", "b"][number % 2], format!("pod-{number}"));
        let labels = json!({"n": number.to_string()});
        let object = json!({"metadata": {"name": name, "namespace": namespace, "labels": labels}});
        pods.create(&format!("/pods/{namespace}/{name}"), object, 0).expect("a pod");
    }
    store.compact(5).expect("a compaction");
    pods
});

/// A byte of flags, one of the limit, and three lines: a version, label selector and token. With [`FIX`] the token is
/// what is in its base64. Pages that begin where a token says end, and name no object twice.
pub(crate) fn pages(data: &[u8]) -> bool {
    let mut input = Input(data);
    let flags = input.byte();
    let limit = input.below(5);
    let mut lines = input.0.splitn(3, |byte| *byte == b'\n').map(String::from_utf8_lossy);
    let mut line = || lines.next().unwrap_or_default().into_owned();
    let (resource_version, labels, mut continue_token) = (line(), line(), line());
    if flags & FIX != 0 {
        continue_token = URL_SAFE_NO_PAD.encode(&continue_token);
    }
    let Ok(predicate) = Predicate::parse(&labels, "") else { return false };
    let resource_version_match = match flags >> 1 & 3 {
        1 => Some(ResourceVersionMatch::Exact),
        2 => Some(ResourceVersionMatch::NotOlderThan),
        _ => None,
    };
    let key = ["/pods", "/pods/a", "/pods/a/pod-2", "/pods/"][usize::from(flags >> 3 & 3)];
    let mut options = ListOptions {
        resource_version,
        resource_version_match,
        limit,
        continue_token,
        predicate,
        recursive: flags & 0x20 == 0,
    };
    let mut seen = BTreeSet::new();
    let mut version = None;
    for page in 0..=OBJECTS {
        let List { items, resource_version, continue_token, .. } = match PODS.list(key, &options) {
            Ok(list) => list,
            Err(error) => {
                let code = error.status().map_or(500, annals::object::Status::code);
                assert!(matches!(code, 400 | 410 | 422 | 504), "{error}");
                assert!(page == 0, "a token of the list itself is good: {error}");
                return false;
            }
        };
        assert!(limit == 0 || items.len() as u64 <= limit);
        for item in &items {
            let name = item["metadata"]["name"].as_str().expect("a name").to_owned();
            assert!(seen.insert(name), "an object is in one page alone");
        }
        assert_eq!(*version.get_or_insert(resource_version.clone()), resource_version);
        if continue_token.is_empty() {
            return true;
        }
        options.resource_version.clear();
        options.resource_version_match = None;
        options.continue_token = continue_token;
    }
    panic!("the pages do not end");
}

/// Requests that are answered, by name and flags.
pub(crate) fn seeds() -> Vec<(&'static str, u8, &'static str)> {
    vec![
        ("whole", 0, "\x00\n\n"),
        ("pages", 0, "\x02\nn notin (3)\n"),
        ("exact", 2, "\x037\n\n"),
        ("not_older", 4, "\x009\n\n"),
        (
            "token",
            FIX,
            "\x02\n\n{\"v\":\"meta.k8s.io/v1\",\"rv\":9,\"start\":\"a/pod-2\\u0000\",\"remaining\":3}",
        ),
        (
            "inconsistent",
            FIX | 8,
            "\x01\n\n{\"v\":\"meta.k8s.io/v1\",\"rv\":-1,\"start\":\"/pod-4\"}",
        ),
    ]
}
