//! The REST example, used by `kubectl`. Without a `kubectl` on this machine nothing is tested, and that is told.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "what fails here fails the test")]
#![cfg(unix)]

#[path = "../examples/kube_api/main.rs"]
mod kube_api;
#[path = "object_rest/server.rs"]
mod server;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use kube_api::Limits;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A `kubectl` of a server of its own.
struct Kubectl {
    server: String,
    home: TempDir,
}

/// One that runs until it is done, or until it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Kubectl {
    fn new() -> Option<Self> {
        let found = Command::new("kubectl").args(["version", "--client"]).output();
        if !found.is_ok_and(|found| found.status.success()) {
            eprintln!("skipped: there is no kubectl on this machine");
            return None;
        }
        let server = format!("http://{}", server::start(Limits::default()));
        Some(Self { server, home: tempfile::tempdir().expect("a directory") })
    }

    /// With nothing of the settings of who runs the test.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).env("HOME", self.home.path());
        command.env("TMPDIR", self.home.path()).env("KUBECONFIG", self.home.path().join("none"));
        command.env("KUBE_EDITOR", "sed -i.old s/one/two/");
        command.arg(format!("--server={}", self.server));
        command.arg(format!("--cache-dir={}", self.home.path().join("cache").display()));
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self, args: &[&str]) -> Running {
        Running(self.command(args).spawn().expect("it starts"))
    }

    fn run(&self, args: &[&str], input: &Value) -> Output {
        let mut child = self.command(args).spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("an input");
        // Who does not read closes it.
        let _ = stdin.write_all(input.to_string().as_bytes());
        drop(stdin);
        child.wait_with_output().expect("it ends")
    }

    /// What it says when it succeeds.
    #[track_caller]
    fn ok(&self, args: &[&str], input: &Value) -> String {
        let output = self.run(args, input);
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {told}{error}");
        told
    }

    /// What it complains of when it fails.
    #[track_caller]
    fn fails(&self, args: &[&str], input: &Value) -> String {
        let output = self.run(args, input);
        assert!(!output.status.success(), "{args:?} has succeeded");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Runs what is written in one line.
    #[track_caller]
    fn say(&self, line: &str) -> String {
        self.ok(&line.split(' ').collect::<Vec<_>>(), &Value::Null)
    }
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": "one", "containers": [{"name": "main", "image": "a:1"}]},
    })
}

fn config(data: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": data}})
}

/// The words of a line of a table.
fn words(table: &str, line: usize) -> Vec<&str> {
    table.lines().nth(line).unwrap_or_default().split_whitespace().collect()
}

#[test]
fn objects_are_found_and_shown() {
    let Some(kubectl) = Kubectl::new() else { return };
    assert!(kubectl.say("version").contains("annals"));
    let resources = kubectl.say("api-resources --no-headers");
    assert!(
        resources
            .lines()
            .any(|line| line.split_whitespace().eq(["pods", "po", "v1", "true", "Pod"]))
    );
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [pod("a"), pod("b"), pod("c")]});
    assert_eq!(
        kubectl.ok(&["create", "-f", "-"], &list),
        "pod/a created\npod/b created\npod/c created\n"
    );
    kubectl.ok(&["create", "-n", "other", "-f", "-"], &pod("d"));

    let table = kubectl.say("get pods");
    assert_eq!(words(&table, 0), ["NAME", "STATUS", "AGE"]);
    assert_eq!((words(&table, 1)[0], table.lines().count()), ("a", 4));
    let wide = kubectl.say("get po -A -o wide --show-labels");
    assert_eq!(words(&wide, 0), ["NAMESPACE", "NAME", "STATUS", "NODE", "AGE", "LABELS"]);
    assert_eq!(words(&wide, 4)[..3], ["other", "d", "one"]);
    assert_eq!(kubectl.say("get pods -o name -l app!=b"), "pod/a\npod/c\n");
    assert_eq!(kubectl.say("get pods -o name --field-selector metadata.name=b"), "pod/b\n");
    assert_eq!(kubectl.say("get pods -o name --chunk-size=1"), "pod/a\npod/b\npod/c\n");
    assert_eq!(kubectl.say("get pods -o jsonpath={.items[*].spec.nodeName}"), "one one one");
    let json: Value = serde_json::from_str(&kubectl.say("get pod a -o json")).expect("JSON");
    assert_eq!(json["spec"]["containers"][0]["image"], "a:1");
    assert!(kubectl.say("get pod a -o yaml").contains("\n  nodeName: one\n"));
    assert!(kubectl.say("describe pod a").contains("Image:"));
    assert!(kubectl.say("explain pod.spec.containers").contains("image\t<string>"));
    let absent = kubectl.fails(&["get", "pod", "none"], &Value::Null);
    assert_eq!(absent, "Error from server (NotFound): pods \"none\" not found\n");
}

#[test]
fn what_a_client_applies_is_merged() {
    let Some(kubectl) = Kubectl::new() else { return };
    let apply = ["apply", "-f", "-"];
    assert_eq!(kubectl.ok(&apply, &config("1")), "configmap/c created\n");
    assert_eq!(kubectl.ok(&apply, &config("1")), "configmap/c unchanged\n");
    let diff = kubectl.run(&["diff", "-f", "-"], &config("2"));
    assert_eq!(diff.status.code(), Some(1), "there is a difference");
    assert!(String::from_utf8_lossy(&diff.stdout).contains("+  a: \"2\""));
    let dry = kubectl.ok(&["apply", "--dry-run=server", "-f", "-"], &config("2"));
    assert_eq!(dry, "configmap/c configured (server dry run)\n");
    assert_eq!(kubectl.say("get cm c -o jsonpath={.data.a}"), "1");
    assert_eq!(kubectl.ok(&apply, &config("2")), "configmap/c configured\n");

    // Somebody else adds a container, and it stays; one that is no longer applied goes.
    let mut web = pod("web");
    let log = json!({"name": "log", "image": "log:1"});
    web["spec"]["containers"].as_array_mut().expect("a list").push(log);
    kubectl.ok(&apply, &web);
    let sidecar =
        json!({"spec": {"containers": [{"name": "mesh", "image": "mesh:1"}]}}).to_string();
    kubectl.ok(&["patch", "pod", "web", "-p", &sidecar], &Value::Null);
    kubectl.ok(&apply, &pod("web"));
    let names = kubectl.say("get pod web -o jsonpath={.spec.containers[*].name}");
    let mut names: Vec<_> = names.split(' ').collect();
    names.sort_unstable();
    assert_eq!(names, ["main", "mesh"]);

    let foo = |size: u32| json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "f"}, "size": size});
    kubectl.ok(&apply, &foo(1));
    assert_eq!(kubectl.ok(&apply, &foo(2)), "foo.example.com/f configured\n");
    assert_eq!(kubectl.say("get foo f -o jsonpath={.size}"), "2");
}

#[test]
fn what_the_server_applies_has_owners() {
    let Some(kubectl) = Kubectl::new() else { return };
    let apply = |manager: &str| {
        ["apply", "--server-side", "--field-manager", manager, "-f", "-"].map(str::to_owned)
    };
    let one = apply("one");
    let one: Vec<_> = one.iter().map(String::as_str).collect();
    assert_eq!(kubectl.ok(&one, &config("1")), "configmap/c serverside-applied\n");
    let two = apply("two");
    let mut two: Vec<_> = two.iter().map(String::as_str).collect();
    let conflict = kubectl.fails(&two, &config("2"));
    assert!(conflict.contains("conflict with \"one\": .data.a"), "{conflict}");
    two.push("--force-conflicts");
    kubectl.ok(&two, &config("2"));
    assert_eq!(kubectl.say("get cm c -o jsonpath={.data.a}"), "2");
    let managers =
        "get cm c --show-managed-fields -o jsonpath={.metadata.managedFields[*].manager}";
    assert_eq!(kubectl.say(managers), "two");
}

#[test]
fn objects_are_changed_by_each_verb() {
    let Some(kubectl) = Kubectl::new() else { return };
    kubectl.ok(&["create", "-f", "-"], &pod("web"));
    let again = kubectl.fails(&["create", "-f", "-"], &pod("web"));
    assert!(again.contains("(AlreadyExists)"), "{again}");
    kubectl.say("label pod web tier=front");
    kubectl.say("annotate pod web note=x");
    kubectl.say(r#"patch pod web --type=merge -p {"spec":{"hostname":"w"}}"#);
    kubectl
        .say(r#"patch pod web --type=json -p [{"op":"add","path":"/spec/subdomain","value":"s"}]"#);
    kubectl.say(r#"patch pod web -p {"spec":{"containers":[{"name":"main","image":"b:1"}]}}"#);
    kubectl.say(
        r#"patch pod web --subresource=status --type=merge -p {"status":{"phase":"Running"}}"#,
    );
    assert_eq!(kubectl.say("edit pod web"), "pod/web edited\n");
    let pod_now: Value = serde_json::from_str(&kubectl.say("get pod web -o json")).expect("JSON");
    assert_eq!(pod_now["metadata"]["labels"], json!({"app": "web", "tier": "front"}));
    assert_eq!(pod_now["metadata"]["annotations"]["note"], "x");
    assert_eq!(pod_now["status"]["phase"], "Running");
    let spec = &pod_now["spec"];
    assert_eq!(
        (&spec["hostname"], &spec["subdomain"], &spec["nodeName"]),
        (&json!("w"), &json!("s"), &json!("two"))
    );
    assert_eq!(spec["containers"], json!([{"name": "main", "image": "b:1"}]));

    kubectl.ok(&["replace", "-f", "-"], &pod("web"));
    assert_eq!(kubectl.say("get pod web -o jsonpath={.spec.nodeName}{.spec.hostname}"), "one");
    let mut stale = pod_now.clone();
    stale["spec"]["nodeName"] = "three".into();
    let conflict = kubectl.fails(&["replace", "-f", "-"], &stale);
    assert!(conflict.contains("the object has been modified"), "{conflict}");

    // What it makes of its flags itself it sends in another form.
    kubectl.say("create namespace shop");
    kubectl.say("create configmap c --from-literal=a=1 --from-literal=b=");
    assert_eq!(kubectl.say("get cm c -o jsonpath={.data}"), r#"{"a":"1","b":""}"#);
    kubectl.say("create deployment web --image=a:1 --replicas=0 --port=80 -- sleep 1");
    let container = "get deploy web -o jsonpath={.spec.template.spec.containers}";
    let container: Value = serde_json::from_str(&kubectl.say(container)).expect("JSON");
    let expected = json!([{
        "name": "a", "image": "a:1", "command": ["sleep", "1"], "resources": {},
        "ports": [{"containerPort": 80}],
    }]);
    assert_eq!(container, expected);
    assert_eq!(words(&kubectl.say("get deploy"), 1)[..2], ["web", "0"]);
    assert_eq!(kubectl.say("scale deployment web --replicas=3"), "deployment.apps/web scaled\n");
    assert_eq!(words(&kubectl.say("get deploy"), 1)[..2], ["web", "3"]);
}

#[test]
fn unknown_fields_are_refused_or_told() {
    let Some(kubectl) = Kubectl::new() else { return };
    let mut wrong = pod("web");
    wrong["spec"]["foo"] = 1.into();
    let refused = kubectl.fails(&["create", "-f", "-"], &wrong);
    assert!(refused.contains("strict decoding error: unknown field \"spec.foo\""), "{refused}");
    let warned = kubectl.run(&["create", "--validate=warn", "-f", "-"], &wrong);
    assert!(warned.status.success());
    assert_eq!(String::from_utf8_lossy(&warned.stderr), "Warning: unknown field \"spec.foo\"\n");
    wrong["metadata"]["name"] = "api".into();
    let silent = kubectl.run(&["create", "--validate=ignore", "-f", "-"], &wrong);
    assert!(silent.status.success() && silent.stderr.is_empty());
    let wrong = kubectl.fails(&["create", "-f", "-"], &pod("Web"));
    assert!(
        wrong.starts_with("The Pod \"Web\" is invalid: metadata.name: Invalid value"),
        "{wrong}"
    );
}

#[test]
fn a_deletion_waits_for_finalizers() {
    let Some(kubectl) = Kubectl::new() else { return };
    let mut stuck = pod("stuck");
    stuck["metadata"]["finalizers"] = json!(["example.com/wait"]);
    kubectl.ok(&["create", "-f", "-"], &stuck);
    kubectl.ok(&["create", "-f", "-"], &pod("web"));
    let mut deletion = kubectl.start(&["delete", "pod", "stuck"]);
    let mut waiting = kubectl.start(&["wait", "--for=delete", "pod/stuck", "--timeout=300s"]);
    while kubectl.say("get pod stuck -o jsonpath={.metadata.deletionTimestamp}").is_empty() {
        // One that has failed would leave the loop nothing to wait for.
        assert!(deletion.0.try_wait().expect("a state").is_none(), "it waits");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(deletion.0.try_wait().expect("a state").is_none(), "it waits");
    kubectl
        .say(r#"patch pod stuck --type=json -p [{"op":"remove","path":"/metadata/finalizers"}]"#);
    assert!(deletion.0.wait().expect("it ends").success());
    assert!(waiting.0.wait().expect("it ends").success());

    let node = "--for=jsonpath={.spec.nodeName}=two";
    let mut waiting = kubectl.start(&["wait", node, "pod/web", "--timeout=300s"]);
    kubectl.say(r#"patch pod web --type=merge -p {"spec":{"nodeName":"two"}}"#);
    assert!(waiting.0.wait().expect("it ends").success());
    assert_eq!(kubectl.say("delete pod -l app=none"), "No resources found\n");
    kubectl.say("delete pod web --dry-run=server");
    assert_eq!(kubectl.say("get pods -o name"), "pod/web\n");
    kubectl.say("delete pod web --grace-period=0 --force");
    kubectl.ok(&["create", "-f", "-"], &pod("a"));
    kubectl.say("delete pods --all");
    assert_eq!(kubectl.say("get pods -o name"), "");
}

#[test]
fn a_watch_shows_lines_as_they_come() {
    let Some(kubectl) = Kubectl::new() else { return };
    kubectl.ok(&["create", "-f", "-"], &pod("a"));
    let mut watch = kubectl.start(&["get", "pods", "-w", "--output-watch-events", "-o", "wide"]);
    let mut lines = BufReader::new(watch.0.stdout.take().expect("an output")).lines();
    let mut next = || lines.next().expect("a line").expect("a text");
    assert!(next().starts_with("EVENT"));
    assert!(next().starts_with("ADDED"));
    // Its list is told: what comes now it has from its watch.
    kubectl.ok(&["create", "-f", "-"], &pod("b"));
    kubectl.say(r#"patch pod a --type=merge -p {"spec":{"nodeName":"two"}}"#);
    kubectl.say("delete pod b");
    let told: Vec<_> = (0..3).map(|_| next()).collect();
    let told: Vec<_> =
        told.iter().map(|line| line.split_whitespace().take(3).collect::<Vec<_>>()).collect();
    assert_eq!(told, [["ADDED", "b", "one"], ["MODIFIED", "a", "two"], ["DELETED", "b", "one"]]);
}
