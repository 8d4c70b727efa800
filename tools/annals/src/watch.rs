//! `watch`: what changes, as it comes, also in a store that a program writes.
//!
//! The tool reads files, so it learns of a commit when the program has made it durable. It looks from time to
//! time whether the log or the list of files has changed, and opens the store anew only then.

use std::ffi::OsString;

use annals::{Batch, ChangeKind, Event, KeyRange, Store, Watch};
use clap::Args;
use serde_json::{Value, json};

use crate::args::{Global, Span, parse_limit};
use crate::at::{self, At, rfc3339};
use crate::bytes::{self, json as spell, show, show_beside};
use crate::exit::Outcome;
use crate::follow::Seen;
use crate::output::{Format, Output};
use crate::reads::{kv_json, metadata_cell, metadata_json};

/// Arguments of `watch`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(
    after_help = "Every revision is told once, in order, with all of its changes to these keys. With -o json or
ndjson each is a line of JSON. It goes on until it is interrupted, or to the end of --until; what
was told is durable. Exits 6 when what comes next was compacted before it could be told.

Examples:
  $ annals -C store watch --prefix /pods/ --once       # without --once it goes on as they come
  $ annals -C store watch --prefix /pods/ --since 2 --once --prev-kv
  $ annals -C store watch /flags/dark --since 24h --limit 2 -o ndjson"
)]
pub(crate) struct WatchArgs {
    /// The key; without one and without --prefix all keys.
    #[arg(value_name = "KEY")]
    key: Option<OsString>,
    /// All keys that begin with this.
    #[arg(long, value_name = "PREFIX", conflicts_with = "key")]
    prefix: Option<OsString>,
    #[command(flatten)]
    span: Span,
    /// Tell what each key was before, too.
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
    let (mut from, mut until) = (None, None);
    let mut seen = Seen::new(global.data()?);
    loop {
        let looked = at::now();
        seen.look();
        let store = global.read()?;
        let last = match until {
            Some(until) => until,
            None => last(&store, args.span.until, looked)?,
        };
        if let Last::Is(_) = last {
            until = Some(last);
        }
        let begin_at = match (from, args.span.since) {
            (None, Some(since)) => first(&store, since)?,
            (from, _) => from,
        };
        if from.is_none() {
            let end = if let Last::Is(last) = last { last } else { u64::MAX };
            args.span.refuse_backward(begin_at, end)?;
        }
        let mut watch = begin(&store, args, begin_at)?;
        while left > 0
            && let Some(batch) = watch.next()
        {
            let batch = batch?;
            if batch.revision() > last.so_far() {
                break;
            }
            // A time that was to come when it was looked for.
            if matches!(args.span.since, Some(At::Time(since)) if batch.time() < since) {
                continue;
            }
            tell(&batch, args, out)?;
            left -= 1;
        }
        out.flush()?;
        let over = matches!(last, Last::Is(last) if store.revision() >= last);
        if args.once || left == 0 || over {
            return Ok(());
        }
        from = Some(watch.resume_revision());
        drop((watch, store));
        seen.wait(match last {
            Last::Open { until, .. } => Some(until),
            Last::Is(_) => None,
        });
    }
}

/// The first revision to tell; `None` for what comes from now on.
fn first(store: &Store, since: At) -> Outcome<Option<u64>> {
    if since == At::Latest {
        return Ok(None);
    }
    Ok(Some(since.first(store)?.unwrap_or_else(|| store.oldest_readable(..).max(2))))
}

/// The last revision to tell.
#[derive(Clone, Copy, Debug)]
enum Last {
    /// This one, be it there or not.
    Is(u64),
    /// It ends at a time that is to come, and nothing that is there is later.
    Open { so_far: u64, until: i64 },
}

impl Last {
    /// The last one of those that are there.
    fn so_far(self) -> u64 {
        match self {
            Self::Is(revision) | Self::Open { so_far: revision, .. } => revision,
        }
    }
}

/// The last revision to tell; one that is not there yet is waited for, and so is a time after that at which the
/// store was looked at.
fn last(store: &Store, until: Option<At>, looked: i64) -> Outcome<Last> {
    Ok(match until {
        None => Last::Is(u64::MAX),
        Some(At::Revision(revision)) => Last::Is(revision),
        Some(At::Time(until)) if until >= looked => {
            let newest = store.revision();
            let so_far = At::Time(until).revision(store)?;
            if so_far < newest { Last::Is(so_far) } else { Last::Open { so_far, until } }
        }
        Some(until) => Last::Is(until.revision(store)?),
    })
}

fn begin(store: &Store, args: &WatchArgs, from: Option<u64>) -> Outcome<Watch> {
    let range = match (&args.key, &args.prefix) {
        (Some(key), _) => KeyRange::key(bytes::of_arg(key)),
        (None, Some(prefix)) => KeyRange::prefix(bytes::of_arg(prefix)),
        (None, None) => KeyRange::all(),
    };
    let mut watch = store.watch_range(range);
    if let Some(from) = from {
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

fn tell(batch: &Batch, args: &WatchArgs, out: &mut Output) -> Outcome {
    let mut text = Vec::new();
    match out.format() {
        Format::Json | Format::Ndjson => {
            text = serde_json::to_vec(&out.with_schema(&form(batch, args))).unwrap_or_default();
            text.push(b'\n');
        }
        Format::Table => {
            let metadata = metadata_cell(batch.metadata());
            let by = if metadata.is_empty() { metadata } else { format!("  ({metadata})") };
            for event in batch.events() {
                let key = show_beside(&event.kv.key, 120, " ");
                let value = show_beside(&event.kv.value, 60, ", was ");
                let time = rfc3339(batch.time());
                let what = match event.kind {
                    ChangeKind::Delete => format!("delete {key}"),
                    ChangeKind::Put if args.keys_only => format!("put {key}"),
                    ChangeKind::Put => format!("put {key} = {value}"),
                };
                let was = match &event.prev_kv {
                    Some(prev) if args.keys_only => format!(", was of {}", prev.mod_revision),
                    Some(prev) => format!(", was {}", show(&prev.value, 60)),
                    None if args.prev_kv && event.kind == ChangeKind::Put => {
                        ", was not there".to_owned()
                    }
                    None => String::new(),
                };
                let line = format!("{} {time} {what}{was}{by}\n", batch.revision());
                text.extend_from_slice(line.as_bytes());
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
