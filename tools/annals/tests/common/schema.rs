//! Checks JSON by a schema: as much of JSON Schema as the schemas of the tool use, and that every member of an object
//! is named in it.

use std::collections::BTreeMap;

use serde_json::Value;

/// The schemas of the tool, by the name that documents bear.
pub(crate) fn all() -> BTreeMap<String, Value> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas");
    let files = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    files
        .map(|file| {
            let schema: Value =
                serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap();
            let name = schema["$id"].as_str().unwrap().to_owned();
            assert_eq!(
                file.file_name().to_str().unwrap(),
                format!("{}.json", &name[7..name.len() - 2])
            );
            (name, schema)
        })
        // A command that is there with its feature alone.
        .filter(|(name, _)| cfg!(feature = "kine") || name != "annals.import.kine/1")
        .collect()
}

/// What is wrong with a document.
pub(crate) fn check(schema: &Value, document: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    look("", schema, document, &mut wrong);
    wrong
}

fn look(path: &str, schema: &Value, value: &Value, wrong: &mut Vec<String>) {
    let known =
        ["$schema", "$id", "description", "type", "const", "required", "properties", "items"];
    for word in schema.as_object().unwrap().keys() {
        assert!(known.contains(&word.as_str()), "{path}: this checker does not know {word}");
    }
    if schema.get("const").is_some_and(|only| only != value) {
        wrong.push(format!("{path}: {value} instead of {}", schema["const"]));
    }
    let is = |name: &str| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{path}: there is no type {other}"),
    };
    let fits = match schema.get("type") {
        Some(Value::String(name)) => is(name),
        Some(Value::Array(names)) => names.iter().any(|name| is(name.as_str().unwrap())),
        _ => true,
    };
    if !fits {
        wrong.push(format!("{path}: {value} is no {}", schema["type"]));
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        if value.is_object() && value.get(name.as_str().unwrap()).is_none() {
            wrong.push(format!("{path}: {name} is missing"));
        }
    }
    if let (Some(members), Some(properties)) = (value.as_object(), schema["properties"].as_object())
    {
        for (name, member) in members {
            match properties.get(name) {
                Some(schema) => look(&format!("{path}/{name}"), schema, member, wrong),
                None => wrong.push(format!("{path}: {name} is not in the schema")),
            }
        }
    }
    if let (Some(elements), Some(schema)) = (value.as_array(), schema.get("items")) {
        for (index, element) in elements.iter().enumerate() {
            look(&format!("{path}/{index}"), schema, element, wrong);
        }
    }
}
