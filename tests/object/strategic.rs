//! Strategic merge patch: the cases of upstream, its documentation, and what it refuses.
//!
//! row 36: strategic_merge_table, the_examples_of_the_documentation, what_cannot_be_merged_is_refused

use annals::object::{PatchType, Result, Schema, strategic_merge_patch};
use serde_json::{Value, json};

/// `MergeItem` of upstream's test, which is a schema of itself: to a depth that the cases do not reach.
fn merge_item(depth: usize) -> Value {
    if depth == 0 {
        return json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    let item = merge_item(depth - 1);
    let merged = |item: &Value| {
        json!({
            "type": "array",
            "items": item,
            "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-patch-merge-key": "name",
        })
    };
    let numbers = json!({"type": "array", "items": {"type": "integer"}});
    let mut merged_numbers = numbers.clone();
    merged_numbers["x-kubernetes-patch-strategy"] = "merge".into();
    let list = json!({"type": "array", "items": item});
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let mut retained_list = merged(&item);
    retained_list["x-kubernetes-patch-strategy"] = "merge,retainKeys".into();
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
        "name": {"type": "string"},
        "mergingList": merged(&item),
        "nonMergingList": list,
        "mergingIntList": merged_numbers,
        "nonMergingIntList": numbers,
        "mergeItemPtr": merged(&item),
        "simpleMap": texts,
        "replacingItem": {"type": "object", "x-kubernetes-patch-strategy": "replace"},
        "retainKeysMap": {
            "type": "object",
            "x-kubernetes-patch-strategy": "retainKeys",
            "properties": {
                "simpleMap": texts,
                "mergingIntList": merged_numbers,
                "mergingList": merged(&item),
                "nonMergingList": list,
            },
        },
        "retainKeysMergingList": retained_list,
    }})
}

fn patch(document: &Value, patch: &Value, schema: &Schema) -> Result<Value> {
    strategic_merge_patch(document, patch.to_string().as_bytes(), schema)
}

#[test]
fn strategic_merge_table() {
    let schema = Schema::from_openapi(&merge_item(4)).expect("it is a schema");
    let table: Vec<Value> =
        serde_json::from_str(include_str!("fixtures/strategic.json")).expect("a list of cases");
    assert_eq!(table.len(), 214, "the table is whole");
    let mut wrong = Vec::new();
    for case in &table {
        match (patch(&case["document"], &case["patch"], &schema), case["error"].as_str()) {
            (Ok(patched), None) if patched == case["result"] => {}
            (Err(status), Some(error)) if status.message().contains(error) => {
                assert_eq!(status.code(), 400, "{case}");
            }
            (got, _) => wrong.push(format!("{case}\n  {got:?}\n")),
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.concat());
}

/// A pod, as upstream's documentation patches it.
fn pod_schema() -> Schema {
    let merged = |key: &str| {
        json!({
            "type": "array",
            "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-patch-merge-key": key,
        })
    };
    let text = json!({"type": "string"});
    let finalizers =
        json!({"type": "array", "items": text, "x-kubernetes-patch-strategy": "merge"});
    let spec = json!({"type": "object", "properties": {
        "containers": merged("name"),
        "volumes": {
            "type": "array",
            "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "x-kubernetes-patch-strategy": "merge,retainKeys",
            "x-kubernetes-patch-merge-key": "name",
        },
        "tolerations": {"type": "array", "items": {"type": "object"}},
        "strategy": {
            "type": "object",
            "x-kubernetes-patch-strategy": "retainKeys",
            "properties": {"type": text, "rollingUpdate": {"type": "object"}},
        },
    }});
    let metadata = json!({"type": "object", "properties": {
        "finalizers": finalizers,
        "labels": {"type": "object", "additionalProperties": text},
    }});
    let pod = json!({"type": "object", "properties": {"metadata": metadata, "spec": spec}});
    Schema::from_openapi(&pod).expect("it is a schema")
}

#[test]
fn the_examples_of_the_documentation() {
    let schema = pod_schema();
    let table = [
        // Containers are known by their name and merged.
        (
            json!({"spec": {"containers": [{"name": "patch-demo-ctr", "image": "nginx"}]}}),
            json!({"spec": {"containers": [{"name": "patch-demo-ctr-2", "image": "redis"}]}}),
            json!({"spec": {"containers": [
                {"name": "patch-demo-ctr-2", "image": "redis"},
                {"name": "patch-demo-ctr", "image": "nginx"},
            ]}}),
        ),
        // Tolerations have no merge key: the list is replaced.
        (
            json!({"spec": {"tolerations": [{"key": "dedicated", "effect": "NoSchedule"}]}}),
            json!({"spec": {"tolerations": [{"key": "disktype", "effect": "NoSchedule"}]}}),
            json!({"spec": {"tolerations": [{"key": "disktype", "effect": "NoSchedule"}]}}),
        ),
        // Another strategy, of which only what it needs is kept.
        (
            json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}),
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
            json!({"spec": {"strategy": {"type": "Recreate"}}}),
        ),
        // A volume that becomes one of another type.
        (
            json!({"spec": {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {}}]}}),
            json!({"spec": {"volumes": [
                {"$retainKeys": ["name", "hostPath"], "name": "a", "hostPath": {"path": "/x"}},
            ]}}),
            json!({"spec": {"volumes": [
                {"name": "a", "hostPath": {"path": "/x"}}, {"name": "b", "emptyDir": {}},
            ]}}),
        ),
        // A list is replaced all the same, an item deleted, a map replaced, and emptied.
        (
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
            json!({"spec": {"containers": [{"name": "c", "image": null}, {"$patch": "replace"}]}}),
            json!({"spec": {"containers": [{"name": "c"}]}}),
        ),
        (
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
            json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}),
            json!({"spec": {"containers": [{"name": "b"}]}}),
        ),
        (
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
            json!({"metadata": {"labels": {"$patch": "replace", "c": "3", "d": null}}}),
            json!({"metadata": {"labels": {"c": "3"}}}),
        ),
        (
            json!({"metadata": {"labels": {"a": "1"}}}),
            json!({"metadata": {"labels": {"$patch": "delete"}}}),
            json!({"metadata": {"labels": {}}}),
        ),
        // `merge` is what happens anyway.
        (
            json!({"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "a", "x": 1}]}}),
            json!({
                "metadata": {"labels": {"$patch": "merge", "b": "2"}},
                "spec": {"containers": [{"name": "a", "y": 2, "$patch": "merge"}]},
            }),
            json!({
                "metadata": {"labels": {"a": "1", "b": "2"}},
                "spec": {"containers": [{"name": "a", "x": 1, "y": 2}]},
            }),
        ),
        // Single values are united; some are deleted, one of them added at the same time.
        (
            json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
            json!({"metadata": {
                "$deleteFromPrimitiveList/finalizers": ["b", "none"],
                "$setElementOrder/finalizers": ["c", "d", "a"],
                "finalizers": ["d"],
            }}),
            json!({"metadata": {"finalizers": ["c", "d", "a"]}}),
        ),
        // The order of containers.
        (
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}}),
            json!({"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]}}),
            json!({"spec": {"containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}]}}),
        ),
        // What is new has neither directives nor nulls.
        (
            json!({}),
            json!({
                "metadata": {"labels": {"a": "1", "b": null, "$retainKeys": ["a"]}},
                "spec": {
                    "containers": [{"name": "a", "$patch": "delete"}, {"name": "b", "x": {"y": null}}],
                    "$setElementOrder/containers": [{"name": "b"}],
                    "$deleteFromPrimitiveList/containers": ["x"],
                },
            }),
            json!({
                "metadata": {"labels": {"a": "1"}},
                "spec": {"containers": [{"name": "b", "x": {}}]},
            }),
        ),
    ];
    for (document, changes, expected) in table {
        let patched = patch(&document, &changes, &schema).expect("it can be merged");
        assert_eq!(patched, expected, "{document} {changes}");
    }
}

#[test]
fn what_cannot_be_merged_is_refused() {
    let schema = pod_schema();
    let document = json!({
        "metadata": {"finalizers": ["a", "b"]},
        "spec": {"containers": [{"name": "a"}], "strategy": {"type": "x"}},
    });
    let containers = |containers: Value| json!({"spec": {"containers": containers}});
    let metadata = |metadata: Value| json!({"metadata": metadata});
    let order = "invalid patch format of setElementOrder list";
    let primitive = "invalid patch format of primitive list";
    let table = [
        (json!([]), 400, "invalid JSON document"),
        (json!(null), 400, "invalid JSON document"),
        (
            containers(json!([{"image": "x"}])),
            400,
            "map of fields [\"image\"] does not contain declared merge key: name",
        ),
        (
            containers(json!([{"$patch": "delete"}])),
            400,
            "does not contain declared merge key: name",
        ),
        (containers(json!([{"name": "a", "$patch": "x"}])), 400, "unknown patch type: \"x\""),
        (containers(json!([{"name": "a", "$patch": 1}])), 400, "unknown patch type: 1"),
        (containers(json!(["a"])), 400, "list element types are not identical"),
        (containers(json!([[]])), 422, "lists of lists are not supported"),
        (json!({"$patch": "x"}), 400, "unknown patch type: \"x\""),
        (metadata(json!({"finalizers": ["a", 1]})), 400, "list element types are not identical"),
        (metadata(json!({"finalizers": [{"a": 1}]})), 400, "list element types are not identical"),
        (metadata(json!({"$setElementOrder": []})), 400, order),
        (metadata(json!({"$setElementOrder/finalizers": {}})), 400, order),
        (metadata(json!({"$setElementOrderX/finalizers": []})), 400, order),
        (metadata(json!({"$setElementOrder/finalizers": ["a"], "finalizers": 1})), 400, order),
        (metadata(json!({"$setElementOrder/finalizers": ["a"], "finalizers": null})), 400, order),
        (
            metadata(json!({"$setElementOrder/finalizers": ["a", "b"], "finalizers": ["b", "a"]})),
            400,
            "The order in patch list:\n[\"b\",\"a\"]\n doesn't match $setElementOrder list:\n[\"a\",\"b\"]\n",
        ),
        (metadata(json!({"$deleteFromPrimitiveList": []})), 400, primitive),
        (metadata(json!({"$deleteFromPrimitiveList/finalizers": "a"})), 400, primitive),
        (metadata(json!({"$deleteFromPrimitiveList/finalizers": [{}]})), 400, primitive),
        (
            json!({"spec": {"strategy": {"$retainKeys": "type"}}}),
            400,
            "invalid patch format of retainKeys",
        ),
        (
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {}}}}),
            400,
            "invalid patch format of retainKeys",
        ),
        (
            json!({"spec": {"$setElementOrder/tolerations": [{"key": "a"}], "tolerations": [{"key": "a"}]}}),
            400,
            "cannot merge lists without merge key",
        ),
    ];
    for (changes, code, message) in table {
        let status = patch(&document, &changes, &schema).expect_err(message);
        assert_eq!(status.code(), code, "{changes}: {status}");
        assert!(status.message().contains(message), "{changes}: {status}");
    }
    // What is stored is not told.
    let document = json!({"spec": {"containers": [{"secret": "stored"}]}});
    let status = patch(&document, &containers(json!([{"name": "a"}])), &schema);
    let message = status.expect_err("it has no key").to_string();
    assert!(message.contains("secret") && !message.contains("stored"), "{message}");
    // Of a kind without a schema nobody knows how to merge its lists.
    let status = PatchType::StrategicMerge.patch(&document, b"{}", &Schema::any());
    assert_eq!(status.expect_err("there is no schema").code(), 415);
}

#[test]
fn what_replaces_an_object_is_stored_without_directives_and_nulls() {
    let schema = Schema::from_openapi(&merge_item(1)).expect("it is a schema");
    for document in [json!({"replacingItem": {"old": 1}}), json!({})] {
        for (item, expected) in [
            (json!({"a": null, "b": {"c": null}, "d": 1}), json!({"b": {}, "d": 1})),
            (json!({"$patch": "replace", "d": 1}), json!({"d": 1})),
            (json!({"$patch": "merge", "$retainKeys": ["d"], "d": 1}), json!({"d": 1})),
            (json!({"$deleteFromPrimitiveList/d": [1], "d": [2]}), json!({"d": [2]})),
        ] {
            let patched = patch(&document, &json!({"replacingItem": item}), &schema);
            let patched = patched.expect("it is good");
            // Beside nothing, an object with `$patch` is none.
            let is_none = document == json!({}) && item.get("$patch").is_some();
            let expected = if is_none { json!({}) } else { json!({"replacingItem": expected}) };
            assert_eq!(patched, expected, "{item}");
        }
    }
}

#[test]
fn metadata_is_merged_as_kubernetes_does_whatever_the_schema_says_of_it() {
    let finalizers = json!({"type": "array", "items": {"type": "string"}});
    let schemas = [
        json!({"type": "object", "properties": {"spec": {"type": "object"}}}),
        json!({"type": "object", "properties": {"metadata": {"type": "object"}}}),
        json!({"type": "object", "properties": {
            "metadata": {"type": "object", "properties": {"finalizers": finalizers}},
        }}),
    ];
    let owner = |uid: &str, name: &str| json!({"uid": uid, "name": name});
    let table = [
        // The finalizers of others stay.
        (
            json!({"finalizers": ["x/a"]}),
            json!({"finalizers": ["x/b", "x/a"]}),
            json!({"finalizers": ["x/b", "x/a"]}),
        ),
        (
            json!({"finalizers": ["x/a"]}),
            json!({"finalizers": ["x/b"]}),
            json!({"finalizers": ["x/b", "x/a"]}),
        ),
        (
            json!({"finalizers": ["x/a", "x/b"]}),
            json!({"$deleteFromPrimitiveList/finalizers": ["x/a"]}),
            json!({"finalizers": ["x/b"]}),
        ),
        (json!({"finalizers": ["x/a"]}), json!({"finalizers": null}), json!({})),
        // Owners are known by their UIDs.
        (
            json!({"ownerReferences": [owner("1", "a"), {"uid": "2", "name": "b", "controller": true}]}),
            json!({"ownerReferences": [owner("2", "c"), owner("3", "d")]}),
            json!({"ownerReferences": [
                owner("1", "a"), {"uid": "2", "name": "c", "controller": true}, owner("3", "d"),
            ]}),
        ),
        (
            json!({"ownerReferences": [owner("1", "a"), owner("2", "b")]}),
            json!({"ownerReferences": [{"uid": "1", "$patch": "delete"}]}),
            json!({"ownerReferences": [owner("2", "b")]}),
        ),
        // Who owns what is one value, and what nobody knows, too.
        (
            json!({"managedFields": [{"manager": "a"}], "others": [1]}),
            json!({"managedFields": [{}], "others": [2]}),
            json!({"managedFields": [{}], "others": [2]}),
        ),
    ];
    for schema in schemas {
        let schema = Schema::from_openapi(&schema).expect("it is a schema");
        for (document, changes, expected) in &table {
            let patched =
                patch(&json!({"metadata": document}), &json!({"metadata": changes}), &schema);
            assert_eq!(patched.unwrap(), json!({"metadata": expected}), "{changes}");
        }
        // Elsewhere, a field of this name is what the schema says.
        let below = |list: Value| json!({"spec": {"metadata": {"finalizers": list}}});
        let patched = patch(&below(json!(["a"])), &below(json!(["b"])), &schema);
        assert_eq!(patched.unwrap(), below(json!(["b"])));
    }
}
