//! The text form of a transaction: etcdctl's.
//!
//! ```text
//! mod("key1") > "0"
//!
//! put key1 "overwrote key1"
//! get key1 --prefix
//!
//! put key1 "created key1"
//! ```
//!
//! Three parts, each ended by an empty line or the end of the text: comparisons, what to do when
//! all hold, what to do when one does not. A lease is decimal, or hexadecimal with 0x (etcdctl
//! takes bare hexadecimal).

use annals::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, Op, PutRequest, RangeRequest,
    SortOrder, SortTarget, TxnRequest, prefix_range_end,
};
use bytes::Bytes;

use crate::writes::parse_lease;

/// Parses the text form.
///
/// # Errors
/// The line and what is wrong with it, in words.
pub(super) fn parse(text: &str) -> Result<TxnRequest, String> {
    let mut txn = TxnRequest::default();
    let mut part = 0;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let at = |error: String| format!("line {}: {error}", index + 1);
        if line.is_empty() {
            part += 1;
            continue;
        }
        match part {
            0 => txn.compare.push(parse_compare(line).map_err(at)?),
            1 => txn.success.push(parse_op(line).map_err(at)?),
            2 => txn.failure.push(parse_op(line).map_err(at)?),
            _ => return Err(at("there is nothing after the third part".into())),
        }
    }
    Ok(txn)
}

/// How a comparison is spelled.
pub(super) const COMPARE_FORM: &str = "a comparison is mod, create, version, lease or value, then (\"KEY\"), then \
    =, !=, < or >, then \"VALUE\", both in double quotes: mod(\"k\") = \"7\"";

/// `target("key") op "value"`.
fn parse_compare(line: &str) -> Result<Compare, String> {
    let shown = || crate::bytes::show(line.as_bytes(), 80);
    let malformed =
        || format!("{}: {COMPARE_FORM}. (JSON is read, too: it begins with {{)", shown());
    let (target, rest) = line.split_once('(').ok_or_else(malformed)?;
    let (key, rest) = quoted(rest.trim_start()).ok_or_else(malformed)?;
    let rest = rest.trim_start().strip_prefix(')').ok_or_else(malformed)?.trim_start();
    let (result, rest) = [
        ("!=", CompareResult::NotEqual),
        ("=", CompareResult::Equal),
        (">", CompareResult::Greater),
        ("<", CompareResult::Less),
    ]
    .into_iter()
    .find_map(|(sign, result)| Some((result, rest.strip_prefix(sign)?)))
    .ok_or_else(malformed)?;
    let (value, rest) = quoted(rest.trim_start()).ok_or_else(malformed)?;
    if !rest.trim().is_empty() {
        return Err(malformed());
    }
    let number = || {
        let text = std::str::from_utf8(&value).ok();
        let number = text.and_then(|text| text.parse().ok());
        number.ok_or_else(|| format!("{}: expected a number from 0 on, such as \"7\"", shown()))
    };
    let target = match target.trim() {
        "ver" | "version" => CompareTarget::Version(number()?),
        "c" | "create" => CompareTarget::CreateRevision(number()?),
        "m" | "mod" => CompareTarget::ModRevision(number()?),
        "val" | "value" => CompareTarget::Value(value.into()),
        "lease" => {
            let id = parse_lease(&String::from_utf8_lossy(&value));
            CompareTarget::Lease(id.map_err(|why| format!("{}: {why}", shown()))?)
        }
        _ => return Err(malformed()),
    };
    Ok(Compare { key: key.into(), range_end: Bytes::new(), result, target })
}

/// A double-quoted string at the beginning of `text`, and what follows it.
fn quoted(text: &str) -> Option<(Vec<u8>, &str)> {
    let mut rest = text.strip_prefix('"')?.chars();
    let mut bytes = Vec::new();
    loop {
        match rest.next()? {
            '"' => return Some((bytes, rest.as_str())),
            '\\' => escape(&mut rest, &mut bytes)?,
            c => push(&mut bytes, c),
        }
    }
}

/// What follows a backslash: the escapes of Go and C that etcdctl's users know.
fn escape(rest: &mut std::str::Chars<'_>, bytes: &mut Vec<u8>) -> Option<()> {
    match rest.next()? {
        'n' => bytes.push(b'\n'),
        't' => bytes.push(b'\t'),
        'r' => bytes.push(b'\r'),
        '0' => bytes.push(0),
        'x' => {
            let digits: String = rest.by_ref().take(2).collect();
            if digits.len() != 2 {
                return None;
            }
            bytes.push(u8::from_str_radix(&digits, 16).ok()?);
        }
        c => push(bytes, c),
    }
    Some(())
}

fn push(bytes: &mut Vec<u8>, c: char) {
    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Splits a line into words as a shell would: quotes of both kinds, backslashes.
fn words(line: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        match c {
            '"' => {
                let (bytes, after) = quoted(rest).ok_or("an unfinished \" or a wrong escape")?;
                word.get_or_insert_default().extend(bytes);
                rest = after;
            }
            '\'' => {
                let (text, after) = after.split_once('\'').ok_or("an unfinished '")?;
                word.get_or_insert_default().extend(text.as_bytes());
                rest = after;
            }
            '\\' => {
                let mut chars = after.chars();
                let next = chars.next().ok_or("a backslash at the end")?;
                push(word.get_or_insert_default(), next);
                rest = chars.as_str();
            }
            c if c.is_whitespace() => {
                words.extend(word.take());
                rest = after;
            }
            c => {
                push(word.get_or_insert_default(), c);
                rest = after;
            }
        }
    }
    words.extend(word);
    Ok(words)
}

/// The words of an operation, flags apart.
#[derive(Debug, Default)]
struct Words {
    plain: Vec<Bytes>,
    flags: Vec<(String, String)>,
}

impl Words {
    fn take_flag(&mut self, names: &[&str]) -> Option<String> {
        let at = self.flags.iter().position(|(name, _)| names.contains(&name.as_str()))?;
        Some(self.flags.remove(at).1)
    }

    fn take_switch(&mut self, name: &str) -> bool {
        self.take_flag(&[name]).is_some_and(|value| value != "false")
    }

    fn take_number(&mut self, names: &[&str]) -> Result<u64, String> {
        match self.take_flag(names) {
            Some(text) => text.parse().map_err(|_| format!("--{}: expected a number", names[0])),
            None => Ok(0),
        }
    }

    fn finish(self) -> Result<(), String> {
        match self.flags.first() {
            Some((name, _)) => Err(format!("unknown flag --{name}")),
            None => Ok(()),
        }
    }
}

/// Flags of `put`, `get` and `del` that stand alone.
const SWITCHES: [&str; 7] =
    ["prefix", "from-key", "keys-only", "count-only", "prev-kv", "ignore-value", "ignore-lease"];

fn split_flags(words: Vec<Vec<u8>>) -> Result<Words, String> {
    let mut split = Words::default();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word == b"--" {
            split.plain.extend(words.by_ref().map(Bytes::from));
            break;
        }
        match word.strip_prefix(b"--") {
            None => split.plain.push(word.into()),
            Some(flag) => {
                let flag = String::from_utf8_lossy(flag).into_owned();
                if let Some((name, value)) = flag.split_once('=') {
                    split.flags.push((name.to_owned(), value.to_owned()));
                } else if SWITCHES.contains(&flag.as_str()) {
                    split.flags.push((flag, "true".into()));
                } else {
                    let value = words.next().ok_or_else(|| format!("--{flag} needs a value"))?;
                    split.flags.push((flag, String::from_utf8_lossy(&value).into_owned()));
                }
            }
        }
    }
    Ok(split)
}

fn parse_op(line: &str) -> Result<Op, String> {
    let mut words = words(line)?;
    if words.is_empty() {
        return Err("no operation".into());
    }
    let name = words.remove(0);
    let words = split_flags(words)?;
    match name.as_slice() {
        b"put" => parse_put(words),
        b"get" => parse_get(words),
        b"del" => parse_del(words),
        other => Err(format!(
            "unknown operation {}: expected put, get or del",
            String::from_utf8_lossy(other)
        )),
    }
}

fn parse_put(mut words: Words) -> Result<Op, String> {
    let lease = words.take_flag(&["lease"]).map_or(Ok(0), |text| parse_lease(&text))?;
    let (prev_kv, ignore_value) = (words.take_switch("prev-kv"), words.take_switch("ignore-value"));
    let ignore_lease = words.take_switch("ignore-lease");
    let (key, value) = match words.plain.as_slice() {
        [key, value] if !ignore_value => (key.clone(), value.clone()),
        [key] if ignore_value => (key.clone(), Bytes::new()),
        _ => return Err("put takes a key and a value".into()),
    };
    words.finish()?;
    Ok(Op::Put(PutRequest { key, value, lease, prev_kv, ignore_value, ignore_lease }))
}

/// The key and range end of `get` and `del`.
fn parse_range(words: &mut Words) -> Result<(Bytes, Bytes), String> {
    let (prefix, from_key) = (words.take_switch("prefix"), words.take_switch("from-key"));
    match (words.plain.as_slice(), prefix, from_key) {
        ([key], false, false) => Ok((key.clone(), Bytes::new())),
        ([key, end], false, false) if !end.is_empty() => Ok((key.clone(), end.clone())),
        ([key], true, false) if key.is_empty() => Ok((b"\0"[..].into(), b"\0"[..].into())),
        ([key], true, false) => Ok((key.clone(), prefix_range_end(key))),
        ([key], false, true) => Ok((key.clone(), b"\0"[..].into())),
        _ => Err("expected a key, a key and an end, or a key with --prefix or --from-key".into()),
    }
}

fn parse_get(mut words: Words) -> Result<Op, String> {
    let (key, range_end) = parse_range(&mut words)?;
    let revision = words.take_number(&["rev"])?;
    let mut request = RangeRequest {
        key,
        range_end,
        limit: words.take_number(&["limit"])?,
        revision: (revision > 0).then_some(revision),
        keys_only: words.take_switch("keys-only"),
        count_only: words.take_switch("count-only"),
        min_mod_revision: words.take_number(&["min-mod-rev", "min-mod-revision"])?,
        max_mod_revision: words.take_number(&["max-mod-rev", "max-mod-revision"])?,
        min_create_revision: words.take_number(&["min-create-rev", "min-create-revision"])?,
        max_create_revision: words.take_number(&["max-create-rev", "max-create-revision"])?,
        ..RangeRequest::default()
    };
    if let Some(order) = words.take_flag(&["order"]) {
        request.sort_order = match order.to_ascii_uppercase().as_str() {
            "ASCEND" => SortOrder::Ascend,
            "DESCEND" => SortOrder::Descend,
            _ => return Err(format!("--order {order}: expected ASCEND or DESCEND")),
        };
    }
    if let Some(target) = words.take_flag(&["sort-by"]) {
        request.sort_target = match target.to_ascii_uppercase().as_str() {
            "CREATE" => SortTarget::Create,
            "KEY" => SortTarget::Key,
            "MODIFY" => SortTarget::Mod,
            "VALUE" => SortTarget::Value,
            "VERSION" => SortTarget::Version,
            _ => {
                return Err(format!(
                    "--sort-by {target}: expected CREATE, KEY, MODIFY, VALUE or VERSION"
                ));
            }
        };
    }
    words.finish()?;
    Ok(Op::Range(request))
}

fn parse_del(mut words: Words) -> Result<Op, String> {
    let (key, range_end) = parse_range(&mut words)?;
    let prev_kv = words.take_switch("prev-kv");
    words.finish()?;
    Ok(Op::DeleteRange(DeleteRangeRequest { key, range_end, prev_kv }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcdctls_example() {
        let txn = parse(
            "mod(\"key1\") > \"0\"\n\nput key1 \"overwrote-key1\"\n\nput key1 \"created-key1\"\nput key2 \"some extra key\"\n",
        )
        .unwrap();
        assert_eq!(txn.compare, [annals::mod_revision("key1").gt(0)]);
        assert_eq!(txn.success, [annals::put("key1", "overwrote-key1")]);
        let failure = [annals::put("key1", "created-key1"), annals::put("key2", "some extra key")];
        assert_eq!(txn.failure, failure);
    }

    #[test]
    fn comparisons() {
        for (line, compare) in [
            (r#"value("a\"b") = "x\x00""#, annals::value("a\"b").eq("x\0")),
            (r#"ver("k") != "3""#, annals::version("k").ne(3)),
            (r#"c("k")="0""#, annals::create_revision("k").eq(0)),
            (r#"lease("k") < "0x10""#, annals::lease("k").lt(16)),
        ] {
            assert_eq!(parse_compare(line).unwrap(), compare, "{line}");
        }
        for line in [
            "mod(k) > \"0\"",
            "mod(\"k\") \"0\"",
            "size(\"k\") = \"1\"",
            "mod(\"k\") = \"x\"",
            "mod(\"k\") = \"1\" x",
            "lease(\"k\") = \"x\"",
        ] {
            assert!(parse_compare(line).unwrap_err().starts_with(line), "{line}");
        }
        for line in
            ["mod==0", "mod=0", "mod(\"k\") == \"0\"", "mod(\"k\") = 0", "size(\"k\") = \"1\""]
        {
            let why = parse_compare(line).unwrap_err();
            assert!(why.contains("then =, !=, < or >, then \"VALUE\""), "{why}");
        }
    }

    #[test]
    fn operations() {
        for (line, op) in [
            ("get k", annals::get("k")),
            ("get --prefix k", annals::range("k")),
            (
                "get k --limit=2 --sort-by MODIFY --order descend",
                RangeRequest::new("k").limit(2).sort(SortTarget::Mod, SortOrder::Descend).into(),
            ),
            ("del a b --prev-kv", DeleteRangeRequest::new("a").range_end("b").prev_kv().into()),
            ("del a --from-key", DeleteRangeRequest::new("a").range_end("\0").into()),
            ("put -- --k 'it is'\" so\"", annals::put("--k", "it is so")),
            (
                "put k --ignore-value --lease 0x10",
                PutRequest::new("k", "").ignore_value().lease(16).into(),
            ),
        ] {
            assert_eq!(parse_op(line).unwrap(), op, "{line}");
        }
        for line in [
            "",
            "put k",
            "get",
            "get k --x=1",
            "watch k",
            "put k 'v",
            "get k --limit",
            "del k end --prefix",
        ] {
            assert!(parse_op(line).is_err(), "{line}");
        }
    }

    #[test]
    fn empty_parts_and_too_many() {
        assert_eq!(parse("").unwrap(), TxnRequest::default());
        assert_eq!(parse("\nget k").unwrap().success.len(), 1);
        assert_eq!(parse("\n\nget k").unwrap().failure.len(), 1);
        assert!(parse("\n\n\nget k").unwrap_err().contains("line 4"));
    }
}
