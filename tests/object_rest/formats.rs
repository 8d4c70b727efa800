//! Forms in which objects come and go: tables, metadata, YAML, what clients ask for before they ask for objects.

use serde_json::{Value, json};

use crate::client::{APPLY, Client, JSON, MERGE, OPERATIONS, PODS, STRATEGIC, assert_status, pod};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const YAML: &str = "application/yaml";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn strings(values: &Value, field: &str) -> Vec<String> {
    let values = values.as_array().expect("a list").iter();
    values.map(|value| value[field].as_str().expect("a text").to_owned()).collect()
}

#[test]
fn objects_are_shown_as_tables_to_who_asks() {
    let client = Client::new();
    for name in ["a", "b", "c"] {
        client.post(PODS, &pod(name));
    }
    let (_, table) = client.get_as(&format!("{PODS}?limit=2"), TABLE);
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    assert_eq!(strings(&table["columnDefinitions"], "name"), ["Name", "Status", "Node", "Age"]);
    assert_eq!(table["columnDefinitions"][2]["priority"], 1, "for -o wide");
    let rows = table["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2);
    assert_eq!(
        rows[0]["cells"].as_array().expect("cells")[..3],
        [json!("a"), Value::Null, json!("one")]
    );
    assert_eq!(rows[0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(rows[0]["object"]["metadata"]["labels"], json!({"app": "a"}));
    // A page is a page.
    assert_eq!(table["metadata"]["remainingItemCount"], 1);
    let token = table["metadata"]["continue"].as_str().expect("a token");
    let (_, last) = client.get_as(&format!("{PODS}?limit=2&continue={token}"), TABLE);
    assert_eq!(last["rows"][0]["cells"][0], "c");

    let (_, one) = client.get_as(&format!("{PODS}/a?includeObject=Object"), TABLE);
    assert_eq!(one["rows"][0]["object"], client.get(&format!("{PODS}/a")).1);
    let (_, one) = client.get_as(&format!("{PODS}/a?includeObject=None"), TABLE);
    assert_eq!(one["rows"][0].get("object"), None);
    let (_, none) = client.get_as(&format!("{PODS}/none"), TABLE);
    assert_eq!((&none["kind"], &none["reason"]), (&json!("Status"), &json!("NotFound")));
    // What nobody here knows is passed over for what comes next.
    let (_, list) = client.get_as(PODS, "application/vnd.kubernetes.protobuf,application/json");
    assert_eq!(list["kind"], "PodList");
    let (_, list) = client.get_as(PODS, "application/json;as=Table;v=v9;g=meta.k8s.io,*/*");
    assert_eq!(list["kind"], "PodList");
}

#[test]
fn metadata_alone_is_shown_to_who_asks() {
    let client = Client::new();
    client.post(PODS, &pod("a"));
    let (_, one) = client.get_as(&format!("{PODS}/a"), METADATA);
    assert_eq!(
        (&one["kind"], &one["metadata"]["name"]),
        (&json!("PartialObjectMetadata"), &json!("a"))
    );
    assert_eq!(one.get("spec"), None);
    let (_, list) =
        client.get_as(PODS, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(
        (&list["items"][0]["metadata"], list["items"][0].get("spec")),
        (&one["metadata"], None)
    );
    assert!(list["metadata"]["resourceVersion"].is_string());
}

#[test]
fn a_watch_of_tables_tells_the_columns_once() {
    let client = Client::new();
    client.post(PODS, &pod("a"));
    client.post(PODS, &pod("b"));
    let mut lines = client.watch_as(&format!("{PODS}?watch=true&resourceVersion=0"), TABLE);
    let (first, second) = (lines.next().expect("a line"), lines.next().expect("a line"));
    assert_eq!((&first["type"], &first["object"]["kind"]), (&json!("ADDED"), &json!("Table")));
    assert_eq!(first["object"]["columnDefinitions"][0]["name"], "Name");
    assert_eq!(first["object"]["rows"][0]["cells"][0], "a");
    assert_eq!(second["object"]["columnDefinitions"], json!([]));
    assert_eq!(second["object"]["rows"][0]["cells"][0], "b");
}

#[test]
fn all_groups_are_discovered_at_once() {
    let client = Client::new();
    let accept =
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let (content_type, core) = client.get_as("/api", accept);
    assert_eq!(
        content_type,
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    );
    assert_eq!(
        (&core["kind"], &core["apiVersion"]),
        (&json!("APIGroupDiscoveryList"), &json!("apidiscovery.k8s.io/v2"))
    );
    let resources = &core["items"][0]["versions"][0]["resources"];
    assert_eq!(strings(resources, "resource"), ["namespaces", "configmaps", "pods", "events"]);
    assert_eq!(
        (&resources[0]["scope"], &resources[2]["scope"]),
        (&json!("Cluster"), &json!("Namespaced"))
    );
    let (_, others) = client.get_as("/apis", accept);
    let names: Vec<_> = others["items"]
        .as_array()
        .expect("groups")
        .iter()
        .map(|one| &one["metadata"]["name"])
        .collect();
    assert_eq!(names, ["apps", "example.com"]);
    let deployments = &others["items"][0]["versions"][0]["resources"][0];
    assert_eq!(strings(&deployments["subresources"], "subresource"), ["status", "scale"]);
    assert_eq!(deployments["subresources"][1]["responseKind"]["kind"], "Scale");
    // Who knows only an older version of it gets the lists of before.
    let older = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
    assert_eq!(client.get_as("/apis", older).1["kind"], "APIGroupList");
}

#[test]
fn openapi_tells_schemas_and_parameters() {
    let client = Client::new();
    let (_, root) = client.get("/openapi/v3");
    let url = root["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().expect("an address");
    let (code, apps) = client.get(url);
    assert_eq!(code, 200);
    let schema = &apps["components"]["schemas"]["Deployment"];
    assert_eq!(schema["x-kubernetes-group-version-kind"][0]["kind"], "Deployment");
    let containers = &schema["properties"]["spec"]["properties"]["template"]["properties"]["spec"]
        ["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    let patch = &apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert!(strings(&patch["parameters"], "name").contains(&"fieldValidation".into()));
    assert!(patch["requestBody"]["content"].get(STRATEGIC).is_some());
    let foos = client.get("/openapi/v3/apis/example.com/v1").1;
    let patch = &foos["paths"]["/apis/example.com/v1/namespaces/{namespace}/foos/{name}"]["patch"];
    assert!(
        patch["requestBody"]["content"].get(STRATEGIC).is_none(),
        "nobody knows how to merge them"
    );
    assert_status(&client.get("/openapi/v3/apis/none/v1"), 404, "NotFound");
}

#[test]
fn yaml_is_taken_where_json_is() {
    let client = Client::new();
    let yaml = "metadata:\n  name: web\n  labels: {app: web}\nspec:\n  nodeName: \"1\"\n";
    let (code, made) = client.send("POST", PODS, YAML, yaml);
    assert_eq!(
        (code, &made["spec"]["nodeName"], &made["metadata"]["labels"]["app"]),
        (201, &json!("1"), &json!("web"))
    );
    let web = format!("{PODS}/web");
    let applied = format!("apiVersion: v1\nkind: Pod\n{}", yaml.replace("\"1\"", "two"));
    let (code, pod) =
        client.send("PATCH", &format!("{web}?fieldManager=me&force=true"), APPLY, &applied);
    assert_eq!((code, &pod["spec"]["nodeName"]), (200, &json!("two")));
    let dry = client.send("DELETE", &web, YAML, "dryRun: [All]\n");
    assert_eq!((dry.0, client.get(&web).0), (200, 200));
    for bad in ["a: 1\na: 2\n", "a: [1\n", "a: &a [*a, *a]\n", "a: 1\n---\nb: 2\n"] {
        assert_status(&client.send("POST", PODS, YAML, bad), 400, "BadRequest");
    }
    let other = client.send("POST", PODS, "application/vnd.kubernetes.protobuf", "k8s");
    assert_status(&other, 415, "UnsupportedMediaType");
    let octal = "metadata: {name: octal}\nspec: {mode: 0644, text: \"0644\", none: 0}\n";
    let (code, made) = client.send("POST", PODS, YAML, octal);
    let spec = &made["spec"];
    assert_eq!(
        (code, &spec["mode"], &spec["text"], &spec["none"]),
        (201, &json!(420), &json!("0644"), &json!(0))
    );
    let secret = client.send("POST", PODS, YAML, "password: hunter2\na: [1\n").1.to_string();
    assert!(!secret.contains("hunter2"), "{secret}");
}

/// A few bytes that say the same again and again.
#[test]
fn yaml_says_no_more_than_json_may() {
    let client = Client::new();
    for text in ["x", "\\x01"] {
        for (times, repeats) in [(160_000, 99), (300_000, 5)] {
            let again = "  - *a\n".repeat(repeats);
            let text = text.repeat(times);
            let yaml = format!("metadata: {{name: a}}\nspec:\n  a:\n  - &a \"{text}\"\n{again}");
            let (code, answer) = client.send("POST", PODS, YAML, &yaml);
            let is_small = text.starts_with('x') && repeats == 5;
            let expected = if is_small { [201, 201] } else { [400, 413] };
            assert!(expected.contains(&code), "{code}: {}", answer["message"]);
        }
    }
    assert_eq!(client.get(PODS).1["items"].as_array().expect("a list").len(), 1);
}

#[test]
fn unknown_fields_are_told_or_refused() {
    let client = Client::new();
    let sent = r#"{"metadata": {"name": "web"}, "spec": {"nodename": "a", "nodeName": "b", "nodeName": "c"}}"#;
    let told = [
        r#"299 - "unknown field \"spec.nodename\"""#,
        r#"299 - "duplicate field \"spec.nodeName\"""#,
    ];
    let strict = client.send("POST", &format!("{PODS}?fieldValidation=Strict"), JSON, sent);
    assert_status(&strict, 400, "BadRequest");
    let message = "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: unknown field \
                   \"spec.nodename\", duplicate field \"spec.nodeName\"";
    assert_eq!(strict.1["message"], message);
    let dry = format!("{PODS}?dryRun=All");
    assert_eq!(client.warnings("POST", &dry, JSON, sent), (201, told.map(str::to_owned).to_vec()));
    let silent = client.warnings("POST", &format!("{dry}&fieldValidation=Ignore"), JSON, sent);
    assert_eq!(silent, (201, Vec::new()));
    let other = client.send("POST", &format!("{PODS}?fieldValidation=strict"), JSON, sent);
    assert_status(&other, 422, "Invalid");

    client.post(PODS, &pod("web"));
    let web = format!("{PODS}/web?fieldValidation=Strict");
    let unknown = json!({"spec": {"foo": 1}});
    for (content_type, patch) in [
        (MERGE, unknown.clone()),
        (STRATEGIC, unknown),
        (OPERATIONS, json!([{"op": "add", "path": "/spec/foo", "value": 1}])),
    ] {
        let refused = client.patch(&web, content_type, &patch);
        assert_status(&refused, 422, "Invalid");
        let message = refused.1["message"].as_str().expect("a text");
        assert!(
            message.ends_with("strict decoding error: unknown field \"spec.foo\""),
            "{message}"
        );
        let warned = client.warnings(
            "PATCH",
            &format!("{PODS}/web?dryRun=All"),
            content_type,
            &patch.to_string(),
        );
        assert_eq!(warned, (200, vec![r#"299 - "unknown field \"spec.foo\"""#.into()]));
    }
    // What nobody can say in a header is left out of it, and of very many there are as many as have room.
    let many: Vec<_> = (0..100).map(|at| format!(r#""{}\n{at}": 1"#, "x".repeat(200))).collect();
    let sent = format!(r#"{{"metadata": {{"name": "a"}}, "spec": {{{}}}}}"#, many.join(","));
    let (code, warnings) = client.warnings("POST", &dry, JSON, &sent);
    assert_eq!(code, 201);
    assert!(!warnings.is_empty() && warnings.iter().map(String::len).sum::<usize>() <= 4 << 10);
}

#[test]
fn what_has_replicas_is_scaled() {
    let client = Client::new();
    let web = json!({"metadata": {"name": "web"}, "spec": {"replicas": 2}});
    client.post(DEPLOYMENTS, &web);
    let scale = format!("{DEPLOYMENTS}/web/scale");
    let (code, mut found) = client.get(&scale);
    assert_eq!(
        (code, &found["kind"], &found["spec"]["replicas"]),
        (200, &json!("Scale"), &json!(2))
    );
    let (code, patched) = client.patch(&scale, MERGE, &json!({"spec": {"replicas": 3}}));
    assert_eq!((code, &patched["spec"]["replicas"]), (200, &json!(3)));
    assert_eq!(client.get(&format!("{DEPLOYMENTS}/web")).1["spec"]["replicas"], 3);
    // The version of what was read first is a lock.
    found["spec"]["replicas"] = 4.into();
    assert_status(&client.put(&scale, &found), 409, "Conflict");
    assert_eq!(client.put(&scale, &json!({"spec": {"replicas": 4}})).1["spec"]["replicas"], 4);
    assert_status(&client.put(&scale, &json!({"spec": {"replicas": -1}})), 422, "Invalid");
    for other in [json!({"name": "other"}), json!({"namespace": "other"})] {
        let scale_of_other = json!({"metadata": other, "spec": {"replicas": 5}});
        assert_status(&client.put(&scale, &scale_of_other), 400, "BadRequest");
    }
    assert_status(&client.get(&format!("{PODS}/web/scale")), 404, "NotFound");
    assert_status(&client.delete(&scale), 405, "MethodNotAllowed");
}
