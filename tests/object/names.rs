//! Names, labels, annotations, owners, finalizers and managers that are not valid, in the words of
//! `k8s.io/apimachinery`.

use annals::object::{CreateOptions, KindStrategy, NameRule, UpdateOptions};
use serde_json::{Value, json};

use super::kit::{create, get, pod, pods, pods_by, put, refused};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
     start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
     end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const KEY: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// What a client sends takes room in an answer once, and not for each thing that is wrong with it.
#[test]
fn what_is_told_of_a_large_object_is_short() {
    let pods = pods();
    let owner = json!({"controller": true});
    let text = "\u{1}".repeat(3000);
    for (field, value) in [
        ("ownerReferences", Value::Array(vec![owner; 20_000])),
        ("finalizers", (0..20_000).map(|n| Value::from(format!("-{n}"))).collect()),
        ("labels", (0..20_000).map(|n| (format!("-{n}"), Value::from(""))).collect()),
        ("annotations", json!({ text.repeat(20): "" })),
    ] {
        let mut object = pod("web");
        object["metadata"][field] = value;
        let told = pods.create("default", object, &CreateOptions::default()).unwrap_err();
        assert_eq!(told.code(), 422, "{field}");
        let size = serde_json::to_string(&told).unwrap().len();
        assert!(size < 400 << 10, "{field}: {size} bytes");
    }
}

/// Metadata that is not valid, and the causes that are told: reason, field, message.
type Case = (Value, Vec<(&'static str, &'static str, String)>);

#[expect(clippy::too_many_lines, reason = "it is a table")]
fn cases() -> Vec<Case> {
    let invalid = |value: &str, why: &str| format!("Invalid value: {value:?}: {why}");
    let long = "a".repeat(254);
    let (invalid_name, required) = ("FieldValueInvalid", "FieldValueRequired");
    vec![
        (
            json!({}),
            vec![(
                required,
                "metadata.name",
                "Required value: name or generateName is required".into(),
            )],
        ),
        (json!({"name": "Web"}), vec![(invalid_name, "metadata.name", invalid("Web", SUBDOMAIN))]),
        (json!({"name": "a_b"}), vec![(invalid_name, "metadata.name", invalid("a_b", SUBDOMAIN))]),
        (
            json!({"name": long}),
            vec![(
                invalid_name,
                "metadata.name",
                invalid(&long, "must be no more than 253 characters"),
            )],
        ),
        (
            json!({"name": "web", "namespace": "a.b"}),
            vec![(invalid_name, "metadata.namespace", invalid("a.b", "must not contain dots"))],
        ),
        (
            json!({"name": "web", "namespace": "A"}),
            vec![(invalid_name, "metadata.namespace", invalid("A", LABEL))],
        ),
        (
            json!({"name": "web", "generateName": "-job-"}),
            vec![(invalid_name, "metadata.generateName", invalid("-job-", SUBDOMAIN))],
        ),
        (
            json!({"name": "web", "labels": {"-a": "b"}}),
            vec![(invalid_name, "metadata.labels", invalid("-a", KEY))],
        ),
        (
            json!({"name": "web", "labels": {"a": "b".repeat(64)}}),
            vec![(
                invalid_name,
                "metadata.labels",
                invalid(&"b".repeat(64), "must be no more than 63 bytes"),
            )],
        ),
        (
            json!({"name": "web", "annotations": {"a/b/c": ""}}),
            vec![(
                invalid_name,
                "metadata.annotations",
                invalid(
                    "a/b/c",
                    &format!(
                        "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                        KEY.trim_start_matches("name part ")
                    ),
                ),
            )],
        ),
        (
            json!({"name": "web", "annotations": {"a": "b".repeat(256 << 10)}}),
            vec![(
                "FieldValueTooLong",
                "metadata.annotations",
                "Too long: may not be more than 262144 bytes".into(),
            )],
        ),
        (
            json!({"name": "web", "finalizers": ["a b"]}),
            vec![(invalid_name, "metadata.finalizers", invalid("a b", KEY))],
        ),
        (
            json!({"name": "web", "ownerReferences": [{}]}),
            ["apiVersion", "kind", "name", "uid"]
                .map(|field| {
                    let field: &'static str = match field {
                        "apiVersion" => "metadata.ownerReferences[0].apiVersion",
                        "kind" => "metadata.ownerReferences[0].kind",
                        "name" => "metadata.ownerReferences[0].name",
                        _ => "metadata.ownerReferences[0].uid",
                    };
                    (required, field, "Required value: must not be empty".to_owned())
                })
                .to_vec(),
        ),
        (
            json!({"name": "web", "ownerReferences": [{"apiVersion": "a/b/c", "kind": "K", "name": "n", "uid": "u"}]}),
            vec![(
                invalid_name,
                "metadata.ownerReferences[0].apiVersion",
                invalid("a/b/c", "must be <group>/<version> or <version>"),
            )],
        ),
        (
            json!({"name": "web", "managedFields": [{"manager": "m"}]}),
            vec![(
                required,
                "metadata.managedFields[0].operation",
                "Required value: must not be empty".into(),
            )],
        ),
        (
            json!({"name": "web", "managedFields": [{"operation": "Guess", "fieldsType": "FieldsV2"}]}),
            vec![
                (
                    "FieldValueNotSupported",
                    "metadata.managedFields[0].operation",
                    "Unsupported value: \"Guess\": supported values: \"Apply\", \"Update\"".into(),
                ),
                (
                    invalid_name,
                    "metadata.managedFields[0].fieldsType",
                    invalid("FieldsV2", "must be `FieldsV1`"),
                ),
            ],
        ),
    ]
}

#[test]
fn what_is_not_valid_is_told_field_by_field() {
    for (metadata, expected) in cases() {
        let pods = pods();
        let status =
            refused(pods.create("", json!({"metadata": metadata}), &CreateOptions::default()));
        assert_eq!(status.code(), 422, "{metadata}");
        let causes = &status.details().causes;
        let told: Vec<_> = causes
            .iter()
            .filter(|cause| {
                cause.field != "metadata.namespace" || metadata.get("namespace").is_some()
            })
            .map(|cause| (cause.reason.as_str(), cause.field.as_str(), cause.message.clone()))
            .collect();
        assert_eq!(told, expected, "{metadata}");
    }
}

#[test]
fn only_one_owner_may_be_the_controller() {
    let pods = pods();
    let owner = |name: &str, controller: bool| json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": controller});
    let mut made = create(&pods, pod("web"));
    made["metadata"]["ownerReferences"] = json!([owner("a", true), owner("b", false)]);
    put(&pods, &made).unwrap();
    made = get(&pods, "web").unwrap();
    made["metadata"]["ownerReferences"] = json!([owner("a", true), owner("b", true)]);
    let status = refused(put(&pods, &made));
    let why = "Only one reference can have Controller set to true. Found \"true\" in references for ReplicaSet/a \
               and ReplicaSet/b";
    assert!(status.code() == 422 && status.message().ends_with(why), "{status}");
    made["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}]);
    let status = refused(put(&pods, &made));
    assert!(
        status.message().ends_with("/v1, Kind=Event is disallowed from being an owner"),
        "{status}"
    );
}

#[test]
fn each_rule_of_names_has_its_own() {
    let table = [
        (NameRule::PathSegment, "A_b", true),
        (NameRule::PathSegment, "a%b", false),
        (NameRule::PathSegment, ".", false),
        (NameRule::DnsSubdomain, "a.b-c", true),
        (NameRule::DnsSubdomain, "a..b", false),
        (NameRule::DnsSubdomain, "a.-b", false),
        (NameRule::DnsSubdomain, "1", true),
        (NameRule::DnsLabel, "a.b", false),
        (NameRule::DnsLabel, "1-b", true),
        (NameRule::DnsLabel, "b-", false),
        (NameRule::Dns1035Label, "1-b", false),
        (NameRule::Dns1035Label, "b-1", true),
    ];
    for (rule, name, is_valid) in table {
        assert_eq!(rule.wrong(name, false).is_empty(), is_valid, "{rule:?} {name}");
        let pods = pods_by(KindStrategy::new().names(rule));
        let made = pods.create("default", pod(name), &CreateOptions::default());
        assert_eq!(made.is_ok(), is_valid, "{rule:?} {name}");
    }
    // What something will follow may end with a dash; the end of a letter of more bytes is no harm.
    for rule in [NameRule::DnsLabel, NameRule::DnsSubdomain, NameRule::Dns1035Label] {
        assert!(rule.wrong("job-", true).is_empty());
        assert!(!rule.wrong("job-", false).is_empty());
        assert!(!rule.wrong("\u{e9}\u{e9}-", true).is_empty());
        assert!(!rule.wrong("-", true).is_empty());
    }
}

#[test]
fn a_change_is_validated_as_a_new_object_is() {
    let pods = pods();
    let made = create(&pods, pod("web"));
    for (field, value) in [
        ("labels", json!({"-a": "b"})),
        ("annotations", json!({"a/b/c": ""})),
        ("finalizers", json!(["a b"])),
        ("ownerReferences", json!([{}])),
        ("managedFields", json!([{"manager": "m"}])),
    ] {
        let mut changed = made.clone();
        changed["metadata"][field] = value;
        assert_eq!(refused(put(&pods, &changed)).code(), 422, "{field}");
    }
    assert_eq!(get(&pods, "web").unwrap(), made);
}

#[test]
fn field_managers_have_128_printable_bytes_at_most() {
    let pods = pods();
    create(&pods, pod("web"));
    for (manager, why) in [
        ("m".repeat(129), "fieldManager: Too long: may not be more than 128 bytes"),
        (
            "a\nb".into(),
            "fieldManager: Invalid value: \"a\\nb\": invalid character U+000A (at position 1)",
        ),
    ] {
        let create = CreateOptions { field_manager: manager.clone(), ..CreateOptions::default() };
        let status = refused(pods.create("default", pod("api"), &create));
        let message = format!("CreateOptions.meta.k8s.io \"\" is invalid: {why}");
        assert_eq!((status.code(), status.message()), (422, message.as_str()));
        let put = UpdateOptions { field_manager: manager, ..UpdateOptions::default() };
        assert_eq!(refused(pods.update("default", "web", pod("web"), &put)).code(), 422);
    }
}
