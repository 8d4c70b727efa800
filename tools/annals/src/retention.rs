//! `retention`: how long the keys with a prefix are kept.

use std::ffi::OsString;
use std::io::{self, Write};
use std::time::Duration;

use annals::{Retention, RetentionRule, Store};
use clap::{ArgGroup, Args, Subcommand};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::Global;
use crate::at::{length, spelled};
use crate::bytes::{self, json as spell, show};
use crate::compact::write_anew;
use crate::exit::{Failure, Outcome};
use crate::output::{Output, Row};

/// What to do with rules of retention.
#[derive(Debug, Subcommand)]
pub(crate) enum RetentionCommand {
    /// List the rules, with the oldest revision at which the keys of each can be read.
    #[command(
        after_help = "Taken back: there is no rule any more, but what keys with the prefix were before readable_from is
forgotten, or was lost with damaged blocks that `annals repair` left out.

Examples:
  $ annals -C store retention set --prefix /audit/ --forever
  $ annals -C store retention list"
    )]
    List,
    /// Set the rule of a prefix. The longest prefix of a key decides.
    Set(SetArgs),
    /// Take the rule of a prefix back: its keys are kept as all others are, at once.
    Unset(UnsetArgs),
    /// Forget what the rules no longer keep, and give its space back.
    #[command(after_help = "Examples:
  $ annals -C store retention set --prefix '' --revisions 2
  $ annals -C store retention apply
  $ annals -C store get /flags/dark --at 2             # exits 6")]
    Apply,
}

/// Arguments of `retention set`.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("keep").args(["revisions", "age", "forever"]).required(true).multiple(true),
    after_help = "A program that has the store open applies rules every minute; `annals retention apply` does it for
one that nobody has open. With --revisions and --for a version is kept as long as either says.
`annals compact` forgets nothing of keys that have a rule of their own; '' is the rule of all
others.

Examples:
  $ annals -C store retention set --prefix /audit/ --forever
  $ annals -C store retention set --prefix /events/ --for 1h --revisions 1000
  $ annals -C store retention apply"
)]
pub(crate) struct SetArgs {
    /// What the keys begin with; '' is all keys that no other rule is for.
    #[arg(long, value_name = "PREFIX")]
    prefix: OsString,
    /// Keep the newest revision of the store and this many before it.
    #[arg(long, value_name = "N")]
    revisions: Option<u64>,
    /// Keep every state that was the newest within this time: 90s, 15m, 1h, 30d.
    #[arg(long = "for", value_name = "TIME", value_parser = length)]
    age: Option<Duration>,
    /// Forget nothing.
    #[arg(long, conflicts_with_all = ["revisions", "age"])]
    forever: bool,
}

/// Arguments of `retention unset`.
#[derive(Debug, Args)]
#[command(
    after_help = "What the rule alone has kept, as the store is compacted further, is forgotten at once and for
ever. So then the command prints which revisions those are, and exits 7, with --dry-run 0; with
--confirm it is done. What the rule has forgotten stays forgotten. Where a shorter prefix has a rule
that keeps less, that is applied to these keys from then on, within a minute of a program that has
the store open.

Examples:
  $ annals -C store retention set --prefix /events/ --for 1h
  $ annals -C store retention unset --prefix /events/
  $ annals -C store retention set --prefix /flags/ --forever
  $ annals -C store compact --at latest --confirm
  $ annals -C store get /flags/dark --at 3
  $ annals -C store retention unset --prefix /flags/   # exits 7: without --confirm nothing is done"
)]
pub(crate) struct UnsetArgs {
    /// What the keys begin with.
    #[arg(long, value_name = "PREFIX")]
    prefix: OsString,
    /// Only print what would be forgotten.
    #[arg(long, conflicts_with = "confirm")]
    dry_run: bool,
    /// Do it, also where that forgets something.
    #[arg(long)]
    confirm: bool,
}

#[derive(Debug)]
struct RuleRow(RetentionRule);

impl RuleRow {
    fn words(&self) -> String {
        let Some(retention) = self.0.retention else { return "taken back".to_owned() };
        // The revisions of the store, not the versions of a key.
        let revisions = retention.revisions().map(|count| format!("{count} store revisions"));
        let age = retention.age().map(spelled);
        match (revisions, age) {
            (Some(revisions), Some(age)) => format!("{revisions} or {age}"),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => "forever".to_owned(),
        }
    }

    fn form(&self) -> Value {
        let retention = self.0.retention;
        json!({
            "prefix": spell(&self.0.prefix),
            "revisions": retention.and_then(|retention| retention.revisions()),
            "seconds": retention.and_then(|retention| retention.age()).map(|age| age.as_secs_f64()),
            "keep": self.words(),
            "readable_from": self.0.floor,
        })
    }
}

impl Serialize for RuleRow {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.form().serialize(serializer)
    }
}

impl Row for RuleRow {
    const COLUMNS: &'static [&'static str] = &["prefix", "keep", "readable_from"];

    fn cells(&self) -> Vec<String> {
        // As it is to be given.
        let all = self.0.prefix.is_empty();
        let prefix = if all { "''".to_owned() } else { show(&self.0.prefix, 60) };
        vec![prefix, self.words(), self.0.floor.to_string()]
    }

    fn raw(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.0.prefix)?;
        out.write_all(b"\n")
    }
}

/// `retention`: how long keys are kept.
pub(crate) fn retention(global: &Global, command: &RetentionCommand, out: &mut Output) -> Outcome {
    match command {
        RetentionCommand::List => list(global, out),
        RetentionCommand::Set(args) => {
            let SetArgs { prefix, revisions, age, .. } = args;
            let retention = Retention::forever();
            let retention = revisions.map_or(retention, |count| retention.keep_revisions(count));
            set(global, prefix, Some(age.map_or(retention, |age| retention.keep_for(age))), out)
        }
        RetentionCommand::Unset(args) => unset(global, args, out),
        RetentionCommand::Apply => apply(global, out),
    }
}

fn list(global: &Global, out: &mut Output) -> Outcome {
    let store = global.read()?;
    let mut rows = out.rows("rules");
    for rule in store.retention() {
        rows.push(&RuleRow(rule))?;
    }
    let tail = [
        ("revision", json!(store.revision())),
        ("compacted_revision", json!(store.compacted_revision())),
    ];
    rows.finish(&tail)?;
    Ok(())
}

fn set(
    global: &Global,
    prefix: &OsString,
    retention: Option<Retention>,
    out: &mut Output,
) -> Outcome {
    let prefix = bytes::of_arg(prefix);
    // No worker: rules are applied when that is asked for.
    let options = global.engine_options()?.create(retention.is_some()).background(false);
    let store = options.open(global.data()?)?;
    store.set_retention(&prefix, retention)?;
    let rules = store.retention().into_iter().filter(|rule| rule.prefix == prefix);
    let told = rules.map(|rule| RuleRow(rule).form()).next();
    store.close()?;
    out.object(&told.unwrap_or_else(|| json!({ "prefix": spell(&prefix), "keep": "no rule" })))
}

fn unset(global: &Global, args: &UnsetArgs, out: &mut Output) -> Outcome {
    let prefix = bytes::of_arg(&args.prefix);
    let store = global.read()?;
    let rules = store.retention();
    let rule = rules.iter().find(|rule| rule.prefix == prefix);
    let then = rule.and_then(|rule| forgotten_without(rule, &rules, store.compacted_revision()));
    if args.dry_run || (then.is_some() && !args.confirm) {
        let rule = rule.cloned().map(RuleRow);
        out.object(&json!({
            "prefix": spell(&prefix),
            "keep": rule.as_ref().map_or_else(|| "no rule".to_owned(), RuleRow::words),
            "readable_from": rule.map(|rule| rule.0.floor),
            "would_be_readable_from": then,
            "revision": store.revision(),
        }))?;
        out.flush()?;
        if args.dry_run {
            return Ok(());
        }
        out.note(
            "nothing was changed: what this rule alone keeps would be forgotten; --confirm does it",
        )?;
        return Err(Failure::Unconfirmed);
    }
    drop(store);
    set(global, &args.prefix, None, out)
}

/// From which revision on the keys of a rule could be read without it, if that is later than now.
fn forgotten_without(own: &RetentionRule, rules: &[RetentionRule], compacted: u64) -> Option<u64> {
    own.retention?;
    if own.prefix.is_empty() {
        // It does what a compaction does, and no more is done without it.
        return None;
    }
    let around = rules.iter().filter(|rule| {
        let is_around =
            rule.prefix.len() < own.prefix.len() && own.prefix.starts_with(&rule.prefix);
        is_around && !rule.prefix.is_empty()
    });
    // One that was taken back counts: what it has forgotten stays so.
    let then = around.max_by_key(|rule| rule.prefix.len());
    let then = then.map_or(compacted, |rule| rule.floor);
    (then > own.floor.max(1)).then_some(then)
}

fn apply(global: &Global, out: &mut Output) -> Outcome {
    let (applied, mut told) = write_anew(global, Store::apply_retention)?;
    told["applied"] = applied.into();
    out.object(&told)
}
