//! Sets of paths: what they hold after each operation, against sets of texts, and their JSON.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use super::fields;
use super::path::PathElement;
use super::set::Set;

fn element() -> impl Strategy<Value = PathElement> {
    let scalar = || {
        prop_oneof![
            (0..3).prop_map(|n| json!(n)),
            Just(json!(0.5)),
            "[ab\"\\\\]{0,2}".prop_map(|text| json!(text)),
            any::<bool>().prop_map(|flag| json!(flag)),
            Just(json!(null)),
        ]
    };
    prop_oneof![
        4 => "[ab.:]{0,2}".prop_map(PathElement::Field),
        1 => vec(("[kl]", scalar()), 0..3).prop_map(|mut keys| {
            keys.sort_by(|one, other| one.0.cmp(&other.0));
            keys.dedup_by(|one, other| one.0 == other.0);
            PathElement::key(keys)
        }),
        1 => scalar().prop_map(PathElement::Value),
        1 => (-1..2i64).prop_map(PathElement::Index),
    ]
}

fn paths() -> impl Strategy<Value = Vec<Vec<PathElement>>> {
    vec(vec(element(), 1..4), 0..12)
}

fn set(paths: &[Vec<PathElement>]) -> Set {
    let mut set = Set::default();
    for path in paths {
        let mut steps = path.iter().rev();
        let mut one = Set::default();
        one.add(steps.next().expect("a path has a step").clone(), true, Set::default());
        for step in steps {
            let below = std::mem::take(&mut one);
            one.add(step.clone(), false, below);
        }
        set.unite(one);
    }
    set
}

/// The paths as texts, each step as it is in managed fields: two steps have one text where they are one.
fn texts(set: &Set) -> BTreeSet<Vec<String>> {
    fn add(set: &Set, above: &[String], texts: &mut BTreeSet<Vec<String>>) {
        for (element, node) in set.iter() {
            let path = [above, &[element.text()]].concat();
            assert!(node.is_member || !node.below.is_empty(), "no node is empty");
            add(&node.below, &path, texts);
            if node.is_member {
                texts.insert(path);
            }
        }
    }
    let mut found = BTreeSet::new();
    add(set, &[], &mut found);
    found
}

proptest! {
    #[test]
    fn operations_on_sets_are_those_on_their_paths(one in paths(), other in paths()) {
        let (one, other) = (set(&one), set(&other));
        let (mine, theirs) = (texts(&one), texts(&other));
        let mut both = one.clone();
        both.unite(other.clone());
        prop_assert_eq!(texts(&both), mine.union(&theirs).cloned().collect());
        let common = one.intersection(&other);
        prop_assert_eq!(texts(&common), mine.intersection(&theirs).cloned().collect());
        prop_assert_eq!(&common, &other.intersection(&one));
        let mut less = one.clone();
        less.subtract(&other);
        prop_assert_eq!(texts(&less), mine.difference(&theirs).cloned().collect());
        let mut less = one.clone();
        less.subtract_whole(&other);
        let is_below = |path: &&Vec<String>| (1..=path.len()).any(|to| theirs.contains(&path[..to]));
        prop_assert_eq!(texts(&less), mine.iter().filter(|path| !is_below(path)).cloned().collect());
        prop_assert_eq!(one.paths().len(), mine.len());
        prop_assert_eq!(one.is_empty(), mine.is_empty());
    }

    #[test]
    fn the_json_of_a_set_is_read_as_the_set(paths in paths()) {
        let set = set(&paths);
        let json = fields::write(&set);
        prop_assert_eq!(fields::read(&json), Ok(set.clone()));
        let read: serde_json::Value = serde_json::from_str(&json.to_string()).expect("it is JSON");
        prop_assert_eq!(fields::read(&read), Ok(set));
    }

    #[test]
    fn any_text_is_a_step_or_none(text in "[fkvix.]{0,2}:?.{0,12}") {
        if let Ok(Some(element)) = PathElement::parse(&text) {
            let again = PathElement::parse(&element.text());
            prop_assert_eq!(again, Ok(Some(element)));
        }
    }
}

#[test]
fn steps_are_in_the_order_of_fields_keys_values_and_indexes() {
    let ordered = [
        "f:",
        "f:a",
        "f:b",
        "k:{}",
        "k:{\"a\":1}",
        "k:{\"a\":1,\"b\":0}",
        "k:{\"a\":2}",
        "k:{\"b\":0}",
        "v:-1",
        "v:1",
        "v:1.5",
        "v:2",
        "v:\"a\"",
        "v:\"b\"",
        "v:false",
        "v:true",
        "v:[]",
        "v:[1]",
        "v:{}",
        "v:{\"a\":1}",
        "v:null",
        "i:-1",
        "i:0",
        "i:10",
    ];
    let parsed = ordered.map(|text| PathElement::parse(text).expect("good").expect("known"));
    assert!(parsed.is_sorted_by(|one, other| one < other));
    assert_eq!(parsed.map(|element| element.text()), ordered);
}

#[test]
fn paths_are_written_for_people() {
    let json = json!({"f:spec": {
        ".": {},
        "f:list": {"k:{\"name\":\"a\",\"port\":80}": {".": {}, "f:x": {}}, "v:\"b\"": {}, "i:0": {}},
    }});
    let paths = fields::read(&json).expect("good").paths();
    let list = ".spec.list[name=\"a\",port=80]";
    let expected = [".spec", list, ".spec.list[=\"b\"]", ".spec.list[0]"];
    assert_eq!(paths, [&expected[..], &[&format!("{list}.x")]].concat());
}
