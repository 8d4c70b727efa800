//! Lists and watches make up a whole, whatever others write meanwhile.
//!
//! row 27: list_and_watch_tell_the_whole_history
//! row 45: list_and_watch_tell_the_whole_history

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use annals::object::WatchEventKind::{Added, Bookmark, Deleted};
use annals::object::{ListOptions, Preconditions, WatchOptions};
use serde_json::Value;
use serde_json::json;

use super::watch::{all, from};
use super::world::{World, number, recursive};

/// Clients that list, and watch from the list's version, end with what there is, and have seen every change behind
/// the list once, in order, while others write.
#[test]
fn list_and_watch_tell_the_whole_history() {
    const WRITERS: u64 = 4;
    const WRITES: u64 = 400;
    let world = &World::new();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                for n in 0..WRITES {
                    let key = format!("/pods/ns/{:02}", (n * 7 + writer) % 20);
                    world.update(&key, |pod| {
                        pod["metadata"]["name"] = key[9..].into();
                        pod["spec"] = json!({"writer": writer, "n": n});
                    });
                    if n % 5 == writer {
                        let none = Preconditions::none();
                        // Another may have deleted it already.
                        drop(world.pods.delete(&key, &none, &mut |_| Ok(()), None));
                    }
                }
            });
        }
        for client in 0..4 {
            scope.spawn(move || follow(world, client % 2 == 0));
        }
    });
    // And a list with what comes behind it in one stream.
    let mut state = BTreeMap::new();
    let options = WatchOptions { send_initial_events: Some(true), allow_bookmarks: true, ..all() };
    for event in world.watch("/pods", &options) {
        if event.kind == Bookmark {
            break;
        }
        state.insert(name_of(&event.object), event.object);
    }
    assert_eq!(state.len(), world.list("/pods").items.len());
}

fn follow(world: &World, in_pages: bool) {
    let mut options = ListOptions { limit: if in_pages { 3 } else { 0 }, ..recursive() };
    let (mut state, mut listed) = (BTreeMap::new(), 0);
    loop {
        let page = world.pods.list("/pods", &options).unwrap();
        for object in page.items {
            state.insert(name_of(&object), object);
        }
        listed = if listed == 0 { page.resource_version.parse().unwrap() } else { listed };
        assert_eq!(page.resource_version, listed.to_string());
        options.continue_token = page.continue_token;
        if options.continue_token.is_empty() {
            break;
        }
    }
    let mut last = listed;
    let mut watch = world.watch("/pods", &from(listed));
    while let Some(event) = watch.next_timeout(Duration::from_millis(500)) {
        let (at, key) = (number(&event.object), name_of(&event.object));
        // Each revision changes one pod here.
        assert_eq!(at, last + 1, "the next revision, and no other");
        last = at;
        let before = match event.kind {
            Deleted => state.remove(&key),
            _ => state.insert(key, event.object.clone()),
        };
        assert_eq!(before.is_some(), event.kind != Added, "{event:?}");
    }
    assert!(last >= listed);
    let there = world.pods.list(
        "/pods",
        &ListOptions { resource_version: last.to_string(), limit: 1000, ..recursive() },
    );
    let there: Vec<_> = there.unwrap().items;
    assert_eq!(state.into_values().collect::<Vec<_>>(), there);
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}
