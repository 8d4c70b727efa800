//! What the verbs do, and what cannot be done.

use serde_json::{Value, json};

use crate::client::{APPLY, Client, JSON, MERGE, OPERATIONS, PODS, STRATEGIC, assert_status, pod};

#[test]
fn clients_discover_what_there_is() {
    let client = Client::new();
    assert_eq!(client.get("/api").1["versions"], json!(["v1"]));
    assert_eq!(client.get("/version").1["major"], "1");
    let groups = client.get("/apis").1;
    let names: Vec<_> =
        groups["groups"].as_array().unwrap().iter().map(|group| &group["name"]).collect();
    assert_eq!(names, ["apps", "example.com"]);
    let (code, core) = client.get("/api/v1");
    assert_eq!((code, &core["groupVersion"]), (200, &json!("v1")));
    let resources = core["resources"].as_array().unwrap();
    let find = |name: &str| resources.iter().find(|resource| resource["name"] == name);
    let pods = find("pods").expect("pods are served");
    assert_eq!((&pods["kind"], &pods["namespaced"]), (&json!("Pod"), &json!(true)));
    assert!(find("pods/status").is_some() && find("configmaps/status").is_none());
    assert_eq!(client.get("/apis/apps/v1").1["resources"][0]["name"], "deployments");
    for absent in ["/", "/apis/none/v1", "/api/v1/guesses", "/api/v2/pods"] {
        assert_status(&client.get(absent), 404, "NotFound");
    }
}

#[test]
fn objects_live_and_die_by_their_verbs() {
    let client = Client::new();
    let (code, made) = client.post(PODS, &pod("web"));
    assert_eq!((code, &made["metadata"]["generation"]), (201, &json!(1)));
    assert_eq!(made["metadata"]["managedFields"][0]["manager"], "tester");
    assert_status(&client.post(PODS, &pod("web")), 409, "AlreadyExists");
    let web = &format!("{PODS}/web");
    assert_eq!(client.get(web), (200, made.clone()));
    assert_status(&client.get(&format!("{PODS}/api")), 404, "NotFound");

    let mut changed = made.clone();
    changed["spec"]["nodeName"] = "two".into();
    let (code, written) = client.put(web, &changed);
    assert_eq!((code, &written["metadata"]["generation"]), (200, &json!(2)));
    let stale = client.put(web, &changed);
    assert_status(&stale, 409, "Conflict");
    let message = "Operation cannot be fulfilled on pods \"web\": the object has been modified; please apply your \
                   changes to the latest version and try again";
    assert_eq!(stale.1["message"], message);

    let told = json!({"metadata": {"name": "web"}, "status": {"phase": "Running"}});
    let (code, running) = client.put(&format!("{web}/status"), &told);
    assert_eq!(
        (code, &running["status"]["phase"], &running["spec"]["nodeName"]),
        (200, &json!("Running"), &json!("two"))
    );
    assert_eq!(running["metadata"]["generation"], 2);

    let other = json!({"preconditions": {"uid": "other"}});
    assert_status(&client.send("DELETE", web, JSON, &other.to_string()), 409, "Conflict");
    let (code, gone) = client.delete(web);
    assert_eq!(
        (code, &gone["status"], &gone["details"]["name"]),
        (200, &json!("Success"), &json!("web"))
    );
    assert_status(&client.delete(web), 404, "NotFound");

    // What lies in no namespace.
    let space = json!({"metadata": {"name": "shop"}});
    let (code, made) = client.post("/api/v1/namespaces", &space);
    assert_eq!((code, made["metadata"].get("namespace")), (201, None));
    assert_eq!(client.get("/api/v1/namespaces/shop"), (200, made));
    let told = json!({"metadata": {"name": "shop"}, "status": {"phase": "Active"}});
    assert_eq!(client.put("/api/v1/namespaces/shop/status", &told).0, 200);
}

#[test]
fn every_type_of_patch_is_taken() {
    let client = Client::new();
    client.post(PODS, &pod("web"));
    let web = &format!("{PODS}/web");
    let sidecar = json!({"spec": {"containers": [{"name": "log", "image": "log:1"}]}});
    let names = |pod: &Value| -> Vec<Value> {
        let containers = pod["spec"]["containers"].as_array().unwrap();
        containers.iter().map(|container| container["name"].clone()).collect()
    };
    let (code, merged) = client.patch(web, STRATEGIC, &sidecar);
    assert_eq!((code, names(&merged).len()), (200, 2), "{merged}");
    let (_, replaced) = client.patch(web, MERGE, &sidecar);
    assert_eq!(names(&replaced), ["log"]);
    let test = json!([{"op": "test", "path": "/spec/nodeName", "value": "two"}]);
    assert_status(&client.patch(web, OPERATIONS, &test), 422, "Invalid");
    let replace = json!([{"op": "replace", "path": "/spec/nodeName", "value": "two"}]);
    assert_eq!(client.patch(web, OPERATIONS, &replace).1["spec"]["nodeName"], "two");
    assert_status(&client.patch(web, JSON, &sidecar), 415, "UnsupportedMediaType");
    let foos = "/apis/example.com/v1/namespaces/default/foos";
    assert_eq!(client.post(foos, &json!({"metadata": {"name": "foo"}})).0, 201);
    let foo = format!("{foos}/foo");
    assert_status(&client.patch(&foo, STRATEGIC, &sidecar), 415, "UnsupportedMediaType");
    assert_eq!(client.patch(&foo, MERGE, &json!({"bar": 1})).1["bar"], 1);

    let api = format!("{PODS}/api");
    assert_status(&client.patch(&api, APPLY, &pod("api")), 422, "Invalid");
    let mine = format!("{api}?fieldManager=mine");
    assert_eq!(client.patch(&mine, APPLY, &pod("api")).0, 201);
    let mut theirs = pod("api");
    theirs["spec"]["nodeName"] = "two".into();
    let conflict = client.patch(&format!("{api}?fieldManager=theirs"), APPLY, &theirs);
    assert_status(&conflict, 409, "Conflict");
    assert_eq!(conflict.1["details"]["causes"][0]["field"], ".spec.nodeName");
    let (code, forced) =
        client.patch(&format!("{api}?fieldManager=theirs&force=true"), APPLY, &theirs);
    assert_eq!((code, &forced["spec"]["nodeName"]), (200, &json!("two")));
}

#[test]
fn lists_come_in_pages_and_by_selectors() {
    let client = Client::new();
    for name in ["a", "b", "c", "d", "e"] {
        client.post(PODS, &pod(name));
    }
    client.post("/api/v1/namespaces/other/pods", &pod("a"));
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap().iter();
        items.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let (code, all) = client.get("/api/v1/pods");
    assert_eq!((code, &all["kind"], names(&all).len()), (200, &json!("PodList"), 6));
    let (mut path, mut found) = (format!("{PODS}?limit=2"), Vec::new());
    let mut versions = Vec::new();
    loop {
        let (code, page) = client.get(&path);
        assert_eq!(code, 200, "{page}");
        found.extend(names(&page));
        versions.push(page["metadata"]["resourceVersion"].clone());
        // What happens in between is not in this list.
        client.post(PODS, &pod(&format!("late-{}", found.len())));
        let Some(token) = page["metadata"]["continue"].as_str() else { break };
        path = format!("{PODS}?limit=2&continue={token}");
    }
    assert_eq!(found, ["a", "b", "c", "d", "e"]);
    versions.dedup();
    assert_eq!(versions.len(), 1, "all pages are of one revision");

    let select = |query: &str| names(&client.get(&format!("/api/v1/pods?{query}")).1);
    assert_eq!(select("labelSelector=app%20in%20(b,c)"), ["b", "c"]);
    assert_eq!(select("fieldSelector=metadata.name%3Da"), ["a", "a"]);
    assert_eq!(select("fieldSelector=metadata.namespace%3Dother,spec.nodeName%3Done"), ["a"]);
    let version = versions[0].as_str().unwrap();
    let exact = format!("{PODS}?resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(names(&client.get(&exact).1).len(), 5);
    for (query, code) in [
        ("labelSelector=%21%21", 400),
        ("fieldSelector=spec.other%3D1", 400),
        ("limit=many", 400),
        ("continue=none", 400),
        ("resourceVersionMatch=Exact", 422),
        ("resourceVersion=99999", 504),
    ] {
        let (told, status) = client.get(&format!("{PODS}?{query}"));
        assert_eq!((told, &status["code"]), (code, &json!(code)), "{query}: {status}");
    }
    let (code, deleted) = client.delete(&format!("{PODS}?labelSelector=app%20in%20(b,c)"));
    assert_eq!((code, names(&deleted)), (200, vec!["b".into(), "c".into()]));
    assert_status(&client.get(&format!("{PODS}/b")), 404, "NotFound");
}

#[test]
fn a_watch_tells_line_by_line() {
    let client = Client::new();
    client.post(PODS, &pod("a"));
    let list = client.get(PODS).1;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut from_list = client.watch(&format!("{PODS}?watch=true&resourceVersion={version}"));
    let query =
        "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let mut from_nothing = client.watch(&format!("{PODS}?{query}"));

    let line = from_nothing.next().expect("a line");
    assert_eq!(
        (&line["type"], &line["object"]["metadata"]["name"]),
        (&json!("ADDED"), &json!("a"))
    );
    let mark = from_nothing.next().expect("a line");
    assert_eq!(mark["type"], "BOOKMARK");
    assert_eq!(mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");

    let web = format!("{PODS}/web");
    client.post(PODS, &pod("web"));
    client.patch(&web, MERGE, &json!({"spec": {"nodeName": "two"}}));
    client.delete(&web);
    for watch in [&mut from_list as &mut dyn Iterator<Item = Value>, &mut from_nothing] {
        let told: Vec<_> = watch
            .take(3)
            .map(|line| (line["type"].clone(), line["object"]["spec"]["nodeName"].clone()))
            .collect();
        let expected = [("ADDED", "one"), ("MODIFIED", "two"), ("DELETED", "two")];
        assert_eq!(told, expected.map(|(kind, node)| (json!(kind), json!(node))));
    }
    // One that ends by itself.
    let short = client.watch(&format!("{PODS}?watch=true&timeoutSeconds=0"));
    assert_eq!(short.count(), 0);
}

#[test]
fn dry_runs_and_what_cannot_be_done() {
    let client = Client::new();
    let (code, made) = client.post(&format!("{PODS}?dryRun=All"), &pod("web"));
    assert_eq!((code, made["metadata"].get("resourceVersion")), (201, None));
    assert_status(&client.get(&format!("{PODS}/web")), 404, "NotFound");
    assert_status(&client.post(&format!("{PODS}?dryRun=Some"), &pod("web")), 422, "Invalid");
    assert_status(&client.post(&format!("{PODS}?dryRun="), &pod("web")), 422, "Invalid");
    let twice = client.post(&format!("{PODS}?dryRun=All&dryRun="), &pod("web"));
    assert_status(&twice, 400, "BadRequest");
    assert_eq!(client.post(&format!("{PODS}?dryRun=All&dryRun=All"), &pod("web")).0, 201);
    assert_status(&client.get(&format!("{PODS}/web")), 404, "NotFound");
    assert_status(&client.post(PODS, &pod("Web")), 422, "Invalid");
    assert_status(&client.send("POST", PODS, JSON, "no JSON"), 400, "BadRequest");
    assert_status(&client.send("PUT", PODS, JSON, "{}"), 405, "MethodNotAllowed");
    let large = "x".repeat((3 << 20) + 1);
    assert_status(&client.send("POST", PODS, JSON, &large), 413, "RequestEntityTooLarge");
    for path in ["/api/v1/namespaces/a%2Fb/pods/c", "/api/v1/namespaces/../pods/c"] {
        assert_eq!(client.get(path).0 / 100, 4, "{path}");
    }
}

/// What cannot be understood is not passed over, least of all when something is to be deleted.
#[test]
fn options_of_another_type_are_refused() {
    let client = Client::new();
    client.post(PODS, &pod("web"));
    let web = format!("{PODS}/web");
    for body in [
        json!({"dryRun": "All"}),
        json!({"preconditions": {"uid": 7}}),
        json!({"preconditions": {"resourceVersion": 5}}),
        json!({"preconditions": []}),
        json!({"gracePeriodSeconds": "0"}),
        json!({"orphanDependents": "true"}),
        json!({"propagationPolicy": 1}),
        json!(["All"]),
        json!("All"),
    ] {
        let answer = client.send("DELETE", &web, JSON, &body.to_string());
        assert_status(&answer, 400, "BadRequest");
    }
    let some = json!({"dryRun": ["Some"]}).to_string();
    assert_status(&client.send("DELETE", &web, JSON, &some), 422, "Invalid");
    let dry = json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}).to_string();
    assert_eq!(client.send("DELETE", &web, JSON, &dry).0, 200);
    assert_eq!(client.get(&web).0, 200, "it is there as before");
    for query in ["dryRun=%ff", "labelSelector=%fe%ff", "limit=many", "sendInitialEvents=true"] {
        let (code, _) = client.get(&format!("{PODS}?{query}"));
        assert!(code == 400 || code == 422 || query.starts_with("dryRun"), "{query}: {code}");
    }
    for query in ["sendInitialEvents=true", "resourceVersionMatch=NotOlderThan"] {
        assert_status(&client.get(&format!("{PODS}?watch=1&{query}")), 422, "Invalid");
    }

    let mut stuck = pod("stuck");
    stuck["metadata"]["finalizers"] = json!(["example.com/wait"]);
    client.post(PODS, &stuck);
    let stuck = format!("{PODS}/stuck");
    let waits = json!({"orphanDependents": false}).to_string();
    assert_eq!(client.send("DELETE", &stuck, JSON, &waits).0, 202);
    assert_eq!(client.delete(&stuck).0, 200);
}
