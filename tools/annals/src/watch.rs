//! `watch`: what changes, as it comes, also in a store that a program writes.
//!
//! The tool reads files, so it learns of a commit when the program has made it durable. It looks from time to
//! time whether the log or the list of files has changed, and opens the store anew only then.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use annals::{Batch, ChangeKind, Event, KeyRange, Store, Watch};
use clap::Args;
use serde_json::{Value, json};

use crate::args::{Global, parse_limit};
use crate::at::{At, rfc3339};
use crate::bytes::{self, json as spell, show};
use crate::exit::Outcome;
use crate::output::{Format, Output};
use crate::reads::{kv_json, metadata_json};

/// How often it looks whether something has come.
const INTERVAL: Duration = Duration::from_millis(100);

/// Arguments of `watch`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(
    after_help = "Every revision is told once, in order, with all of its changes to these keys. With -o json or ndjson
each is a line of JSON. It goes on until it is interrupted; what was told is durable. Exits 6 when what
comes next was compacted before it could be told.

Examples:
  $ annals -C store watch --prefix /pods/ --once       # without --once it goes on as they come
  $ annals -C store watch --prefix /pods/ --from 2 --once
  $ annals -C store watch /flags/dark --from 2 --limit 2 -o ndjson --prev-kv"
)]
pub(crate) struct WatchArgs {
    /// The key; without one and without --prefix all keys.
    #[arg(value_name = "KEY")]
    key: Option<OsString>,
    /// All keys that begin with this.
    #[arg(long, value_name = "PREFIX", conflicts_with = "key")]
    prefix: Option<OsString>,
    /// The first revision to tell, or the time after which; without it what comes from now on.
    #[arg(long, value_name = "REV|TIME", default_value = "latest", allow_negative_numbers = true)]
    from: At,
    /// Tell what each key was before, too (not in a table).
    #[arg(long)]
    prev_kv: bool,
    /// Leave the values out.
    #[arg(long)]
    keys_only: bool,
    /// Leave out what is put.
    #[arg(long)]
    no_puts: bool,
    /// Leave out what is deleted.
    #[arg(long)]
    no_deletes: bool,
    /// End when everything that is there has been told.
    #[arg(long)]
    once: bool,
    /// End after so many revisions; 0 for never.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = parse_limit, allow_negative_numbers = true)]
    limit: u64,
}

/// `watch`: what changes, as it comes.
pub(crate) fn watch(global: &Global, args: &WatchArgs, out: &mut Output) -> Outcome {
    let mut left = if args.limit == 0 { u64::MAX } else { args.limit };
    let mut from = args.from.0;
    loop {
        let seen = files(global.data()?);
        let store = global.read()?;
        let mut watch = begin(&store, args, from)?;
        while left > 0
            && let Some(batch) = watch.next()
        {
            tell(&batch?, args, out)?;
            left -= 1;
        }
        out.flush()?;
        if args.once || left == 0 {
            return Ok(());
        }
        from = watch.resume_revision().into();
        drop((watch, store));
        // Two writes within a tick of the system's clock leave the same time: look once more after the first.
        let settled = seen.iter().all(|(_, _, time)| time.is_none_or(is_past));
        loop {
            sleep(INTERVAL);
            if !settled || files(global.data()?) != seen {
                break;
            }
        }
    }
}

/// Whether a time is so far back that another write has another one.
fn is_past(time: SystemTime) -> bool {
    time.elapsed().is_ok_and(|passed| passed >= INTERVAL)
}

fn begin(store: &Store, args: &WatchArgs, from: annals::At) -> Outcome<Watch> {
    let range = match (&args.key, &args.prefix) {
        (Some(key), _) => KeyRange::key(bytes::of_arg(key)),
        (None, Some(prefix)) => KeyRange::prefix(bytes::of_arg(prefix)),
        (None, None) => KeyRange::all(),
    };
    let mut watch = store.watch_range(range);
    if from != annals::At::Latest {
        watch = watch.from(from);
    }
    if args.prev_kv {
        watch = watch.prev_kv();
    }
    if args.keys_only {
        watch = watch.keys_only();
    }
    if args.no_puts {
        watch = watch.no_puts();
    }
    if args.no_deletes {
        watch = watch.no_deletes();
    }
    Ok(watch.start()?)
}

/// What shows that something has been written: the lengths and times of the list of files and of the log.
fn files(store: &Path) -> Vec<(PathBuf, u64, Option<SystemTime>)> {
    let directories = [store.to_path_buf(), store.join("wal")];
    let entries = directories.iter().flat_map(fs::read_dir).flatten().flatten();
    let of_entry = |entry: fs::DirEntry| {
        let meta = entry.metadata().ok()?;
        meta.is_file().then(|| (entry.path(), meta.len(), meta.modified().ok()))
    };
    let mut files: Vec<_> = entries.filter_map(of_entry).collect();
    files.sort();
    files
}

fn tell(batch: &Batch, args: &WatchArgs, out: &mut Output) -> Outcome {
    let mut text = Vec::new();
    match out.format() {
        Format::Json | Format::Ndjson => {
            text = serde_json::to_vec(&form(batch, args)).unwrap_or_default();
            text.push(b'\n');
        }
        Format::Table => {
            for event in batch.events() {
                let (key, value) = (show(&event.kv.key, 120), show(&event.kv.value, 60));
                let time = rfc3339(batch.time());
                let line = match event.kind {
                    ChangeKind::Delete => format!("delete {key}"),
                    ChangeKind::Put if args.keys_only => format!("put {key}"),
                    ChangeKind::Put => format!("put {key} = {value}"),
                };
                text.extend_from_slice(format!("{} {time} {line}\n", batch.revision()).as_bytes());
            }
        }
        Format::Raw => {
            for event in batch.events() {
                let head = format!("{} {} ", batch.revision(), op(event));
                text.extend_from_slice(head.as_bytes());
                text.extend_from_slice(&event.kv.key);
                text.push(b'\n');
                if event.kind == ChangeKind::Put && !args.keys_only {
                    text.extend_from_slice(&event.kv.value);
                    text.push(b'\n');
                }
            }
        }
    }
    out.bytes(&text)?;
    out.flush()
}

fn op(event: &Event) -> &'static str {
    match event.kind {
        ChangeKind::Put => "put",
        ChangeKind::Delete => "delete",
    }
}

fn form(batch: &Batch, args: &WatchArgs) -> Value {
    let event = |event: &Event| {
        let mut form = match event.kind {
            ChangeKind::Put => kv_json(&event.kv, !args.keys_only),
            ChangeKind::Delete => json!({ "key": spell(&event.kv.key) }),
        };
        form["op"] = op(event).into();
        if let Some(prev) = &event.prev_kv {
            form["prev_kv"] = kv_json(prev, !args.keys_only);
        }
        form
    };
    let events: Vec<Value> = batch.events().iter().map(event).collect();
    let mut form = json!({
        "revision": batch.revision(),
        "time": rfc3339(batch.time()),
        "events": events,
    });
    if !batch.metadata().is_empty() {
        form["metadata"] = metadata_json(batch.metadata());
    }
    form
}
