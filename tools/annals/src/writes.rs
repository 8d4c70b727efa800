//! The commands that write keys: put and del. Both are one transaction, so `--if` is decided
//! and acted on at one revision.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;

use ::bytes::Bytes;
use annals::{
    CommitOptions, Compare, CompareResult, CompareTarget, DeleteRangeRequest, Op, OpResponse,
    PutRequest, RangeRequest, Store, TxnRequest, TxnResponse,
};
use clap::Args;
use serde_json::{Value, json};

use crate::args::Global;
use crate::bytes::{self, show};
use crate::exit::{Failure, Outcome};
use crate::output::Output;
use crate::reads::kv_json;
use crate::txn::holds_for;

/// What every command that writes takes.
#[derive(Debug, Args)]
pub(crate) struct CommitArgs {
    /// Text to keep with the transaction; `history` and `log` show it.
    #[arg(long, value_name = "TEXT")]
    metadata: Option<OsString>,
}

impl CommitArgs {
    /// The engine's options for the transaction.
    pub(crate) fn options(&self) -> CommitOptions {
        let metadata = self.metadata.as_deref().map(bytes::of_arg).unwrap_or_default();
        CommitOptions { metadata, ..CommitOptions::default() }
    }
}

/// Arguments of `put`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  $ annals -C store put /pods/c running
  $ annals -C store put /pods/c failed --metadata 'by ada' --prev-kv
  $ echo '{\"replicas\": 3}' | annals -C store put /config/web -
  $ annals -C store put /config/web @config.json
  $ annals -C store put /leader me --if create=0       # only if there is none
  $ annals -C store put /leader you --if create=0      # exits 5")]
pub(crate) struct PutArgs {
    /// The key.
    key: OsString,
    /// The value: itself, @FILE for a file's content (@@... for a value that begins with @), or -
    /// for standard input, which is also the default (then it must not be empty).
    #[arg(allow_negative_numbers = true)]
    value: Option<OsString>,
    /// Attach the key to a lease (`lease grant` makes one): decimal, or hexadecimal with 0x.
    #[arg(long, value_name = "ID", value_parser = parse_lease, default_value_t = 0, hide_default_value = true, allow_negative_numbers = true)]
    lease: i64,
    /// Write only if the key is so now: mod=7, create=0, version!=3, lease=0, value=text (what follows
    /// the sign, as it is); also < and >. Can be repeated. Exits 5 when a condition does not hold.
    #[arg(long = "if", value_name = "WHAT=VALUE")]
    conditions: Vec<OsString>,
    /// Show the key-value as it was before.
    #[arg(long)]
    prev_kv: bool,
    #[command(flatten)]
    commit: CommitArgs,
}

/// Arguments of `del`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  $ annals -C store del /pods/a
  $ annals -C store del /pods/b --if version=1 --prev-kv
  $ annals -C store del --prefix /config/ --metadata 'by ada'
  $ annals -C store del /flags/a /flags/f              # from the one up to, without, the other")]
pub(crate) struct DelArgs {
    /// The key; or the first key of a range.
    #[arg(required_unless_present = "prefix")]
    from: Option<OsString>,
    /// The end of the range: the first key after it.
    to: Option<OsString>,
    /// Delete every key that begins with this; '' is every key.
    #[arg(long, value_name = "PREFIX", conflicts_with_all = ["from", "to", "conditions"])]
    prefix: Option<OsString>,
    /// Delete only if the key is so now, as for put.
    #[arg(long = "if", value_name = "WHAT=VALUE", conflicts_with = "to")]
    conditions: Vec<OsString>,
    /// Show the key-values that were deleted.
    #[arg(long)]
    prev_kv: bool,
    #[command(flatten)]
    commit: CommitArgs,
}

/// A lease id: decimal, or hexadecimal with 0x.
pub(crate) fn parse_lease(text: &str) -> Result<i64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "expected a lease id, such as 1001 or 0x3e9".into())
}

/// `put`: one key.
pub(crate) fn put(global: &Global, args: &PutArgs, out: &mut Output) -> Outcome {
    let key = bytes::of_arg(&args.key);
    if key.is_empty() {
        return Err(annals::Error::from(annals::ErrorKind::EmptyKey).into());
    }
    let value = read_value(args.value.as_deref())?;
    let conditions = parse_conditions(&key, &args.conditions)?;
    let request = PutRequest {
        key: key.clone(),
        value,
        lease: args.lease,
        prev_kv: args.prev_kv,
        ..PutRequest::default()
    };
    if !conditions.iter().all(|condition| holds_for(condition, None)) && global.is_absent()? {
        let (key, data) = (show(&key, 200), global.data()?.display());
        return Err(Failure::NotFound(format!(
            "{key}: the condition does not hold: {data}: no store here"
        )));
    }
    // Without a store there is no lease either.
    let store = if args.lease == 0 { global.write()? } else { global.write_existing()? };
    let response = run(&store, &key, conditions, request.into(), &args.commit)?;
    let mut answer = json!({ "revision": response.revision });
    if let (true, Some(OpResponse::Put(put))) = (args.prev_kv, response.responses.first()) {
        answer["prev_kv"] = put.prev_kv.as_ref().map_or(Value::Null, |kv| kv_json(kv, true));
    }
    store.close()?;
    out.object(&answer)
}

/// `del`: a key or a range of keys.
pub(crate) fn del(global: &Global, args: &DelArgs, out: &mut Output) -> Outcome {
    let mut request = match (&args.prefix, &args.from) {
        (Some(prefix), _) => DeleteRangeRequest::prefix(bytes::of_arg(prefix)),
        (None, Some(from)) => DeleteRangeRequest::new(bytes::of_arg(from)),
        (None, None) => return Err(Failure::Usage("which key?".into())),
    };
    if let Some(to) = &args.to {
        request.range_end = bytes::of_arg(to);
        if request.range_end.is_empty() {
            return Err(Failure::Usage("TO is empty".into()));
        }
    }
    request.prev_kv = args.prev_kv;
    let key = request.key.clone();
    let conditions = parse_conditions(&key, &args.conditions)?;
    // A mistyped directory has nothing to delete.
    let store = global.write_existing()?;
    let response = run(&store, &key, conditions, request.into(), &args.commit)?;
    let mut answer = json!({ "revision": response.revision });
    if let Some(OpResponse::DeleteRange(deleted)) = response.responses.first() {
        answer["deleted"] = json!(deleted.deleted);
        if args.prev_kv {
            answer["prev_kvs"] = deleted.prev_kvs.iter().map(|kv| kv_json(kv, true)).collect();
        }
    }
    store.close()?;
    out.object(&answer)
}

/// Runs one operation on `key` under its conditions. What the key is instead, when one does not
/// hold, is read in the same transaction.
fn run(
    store: &Store,
    key: &Bytes,
    conditions: Vec<Compare>,
    op: Op,
    commit: &CommitArgs,
) -> Outcome<TxnResponse> {
    let failure =
        if conditions.is_empty() { Vec::new() } else { vec![RangeRequest::new(key).into()] };
    let request = TxnRequest { compare: conditions, success: vec![op], failure };
    let response = store.transact_with(request, commit.options())?;
    if response.succeeded {
        return Ok(response);
    }
    let now = match response.responses.first().and_then(|response| response.kvs().first()) {
        Some(kv) => format!(
            "it has mod={} create={} version={} lease={}",
            kv.mod_revision, kv.create_revision, kv.version, kv.lease
        ),
        None => "it is not alive".into(),
    };
    let key = show(key, 200);
    let revision = response.revision;
    Err(Failure::NotFound(format!(
        "{key}: the condition does not hold: at revision {revision} {now}"
    )))
}

/// A value as the command line gives it.
fn read_value(argument: Option<&OsStr>) -> Outcome<Bytes> {
    let argument = argument.map(bytes::of_arg);
    match argument.as_deref() {
        None | Some(b"-") => {
            let mut value = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut value);
            read.map_err(|e| Failure::io("standard input", e))?;
            if value.is_empty() && argument.is_none() {
                let text = "no value is given, and standard input is empty: give '' or - for an empty value";
                return Err(Failure::Usage(text.into()));
            }
            Ok(value.into())
        }
        Some([b'@', b'@', rest @ ..]) => {
            let mut value = vec![b'@'];
            value.extend_from_slice(rest);
            Ok(value.into())
        }
        Some([b'@', path @ ..]) => {
            let path = String::from_utf8_lossy(path).into_owned();
            let value = std::fs::read(&path).map_err(|e| Failure::io(path, e))?;
            Ok(value.into())
        }
        Some(value) => Ok(Bytes::copy_from_slice(value)),
    }
}

fn parse_conditions(key: &Bytes, conditions: &[OsString]) -> Outcome<Vec<Compare>> {
    conditions
        .iter()
        .map(|condition| {
            let text = bytes::of_arg(condition);
            parse_condition(key, &text)
                .map_err(|why| Failure::Usage(format!("--if {}: {why}", show(&text, 200))))
        })
        .collect()
}

/// How a condition is spelled.
const CONDITION_FORM: &str = "a condition is mod, create, version, lease or value, then =, !=, < or >, \
    then a number from 0 on (for value a text): mod=7, create=0, value=text";

/// `mod=7` and the like.
fn parse_condition(key: &Bytes, text: &[u8]) -> Result<Compare, String> {
    let form = || CONDITION_FORM.to_owned();
    let at = text.iter().position(|byte| matches!(byte, b'=' | b'!' | b'<' | b'>'));
    let (name, rest) = text.split_at(at.ok_or_else(form)?);
    let (result, value) = match rest {
        [b'!', b'=', value @ ..] => (CompareResult::NotEqual, value),
        [b'=', value @ ..] => (CompareResult::Equal, value),
        [b'<', value @ ..] => (CompareResult::Less, value),
        [b'>', value @ ..] => (CompareResult::Greater, value),
        _ => return Err(form()),
    };
    let number = || {
        let parsed = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        parsed.ok_or_else(|| format!("{:?} is no number; {CONDITION_FORM}", show(value, 80)))
    };
    let target = match name {
        b"mod" => CompareTarget::ModRevision(number()?),
        b"create" => CompareTarget::CreateRevision(number()?),
        b"version" => CompareTarget::Version(number()?),
        b"value" => CompareTarget::Value(Bytes::copy_from_slice(value)),
        b"lease" => {
            let id = parse_lease(&String::from_utf8_lossy(value));
            CompareTarget::Lease(id.map_err(|why| format!("{why}; {CONDITION_FORM}"))?)
        }
        _ => return Err(form()),
    };
    Ok(Compare { key: key.clone(), range_end: Bytes::new(), result, target })
}

#[cfg(test)]
mod tests {
    use super::*;
    use CompareResult::{Equal, Greater, Less, NotEqual};

    #[test]
    fn conditions() {
        let key = Bytes::from_static(b"k");
        let parse = |text: &str| {
            let parsed = parse_condition(&key, text.as_bytes()).ok();
            parsed.map(|compare| (compare.result, compare.target))
        };
        assert_eq!(parse("mod=7"), Some((Equal, CompareTarget::ModRevision(7))));
        assert_eq!(parse("create!=0"), Some((NotEqual, CompareTarget::CreateRevision(0))));
        assert_eq!(parse("version<3"), Some((Less, CompareTarget::Version(3))));
        assert_eq!(parse("lease>0x10"), Some((Greater, CompareTarget::Lease(16))));
        assert_eq!(parse("value=a=b"), Some((Equal, CompareTarget::Value("a=b".into()))));
        for text in ["", "mod", "mod=", "mod=x", "mod!7", "size=1", "mod=-1"] {
            assert_eq!(parse(text), None, "{text}");
        }
        let why = |text: &str| parse_condition(&key, text.as_bytes()).unwrap_err();
        assert!(why("mod=x").starts_with("\"x\" is no number; "));
        assert!(why("lease=x").contains("a lease id"));
        for text in ["mod==0", "mod=x", "lease=x", "size=1", "mod", "mod!7"] {
            assert!(why(text).contains("then =, !=, < or >"), "{text}: {}", why(text));
        }
    }

    #[test]
    fn leases() {
        assert_eq!(parse_lease("1001"), Ok(1001));
        assert_eq!(parse_lease("0x3e9"), Ok(1001));
        assert!(parse_lease("3e9").is_err());
    }
}
