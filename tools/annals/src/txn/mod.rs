//! `txn`: a whole transaction, from JSON or from etcdctl's text.

mod json;
mod text;

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::PathBuf;

use annals::{
    Compare, CompareResult, CompareTarget, KeyRange, KeyValue, Op, OpResponse, TxnRequest,
    TxnResponse, View,
};
use clap::Args;
use serde_json::json;

use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::output::{Format, Output};
use crate::writes::CommitArgs;

/// Arguments of `txn`.
#[derive(Debug, Args)]
#[command(
    after_help = "The transaction is JSON; targets are VERSION, CREATE, MOD, VALUE, LEASE, results EQUAL, NOT_EQUAL,
GREATER, LESS:
  {\"compare\": [{\"key\": \"k\", \"target\": \"MOD\", \"result\": \"EQUAL\", \"mod_revision\": 7}],
   \"success\": [{\"put\": {\"key\": \"k\", \"value\": \"v\"}}], \"failure\": [{\"range\": {\"key\": \"k\"}}]}
or etcdctl's text, three parts with an empty line after each: comparisons of mod, create, version,
lease or value by =, !=, < or >; what to do if all hold; what to do else (put, get, del):
  mod(\"k\") = \"7\"

  put k v

  get k

Examples:
  $ annals -C store txn move.txn                       # if /leader is not there, then ..
  $ annals -C store txn move.txn --fail-on-else        # exits 5
  $ echo '{\"success\": [{\"put\": {\"key\": \"k\", \"value\": \"v\"}}]}' | annals -C store txn
  $ annals -C store txn move.txn --dry-run"
)]
pub(crate) struct TxnArgs {
    /// The file that holds the transaction; - or nothing for standard input.
    file: Option<PathBuf>,
    /// Only say which comparisons hold now; write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Exit 5 when a comparison does not hold (after doing the other branch).
    #[arg(long)]
    fail_on_else: bool,
    /// Refused, with where comparisons go: whoever knows `put --if` looks for it here.
    #[arg(long = "if", hide = true, value_parser = refuse_condition)]
    _condition: Option<String>,
    #[command(flatten)]
    commit: CommitArgs,
}

fn refuse_condition(_: &str) -> Result<String, String> {
    Err(format!(
        "txn has its comparisons in the transaction, as its first part: {}",
        text::COMPARE_FORM
    ))
}

/// `txn`: one transaction.
pub(crate) fn txn(global: &Global, args: &TxnArgs, out: &mut Output) -> Outcome {
    let request = read(args)?;
    let succeeded = if args.dry_run {
        dry_run(global, &request, out)?
    } else {
        let store =
            if makes_store(&request) { global.write()? } else { global.write_existing()? };
        let response = store.transact_with(request, args.commit.options())?;
        store.close()?;
        match out.format() {
            Format::Json | Format::Ndjson => out.object(&json::response(&response))?,
            Format::Table => {
                plain(&response, 0, out)?;
                out.object(&json!({ "revision": response.revision }))?;
            }
            Format::Raw => plain(&response, 0, out)?,
        }
        response.succeeded
    };
    if args.fail_on_else && !succeeded {
        return Err(Failure::NotFound("a comparison does not hold".into()));
    }
    Ok(())
}

/// Would it put something into an empty store? Only then may it make one.
fn makes_store(request: &TxnRequest) -> bool {
    let holds = request.compare.iter().all(|compare| holds_for(compare, None));
    let branch = if holds { &request.success } else { &request.failure };
    branch.iter().any(|op| match op {
        Op::Put(put) => put.lease == 0 && !put.ignore_value && !put.ignore_lease,
        Op::Txn(nested) => makes_store(nested),
        _ => false,
    })
}

fn read(args: &TxnArgs) -> Outcome<TxnRequest> {
    let (name, text) = match &args.file {
        Some(path) if path.as_os_str() != "-" => {
            let name = path.display().to_string();
            let text = std::fs::read(path).map_err(|e| Failure::io(&name, e))?;
            (name, text)
        }
        _ => {
            let mut text = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut text);
            read.map_err(|e| Failure::io("standard input", e))?;
            ("standard input".to_owned(), text)
        }
    };
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
    let parsed = if first.is_none() {
        Err("the transaction is empty".to_owned())
    } else if first == Some(&b'{') {
        json::parse(&text)
    } else {
        match std::str::from_utf8(&text) {
            Ok(text) => text::parse(text),
            Err(_) => Err("neither JSON nor UTF-8 text".into()),
        }
    };
    parsed.map_err(|error| Failure::Usage(format!("{name}: {error}")))
}

/// etcdctl's way of writing an answer.
fn plain(response: &TxnResponse, depth: usize, out: &mut Output) -> Outcome {
    let head = if response.succeeded { "SUCCESS" } else { "FAILURE" };
    let mut text = format!("{:depth$}{head}\n", "");
    for answer in &response.responses {
        match answer {
            OpResponse::Put(_) => text.push_str("OK\n"),
            OpResponse::DeleteRange(delete) => {
                let _ = writeln!(text, "{}", delete.deleted);
            }
            OpResponse::Range(range) => {
                out.bytes(text.as_bytes())?;
                text.clear();
                for kv in &range.kvs {
                    pair(kv, out)?;
                }
            }
            OpResponse::Txn(nested) => {
                out.bytes(text.as_bytes())?;
                text.clear();
                plain(nested, depth + 2, out)?;
            }
        }
    }
    out.bytes(text.as_bytes())
}

fn pair(kv: &KeyValue, out: &mut Output) -> Outcome {
    for part in [&kv.key, &kv.value] {
        match out.format() {
            Format::Raw => out.bytes(part)?,
            _ => out.bytes(crate::bytes::show_line(part, 200).as_bytes())?,
        }
        out.bytes(b"\n")?;
    }
    Ok(())
}

/// Says which comparisons hold, on a store opened for reading only.
fn dry_run(global: &Global, request: &TxnRequest, out: &mut Output) -> Outcome<bool> {
    let store = global.read()?;
    let view = store.latest()?;
    let mut succeeded = true;
    let mut compares = Vec::new();
    for compare in &request.compare {
        let holds = holds(&view, compare)?;
        succeeded &= holds;
        let mut form = json::compare(compare);
        form["holds"] = json!(holds);
        compares.push(form);
    }
    out.object(&json!({
        "revision": view.revision(),
        "succeeded": succeeded,
        "compares": compares,
    }))?;
    Ok(succeeded)
}

/// Does a comparison hold? Over a range it must for every key; over none it looks at an absent key.
fn holds(view: &View, compare: &Compare) -> Outcome<bool> {
    if compare.key.is_empty() {
        return Err(annals::Error::from(annals::ErrorKind::EmptyKey).into());
    }
    let mut any = false;
    for kv in view.range(KeyRange::from_etcd(&compare.key, &compare.range_end)) {
        any = true;
        if !holds_for(compare, Some(&kv?)) {
            return Ok(false);
        }
    }
    Ok(any || holds_for(compare, None))
}

pub(crate) fn holds_for(compare: &Compare, kv: Option<&KeyValue>) -> bool {
    let number = |of: fn(&KeyValue) -> u64| kv.map_or(0, of);
    let order = match &compare.target {
        CompareTarget::Version(version) => number(|kv| kv.version).cmp(version),
        CompareTarget::CreateRevision(revision) => number(|kv| kv.create_revision).cmp(revision),
        CompareTarget::ModRevision(revision) => number(|kv| kv.mod_revision).cmp(revision),
        CompareTarget::Lease(lease) => kv.map_or(0, |kv| kv.lease).cmp(lease),
        CompareTarget::Value(value) => match kv {
            Some(kv) => kv.value.cmp(value),
            None => return false,
        },
    };
    match compare.result {
        CompareResult::Equal => order.is_eq(),
        CompareResult::NotEqual => order.is_ne(),
        CompareResult::Greater => order.is_gt(),
        CompareResult::Less => order.is_lt(),
    }
}
