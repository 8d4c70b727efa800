//! Watches of objects as streams: a task hears the same as a thread, is woken, and waits for many.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread;

use annals::object::{
    CreateOptions, ListOptions, ObjectWatch, Reason, TypedEvent, UpdateOptions, WatchEvent,
    WatchEventKind, WatchOptions,
};
use futures_core::Stream;
use serde_json::Value;

use super::kit::{create, pod, pod_kind, pods, store, version};
use super::tasks::block_on;
use super::under::{Objects, Store};

fn next<S: Stream + Unpin>(watch: &mut S) -> Option<S::Item> {
    block_on(poll_fn(|context| Pin::new(&mut *watch).poll_next(context)))
}

fn from_now(objects: &Objects) -> WatchOptions {
    let list = objects.list("", &ListOptions::default()).expect("it is listed");
    WatchOptions { resource_version: list.resource_version, ..WatchOptions::default() }
}

fn label(objects: &Objects, name: &str, value: &str) -> Value {
    let labelled = objects.modify("default", name, &UpdateOptions::default(), |object| {
        object["metadata"]["labels"] = serde_json::json!({"label": value});
        Ok(())
    });
    labelled.expect("it is changed")
}

#[test]
fn a_task_is_told_what_a_thread_is_told() {
    let pods = pods();
    for number in 0..100 {
        create(&pods, pod(&format!("web-{number}")));
    }
    let options = WatchOptions {
        send_initial_events: Some(true),
        allow_bookmarks: true,
        ..WatchOptions::default()
    };
    let mut by_task = pods.watch("", &options).unwrap();
    let mut by_thread = pods.watch("", &options).unwrap();
    let writer = {
        let pods = pods.clone();
        thread::spawn(move || {
            for number in 0..100 {
                label(&pods, &format!("web-{number}"), "late");
            }
        })
    };
    let told: Vec<_> = (0..201).map(|_| next(&mut by_task).expect("it goes on")).collect();
    writer.join().unwrap();
    let same: Vec<_> = by_thread.by_ref().take(201).collect();
    assert_eq!(told, same);
    let bookmarks = told.iter().filter(|event| event.kind == WatchEventKind::Bookmark);
    assert_eq!(bookmarks.count(), 1, "behind what there was");
}

#[test]
fn a_task_that_waits_is_woken_by_what_happens_and_by_the_end() {
    let pods = pods();
    let mut watch = pods.watch("", &from_now(&pods)).unwrap();
    let handle = watch.handle();
    let (told, heard) = std::sync::mpsc::channel();
    let waiting = thread::spawn(move || {
        while let Some(event) = next(&mut watch) {
            told.send(event.object).unwrap();
        }
        // And so it stays.
        assert_eq!(next(&mut watch), None);
    });
    let made = create(&pods, pod("web"));
    assert_eq!(heard.recv().unwrap(), made);
    let labelled = label(&pods, "web", "a");
    assert_eq!(heard.recv().unwrap(), labelled);
    handle.cancel();
    waiting.join().unwrap();
    assert!(heard.recv().is_err(), "nothing else was told");
}

#[test]
fn a_stream_tells_why_it_ends() {
    let store: Arc<Store> = store();
    let pods = Objects::new(Arc::clone(&store), pod_kind());
    let made = create(&pods, pod("web"));
    label(&pods, "web", "a");
    store.compact(store.revision()).unwrap();
    label(&pods, "web", "b");
    let resource_version = (version(&made).parse::<u64>().unwrap() - 1).to_string();
    let options = WatchOptions { resource_version, ..WatchOptions::default() };
    let mut watch = pods.watch("", &options).unwrap();
    let Some(WatchEvent { kind: WatchEventKind::Error(status), .. }) = next(&mut watch) else {
        panic!("it is too old")
    };
    assert_eq!(status.reason(), Reason::Expired);
    assert_eq!(next(&mut watch), None);
}

/// One thread that waits for many watches at once.
#[test]
fn one_thread_waits_for_many_watches() {
    let pods = pods();
    let mut watches: Vec<ObjectWatch<Store>> = (0..200)
        .map(|number| {
            let namespace = format!("ns-{number}");
            let mut options = from_now(&pods);
            options.allow_bookmarks = false;
            pods.watch(&namespace, &options).unwrap()
        })
        .collect();
    let writer = {
        let pods = pods.clone();
        thread::spawn(move || {
            for number in (0..200).rev() {
                let namespace = format!("ns-{number}");
                pods.create(&namespace, pod("web"), &CreateOptions::default()).unwrap();
            }
        })
    };
    let mut told = vec![0; watches.len()];
    block_on(poll_fn(|context| {
        for (watch, told) in watches.iter_mut().zip(&mut told) {
            while let Poll::Ready(event) = Pin::new(&mut *watch).poll_next(context) {
                assert_eq!(event.expect("it goes on").kind, WatchEventKind::Added);
                *told += 1;
            }
        }
        if told.iter().all(|told| *told == 1) { Poll::Ready(()) } else { Poll::Pending }
    }));
    writer.join().unwrap();
}

#[test]
fn values_of_a_type_are_told_to_a_task() {
    let pods = pods();
    let typed = pods.typed::<Value>();
    let mut watch = typed.watch("", &from_now(&pods)).unwrap();
    let made = create(&pods, pod("web"));
    assert_eq!(next(&mut watch), Some(TypedEvent::Added(made)));
}
