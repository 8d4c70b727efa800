//! `lease`: the lease table. Time passes for leases while a program has the store open for writing, so
//! hardly any while these commands run.

use std::io::{self, Write};

use annals::{Lease, LeaseGrantRequest};
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::Global;
use crate::bytes::{json as spell, show};
use crate::exit::Outcome;
use crate::output::{Output, Row};
use crate::writes::parse_lease;

/// What to do with leases.
#[derive(Debug, Subcommand)]
pub(crate) enum LeaseCommand {
    /// Grant a lease, for `put --lease`. Its time passes while a program has the store open for writing.
    Grant(GrantArgs),
    /// List the leases with the keys attached to them.
    List,
    /// Revoke a lease and delete the keys attached to it, at one revision.
    Revoke(RevokeArgs),
}

/// Arguments of `lease grant`.
#[derive(Debug, Args)]
pub(crate) struct GrantArgs {
    /// Its time to live in seconds.
    #[arg(value_name = "TTL", value_parser = clap::value_parser!(i64).range(1..=annals::LEASE_TTL_MAX), allow_negative_numbers = true)]
    ttl: i64,
    /// Its id: decimal, or hexadecimal with 0x. Without it the store picks one.
    #[arg(long, value_name = "ID", value_parser = parse_lease, default_value_t = 0, hide_default_value = true, allow_negative_numbers = true)]
    id: i64,
}

/// Arguments of `lease revoke`.
#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// Its id: decimal, or hexadecimal with 0x.
    #[arg(value_name = "ID", value_parser = parse_lease, allow_negative_numbers = true)]
    id: i64,
}

#[derive(Debug)]
struct LeaseRow(Lease);

impl LeaseRow {
    fn form(&self) -> Value {
        let keys: Vec<Value> = self.0.keys.iter().map(|key| spell(key)).collect();
        json!({ "lease": self.0.id, "ttl": self.0.ttl, "keys": keys })
    }
}

impl Serialize for LeaseRow {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.form().serialize(serializer)
    }
}

impl Row for LeaseRow {
    const COLUMNS: &'static [&'static str] = &["lease", "ttl", "keys", "which"];

    fn cells(&self) -> Vec<String> {
        const SHOWN: usize = 5;
        let keys = &self.0.keys;
        let mut which: Vec<String> = keys.iter().take(SHOWN).map(|key| show(key, 60)).collect();
        if keys.len() > SHOWN {
            which.push(format!("... {} more", keys.len() - SHOWN));
        }
        vec![
            self.0.id.to_string(),
            self.0.ttl.to_string(),
            keys.len().to_string(),
            which.join(", "),
        ]
    }

    fn raw(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.0.id)
    }
}

/// `lease`: the lease table.
pub(crate) fn lease(global: &Global, command: &LeaseCommand, out: &mut Output) -> Outcome {
    match command {
        LeaseCommand::Grant(args) => grant(global, args, out),
        LeaseCommand::List => list(global, out),
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

fn list(global: &Global, out: &mut Output) -> Outcome {
    let store = global.read()?;
    let mut rows = out.rows("leases");
    for lease in store.lease_list()? {
        if let Some(lease) = store.lease_info(lease.id, true)? {
            rows.push(&LeaseRow(lease))?;
        }
    }
    rows.finish(&[("revision", json!(store.revision()))])?;
    Ok(())
}

fn revoke(global: &Global, args: &RevokeArgs, out: &mut Output) -> Outcome {
    let store = global.write_existing()?;
    let revoked = store.lease_revoke(args.id)?;
    store.close()?;
    out.object(&json!({ "revision": revoked.revision, "deleted": revoked.deleted.len() }))
}
