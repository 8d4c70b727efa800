//! Lists page by page.

use annals::object::{DeleteOptions, ListOptions, Reason, ResourceVersionMatch, Result};
use serde_json::Value;

use super::kit::{create, pod, pod_kind, refused, store};
use super::under::Objects;

#[test]
fn all_pages_of_a_list_are_of_one_version() {
    let pods = Objects::new(store(), pod_kind());
    let names = |page: &Value| page["metadata"]["name"].as_str().unwrap().to_owned();
    for number in 0..5 {
        create(&pods, pod(&format!("web-{number}")));
    }
    let of = |limit: u64| ListOptions { limit, ..ListOptions::default() };
    for limit in [0, 1, 2, 3, 5, 6] {
        let mut pages = pods.pages("default", &of(limit));
        let first = pages.next().unwrap().unwrap();
        create(&pods, pod("web-9"));
        let rest: Vec<_> = pages.map(Result::unwrap).collect();
        let all: Vec<_> =
            [first].iter().chain(&rest).flat_map(|page| page.items.iter().map(names)).collect();
        assert_eq!(all, ["web-0", "web-1", "web-2", "web-3", "web-4"], "{limit}");
        pods.delete("default", "web-9", &DeleteOptions::default()).unwrap();
    }
    // A version without a limit is "not older than" it, and with one, just it.
    let first = ListOptions { resource_version: "2".into(), ..of(0) };
    assert_eq!(pods.pages("default", &first).next().unwrap().unwrap().items.len(), 5);
    let exact = ListOptions { resource_version_match: Some(ResourceVersionMatch::Exact), ..first };
    let pages: Vec<_> = pods.pages("default", &exact).map(Result::unwrap).collect();
    assert_eq!((pages.len(), pages[0].items.len()), (1, 1));
    // What cannot be listed ends it.
    let bad = ListOptions { continue_token: "bad".into(), ..of(1) };
    let told: Vec<_> = pods.pages("default", &bad).map(|page| page.map(|_| ())).collect();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].as_ref().unwrap_err().code(), 400);
}

#[test]
fn pages_whose_version_is_gone_say_so_and_can_go_on() {
    let store = store();
    let pods = Objects::new(store.clone(), pod_kind());
    for number in 0..4 {
        create(&pods, pod(&format!("web-{number}")));
    }
    let options = ListOptions { limit: 2, ..ListOptions::default() };
    let mut pages = pods.pages("default", &options);
    assert_eq!(pages.next().unwrap().unwrap().items.len(), 2);
    create(&pods, pod("a-late-one"));
    create(&pods, pod("web-9"));
    store.compact(store.revision()).unwrap();
    let gone = refused(pages.next().unwrap());
    assert_eq!(gone.reason(), Reason::Expired);
    let mut rest = Vec::new();
    for page in pages {
        rest.extend(page.unwrap().items);
    }
    let rest: Vec<_> = rest.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(rest, ["web-2", "web-3", "web-9"]);
    // The first page has nowhere to go on.
    let old = ListOptions {
        resource_version: "3".into(),
        resource_version_match: Some(ResourceVersionMatch::Exact),
        ..options
    };
    let told: Vec<_> = pods.pages("default", &old).collect();
    assert_eq!(told.len(), 1);
}
