//! Lists: the cases of `RunTestList` and its neighbours in `k8s.io/apiserver/pkg/storage/testing/store_tests.go`.
//!
//! row 44: lists_are_of_the_version_asked_for

use annals::object::{List, ListOptions, Predicate, Reason, ResourceVersionMatch, Status};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::world::{World, pod, selecting, status, version};

/// The pods of `seedMultiLevelData`.
struct Seeded {
    world: World,
    /// The revision before the first.
    initial: u64,
    /// As created, in the order of their creation.
    made: Vec<Value>,
    /// The first, changed.
    updated: Value,
    /// The newest revision of a pod.
    last: u64,
}

impl Seeded {
    fn new() -> Self {
        let world = World::new();
        let initial = world.store.revision();
        let made: Vec<_> =
            ["first/bar", "second/bar", "second/foo", "third/barfoo", "third/foo", "second/baz"]
                .iter()
                .map(|name| {
                    let (namespace, name) = name.split_once('/').unwrap();
                    world.make(&pod(namespace, name)).1
                })
                .collect();
        let updated =
            world.update("/pods/first/bar", |pod| pod["spec"] = json!({"nodeName": "fakeNode"}));
        world.delete("/pods/second/baz");
        let last = world.store.revision();
        // The first revision is compacted, and there are others than those of pods.
        world.store.compact(initial + 1).unwrap();
        world.store.put("elsewhere", "").unwrap();
        Self { world, initial, made, updated, last }
    }
}

fn token(start: &str, revision: i64) -> String {
    let json = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start});
    URL_SAFE_NO_PAD.encode(json.to_string())
}

/// What a token says, without what is ours in it.
pub fn read_token(token: &str) -> (String, i64) {
    let json: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token).unwrap()).unwrap();
    assert_eq!(json["v"], "meta.k8s.io/v1");
    (json["start"].as_str().unwrap().into(), json["rv"].as_i64().unwrap())
}

struct Case<'a> {
    prefix: &'a str,
    version: String,
    wanted: Option<ResourceVersionMatch>,
    limit: u64,
    token: String,
    field: &'a str,
}

impl Case<'_> {
    fn list(&self, world: &World) -> Result<List, Status> {
        let options = ListOptions {
            resource_version: self.version.clone(),
            resource_version_match: self.wanted,
            limit: self.limit,
            continue_token: self.token.clone(),
            predicate: selecting("", self.field),
            recursive: true,
        };
        let listed = world.pods.list(self.prefix, &options);
        listed.map_err(|error| status::<List>(Err(error)))
    }
}

fn of(prefix: &str) -> Case<'_> {
    let (version, token) = (String::new(), String::new());
    Case { prefix, version, wanted: None, limit: 0, token, field: "" }
}

impl Case<'_> {
    fn at(self, version: impl ToString) -> Self {
        Self { version: version.to_string(), ..self }
    }

    fn exact(self, version: impl ToString) -> Self {
        Self { wanted: Some(ResourceVersionMatch::Exact), ..self.at(version) }
    }

    fn not_older(self, version: impl ToString) -> Self {
        Self { wanted: Some(ResourceVersionMatch::NotOlderThan), ..self.at(version) }
    }

    fn limit(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    fn from(self, start: &str, revision: i64) -> Self {
        Self { token: token(start, revision), ..self }
    }
}

impl<'a> Case<'a> {
    fn field(self, field: &'a str) -> Self {
        Self { field, ..self }
    }
}

/// What comes of it: the objects, the version if it matters, where the next page begins, and how many remain.
type Expected<'a> = (Vec<&'a Value>, Option<u64>, Option<(&'a str, u64)>, Option<u64>);

#[test]
fn lists_are_of_the_version_asked_for() {
    let Seeded { world, initial, made, updated, last } = &Seeded::new();
    let at = |index: usize| version(&made[index]).parse::<u64>().unwrap();
    let (one, two, three, four, five) = (updated, &made[1], &made[2], &made[3], &made[4]);
    let (old, gone) = (&made[0], &made[5]);
    let changed = version(updated).parse::<u64>().unwrap();
    let current = last + 1;
    assert_eq!(at(0), initial + 1);
    let all = || vec![one, two, three, four, five];
    let (first, second, pods) = ("/pods/first/", "/pods/second/", "/pods/");
    let table: Vec<(Case<'_>, Expected<'_>)> = vec![
        (of(first), (vec![one], Some(current), None, None)),
        (of(first).at(0), (vec![one], Some(current), None, None)),
        (of(first).exact(at(0)), (vec![old], Some(at(0)), None, None)),
        (of(second).exact(at(0)), (vec![], Some(at(0)), None, None)),
        (of(second).exact(at(1)), (vec![two], Some(at(1)), None, None)),
        (of(first).not_older(0), (vec![one], Some(current), None, None)),
        (of(first).not_older(initial), (vec![one], Some(current), None, None)),
        (of(first).at(last), (vec![one], Some(current), None, None)),
        (of(first).exact(last), (vec![one], Some(*last), None, None)),
        (of(first).not_older(last), (vec![one], Some(current), None, None)),
        (of("/pods/non-existing/"), (vec![], Some(current), None, None)),
        (of(first).field("metadata.name!=bar"), (vec![], None, None, None)),
        (of(first).field("metadata.name!=bar").not_older(last), (vec![], None, None, None)),
        (of(second).limit(1), (vec![two], Some(current), Some(("bar\0", current)), Some(1))),
        // With a limit and a version, and nothing else said, it is that version.
        (of(second).limit(1).at(last), (vec![two], Some(*last), Some(("bar\0", *last)), Some(1))),
        (
            of(second).limit(1).exact(last),
            (vec![two], Some(*last), Some(("bar\0", *last)), Some(1)),
        ),
        (
            of(second).limit(1).not_older(last),
            (vec![two], Some(current), Some(("bar\0", current)), Some(1)),
        ),
        (of(second).limit(1).at(0), (vec![two], Some(current), Some(("bar\0", current)), Some(1))),
        (
            of(second).limit(1).not_older(0),
            (vec![two], Some(current), Some(("bar\0", current)), Some(1)),
        ),
        (of(second).limit(1).exact(at(0)), (vec![], Some(at(0)), None, None)),
        (of(second).limit(1).exact(at(1)), (vec![two], Some(at(1)), None, None)),
        (
            of(second).limit(1).from("foo", last.cast_signed()),
            (vec![three], Some(*last), None, None),
        ),
        (
            of(second).limit(1).from("foo", last.cast_signed()).at(0),
            (vec![three], Some(*last), None, None),
        ),
        (of(second), (vec![two, three], Some(current), None, None)),
        (of(second).not_older(last), (vec![two, three], Some(current), None, None)),
        (
            of(pods).limit(1).field("metadata.name=barfoo"),
            (vec![four], Some(current), Some(("third/barfoo\0", current)), None),
        ),
        (of(pods).limit(2).field("metadata.name=barfoo"), (vec![four], None, None, None)),
        (of(pods).limit(2).field("metadata.name=barfoo").at(0), (vec![four], None, None, None)),
        (
            of(pods).limit(2).field("metadata.name=bar"),
            (vec![one, two], Some(current), Some(("second/bar\0", current)), None),
        ),
        (of(pods).limit(2).field("metadata.name=foo"), (vec![three, five], None, None, None)),
        (
            of(pods).limit(2).field("metadata.name=foo").from("third/barfoo", last.cast_signed()),
            (vec![five], Some(*last), None, None),
        ),
        (
            of(pods).limit(1).field("metadata.name=foo").from("third/barfoo", last.cast_signed()),
            (vec![five], Some(*last), None, None),
        ),
        (of(pods).limit(5).field("metadata.name=foo"), (vec![three, five], None, None, None)),
        (of(pods).limit(5).field("metadata.name=barfoo"), (vec![four], None, None, None)),
        (of(pods), (all(), Some(current), None, None)),
        (of(pods).not_older(last), (all(), Some(current), None, None)),
        (of(pods).limit(5).field("spec.nodeName=fakeNode"), (vec![one], None, None, None)),
        (of(pods).limit(5).field("metadata.name=baz"), (vec![], None, None, None)),
        (of("/pods/empty"), (vec![], Some(current), None, None)),
        (of(pods).exact(at(0)), (vec![old], Some(at(0)), None, None)),
        (of(pods).exact(at(1)), (vec![old, two], Some(at(1)), None, None)),
        (of(pods).exact(at(4)), (vec![old, two, three, four, five], Some(at(4)), None, None)),
        (of(pods).exact(at(5)), (vec![old, two, gone, three, four, five], Some(at(5)), None, None)),
        (
            of(pods).exact(changed),
            (vec![one, two, gone, three, four, five], Some(changed), None, None),
        ),
        (of(pods).exact(last), (all(), Some(*last), None, None)),
        (of(pods).exact(current), (all(), Some(current), None, None)),
        (
            of(pods).limit(1).exact(at(1)),
            (vec![old], Some(at(1)), Some(("first/bar\0", at(1))), Some(1)),
        ),
        (
            of(pods).limit(2).exact(at(5)),
            (vec![old, two], Some(at(5)), Some(("second/bar\0", at(5))), Some(4)),
        ),
        (
            of(pods).limit(4).exact(changed),
            (vec![one, two, gone, three], Some(changed), Some(("second/foo\0", changed)), Some(2)),
        ),
        (of(pods).limit(8).exact(last), (all(), Some(*last), None, None)),
        (
            of(pods).limit(1).from("first/bar\0", at(0).cast_signed()),
            (vec![], Some(at(0)), None, None),
        ),
        (
            of(pods).limit(2).from("second/bar\0", at(5).cast_signed()),
            (vec![gone, three], Some(at(5)), Some(("second/foo\0", at(5))), Some(2)),
        ),
        (
            of(pods).from("first/bar\0", -1),
            (vec![two, three, four, five], Some(current), None, None),
        ),
        (
            of(pods).limit(2).from("first/bar\0", -1),
            (vec![two, three], Some(current), Some(("second/foo\0", current)), Some(2)),
        ),
        (of(pods).from("second/foo\0", -1), (vec![four, five], Some(current), None, None)),
    ];
    for (number, (case, (items, revision, next, remaining))) in table.into_iter().enumerate() {
        let list = case.list(world).unwrap_or_else(|bad| panic!("case {number}: {bad}"));
        assert_eq!(list.items.iter().collect::<Vec<_>>(), items, "case {number}");
        if let Some(revision) = revision {
            assert_eq!(list.resource_version, revision.to_string(), "case {number}");
        }
        assert_eq!(list.remaining_item_count, remaining, "case {number}");
        let told = (!list.continue_token.is_empty()).then(|| read_token(&list.continue_token));
        let next = next.map(|(start, at)| (start.to_owned(), at.cast_signed()));
        assert_eq!(told, next, "case {number}");
    }
}

#[test]
fn lists_that_cannot_be_are_refused() {
    const TOO_OLD: &str = "The resourceVersion for the provided list is too old.";
    const TOKEN: &str = "invalid continue token: continue key is not valid";
    let Seeded { world, initial, last, .. } = &Seeded::new();
    let pods = "/pods/";
    let future =
        format!("Timeout: Too large resource version: {}, current: {}", last + 2, last + 1);
    let never = format!("Timeout: Too large resource version: {}, current: {}", u64::MAX, last + 1);
    let invalid = |what: &str| {
        format!("ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: {what}")
    };
    let table = [
        (of(pods).at("abc"), 400, "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax".into()),
        (of(pods).at("-1"), 400, "invalid resource version: resourceVersion: Invalid value: \"-1\": strconv.ParseUint: parsing \"-1\": invalid syntax".into()),
        (of(pods).at("18446744073709551616"), 400, "invalid resource version: resourceVersion: Invalid value: \"18446744073709551616\": strconv.ParseUint: parsing \"18446744073709551616\": value out of range".into()),
        (of(pods).limit(1).from("second/foo", 3).at(1), 400, "specifying resource version is not allowed when using continue".into()),
        (of(pods).at(u64::MAX), 504, never.clone()),
        (of(pods).exact(u64::MAX), 504, never),
        (of(pods).exact(last + 2), 504, future.clone()),
        (of(pods).not_older(last + 2), 504, future),
        (of(pods).exact(initial), 410, TOO_OLD.into()),
        (of("/pods/first/").exact(initial), 410, TOO_OLD.into()),
        (of(pods).limit(1).at(initial), 410, TOO_OLD.into()),
        (of(pods).from("", 3), 400, format!("{TOKEN}: encoded start key empty (version meta.k8s.io/v1)")),
        (of(pods).from("first/bar\0", 0), 400, format!("{TOKEN}: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")),
        (of(pods).from("../x", 3), 400, format!("{TOKEN}: ../x")),
        (Case { wanted: Some(ResourceVersionMatch::Exact), ..of(pods) }, 422, invalid("resourceVersionMatch is forbidden unless resourceVersion is provided")),
        (of(pods).exact(0), 422, invalid("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")),
        (of(pods).not_older(0).from("a", 3), 422, invalid("resourceVersionMatch is forbidden when continue is provided")),
        (of("/pods/../secrets"), 400, "invalid key: \"/pods/../secrets\"".into()),
        (of("/secrets"), 400, "invalid key: \"/secrets/\" lacks resource prefix: \"/pods\"".into()),
    ];
    for (case, code, message) in table {
        let refused = case.list(world).unwrap_err();
        assert_eq!((refused.code(), refused.message()), (code, &message[..]));
        assert_eq!(refused.continue_token(), None);
        let is_too_large =
            refused.details().causes.iter().any(|cause| cause.reason == "ResourceVersionTooLarge");
        assert_eq!(is_too_large, code == 504);
    }
    assert_eq!(
        ResourceVersionMatch::parse("NotOlderThan"),
        Ok(Some(ResourceVersionMatch::NotOlderThan))
    );
    assert_eq!(ResourceVersionMatch::parse(""), Ok(None));
    let message = ResourceVersionMatch::parse("Newest").unwrap_err().to_string();
    assert!(
        message.ends_with(
            "Unsupported value: \"Newest\": supported values: \"Exact\", \"NotOlderThan\", \"\""
        ),
        "{message}"
    );
}

/// `RunTestGetListNonRecursive`.
#[test]
fn one_object_is_a_list_too() {
    let world = World::new();
    let (key, first) = world.make(&pod("ns", "a"));
    world.make(&pod("ns", "ab"));
    let second = world.update(&key, |pod| pod["spec"] = json!({"nodeName": "n"}));
    let current = world.store.revision();
    let list = |wanted, version: &str, predicate: Predicate| {
        let resource_version = version.into();
        let options = ListOptions {
            resource_version,
            resource_version_match: wanted,
            predicate,
            ..ListOptions::default()
        };
        world.pods.list(&key, &options)
    };
    let everything = Predicate::everything;
    let newest = list(None, "", everything()).unwrap();
    assert_eq!(
        (newest.items, newest.resource_version),
        (vec![second.clone()], current.to_string())
    );
    let old = list(Some(ResourceVersionMatch::Exact), version(&first), everything()).unwrap();
    assert_eq!((old.items, &old.resource_version[..]), (vec![first.clone()], version(&first)));
    // Without recursion a limit does not make the version exact.
    let options = ListOptions {
        limit: 1,
        resource_version: version(&first).into(),
        ..ListOptions::default()
    };
    assert_eq!(world.pods.list(&key, &options).unwrap().items, vec![second]);
    let none = list(None, "", selecting("", "metadata.name!=a")).unwrap();
    assert_eq!((none.items, none.remaining_item_count), (vec![], None));
    assert!(world.pods.list("/pods/ns/none", &ListOptions::default()).unwrap().items.is_empty());
    assert_eq!(
        status(list(Some(ResourceVersionMatch::NotOlderThan), "999", everything())).reason(),
        Reason::Timeout
    );
}

/// `RunTestGetListRecursivePrefix`: `/pods/a` has nothing to do with `/pods/ab`.
#[test]
fn prefixes_end_with_a_slash() {
    let world = World::new();
    for name in ["a/x", "a/y", "ab/x", "b/x"] {
        let (namespace, name) = name.split_once('/').unwrap();
        world.make(&pod(namespace, name));
    }
    for (key, count) in
        [("/pods/a", 2), ("/pods/a/", 2), ("/pods/ab", 1), ("/pods", 4), ("/pods/a/x", 0)]
    {
        assert_eq!(world.list(key).items.len(), count, "{key}");
        assert_eq!(world.pods.count(key).unwrap(), count as u64, "{key}");
    }
}
