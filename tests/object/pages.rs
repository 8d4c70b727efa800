//! Lists in pages, and lists of what cannot be read.
//!
//! row 24: pages_make_up_the_list

use annals::object::{ListOptions, Reason, StorageErrorKind};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::list::read_token;
use super::world::{World, pod, recursive, selecting, status, with};

/// `RunTestListContinuation` and `RunTestListPaging`.
#[test]
fn pages_make_up_the_list() {
    let world = World::new();
    for number in 0..25 {
        world.make(&pod(&format!("ns{}", number % 3), &format!("{number:02}")));
    }
    let whole = world.list("/pods");
    for (limit, changes) in [(1, false), (2, true), (7, true), (24, true), (25, false), (26, false)]
    {
        let mut options = ListOptions { limit, ..recursive() };
        let mut items = Vec::new();
        let first = world.store.revision();
        loop {
            let page = world.pods.list("/pods", &options).unwrap();
            items.extend(page.items);
            assert_eq!(page.resource_version, first.to_string());
            let left = whole.items.len() - items.len();
            assert_eq!(page.remaining_item_count, (left > 0).then_some(left as u64));
            options.continue_token = page.continue_token;
            if changes {
                // What happens meanwhile is not in it, and does not change what remains.
                world.make(&pod("ns1", "between"));
                world.delete("/pods/ns1/between");
                world.update("/pods/ns2/23", |pod| pod["spec"] = json!({"nodeName": "n"}));
                world.update("/pods/ns2/23", |pod| {
                    drop(pod.as_object_mut().unwrap().remove("spec"));
                });
            }
            if options.continue_token.is_empty() {
                break;
            }
        }
        for (item, whole) in items.iter().zip(&whole.items) {
            assert_eq!(item["metadata"]["name"], whole["metadata"]["name"]);
        }
        assert_eq!(items.len(), whole.items.len());
    }
}

/// A page that somebody else's token asks for, or one that lies, is counted.
#[test]
fn what_tokens_say_of_the_rest_is_checked() {
    let world = World::new();
    for number in 0..9 {
        world.make(&pod("ns", &number.to_string()));
    }
    let revision = world.store.revision();
    for remaining in [Value::Null, json!(0), json!(1), json!(2), json!(7)] {
        let json = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": "ns/1\0", "remaining": remaining});
        let continue_token = URL_SAFE_NO_PAD.encode(json.to_string());
        let page =
            world.pods.list("/pods", &ListOptions { limit: 2, continue_token, ..recursive() });
        assert_eq!(page.unwrap().remaining_item_count, Some(5), "{json}");
    }
}

/// `RunTestListContinuationWithFilter` and `RunTestListPaginationRareObject`.
#[test]
fn selectors_look_on_until_a_page_is_full() {
    let world = World::new();
    for number in 0..300 {
        let pod = pod("ns", &format!("{number:03}"));
        world.make(&if number % 100 == 99 {
            with(pod, &["metadata", "labels"], json!({"rare": "yes"}))
        } else {
            pod
        });
    }
    let mut options = ListOptions { limit: 1, predicate: selecting("rare", ""), ..recursive() };
    let mut names = Vec::new();
    for _ in 0..3 {
        let page = world.pods.list("/pods", &options).unwrap();
        assert_eq!((page.items.len(), page.remaining_item_count), (1, None));
        names.push(page.items[0]["metadata"]["name"].clone());
        options.continue_token = page.continue_token;
    }
    assert_eq!(names, ["099", "199", "299"]);
    assert_eq!(options.continue_token, "", "it was the last object of all");
    options.limit = 2;
    let page = world.pods.list("/pods", &options).unwrap();
    assert_eq!(read_token(&page.continue_token).0, "ns/199\0");
}

/// `RunTestListInconsistentContinuation`.
#[test]
fn a_list_whose_revision_is_gone_can_go_on() {
    let world = World::new();
    let keys: Vec<_> = ["a", "b", "c"].map(|name| world.make(&pod("ns", name)).0).to_vec();
    let mut options = ListOptions { limit: 1, ..recursive() };
    let first = world.pods.list("/pods", &options).unwrap();
    let changed = world.update(&keys[2], |pod| pod["spec"] = json!({"nodeName": "new"}));
    world.store.compact(world.store.revision()).unwrap();

    options.continue_token = first.continue_token;
    let expired = status(world.pods.list("/pods", &options));
    assert_eq!((expired.code(), expired.reason()), (410, Reason::Expired));
    assert!(expired.message().starts_with(
        "The provided continue parameter is too old to display a consistent list result."
    ));
    assert!(expired.message().contains("use the continue token in this response"));
    options.continue_token = expired.continue_token().unwrap().to_owned();
    assert_eq!(read_token(&options.continue_token), ("ns/a\0".into(), -1));
    assert_eq!(
        serde_json::to_value(&expired).unwrap()["metadata"]["continue"],
        options.continue_token
    );

    let second = world.pods.list("/pods", &options).unwrap();
    assert_eq!(second.items[0]["metadata"]["name"], "b");
    assert_eq!(second.remaining_item_count, Some(1));
    options.continue_token = second.continue_token;
    let third = world.pods.list("/pods", &options).unwrap();
    assert_eq!((third.items, third.continue_token), (vec![changed], String::new()));
    assert_eq!(third.resource_version, second.resource_version);
}

/// `RunTestGetListWithErrorAggregation`.
#[test]
fn objects_that_cannot_be_read_are_named() {
    let world = World::new();
    for number in 0..150 {
        world.make(&pod("ns", &format!("{number:03}")));
    }
    for (broken, bytes, why) in [
        (
            1,
            &b"test!{"[..],
            "object not decodable revision=152: EOF while parsing an object at line 1 column 1",
        ),
        (2, b"test!5", "object not decodable revision=153: it is not a JSON object"),
        (
            3,
            b"{}",
            "data from the storage is not transformable revision=154: value does not match expected prefix",
        ),
    ] {
        world.store.put(format!("/registry/pods/ns/{:03}", broken - 1), bytes).unwrap();
        let error = world.pods.list("/pods", &recursive()).unwrap_err();
        assert_eq!(error.kind(), StorageErrorKind::CorruptObject);
        let told = status::<()>(Err(error));
        assert_eq!((told.code(), told.reason()), (500, Reason::StoreReadError));
        assert!(told.message().starts_with("failed to read one or more pods from the storage: StorageError: corrupt object, Code: 7, Key: /registry/pods/ns/000,"));
        let causes = &told.details().causes;
        assert_eq!(causes.len(), broken);
        let last = causes.last().unwrap();
        assert_eq!(
            (&last.reason[..], &last.field[..]),
            ("UnexpectedServerResponse", &format!("/registry/pods/ns/{:03}", broken - 1)[..])
        );
        assert!(last.message.ends_with(why), "{}", last.message);
        assert_eq!(told.message().ends_with(&format!(" (and {} more)", broken - 1)), broken > 1);
    }
    world.transformer.set_failing(true);
    let causes = status(world.pods.list("/pods", &recursive())).details().causes.clone();
    assert_eq!(causes.len(), 101);
    assert_eq!(
        (&causes[100].reason[..], &causes[100].message[..]),
        ("FieldValueTooMany", "too many errors, the list is truncated")
    );
}

/// Whatever clients make of tokens: they get a list of what lies below the key, or are told why not.
#[test]
fn tokens_lead_nowhere_else() {
    let world = World::new();
    world.make(&pod("ns", "a"));
    world.store.put("/registry/podsecrets/x", "test!{}").unwrap();
    world.store.put("/registry/secrets/x", "test!{}").unwrap();
    let good = world.store.revision();
    let mut random = super::random::Random::new(7);
    let parts =
        ["..", ".", "/", "//", "a", "ns", "\0", "\u{10ffff}", "", "secrets", "podsecrets", "%2e"];
    for _ in 0..2000 {
        let start: String = (0..random.below(6)).map(|_| *random.pick(&parts)).collect();
        let rv = [
            json!(good),
            json!(-1),
            json!(0),
            json!(1),
            json!(i64::MIN),
            json!(i64::MAX),
            json!("1"),
            json!(1.5),
            json!(u64::MAX),
        ];
        let json = json!({"v": "meta.k8s.io/v1", "rv": random.pick(&rv), "start": start, "remaining": random.next()});
        let mut bytes = json.to_string().into_bytes();
        if random.one_in(3) {
            let at = random.index(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        let mut continue_token = URL_SAFE_NO_PAD.encode(bytes);
        if random.one_in(5) {
            continue_token.truncate(random.index(continue_token.len()));
            continue_token.push(*random.pick(&['=', '+', '\n', 'A', '\u{e4}']));
        }
        match world
            .pods
            .list("/pods", &ListOptions { continue_token: continue_token.clone(), ..recursive() })
        {
            Ok(list) => {
                assert!(list.items.iter().all(|item| item["metadata"]["name"] == "a"), "{list:?}");
            }
            Err(error) => {
                let refused = status::<()>(Err(error));
                assert!(matches!(refused.code(), 400 | 410 | 504), "{continue_token}: {refused:?}");
            }
        }
    }
}
