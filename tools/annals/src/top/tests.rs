//! Pictures of made-up stores, as text.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::draw::draw;
use super::model::{Files, Model, Sample, Sort};
use super::text;
use crate::live::{HINT, Live};

/// A file of a program that has been at it for so many seconds.
fn live(seconds: u64, commits: u64) -> Live {
    let text = format!(
        r#"{{"schema":"annals.live/1","pid":4711,"written":{written},"interval_seconds":1,
        "stats":{{"revision":{revision},"durable_revision":{revision},"compacted_revision":900,
        "batches":{batches},"batch_transactions":{commits},"conflicts":{commits},"memtable_bytes":1048576,
        "generations":2,"cache_bytes":2048,"cache_bytes_max":67108864,"background_bytes":{written},
        "head":{{"files":3,"bytes":98765432,"entries":1234567}},"l0":{{"files":1,"bytes":5000,"entries":60}},
        "live_bytes":98000000,"history_bytes":1000000,"dead_bytes":765432,"wal_files":2,"wal_bytes":67108864,
        "commit_latency":{{"max_nanos":9000000,"buckets":[[900,{commits}],[1000000,{seconds}]]}},
        "sync_latency":{{"max_nanos":9000000,"buckets":[[250000,{batches}]]}},
        "watches":10000,"watches_behind":2,"watch_batches":{batches},
        "leases":77,"lease_next_micros":1500000,"pinned":3,"oldest_pinned":901}},
        "pins":[{{"revision":901,"count":2}}],
        "slowest_watches":[{{"start":"/pods/","end":"/pods0","due":950}}]}}"#,
        written = 1_000_000 * seconds,
        revision = 1_000 + commits,
        batches = commits / 50,
    );
    Live::of(&text).unwrap()
}

fn sample(live: Result<Live, String>) -> Sample {
    let files = live.as_ref().map_or_else(|_| Files::default(), Files::of_live);
    Sample { files, live }
}

fn frame(model: &Model, (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, model)).unwrap();
    text(terminal.backend().buffer())
}

fn model(samples: Vec<Result<Live, String>>) -> Model {
    let mut model = Model::new("some/store".into());
    for live in samples {
        model.add(sample(live));
    }
    model
}

#[test]
fn a_picture_has_the_rates_between_two_looks() {
    let model = model(vec![Ok(live(10, 1_000)), Ok(live(12, 5_000))]);
    let expected = include_str!("frame.txt");
    let shown = frame(&model, (100, 30));
    assert!(shown == expected, "{shown}");
}

#[test]
fn the_figures_are_those_of_the_picture() {
    let figures = model(vec![Ok(live(10, 1_000)), Ok(live(12, 5_000))]).figures();
    assert_eq!(
        (&figures["commits_per_second"], &figures["sync_p50_nanos"]),
        (&2_000.0.into(), &250_000.into())
    );
    assert_eq!((&figures["watches_behind"], &figures["revision"]), (&2.into(), &6_000.into()));
    let figures = model(vec![Err(HINT.into())]).figures();
    for name in ["commits_per_second", "commit_p99_nanos", "watches"] {
        assert!(figures[name].is_null(), "{name}");
    }
    assert_eq!(figures["live"], false);
}

#[test]
fn one_look_has_no_rates_and_the_latencies_of_all_time() {
    let shown = frame(&model(vec![Ok(live(10, 1_000))]), (100, 30));
    assert!(shown.contains("commit *") && shown.contains("since it was opened"), "{shown}");
    let line = shown.lines().find(|line| line.contains("commits  ")).unwrap();
    assert!(line.split('|').next().unwrap().contains(" -"), "{line}");
}

#[test]
fn the_same_file_read_twice_is_no_second_look() {
    let mut model = model(vec![Ok(live(10, 1_000)), Ok(live(12, 5_000))]);
    let before = frame(&model, (100, 30));
    model.add(sample(Ok(live(12, 5_000))));
    assert_eq!(frame(&model, (100, 30)), before);
    assert_eq!(model.commits, [2_000]);
}

#[test]
fn another_process_begins_anew() {
    let mut other = model(vec![Ok(live(10, 5_000)), Ok(live(12, 1_000))]);
    assert_eq!(other.rate("batch_transactions"), None, "the figure went down");
    other.add(sample(Err("gone".into())));
    other.add(sample(Ok(live(14, 2_000))));
    assert_eq!(other.rate("batch_transactions"), None, "there was nothing between");
    assert!(frame(&other, (100, 30)).contains("pid 4711"));
}

#[test]
fn without_a_program_it_says_how_to_have_one_tell() {
    let shown = frame(&model(vec![Err(HINT.into())]), (100, 30));
    assert!(shown.contains("live_interval_seconds(1)") && shown.contains("files"), "{shown}");
    assert!(!shown.contains("latency") && !shown.contains("pid"), "{shown}");
}

#[test]
fn a_held_picture_stays_and_files_are_sorted_by_turns() {
    let mut model = model(vec![Ok(live(10, 1_000))]);
    model.pause();
    model.add(sample(Ok(live(12, 5_000))));
    let shown = frame(&model, (100, 30));
    assert!(shown.contains("HELD") && shown.contains("revision 2,000"), "{shown}");
    model.pause();
    model.sort();
    let first = |model: &Model| {
        let shown = frame(model, (100, 30));
        let rows = shown.lines().skip_while(|line| !line.contains("kind")).skip(1);
        let row = rows.map(|row| row.trim_start_matches(|c: char| !c.is_ascii())).next();
        row.unwrap().split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!((model.sort, first(&model)), (Sort::Bytes, "head".into()));
    model.sort();
    assert_eq!((model.sort, first(&model)), (Sort::Entries, "head".into()));
    model.sort();
    assert_eq!((model.sort, first(&model)), (Sort::Flow, "log".into()));
}

#[test]
fn it_draws_on_any_room() {
    let model = model(vec![Ok(live(10, 1_000)), Ok(live(12, 5_000))]);
    for size in [(1, 1), (3, 40), (20, 8), (33, 12), (80, 24), (300, 100)] {
        assert_eq!(frame(&model, size).lines().count(), usize::from(size.1));
    }
}

#[test]
fn what_is_no_such_file_is_not_taken_for_one() {
    for text in [
        "",
        "{}",
        "[1]",
        r#"{"schema":"annals.live/2","stats":{}}"#,
        r#"{"schema":"annals.live/1"}"#,
    ] {
        assert!(Live::of(text).is_none(), "{text}");
    }
    let empty =
        Live::of(r#"{"schema":"annals.live/1","stats":{"commit_latency":{"buckets":[[],[1],7]}}}"#);
    let shown = frame(&model(vec![Ok(empty.unwrap())]), (100, 30));
    assert!(shown.contains("revision 0"), "{shown}");
}
