//! Objects changed by a function: the status alone, and what is created where there is nothing.

use std::thread;

use annals::object::{
    Kind, KindStrategy, ListOptions, Preconditions, Reason, Result, Status, UpdateOptions,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::kit::{create, generation, get, pod, pods, pods_by, refused, store, version};
use super::under::Objects;

fn with_status() -> Objects {
    pods_by(KindStrategy::new().with_status())
}

fn none() -> UpdateOptions {
    UpdateOptions::default()
}

#[test]
fn a_status_is_modified_and_nothing_else() {
    let pods = with_status();
    let made = create(&pods, pod("web"));
    let changed = pods.modify_status("default", "web", &none(), |pod| {
        pod["status"] = json!({"phase": "Running"});
        pod["spec"] = Value::Null;
        pod["metadata"]["labels"] = json!({"a": "b"});
        Ok(())
    });
    let changed = changed.unwrap();
    assert_eq!(changed["status"], json!({"phase": "Running"}));
    assert_eq!((&changed["spec"], generation(&changed)), (&made["spec"], 1));
    assert!(changed["metadata"].get("labels").is_none());
    // What says nothing new is not written.
    let again = pods.modify_status("default", "web", &none(), |_| Ok(())).unwrap();
    assert_eq!(again, changed);
    // What `modify` changes of it, is not.
    let kept = pods.modify("default", "web", &none(), |pod| {
        pod["status"] = json!({"phase": "Failed"});
        Ok(())
    });
    assert_eq!(kept.unwrap(), changed);
    let dry = UpdateOptions { dry_run: true, ..none() };
    pods.modify_status("default", "web", &dry, |pod| {
        pod["status"] = Value::Null;
        Ok(())
    })
    .unwrap();
    assert_eq!(get(&pods, "web").unwrap(), changed);
}

#[test]
fn a_status_that_cannot_be_modified_is_refused() {
    let pods = with_status();
    create(&pods, pod("web"));
    let nothing = |_: &mut Value| Ok(());
    let other = UpdateOptions { preconditions: Preconditions::uid("other"), ..none() };
    let creating = UpdateOptions { force_allow_create: true, ..none() };
    let table = [
        (pods.modify_status("default", "gone", &none(), nothing), 404),
        (pods.modify_status("default", "gone", &creating, nothing), 404),
        (pods.modify_status("default", "web", &other, nothing), 409),
        (pods.modify_status("default", "web", &none(), |_| Err(Status::bad_request("no"))), 400),
        // It is no part of its own here.
        (pods_by(KindStrategy::new()).modify_status("default", "web", &none(), nothing), 404),
    ];
    for (answer, code) in table {
        assert_eq!(refused(answer).code(), code);
    }
}

#[test]
fn no_status_of_many_is_lost() {
    let pods = with_status();
    create(&pods, pod("web"));
    thread::scope(|scope| {
        for number in 0..4 {
            let pods = &pods;
            scope.spawn(move || {
                for _ in 0..25 {
                    let told = pods.modify_status("default", "web", &none(), |pod| {
                        let count = pod["status"]["count"].as_u64().unwrap_or(0);
                        pod["status"]["count"] = (count + 1).into();
                        Ok(())
                    });
                    told.expect("it is told in the end");
                    let spec = pods.modify("default", "web", &none(), |pod| {
                        let count = pod["spec"]["count"].as_u64().unwrap_or(0);
                        pod["spec"]["count"] = (count + 1).into();
                        pod["status"]["count"] = number.into();
                        Ok(())
                    });
                    spec.expect("it is changed in the end");
                }
            });
        }
    });
    let web = get(&pods, "web").unwrap();
    assert_eq!((&web["status"]["count"], &web["spec"]["count"]), (&json!(100), &json!(100)));
    assert_eq!(generation(&web), 101, "a status makes no generation");
}

#[test]
fn what_is_not_there_is_created_and_what_is_there_is_modified() {
    let pods = pods();
    let count = |new: Value| {
        pods.create_or_modify("default", "web", new, &none(), |pod| {
            let is_new = version(pod).is_empty();
            pod["spec"]["count"] = (pod["spec"]["count"].as_u64().unwrap_or(0) + 1).into();
            pod["spec"]["new"] = is_new.into();
            Ok(())
        })
    };
    let (made, is_new) = count(json!({"spec": {"count": 10}})).unwrap();
    assert!(is_new);
    assert_eq!(made["spec"], json!({"count": 11, "new": true}));
    assert_eq!((&made["kind"], &made["apiVersion"]), (&json!("Pod"), &json!("v1")));
    assert_eq!((generation(&made), get(&pods, "web").unwrap()), (1, made.clone()));
    let (changed, is_new) = count(json!({"spec": {"count": 10}})).unwrap();
    assert!(!is_new);
    assert_eq!(changed["spec"], json!({"count": 12, "new": false}));
    assert_eq!(changed["metadata"]["uid"], made["metadata"]["uid"]);

    let named = |name: &str| json!({"metadata": {"name": name}});
    let mut rename = |pod: &mut Value| {
        pod["metadata"]["name"] = "other".into();
        Ok(())
    };
    let nothing = |_: &mut Value| Ok(());
    let create_or = |name: &str, new: Value, change: &mut dyn FnMut(&mut Value) -> Result<()>| {
        refused(pods.create_or_modify("default", name, new, &none(), change)).code()
    };
    assert_eq!(create_or("new", named("other"), &mut { nothing }), 400);
    assert_eq!(create_or("new", json!({}), &mut rename), 400);
    assert_eq!(create_or("web", json!({}), &mut rename), 400);
    assert_eq!(create_or("new", json!({"kind": "Other"}), &mut { nothing }), 400);
    assert_eq!(create_or("Not A Name", json!({}), &mut { nothing }), 422);
    let uid = UpdateOptions { preconditions: Preconditions::uid("other"), ..none() };
    let other = pods.create_or_modify("default", "web", json!({}), &uid, nothing);
    assert_eq!(refused(other).code(), 409);
    assert_eq!(refused(get(&pods, "other")).reason(), Reason::NotFound);
    assert_eq!(refused(get(&pods, "new")).reason(), Reason::NotFound);
}

#[test]
fn many_who_create_or_modify_make_one_object() {
    let pods = pods();
    let count = || {
        let counted = pods.create_or_modify("default", "web", json!({}), &none(), |pod| {
            pod["count"] = (pod["count"].as_u64().unwrap_or(0) + 1).into();
            Ok(())
        });
        u64::from(counted.expect("it is counted in the end").1)
    };
    let made: u64 = thread::scope(|scope| {
        let all: Vec<_> =
            (0..4).map(|_| scope.spawn(|| (0..25).map(|_| count()).sum::<u64>())).collect();
        all.into_iter().map(|each| each.join().unwrap()).sum()
    });
    assert_eq!((made, &get(&pods, "web").unwrap()["count"]), (1, &json!(100)));
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Counter {
    metadata: Value,
    count: u64,
    #[serde(default)]
    status: Option<u64>,
}

#[test]
fn values_of_a_type_are_modified_and_told_page_by_page() {
    let kind = Kind::new("v1", "Counter", "counters");
    let counters = Objects::new(store(), kind).strategy(KindStrategy::new().with_status());
    let typed = counters.typed::<Counter>();
    let new = Counter { metadata: json!({}), count: 0, status: None };
    for name in ["a", "b", "a"] {
        typed
            .create_or_modify("default", name, &new, &none(), |counter| {
                counter.count += 1;
                Ok(())
            })
            .unwrap();
    }
    let told = typed.modify_status("default", "b", &none(), |counter| {
        counter.status = Some(counter.count);
        counter.count = 7;
        Ok(())
    });
    assert_eq!(told.map(|b| (b.count, b.status)).unwrap(), (1, Some(1)));
    create(&counters, json!({"metadata": {"name": "c"}, "count": "none"}));
    create(&counters, json!({"metadata": {"name": "d"}, "count": 4}));
    let options = ListOptions { limit: 1, ..ListOptions::default() };
    let pages: Vec<_> = typed.pages("default", &options).collect();
    let counts = pages.iter().map(|page| match page {
        Ok(page) => page.items[0].count * 10 + page.remaining_item_count.unwrap_or(0),
        Err(status) => u64::from(status.code()),
    });
    assert_eq!(counts.collect::<Vec<_>>(), [23, 12, 500, 40]);
}
