//! The text of the file, and that it is bounded whatever there is.

use serde_json::Value;

use super::*;
use crate::options::Options;
use crate::vfs::MemoryVfs;

fn live(store: &Store) -> Live {
    let interval = Duration::from_secs(1);
    Live { door: store.engine().door(), rooms: store.rooms(), interval }
}

fn store() -> Store {
    Options::new().vfs(Arc::new(MemoryVfs::new())).background(false).open("store").unwrap()
}

fn parsed(live: &Live) -> Value {
    serde_json::from_str(&live.text()).unwrap()
}

#[test]
fn it_has_every_figure_by_its_name_in_order() {
    let store = store();
    store.put("a", "1").unwrap();
    let json = parsed(&live(&store));
    assert_eq!(
        (&json["schema"], &json["pid"]),
        (&"annals.live/1".into(), &std::process::id().into())
    );
    let debug = format!("{:#?}", store.stats());
    let members = debug.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(": "));
    let names: Vec<&str> =
        members.map(|(name, _)| name).filter(|name| !name.starts_with(' ')).collect();
    let text = live(&store).text();
    let places: Vec<Option<usize>> =
        names.iter().map(|name| text.find(&format!("\"{name}\":"))).collect();
    assert!(
        names.len() > 45 && places.iter().all(Option::is_some) && places.is_sorted(),
        "{names:?}"
    );
    assert_eq!(json["stats"].as_object().unwrap().len(), names.len());
    assert_eq!(json["stats"]["sync_latency"]["count"], 1);
    #[cfg(feature = "serde")]
    assert_eq!(json["stats"], serde_json::to_value(store.stats()).unwrap());
}

#[test]
fn pins_and_slow_watches_are_the_oldest_and_no_more_than_are_told() {
    let store = store();
    let watches: Vec<_> = (0..100)
        .map(|n| store.watch([&[n, b'"', 0xff][..], &[b'k'; 5_000]].concat()).start().unwrap())
        .collect();
    let all = store.watch_range(..).start().unwrap();
    for n in 0..100 {
        store.put([&[n, b'"', 0xff][..], &[b'k'; 5_000]].concat(), "").unwrap();
    }
    let views: Vec<_> =
        (2..=101).chain([2, 2]).map(|revision| store.at(revision).unwrap()).collect();
    assert_eq!(
        parsed(&live(&store))["slowest_watches"],
        Value::Array(Vec::new()),
        "nobody has looked yet"
    );
    store.run_background().unwrap();
    let text = live(&store).text();
    assert!(text.len() < BYTES_MAX / 2, "{}", text.len());
    let json = parsed(&live(&store));
    assert_eq!(json["pins"][0], serde_json::json!({ "revision": 2, "count": 3 }));
    let slow = json["slowest_watches"].as_array().unwrap();
    assert_eq!((json["pins"].as_array().unwrap().len(), slow.len()), (TOLD_MAX, TOLD_MAX));
    assert!(slow.iter().map(|watch| watch["due"].as_u64().unwrap()).is_sorted());
    assert_eq!(slow[0]["due"], 2);
    let starts: Vec<&str> = slow.iter().map(|watch| watch["start"].as_str().unwrap()).collect();
    assert!(
        starts.contains(&"") && starts.iter().any(|start| start.starts_with("\\x00\\\"\\xffkkk")),
        "{starts:?}"
    );
    drop((watches, all, views));
}
