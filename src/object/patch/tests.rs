//! Patches that somebody sends to do harm: they are refused or applied, and nothing else happens.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{DEPTH_MAX, PatchType, depth, json_patch};
use crate::object::Schema;

fn apply(document: &Value, operations: &[Value]) -> Result<Value, u16> {
    let patch = Value::from(operations.to_vec()).to_string();
    json_patch(document, patch.as_bytes()).map_err(|status| status.code())
}

#[test]
fn indices_are_whole_numbers_within_the_list() {
    let document = json!({"list": [0, 1, 2]});
    let wrong = [
        "-1",
        "-0",
        "+1",
        "01",
        "00",
        "1e0",
        "1e3",
        "1.0",
        " 1",
        "1 ",
        "",
        "x",
        "3",
        "--",
        "0x1",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999999999999999999",
        "\u{661}",
    ];
    for index in wrong {
        let path = format!("/list/{index}");
        let mut operations = vec![
            json!({"op": "remove", "path": path}),
            json!({"op": "replace", "path": path, "value": 7}),
            json!({"op": "test", "path": path, "value": null}),
            json!({"op": "move", "from": path, "path": "/a"}),
            json!({"op": "copy", "from": path, "path": "/a"}),
        ];
        if index != "3" {
            operations.push(json!({"op": "add", "path": path, "value": 7}));
            operations.push(json!({"op": "move", "from": "/list/0", "path": path}));
        }
        for operation in operations {
            assert_eq!(apply(&document, std::slice::from_ref(&operation)), Err(422), "{operation}");
        }
    }
    let end = apply(&document, &[json!({"op": "add", "path": "/list/3", "value": 3})]);
    assert_eq!(end, Ok(json!({"list": [0, 1, 2, 3]})));
    for operation in ["remove", "replace", "test"] {
        let operation = json!({"op": operation, "path": "/list/-", "value": null});
        assert_eq!(apply(&document, &[operation]), Err(422), "behind the end there is nothing");
    }
}

#[test]
fn pointers_are_escaped_as_rfc_6901_says() {
    let document = json!({"a/b": 1, "m~n": 2, "~1": 3, "": {"": 4}, "ab": 5});
    let table = [
        ("/a~1b", Some(1)),
        ("/m~0n", Some(2)),
        ("/~01", Some(3)),
        ("//", Some(4)),
        ("/a~2b", None),
        ("/a~", None),
        ("/~", None),
        ("/m~n", None),
        ("a~1b", None),
        ("#/ab", None),
    ];
    for (path, value) in table {
        let found = apply(&document, &[json!({"op": "test", "path": path, "value": value})]);
        assert_eq!(found.is_ok(), value.is_some(), "{path}");
    }
    // One name that is the beginning of another does not lie within it.
    let moved = apply(&json!({"a": 1}), &[json!({"op": "move", "from": "/a", "path": "/ab"})]);
    assert_eq!(moved, Ok(json!({"ab": 1})));
}

#[test]
fn numbers_are_compared_by_their_value() {
    let is_equal = |a: Value, b: Value| {
        apply(&json!({"a": a}), &[json!({"op": "test", "path": "/a", "value": b})]).is_ok()
    };
    assert!(is_equal(json!(1), json!(1.0)));
    assert!(is_equal(json!({"x": [1.0, -2]}), json!({"x": [1, -2.0]})));
    assert!(!is_equal(json!(1), json!("1")));
    assert!(!is_equal(json!(1), json!(true)));
    assert!(!is_equal(json!(null), json!(false)));
    // These two are the same floating-point number.
    assert!(!is_equal(json!(9_007_199_254_740_993_u64), json!(9_007_199_254_740_992_u64)));
    assert!(!is_equal(json!({"a": 1}), json!({"b": 1})));
    assert!(!is_equal(json!([1, 2]), json!([2, 1])));
}

#[test]
fn what_is_nested_by_copy_move_and_add_can_be_read_again() {
    let readable = |value: &Value| serde_json::from_str::<Value>(&value.to_string()).is_ok();
    // Each `copy` puts the whole into itself, each round of `move` and `add` everything one deeper.
    let copies = json!({"op": "copy", "from": "/a", "path": "/a/a"});
    let moves = [
        json!({"op": "move", "from": "/a", "path": "/b/a"}),
        json!({"op": "move", "from": "/b", "path": "/a"}),
        json!({"op": "add", "path": "/b", "value": {}}),
    ];
    let path = "/a".repeat(1_000);
    let one_deeper: Vec<_> = (1..1_000)
        .map(|n| json!({"op": "add", "path": path.split_at(2 * n).0, "value": {}}))
        .collect();
    let start = json!({"a": {}, "b": {}});
    let attempts =
        [vec![copies; 5_000], moves.iter().cycle().take(6_000).cloned().collect(), one_deeper];
    for operations in attempts {
        assert_eq!(apply(&start, &operations), Err(422));
        let mut fits = (0..operations.len()).rev().filter(|n| *n < 400);
        let deepest = fits.find_map(|n| apply(&start, operations.split_at(n).0).ok());
        let deepest = deepest.expect("some of them fit");
        assert_eq!(depth(&deepest), DEPTH_MAX);
        assert!(readable(&deepest));
    }
    let too_deep = format!("{}1{}", "[".repeat(DEPTH_MAX + 1), "]".repeat(DEPTH_MAX + 1));
    assert!(
        serde_json::from_str::<Value>(&too_deep).is_err(),
        "that is where the bound comes from"
    );
}

#[test]
fn what_is_copied_is_bounded() {
    // Each `copy` doubles.
    let mut operations = vec![json!({"op": "add", "path": "/a", "value": "x".repeat(1_000)})];
    for n in 0..30 {
        let (from, path) = ("/a", format!("/b{n}"));
        operations.push(json!({"op": "copy", "from": from, "path": path}));
        operations.push(json!({"op": "copy", "from": "", "path": "/a"}));
    }
    assert_eq!(apply(&json!({}), &operations), Err(422));
    // The bound is what is copied, to the byte: a text of n letters is n + 2 bytes of JSON.
    let copies = |letters: usize| {
        let document = json!({"a": "x".repeat(letters)});
        apply(&document, &[json!({"op": "copy", "from": "/a", "path": "/b"})]).map(|_| ())
    };
    assert_eq!(copies((3 << 20) - 2), Ok(()));
    assert_eq!(copies((3 << 20) - 1), Err(422));
}

#[test]
fn what_moves_others_is_bounded() {
    let list = json!({"a": vec![0; 200_000], "b": {}});
    let round =
        [json!({"op": "remove", "path": "/a/0"}), json!({"op": "add", "path": "/a/0", "value": 0})];
    let rounds = |n: usize| round.iter().cycle().take(2 * n).cloned().collect::<Vec<_>>();
    assert_eq!(apply(&list, &rounds(10)), Ok(list.clone()));
    assert_eq!(apply(&list, &rounds(300)), Err(422));
    // At the end nothing gives way.
    let at_end = [
        json!({"op": "remove", "path": "/a/199999"}),
        json!({"op": "add", "path": "/a/-", "value": 0}),
    ];
    let at_end: Vec<_> = at_end.iter().cycle().take(10_000).cloned().collect();
    assert_eq!(apply(&list, &at_end), Ok(list.clone()));
    // What is moved deeper is measured each time.
    let round = [
        json!({"op": "move", "from": "/a", "path": "/b/a"}),
        json!({"op": "move", "from": "/b/a", "path": "/a"}),
    ];
    let rounds = |n: usize| round.iter().cycle().take(2 * n).cloned().collect::<Vec<_>>();
    assert_eq!(apply(&list, &rounds(10)), Ok(list.clone()));
    assert_eq!(apply(&list, &rounds(600)), Err(422));
}

#[test]
fn what_is_not_json_is_refused() {
    let deep = |open: &str, close: &str| [open.repeat(50_000), close.repeat(50_000)].concat();
    let wrong: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        b" ".to_vec(),
        b"{".to_vec(),
        b"{} {}".to_vec(),
        b"{\"a\": 1,}".to_vec(),
        b"{'a': 1}".to_vec(),
        b"{\"a\": NaN}".to_vec(),
        b"{\"a\": 01}".to_vec(),
        b"{\"a\": \"\xff\"}".to_vec(),
        b"{\"a\": \"\\ud800\"}".to_vec(),
        b"\xef\xbb\xbf{}".to_vec(),
        b"a: 1".to_vec(),
        deep("[", "]").into_bytes(),
        deep("{\"a\":", "}").into_bytes(),
        deep("[{\"op\":\"add\",\"path\":\"/a\",\"value\":", "}]").into_bytes(),
        "[".repeat(super::PATCH_BYTES_MAX).into_bytes(),
    ];
    for patch in wrong {
        for patch_type in [PatchType::Json, PatchType::Merge, PatchType::StrategicMerge] {
            let status = patch_type.patch(&json!({}), &patch, &schema()).expect_err("it is wrong");
            assert_eq!(status.code(), 400, "{status}");
            assert!(status.message().len() < 1_000);
        }
    }
}

#[test]
fn of_members_of_one_name_the_last_counts() {
    let table = [
        (PatchType::Json, r#"[{"op": "add", "op": "remove", "path": "/b", "path": "/a"}]"#),
        (PatchType::Merge, r#"{"a": 2, "a": null}"#),
        (PatchType::StrategicMerge, r#"{"a": 2, "a": null}"#),
    ];
    for (patch_type, patch) in table {
        let patched = patch_type.patch(&json!({"a": 1}), patch.as_bytes(), &schema());
        assert_eq!(patched, Ok(json!({})), "{patch}");
    }
}

#[test]
fn messages_show_the_beginning_of_what_was_sent() {
    let long = "x".repeat(100_000);
    let table = [
        (PatchType::Json, json!([{"op": long, "path": "/a"}])),
        (PatchType::Json, json!([{"op": "remove", "path": format!("/{long}")}])),
        (PatchType::Json, json!([{"op": "remove", "path": long}])),
        (PatchType::Json, json!([{"op": "test", "path": "", "value": long}])),
        (PatchType::Json, json!([{"op": "add", "path": "", "value": [long]}])),
        (PatchType::Merge, json!([long])),
        (PatchType::StrategicMerge, json!({"$patch": long})),
        (PatchType::StrategicMerge, json!({"named": [{"a": long}]})),
        (PatchType::StrategicMerge, json!({"$setElementOrder/list": [long], "list": ["y"]})),
        (
            PatchType::StrategicMerge,
            json!({"$setElementOrder/named": [long], "named": [{"name": 1}]}),
        ),
    ];
    for (patch_type, patch) in table {
        let document = json!({"named": []});
        let patched = patch_type.patch(&document, patch.to_string().as_bytes(), &schema());
        let status = patched.expect_err("it fails");
        assert!(status.message().len() < 2_000, "{patch_type:?}: {}", status.message().len());
    }
}

/// Any JSON, with the names and texts that patches give a meaning.
pub(super) fn hostile() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec![
        "a",
        "b",
        "op",
        "path",
        "from",
        "value",
        "name",
        "list",
        "named",
        "map",
        "$patch",
        "$retainKeys",
        "$setElementOrder/list",
        "$setElementOrder/named",
        "$setElementOrder",
        "$setElementOrder/",
        "$deleteFromPrimitiveList/list",
        "$deleteFromPrimitiveList/named",
        "$deleteFromPrimitiveList",
        "",
    ]);
    let text = prop::sample::select(vec![
        "",
        "/",
        "/a",
        "/a/b",
        "/list/0",
        "/list/-",
        "/list/-1",
        "/list/01",
        "/list/1e3",
        "/named/0/name",
        "/~",
        "/~2",
        "/a~1b",
        "add",
        "remove",
        "replace",
        "move",
        "copy",
        "test",
        "merge",
        "delete",
        "a",
        "b",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2..4_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        let fields = prop::collection::vec((name.clone(), inner.clone()), 0..6);
        prop_oneof![
            prop::collection::vec(inner, 0..6).prop_map(Value::from),
            fields.prop_map(|fields| {
                fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            }),
        ]
    })
}

/// A list of what may be operations of a JSON patch.
fn operations() -> impl Strategy<Value = Value> {
    let op = prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test", "x"]);
    let token = prop::sample::select(vec![
        "a", "b", "list", "0", "1", "-", "-1", "01", "1e3", "~0", "~", "",
    ]);
    let path = prop::collection::vec(token, 0..4)
        .prop_map(|tokens| tokens.iter().flat_map(|token| ["/", token]).collect::<String>());
    let operation = (op, path.clone(), path, hostile()).prop_map(
        |(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}),
    );
    prop::collection::vec(operation, 0..12).prop_map(Value::from)
}

pub(super) fn schema() -> Schema {
    let named = json!({
        "type": "array",
        "items": {"type": "object", "properties": {
            "name": {"type": "string"},
            "list": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-patch-strategy": "merge"},
        }, "x-kubernetes-preserve-unknown-fields": true},
        "x-kubernetes-patch-strategy": "merge",
        "x-kubernetes-patch-merge-key": "name",
    });
    let schema = json!({"type": "object", "properties": {
        "list": {"type": "array", "items": {}, "x-kubernetes-patch-strategy": "merge"},
        "named": named,
        "map": {"type": "object", "x-kubernetes-patch-strategy": "retainKeys", "properties": {"named": named}},
        "a": {"type": "object", "additionalProperties": named},
        "b": {"type": "object", "x-kubernetes-patch-strategy": "replace"},
    }});
    Schema::from_openapi(&schema).expect("it is a schema")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// Whatever is sent: an object that can be read again, or a refusal that is the client's fault.
    #[test]
    fn no_patch_does_harm(
        document in hostile(),
        patch in prop_oneof![hostile(), operations()],
        bytes in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let schema = schema();
        let whole = json!({"list": document, "named": [document], "map": document, "a": {"b": document}});
        let text = patch.to_string();
        for patch_type in [PatchType::Json, PatchType::Merge, PatchType::StrategicMerge] {
            for document in [&document, &whole] {
                let before = document.clone();
                for patch in [text.as_bytes(), &bytes] {
                    match patch_type.patch(document, patch, &schema) {
                        Ok(patched) => {
                            prop_assert!(patched.is_object());
                            let read: Value = serde_json::from_str(&patched.to_string())?;
                            prop_assert!(depth(&read) <= DEPTH_MAX);
                        }
                        Err(status) => prop_assert!(matches!(status.code(), 400 | 413 | 415 | 422)),
                    }
                }
                prop_assert_eq!(document, &before);
            }
        }
    }
}
