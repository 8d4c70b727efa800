//! Selectors against tables: the cases of `k8s.io/apimachinery/pkg/labels/selector_test.go` and
//! `pkg/fields/selector_test.go`, in our own words, and the messages of their errors.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn labelled(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}})
}

fn label_error(selector: &str) -> String {
    let status = LabelSelector::parse(selector).expect_err(selector);
    assert_eq!(status.code(), 400, "{selector}");
    status.message().to_owned()
}

#[test]
fn label_selectors_are_read_and_written() {
    // The text, and how it is written again.
    let table = [
        ("", ""),
        ("x=a,y=b,z=c", "x=a,y=b,z=c"),
        ("x=a,a=x", "a=x,x=a"),
        ("x!=a,y=b", "x!=a,y=b"),
        ("x=", "x="),
        ("x= ", "x="),
        ("x=,z= ", "x=,z="),
        ("x= ,z= ", "x=,z="),
        ("!x", "!x"),
        ("x>1", "x>1"),
        ("x>1,z<5", "x>1,z<5"),
        ("x=abc,y==jkl,z!=a,z", "x=abc,y==jkl,z!=a,z"),
        ("\rx", "x"),
        ("a ", "a"),
        ("this-is-a-dns.domain.com/key-with-dash", "this-is-a-dns.domain.com/key-with-dash"),
        ("another-dns.domain.com/k in (so,what)", "another-dns.domain.com/k in (so,what)"),
        ("0.1.2.domain/99 notin (10.10.1, tick.tock)", "0.1.2.domain/99 notin (10.10.1,tick.tock)"),
        ("foo  in\t (abc)", "foo in (abc)"),
        ("x notin\n (abc)", "x notin (abc)"),
        ("x  notin\t\t(abc,def)", "x notin (abc,def)"),
        ("x in (def,abc)", "x in (abc,def)"),
        ("x in (abc,)", "x in (,abc)"),
        ("x in (abc,abc)", "x in (abc)"),
        ("x in ()", "x in ()"),
        ("x notin ( )", "x notin ()"),
        ("x notin (, a)", "x notin (,a)"),
        ("x in (a,,)", "x in (,a)"),
        ("x in (a,,,,,,)", "x in (,a)"),
        ("x in (a,,a,,a,,a,,)", "x in (,a)"),
        ("x notin (abc,,def),bar,z in (),w", "bar,w,x notin (,abc,def),z in ()"),
        ("x,y in (a)", "x,y in (a)"),
        ("a in (x,y,notin, z,in)", "a in (in,notin,x,y,z)"),
        ("notin=in", "notin=in"),
        ("in in (in)", "in in (in)"),
    ];
    for (text, written) in table {
        let selector = LabelSelector::parse(text).expect(text);
        assert_eq!(selector.to_string(), written, "{text}");
        assert_eq!(LabelSelector::parse(written).expect(written), selector, "{text}");
        assert_eq!(selector.is_empty(), text.is_empty());
    }
}

#[test]
fn wrong_label_selectors_are_told_as_upstream_tells_them() {
    let unable = "unable to parse requirement: ";
    let table = [
        (",x,y", "found ',', expected: !, identifier, or 'end of string'".into()),
        ("(", "found '(', expected: !, identifier, or 'end of string'".into()),
        ("x,,y", "found ',', expected: identifier after ','".into()),
        ("a in (xyz),", "found '', expected: identifier after ','".into()),
        ("a in (xyz)b notin ()", "found 'b', expected: ',' or 'end of string'".into()),
        ("!x=a", "found '=', expected: ',' or 'end of string'".into()),
        ("x==a==b", "found '==', expected: ',' or 'end of string'".into()),
        ("x nott in (y)", format!("{unable}found 'nott', expected: in, notin, =, ==, !=, gt, lt")),
        ("a (", format!("{unable}found '(', expected: in, notin, =, ==, !=, gt, lt")),
        ("x ! y", format!("{unable}found '!', expected: in, notin, =, ==, !=, gt, lt")),
        ("a notin(", format!("{unable}found '', expected: ',', ')' or identifier")),
        ("a in (xyz abc)", format!("{unable}found 'abc', expected: ',' or ')'")),
        ("a in x", format!("{unable}found 'x' expected: '('")),
        ("a in (x,=)", format!("{unable}found '=', expected: ',', or identifier")),
        ("a in (x,", format!("{unable}found '', expected: ',', or identifier")),
        ("!", format!("{unable}found '', expected: identifier")),
        ("!!x", format!("{unable}found '!', expected: identifier")),
        ("x=(", format!("{unable}found '(', expected: identifier")),
        (
            "x<a",
            format!(
                "{unable}values[0]: Invalid value: \"a\": for 'Gt', 'Lt' operators, the value must be an \
                 integer"
            ),
        ),
        (
            "x>",
            format!(
                "{unable}values[0]: Invalid value: \"\": for 'Gt', 'Lt' operators, the value must be an \
                 integer"
            ),
        ),
        ("/x=y", format!("{unable}<nil>: Invalid value: \"/x\": prefix part must be non-empty")),
    ];
    for (text, message) in table {
        assert_eq!(label_error(text), message, "{text}");
    }
    assert_eq!(
        label_error("x=a||y=b"),
        "unable to parse requirement: values[0][x]: Invalid value: \"a||y\": a valid label must be an \
         empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
         an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation \
         is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
    );
    assert_eq!(
        label_error("~x"),
        "unable to parse requirement: <nil>: Invalid value: \"~x\": name part must consist of \
         alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character \
         (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    );
}

#[test]
fn label_selectors_match() {
    let table = [
        ("", json!({"x": "y"}), true),
        ("x=y", json!({"x": "y"}), true),
        ("x=y,z=w", json!({"x": "y", "z": "w"}), true),
        ("x!=y,z!=w", json!({"x": "z", "z": "a"}), true),
        ("notin=in", json!({"notin": "in"}), true),
        ("x", json!({"x": "z"}), true),
        ("!x", json!({"y": "z"}), true),
        ("x>1", json!({"x": "2"}), true),
        ("x<1", json!({"x": "0"}), true),
        ("x>1", json!({"x": "+2"}), true),
        ("x=z", json!({}), false),
        ("x=y", json!({"x": "z"}), false),
        ("x=y,z=w", json!({"x": "w", "z": "w"}), false),
        ("x!=y,z!=w", json!({"x": "z", "z": "w"}), false),
        ("x", json!({"y": "z"}), false),
        ("!x", json!({"x": "z"}), false),
        ("x>1", json!({"x": "0"}), false),
        ("x>1", json!({"x": "1"}), false),
        ("x<1", json!({"x": "2"}), false),
        ("x>1", json!({"x": "v2"}), false),
        ("x>1", json!({"x": "99999999999999999999"}), false),
        ("x>1", json!({}), false),
        ("foo=bar,baz=blah", json!({"foo": "bar", "baz": "blah"}), true),
        ("foo=bar,foobar=bar,baz=blah", json!({"foo": "bar", "baz": "blah"}), false),
        ("x in (foo),y notin (alpha)", json!({"x": "foo", "y": "baz"}), true),
        ("x in (foo),y in (alpha)", json!({"x": "foo", "y": "baz"}), false),
        ("x notin (),y", json!({"y": ""}), true),
        ("!x,y", json!({"y": ""}), true),
        ("x notin (),!y", json!({"y": ""}), false),
        ("x in ()", json!({"y": "baz"}), false),
        // What is no text is no label.
        ("x", json!({"x": 1}), false),
        ("x", json!(null), false),
    ];
    for (text, labels, is_meant) in table {
        let selector = LabelSelector::parse(text).expect(text);
        assert_eq!(selector.matches(&labelled(labels.clone())), is_meant, "{text} {labels}");
    }
    assert!(LabelSelector::everything().matches(&Value::Null));
    assert!(!LabelSelector::nothing().matches(&labelled(json!({"x": "y"}))));
    assert!(!LabelSelector::nothing().is_empty());
    // Its text means no object, either: whoever deletes what it selects deletes nothing.
    let text = LabelSelector::nothing().to_string();
    assert_eq!(LabelSelector::parse(&text), Ok(LabelSelector::nothing()));
    assert!(!LabelSelector::nothing().matches(&labelled(json!({"nothing": "x"}))));
}

#[test]
fn label_selectors_come_from_json() {
    let table = [
        (json!(null), "nothing,!nothing", false),
        (json!({}), "", true),
        (json!({"matchLabels": null, "matchExpressions": null}), "", true),
        (json!({"matchLabels": {"foo": "bar"}}), "foo=bar", true),
        (
            json!({"matchLabels": {"foo": "bar"}, "matchExpressions": [
                {"key": "baz", "operator": "In", "values": ["qux", "norf"]},
                {"key": "gone", "operator": "DoesNotExist"},
                {"key": "here", "operator": "Exists", "values": []},
                {"key": "zed", "operator": "NotIn", "values": ["a"]},
            ]}),
            "baz in (norf,qux),foo=bar,!gone,here,zed notin (a)",
            true,
        ),
    ];
    for (selector, written, can_mean) in table {
        let read = LabelSelector::from_json(&selector).expect("it is right");
        assert_eq!(read.to_string(), written, "{selector}");
        assert_eq!(read != LabelSelector::nothing(), can_mean, "{selector}");
    }
    let wrong = [
        (json!([]), "label selector: it is not an object"),
        (json!({"matchLabels": []}), "label selector: matchLabels is not an object"),
        (json!({"matchLabels": {"a": 1}}), "label selector: a label is not a string"),
        (json!({"matchExpressions": {}}), "label selector: matchExpressions is not a list"),
        (json!({"matchExpressions": [7]}), "label selector: an expression without key"),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}),
            "\"Gt\" is not a valid label selector operator",
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
            "values: Invalid value: [\"b\"]: values set must be empty for exists and does not exist",
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "In", "values": [[]]}]}),
            "label selector: a value is not a string",
        ),
    ];
    for (selector, message) in wrong {
        let status = LabelSelector::from_json(&selector).expect_err(message);
        assert_eq!((status.code(), status.message()), (400, message), "{selector}");
    }
}

#[test]
fn requirements_are_checked() {
    use LabelOperator::{Equals, Exists, GreaterThan, In, LessThan};
    let long = "a".repeat(254);
    let table = [
        ("x1", In, vec![], Some("values: ")),
        ("x5", Equals, vec!["foo", "bar"], Some("values: ")),
        ("x8", Exists, vec!["foo"], Some("values: ")),
        ("x9", In, vec!["bar"], None),
        ("x11", GreaterThan, vec!["1"], None),
        ("x13", GreaterThan, vec![], Some("values: ")),
        ("x14", GreaterThan, vec!["bar"], Some("values[0]: ")),
        ("x15", LessThan, vec!["bar"], Some("values[0]: ")),
        (long.as_str(), Exists, vec![], Some("key: ")),
        ("x16", Equals, vec![long.as_str()], Some("values[0][x16]: ")),
        ("x17", Equals, vec!["a b"], Some("values[0][x17]: ")),
        ("A.b/x", Exists, vec![], Some("key: ")),
        ("a/b/x", Exists, vec![], Some("key: ")),
        ("a..b/x", Exists, vec![], Some("key: ")),
        ("a/", Exists, vec![], Some("key: ")),
        ("-a", Equals, vec!["b-"], Some("[key: ")),
    ];
    for (key, operator, values, wrong) in table {
        let values: Vec<_> = values.into_iter().map(str::to_owned).collect();
        match (LabelRequirement::new(key, operator, values.clone()), wrong) {
            (Ok(_), None) => {}
            (Err(status), Some(start)) if status.message().starts_with(start) => {}
            (got, _) => panic!("{key} {operator:?} {values:?}: {got:?}"),
        }
    }
}

#[test]
fn field_selectors_are_read_and_written() {
    let table = [
        ("", ""),
        ("x=a,y=b,z=c", "x=a,y=b,z=c"),
        ("x=a,a=x", "a=x,x=a"),
        ("x!=a,y=b", "x!=a,y=b"),
        (r"x=a||y\=b", r"x=a||y\=b"),
        (r"x=a\=\=b", r"x=a\=\=b"),
        ("a==b", "a=b"),
        ("a=a,", "a=a"),
        (",a=a", "a=a"),
        (r"k=\,,k2=v2", r"k2=v2,k=\,"),
        (r"k=\\,k2=v2", r"k2=v2,k=\\"),
        (r"k=\\\,,k2=v2", r"k2=v2,k=\\\,"),
        ("a!b=c", "a!b=c"),
        ("=", "="),
        ("\u{d568}=\u{c218},\u{baa9}=\u{b85d}", "\u{baa9}=\u{b85d},\u{d568}=\u{c218}"),
    ];
    for (text, written) in table {
        let selector = FieldSelector::parse(text).expect(text);
        assert_eq!(selector.to_string(), written, "{text}");
        assert_eq!(selector.is_empty(), text.is_empty());
    }
    let wrong = [
        ("x=a||y=b", "invalid field selector: unescaped character in value: 61"),
        ("x==a==b", "invalid field selector: unescaped character in value: 61"),
        ("x=a,b", "invalid selector: 'x=a,b'; can't understand 'b'"),
        ("x in (a)", "invalid selector: 'x in (a)'; can't understand 'x in (a)'"),
        ("x", "invalid selector: 'x'; can't understand 'x'"),
        (r"k=\a", r"invalid field selector: invalid escape sequence: \a"),
        (r"k=\", r"invalid field selector: invalid escape sequence: \"),
        (r"k=\\\", r"invalid field selector: invalid escape sequence: \"),
    ];
    for (text, message) in wrong {
        let status = FieldSelector::parse(text).expect_err(text);
        assert_eq!((status.code(), status.message()), (400, message), "{text}");
    }
}

#[test]
fn field_selectors_match() {
    let fields = |field: &str| match field {
        "foo" => Some("bar".to_owned()),
        "baz" => Some("blah".to_owned()),
        "complex" => Some(r"=value\,\".to_owned()),
        _ => None,
    };
    let table = [
        ("", true),
        ("foo=bar", true),
        ("baz=blah", true),
        ("foo=bar,baz=blah", true),
        (r"foo=bar,baz=blah,complex=\=value\\\,\\", true),
        ("none=", true),
        ("none!=x", true),
        ("foo=blah", false),
        ("foo!=bar", false),
        ("foo=bar,foobar=bar,baz=blah", false),
    ];
    for (text, is_meant) in table {
        assert_eq!(FieldSelector::parse(text).expect(text).matches(&fields), is_meant, "{text}");
    }
    let exact = |text: &str| {
        let selector = FieldSelector::parse(text).expect(text);
        selector.requires_exact("test").map(str::to_owned)
    };
    assert_eq!(exact("a=b,test=b"), Some("b".into()));
    assert_eq!(exact("test="), Some(String::new()));
    assert_eq!(exact("test!=b"), None);
    assert_eq!(exact("test!=b,test=c"), Some("c".into()));
    assert_eq!(exact(""), None);
}

proptest! {
    /// Whatever is sent: an answer or an error, and what is written is read as the same.
    #[test]
    fn any_text_is_read_or_refused(text in "[a-c/.,=!<>() \\\\\tin0-9-]{0,40}|.{0,40}") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            let written = selector.to_string();
            prop_assert_eq!(LabelSelector::parse(&written).expect("what was written"), selector);
        }
        if let Ok(selector) = FieldSelector::parse(&text) {
            let written = selector.to_string();
            prop_assert_eq!(FieldSelector::parse(&written).expect("what was written"), selector);
        }
    }
}
