//! `revert`: puts keys back to what they were, by one transaction. What they have been since stays in their history.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Write};

use ::bytes::Bytes;
use annals::{Diff, KeyRange, KeyValue, Store};
use clap::Args;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::json;

use crate::args::Global;
use crate::at::At;
use crate::bytes::{self, Spelled, count, show};
use crate::elsewhere::{FromArgs, differences};
use crate::exit::{Failure, Outcome};
use crate::output::{Output, Row};
use crate::writes::CommitArgs;

/// Arguments of `revert`.
#[derive(Debug, Args)]
#[command(
    after_help = "All keys are put back at one revision, or none. A key whose value and lease are what they were is
left as it is. What is there since stays in the history, so a revert can be reverted; without
--metadata it has 'revert to revision N' there, and the copy's name. A time before all that was
written is refused: 1 is the empty store. A lease that has ended does not come back: its keys are
put without one.

With --from the keys become what they were in a backup or a copy, which has what this store has
forgotten since. What else is in this store stays.

Examples:
  $ annals -C store revert 4 --prefix /flags/ --dry-run
  $ annals -C store revert 4 --prefix /flags/ --metadata 'by ada: the rollout failed'
  $ annals -C store revert -1 --key /pods/a
  $ annals -C store backup monday.backup
  $ annals -C store revert latest --prefix /flags/ --from monday.backup"
)]
pub(crate) struct RevertArgs {
    /// What they were then: a point in history, such as 7, -1, yesterday or 24h.
    #[arg(value_name = "AT", allow_hyphen_values = true)]
    to: At,
    /// Every key that begins with this; '' is every key.
    #[arg(long, value_name = "PREFIX", required_unless_present = "key")]
    prefix: Option<OsString>,
    /// This key.
    #[arg(long, value_name = "KEY", conflicts_with = "prefix")]
    key: Option<OsString>,
    /// Show what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    from: FromArgs,
    #[command(flatten)]
    commit: CommitArgs,
}

/// What is done to a key.
#[derive(Debug)]
struct Step {
    key: Bytes,
    /// The key-value as it was; `None` if the key was not alive.
    then: Option<KeyValue>,
    /// The lease that it had then, where that has ended.
    ended_lease: Option<i64>,
}

impl Step {
    fn change(&self) -> &'static str {
        if self.then.is_some() { "put" } else { "delete" }
    }

    /// The lease that it gets.
    fn lease(&self) -> i64 {
        let then = self.then.as_ref().filter(|_| self.ended_lease.is_none());
        then.map_or(0, |kv| kv.lease)
    }
}

impl Serialize for Step {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("key", &Spelled(&self.key))?;
        map.serialize_entry("change", self.change())?;
        map.serialize_entry("mod_revision", &self.then.as_ref().map(|kv| kv.mod_revision))?;
        map.serialize_entry("ended_lease", &self.ended_lease)?;
        map.end()
    }
}

impl Row for Step {
    const COLUMNS: &'static [&'static str] =
        &["change", "as of revision", "bytes", "key", "ended lease"];

    fn cells(&self) -> Vec<String> {
        let then = self.then.as_ref();
        vec![
            self.change().to_owned(),
            then.map(|kv| kv.mod_revision.to_string()).unwrap_or_default(),
            then.map(|kv| kv.value.len().to_string()).unwrap_or_default(),
            show(&self.key, 120),
            self.ended_lease.map(|id| id.to_string()).unwrap_or_default(),
        ]
    }

    fn raw(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(self.change().as_bytes())?;
        out.write_all(b" ")?;
        out.write_all(&self.key)?;
        out.write_all(b"\n")
    }
}

/// What is to be done where a state differs from what is there now, with the leases that there are.
fn steps(
    differences: impl Iterator<Item = annals::Result<Diff>>,
    leases: &BTreeSet<i64>,
) -> Outcome<Vec<Step>> {
    let mut steps = Vec::new();
    for difference in differences {
        let (key, then, now) = match difference? {
            Diff::Added(new) => (new.key, None, None),
            Diff::Removed(old) => (old.key.clone(), Some(old), None),
            Diff::Changed { old, new } => (old.key.clone(), Some(old), Some(new)),
        };
        let lease = then.as_ref().map_or(0, |kv| kv.lease);
        let ended_lease = (lease != 0 && !leases.contains(&lease)).then_some(lease);
        let step = Step { key, then, ended_lease };
        // Written since, but with what it was.
        let is_so =
            |then: &KeyValue, now: KeyValue| (&then.value, step.lease()) == (&now.value, now.lease);
        if !step.then.as_ref().zip(now).is_some_and(|(then, now)| is_so(then, now)) {
            steps.push(step);
        }
    }
    Ok(steps)
}

/// `revert`: keys as they were.
pub(crate) fn revert(global: &Global, args: &RevertArgs, out: &mut Output) -> Outcome {
    let elsewhere = args.from.open(global)?;
    let store = if args.dry_run {
        global.read()?
    } else {
        // No lease ends between what is looked at and what is done.
        let options = global.engine_options()?.create(false).lease_expiry(false);
        Store::open_with(global.data()?, &options)?
    };
    let source = elsewhere.as_ref().map_or(&store, |elsewhere| &elsewhere.store);
    let newest = source.revision();
    if let At::Back(count) = args.to
        && count >= newest
    {
        let what = format!("there are no {count} revisions before the newest, {newest}");
        return Err(Failure::Usage(what));
    }
    let to = args.to.revision(source)?;
    if to == 1 && matches!(args.to, At::Time(_)) {
        let what = "nothing had been written then: `revert 1` deletes the keys, if that is meant";
        return Err(Failure::Usage(what.into()));
    }
    let range = match (&args.prefix, &args.key) {
        (Some(prefix), _) => KeyRange::prefix(bytes::of_arg(prefix)),
        (None, Some(key)) => KeyRange::key(bytes::of_arg(key)),
        (None, None) => return Err(Failure::Usage("which keys?".into())),
    };
    let leases: BTreeSet<i64> = store.lease_list()?.into_iter().map(|lease| lease.id).collect();
    let steps = match &elsewhere {
        None => steps(store.diff(to, newest, &range)?, &leases)?,
        Some(_) => steps(differences(&source.at(to)?, &store.latest()?, &range), &leases)?,
    };
    let then = match args.from.name() {
        None => format!("revision {to}"),
        Some(name) => format!("revision {to} of {name}"),
    };
    let mut revision = None;
    if !args.dry_run && !steps.is_empty() {
        let mut metadata = args.commit.options().metadata;
        if metadata.is_empty() {
            metadata = format!("revert to {then}").into();
        }
        // Nobody else writes to the store meanwhile.
        let done = store.update(|update| {
            update.metadata(&metadata);
            steps.iter().try_for_each(|step| match &step.then {
                Some(then) => update.put_leased(&step.key, &then.value, step.lease()),
                None => update.delete(&step.key),
            })
        })?;
        revision = Some(done.revision);
    }
    let mut rows = out.rows("changes");
    for step in &steps {
        rows.push(step)?;
    }
    rows.finish(&[("to", json!(to)), ("revision", json!(revision))])?;
    match revision {
        Some(revision) => out.note(format_args!(
            "put back {} as at {then}, at revision {revision}",
            count(steps.len() as u64, "key")
        ))?,
        None if steps.is_empty() && source.at(to)?.range(&range).next().is_none() => {
            out.note(format_args!("nothing to do: there is no such key, nor was at {then}"))?;
        }
        None if steps.is_empty() => {
            out.note(format_args!("nothing to do: all is as it was at {then}"))?;
        }
        None => out.note("nothing was changed: --dry-run")?,
    }
    Ok(store.close()?)
}
