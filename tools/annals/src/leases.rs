//! `lease`: the lease table. Time passes for leases while a program has the store open for writing, so
//! hardly any while these commands run.

use std::io::{self, Write};
use std::time::Duration;

use annals::{LeaseGrantRequest, LeaseStatus, Store};
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::args::Global;
use crate::at::length;
use crate::bytes::{json as spell, show};
use crate::exit::{Failure, Outcome};
use crate::output::{Format, Output, Row};
use crate::writes::{CommitArgs, parse_lease};

/// What to do with leases.
#[derive(Debug, Subcommand)]
pub(crate) enum LeaseCommand {
    /// Grant a lease, for `put --lease`. Its time passes while a program has the store open for writing.
    Grant(GrantArgs),
    /// Give a lease all of its time again. Exits 5 when there is none.
    KeepAlive(KeepAliveArgs),
    /// Show how much time a lease has left: beside the program that has the store open, how much was last written
    /// down, mostly all of it. Exits 5 when there is none.
    Ttl(TtlArgs),
    /// List the leases, with what is left of each as `lease ttl` says it.
    List(ListArgs),
    /// Revoke a lease and delete the keys attached to it, at one revision.
    Revoke(RevokeArgs),
}

/// Arguments of `lease grant`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  $ annals -C store lease grant 60                     # the store picks an id
  $ annals -C store lease grant 1h30m --id 9
  $ annals -C store put /session/me here --lease 9     # the key goes with the lease")]
pub(crate) struct GrantArgs {
    /// Its time to live: seconds, or a length of time such as 90s, 15m or 1h.
    #[arg(value_name = "TTL", value_parser = parse_ttl, allow_hyphen_values = true)]
    ttl: i64,
    /// Its id: decimal, or hexadecimal with 0x. Without it the store picks one.
    #[arg(long, value_name = "ID", value_parser = parse_lease, default_value_t = 0, hide_default_value = true, allow_negative_numbers = true)]
    id: i64,
}

/// Arguments of `lease keep-alive`.
#[derive(Debug, Args)]
#[command(
    after_help = "A program that has the store open renews its leases itself (`Store::lease_keep_alive`): meanwhile
this command is refused, as every one that writes.

Examples:
  $ annals -C store lease keep-alive 7"
)]
pub(crate) struct KeepAliveArgs {
    /// Its id: decimal, or hexadecimal with 0x.
    #[arg(value_name = "ID", value_parser = parse_lease, allow_negative_numbers = true)]
    id: i64,
}

/// Arguments of `lease ttl`.
#[derive(Debug, Args)]
#[command(
    after_help = "What is left is what was written down last: by a program that has the store open, within the last
minute (`-O lease_checkpoint_interval_seconds`), or when the store was closed.

Examples:
  $ annals -C store lease ttl 7
  $ annals -C store lease ttl 7 --keys                 # with the keys attached to it"
)]
pub(crate) struct TtlArgs {
    /// Its id: decimal, or hexadecimal with 0x.
    #[arg(value_name = "ID", value_parser = parse_lease, allow_negative_numbers = true)]
    id: i64,
    /// Show the keys attached to it.
    #[arg(long)]
    keys: bool,
}

/// Arguments of `lease list`.
#[derive(Debug, Args)]
#[command(
    after_help = "What is left is what was written down last, as of `annals lease ttl`: within the last minute by
the program that has the store open for writing, or when it was closed. Where none has it open, no
time passes: each look finds the same.

Examples:
  $ annals -C store lease list
  $ annals -C store lease list --keys -o ndjson        # a line for each, with its keys"
)]
pub(crate) struct ListArgs {
    /// Show the keys attached to each.
    #[arg(long)]
    keys: bool,
}

/// Arguments of `lease revoke`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  $ annals -C store lease revoke 7 --metadata 'by ada'
  $ annals -C store lease revoke 7                     # exits 5")]
pub(crate) struct RevokeArgs {
    /// Its id: decimal, or hexadecimal with 0x.
    #[arg(value_name = "ID", value_parser = parse_lease, allow_negative_numbers = true)]
    id: i64,
    #[command(flatten)]
    commit: CommitArgs,
}

/// A time to live in seconds.
fn parse_ttl(text: &str) -> Result<i64, String> {
    let seconds = match text.parse() {
        Ok(seconds) => seconds,
        Err(_) => {
            let length = length(text)?;
            if length.subsec_nanos() > 0 {
                return Err("a time to live is whole seconds".into());
            }
            i64::try_from(length.as_secs()).unwrap_or(i64::MAX)
        }
    };
    match seconds {
        1..=annals::LEASE_TTL_MAX => Ok(seconds),
        _ => Err(format!("a time to live is 1 s to {} s", annals::LEASE_TTL_MAX)),
    }
}

/// A lease as an object: without its keys, or with them.
fn form(status: &LeaseStatus, keys: bool) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("lease".into(), json!(status.id));
    object.insert("ttl".into(), json!(status.granted_ttl));
    let millis = u64::try_from(status.remaining.as_millis()).unwrap_or(u64::MAX);
    object.insert("remaining_millis".into(), json!(millis));
    if keys {
        object.insert("keys".into(), status.keys.iter().map(|key| spell(key)).collect());
    }
    object
}

/// As etcdctl writes the id.
fn hex(id: i64) -> String {
    format!("{id:016x}")
}

fn left(time: Duration) -> String {
    format!("{}.{} s", time.as_secs(), time.subsec_millis() / 100)
}

#[derive(Debug)]
struct LeaseRow(LeaseStatus);

#[derive(Debug)]
struct KeysRow(LeaseStatus);

impl Serialize for LeaseRow {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        form(&self.0, false).serialize(serializer)
    }
}

impl Serialize for KeysRow {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        form(&self.0, true).serialize(serializer)
    }
}

impl Row for LeaseRow {
    const COLUMNS: &'static [&'static str] = &["lease", "hex", "ttl", "remaining"];

    fn cells(&self) -> Vec<String> {
        let LeaseStatus { id, granted_ttl, remaining, .. } = &self.0;
        vec![id.to_string(), hex(*id), granted_ttl.to_string(), left(*remaining)]
    }

    fn raw(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.0.id)
    }
}

impl Row for KeysRow {
    const COLUMNS: &'static [&'static str] = &["lease", "hex", "ttl", "remaining", "keys", "which"];

    fn cells(&self) -> Vec<String> {
        const SHOWN: usize = 5;
        let LeaseStatus { id, granted_ttl, remaining, keys, .. } = &self.0;
        let mut which: Vec<String> = keys.iter().take(SHOWN).map(|key| show(key, 60)).collect();
        if keys.len() > SHOWN {
            which.push(format!("... {} more", keys.len() - SHOWN));
        }
        let (id, ttl, count) = (id.to_string(), granted_ttl.to_string(), keys.len().to_string());
        vec![id, hex(self.0.id), ttl, left(*remaining), count, which.join(", ")]
    }

    fn raw(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.0.id)
    }
}

/// `lease`: the lease table.
pub(crate) fn lease(global: &Global, command: &LeaseCommand, out: &mut Output) -> Outcome {
    match command {
        LeaseCommand::Grant(args) => grant(global, args, out),
        LeaseCommand::KeepAlive(args) => keep_alive(global, args, out),
        LeaseCommand::Ttl(args) => ttl(global, args, out),
        LeaseCommand::List(args) => list(global, args, out),
        LeaseCommand::Revoke(args) => revoke(global, args, out),
    }
}

fn grant(global: &Global, args: &GrantArgs, out: &mut Output) -> Outcome {
    // A least time to live is for servers, whose clients have to come back in time.
    let request = LeaseGrantRequest { ttl_min: 1, ..LeaseGrantRequest::new(args.id, args.ttl) };
    let store = global.write()?;
    let lease = store.lease_grant_with(request)?;
    store.close()?;
    out.object(&json!({ "lease": lease.id, "ttl": lease.ttl, "revision": lease.revision }))
}

fn keep_alive(global: &Global, args: &KeepAliveArgs, out: &mut Output) -> Outcome {
    let store = global.write_existing()?;
    let ttl = store.lease_keep_alive(args.id)?;
    store.close()?;
    out.object(&json!({ "lease": args.id, "ttl": ttl }))
}

fn ttl(global: &Global, args: &TtlArgs, out: &mut Output) -> Outcome {
    let status = global.read()?.lease_time_to_live(args.id, args.keys)?;
    let none = || Failure::NotFound(format!("there is no lease {}", args.id));
    out.object(&Value::Object(form(&status.ok_or_else(none)?, args.keys)))
}

fn list(global: &Global, args: &ListArgs, out: &mut Output) -> Outcome {
    let store = global.read()?;
    let count = if args.keys {
        rows(&store, true, KeysRow, out)?
    } else {
        rows(&store, false, LeaseRow, out)?
    };
    if count > 0 && matches!(out.format(), Format::Table) {
        // Before it stands what it is about.
        out.flush()?;
        out.note(
            "time passes for leases only while a program has the store open for writing; what is left here was written \
             down by the last one: see `annals help lease list`",
        )?;
    }
    Ok(())
}

/// A row for each lease, and how many; nobody changes the store as it is read here.
fn rows<R: Row>(
    store: &Store,
    keys: bool,
    row: fn(LeaseStatus) -> R,
    out: &mut Output,
) -> Outcome<u64> {
    let mut rows = out.rows("leases");
    for lease in store.leases() {
        if let Some(status) = store.lease_time_to_live(lease?.id, keys)? {
            rows.push(&row(status))?;
        }
    }
    rows.finish(&[("revision", json!(store.revision()))])
}

fn revoke(global: &Global, args: &RevokeArgs, out: &mut Output) -> Outcome {
    let store = global.write_existing()?;
    let revoked = store.lease_revoke_with(args.id, args.commit.options())?;
    store.close()?;
    out.object(&json!({ "revision": revoked.revision, "deleted": revoked.deleted.len() }))
}
