//! `range`: keys in order, streamed.
//!
//! In key order memory is bounded whatever the range. Any other order must see every key before
//! it can write the first: then the numbers are kept, and the values are read again one by one
//! (by value: the values are kept).

use std::cmp::Ordering;
use std::convert::Infallible;
use std::ffi::OsString;

use annals::{KeyRange, KeyValue, View};
use clap::{Args, ValueEnum};
use serde_json::json;

use super::rows::KvRow;
use crate::args::{Global, ReadAt, parse_limit, parse_revision};
use crate::bytes;
use crate::exit::Outcome;
use crate::output::{Output, Rows};

/// What to sort by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// The key's bytes.
    #[default]
    Key,
    /// The revision that created the key.
    Create,
    /// The revision that last changed the key.
    Mod,
    /// How often the key was written since it was created.
    Version,
    /// The value's bytes.
    Value,
}

/// Arguments of `range`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "they are flags")]
#[command(after_help = "Examples:
  $ annals -C store range                              # all keys
  $ annals -C store range --prefix /pods/ --limit 10
  $ annals -C store range /flags/ /pods/ --keys-only   # from the one up to, without, the other
  $ annals -C store range --sort mod --reverse --limit 3
  $ annals -C store range --prefix /pods/ --count-only --at 3")]
pub(crate) struct RangeArgs {
    /// The first key. Alone: only this key. Without it: every key.
    from: Option<OsString>,
    /// The end of the range: the first key after it.
    to: Option<OsString>,
    /// Every key that begins with this; '' is every key.
    #[arg(long, value_name = "PREFIX", conflicts_with_all = ["from", "to", "from_key"])]
    prefix: Option<OsString>,
    /// Every key from FROM on.
    #[arg(long, requires = "from", conflicts_with = "to")]
    from_key: bool,
    /// At most this many; 0 for all.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = parse_limit, allow_negative_numbers = true)]
    limit: u64,
    /// The last first.
    #[arg(long)]
    reverse: bool,
    /// Write only how many there are.
    #[arg(long)]
    count_only: bool,
    /// Leave the values out.
    #[arg(long)]
    keys_only: bool,
    /// The order.
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,
    /// Only keys last changed at this revision or later.
    #[arg(long, value_name = "REV", default_value_t = 0, value_parser = parse_revision, allow_negative_numbers = true)]
    min_mod_revision: u64,
    /// Only keys last changed at this revision or earlier.
    #[arg(long, value_name = "REV", default_value_t = u64::MAX, hide_default_value = true, value_parser = parse_revision, allow_negative_numbers = true)]
    max_mod_revision: u64,
    /// Only keys created at this revision or later.
    #[arg(long, value_name = "REV", default_value_t = 0, value_parser = parse_revision, allow_negative_numbers = true)]
    min_create_revision: u64,
    /// Only keys created at this revision or earlier.
    #[arg(long, value_name = "REV", default_value_t = u64::MAX, hide_default_value = true, value_parser = parse_revision, allow_negative_numbers = true)]
    max_create_revision: u64,
    #[command(flatten)]
    at: ReadAt,
}

impl RangeArgs {
    fn key_range(&self) -> KeyRange {
        if let Some(prefix) = &self.prefix {
            return KeyRange::prefix(bytes::of_arg(prefix));
        }
        match (&self.from, &self.to) {
            (None, _) => KeyRange::all(),
            (Some(from), Some(to)) => KeyRange::between(bytes::of_arg(from), bytes::of_arg(to)),
            (Some(from), None) if self.from_key => KeyRange::from_key(bytes::of_arg(from)),
            (Some(key), None) => KeyRange::key(bytes::of_arg(key)),
        }
    }

    fn filtered(&self) -> bool {
        self.min_mod_revision > 0
            || self.min_create_revision > 0
            || self.max_mod_revision < u64::MAX
            || self.max_create_revision < u64::MAX
    }

    fn passes(&self, kv: &KeyValue) -> bool {
        (self.min_mod_revision..=self.max_mod_revision).contains(&kv.mod_revision)
            && (self.min_create_revision..=self.max_create_revision).contains(&kv.create_revision)
    }

    fn row<'a>(&self, kv: &'a KeyValue) -> KvRow<'a> {
        KvRow { kv, with_value: !self.keys_only }
    }

    fn limit(&self) -> u64 {
        if self.limit == 0 { u64::MAX } else { self.limit }
    }
}

/// `range`: keys in an order.
pub(crate) fn range(global: &Global, args: &RangeArgs, out: &mut Output) -> Outcome {
    let store = global.read()?;
    let view = args.at.at.view(&store)?;
    if args.count_only {
        let count = if args.filtered() {
            let mut count = 0;
            for kv in view.range(args.key_range()).keys_only() {
                count += u64::from(args.passes(&kv?));
            }
            count
        } else {
            view.count(args.key_range())?
        };
        return out.object(&json!({ "count": count, "revision": view.revision() }));
    }
    let tail = [("revision", json!(view.revision()))];
    let mut rows = out.rows("kvs");
    match args.sort {
        Sort::Key => in_key_order(&view, args, &mut rows)?,
        _ => in_other_order(&view, args, &mut rows)?,
    }
    rows.finish(&tail)?;
    Ok(())
}

fn in_key_order(view: &View, args: &RangeArgs, rows: &mut Rows<'_>) -> Outcome {
    let mut iter = view.range(args.key_range());
    if args.keys_only {
        iter = iter.keys_only();
    }
    if args.reverse {
        iter = iter.rev();
    }
    let mut left = args.limit();
    let passes = |kv: &annals::Result<KeyValue>| kv.as_ref().map_or(true, |kv| args.passes(kv));
    while let Some(kv) = iter.next() {
        let kv = kv?;
        if args.passes(&kv) {
            rows.push(&args.row(&kv))?;
            left -= 1;
            if left == 0 {
                rows.cut(iter.filter(passes));
                break;
            }
        }
    }
    Ok(())
}

fn in_other_order(view: &View, args: &RangeArgs, rows: &mut Rows<'_>) -> Outcome {
    let by_value = args.sort == Sort::Value;
    let iter = view.range(args.key_range());
    let iter = if by_value { iter } else { iter.keys_only() };
    let mut kvs = Vec::new();
    for kv in iter {
        let kv = kv?;
        if args.passes(&kv) {
            kvs.push(kv);
        }
    }
    let order = |a: &KeyValue, b: &KeyValue| match args.sort {
        Sort::Key => Ordering::Equal,
        Sort::Create => a.create_revision.cmp(&b.create_revision),
        Sort::Mod => a.mod_revision.cmp(&b.mod_revision),
        Sort::Version => a.version.cmp(&b.version),
        Sort::Value => a.value.cmp(&b.value),
    };
    // Stable both ways: what is equal stays in key order.
    kvs.sort_by(|a, b| if args.reverse { order(b, a) } else { order(a, b) });
    let limit = usize::try_from(args.limit()).unwrap_or(usize::MAX);
    for kv in kvs.iter().take(limit) {
        if by_value || args.keys_only {
            rows.push(&args.row(kv))?;
        } else if let Some(kv) = view.get(&kv.key)? {
            rows.push(&args.row(&kv))?;
        }
    }
    rows.cut(kvs.iter().skip(limit).map(Ok::<_, Infallible>));
    Ok(())
}
