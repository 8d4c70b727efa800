//! What to do about an error, in one sentence for each kind.

use std::borrow::Cow;
use std::path::Path;

use annals::ErrorKind;
use annals_format::name::{CURRENT, FileName};

/// The same where a file is damaged that is not of a store.
pub(crate) const DAMAGED_FILE: &str = "take another snapshot, or another copy of this one";

/// What to do next.
pub(crate) fn hint(kind: &ErrorKind) -> Cow<'static, str> {
    match kind {
        // As `annals-etcd` has it.
        ErrorKind::NotAStore { path, .. } if path.join("store").join(CURRENT).exists() => {
            format!("there is a store in it: -C {}", path.join("store").display()).into()
        }
        ErrorKind::Corrupt(damage)
            if damage.offset == 0 && damage.structure == "backup header magic" =>
        {
            "it does not begin as a backup does: is it the right file? `annals backup FILE` makes one"
                .into()
        }
        ErrorKind::Corrupt(damage) if !is_of_a_store(&damage.file) => {
            "verify and repair are for stores: take another backup, or another copy of this one"
                .into()
        }
        ErrorKind::Compacted { prefix: Some(prefix), .. } => {
            let prefix = crate::bytes::show(prefix, 60);
            format!(
                "read there or later, or ask for keys that are kept longer than {prefix}: by a key, or --prefix; `annals \
                 retention list` lists the rules"
            )
            .into()
        }
        _ => usual(kind).into(),
    }
}

/// Whether a file has a name that the files of a store have.
fn is_of_a_store(file: &Path) -> bool {
    let mut parents = file.ancestors();
    let (whole, directory) = (parents.next(), parents.nth(1));
    let inside = whole.zip(directory).and_then(|(file, base)| file.strip_prefix(base).ok());
    let names = [inside.and_then(Path::to_str), file.file_name().and_then(|name| name.to_str())];
    names.into_iter().flatten().any(|name| FileName::parse(name).is_some())
}

fn usual(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::EmptyKey => "give a key of at least one byte",
        ErrorKind::KeyTooLong { .. } => {
            "shorten the key, or raise the limit: -O key_bytes_max=..., here and in every program that writes"
        }
        ErrorKind::ValueTooLong { .. } => {
            "split the value, or raise the limit: -O value_bytes_max=..., here and in every program that writes"
        }
        ErrorKind::TransactionTooLarge { .. } => {
            "split the transaction, or raise the limit: -O transaction_bytes_max=..."
        }
        ErrorKind::TooManyOperations { .. } => {
            "split the transaction, or raise the limit: -O transaction_operations_max=..."
        }
        ErrorKind::MetadataTooLong { .. } => "shorten the metadata: what is long belongs in a key",
        ErrorKind::DuplicateKey { .. } => "let each key be written once in a transaction",
        ErrorKind::KeyNotFound { .. } => {
            "`annals range` lists the keys, `annals history KEY` tells whether it was deleted"
        }
        ErrorKind::ValueProvided => "leave the value out, or do not ask to keep the present one",
        ErrorKind::LeaseProvided => "leave the lease out, or do not ask to keep the present one",
        ErrorKind::LeaseNotFound { .. } => {
            "`annals lease list` lists the leases, `annals lease grant` makes one"
        }
        ErrorKind::LeaseExists { .. } => "give another --id, or none: then the store picks one",
        ErrorKind::LeaseTtlTooLarge { .. } => "give a shorter time to live",
        ErrorKind::InvalidArgument { .. } => {
            "`annals help COMMAND` says what a command takes, with examples"
        }
        ErrorKind::InvalidOption { .. } => {
            "`annals --help` lists the options of the engine with their ranges"
        }
        ErrorKind::Compacted { .. } => {
            "`annals stats --short` names the compacted revision, `annals retention list` those of prefixes with a \
             rule: read there or later"
        }
        ErrorKind::TooManyRules { .. } => {
            "`annals retention list` lists the rules, `annals retention unset` takes one back"
        }
        ErrorKind::FutureRevision { .. } => "`annals at latest` says which revision is the newest",
        ErrorKind::NoRevisionAtTime { .. } => {
            "`annals log --limit 1` shows the oldest revision that is kept of all keys"
        }
        ErrorKind::TimeUnknown { .. } => {
            "name one of these revisions instead of a time; `annals log` shows what they changed"
        }
        ErrorKind::Lagged { .. } => "watch again, with --since and the revision named",
        ErrorKind::ReadOnly => "open the store for writing",
        ErrorKind::Closed => "open the store again",
        ErrorKind::WouldWait => "submit it by a call that waits",
        ErrorKind::NoStore { .. } => {
            "is -C right? `annals put`, `annals import` and `annals restore` make a store where there is none"
        }
        ErrorKind::NotAStore { .. } => {
            "give the directory of a store; `annals put`, `import` and `restore` make one where nothing is"
        }
        ErrorKind::NotEmpty { .. } => {
            "remove it if nobody needs what is in it, or give another directory, absent or empty"
        }
        ErrorKind::Locked { .. } => {
            "`annals readers` names the program that has it open: let it close the store (each handle, view and lease \
             guard of it), or do there what is to be done; commands that only read work meanwhile"
        }
        ErrorKind::UnsupportedVersion { .. } => {
            "use a build that knows the version: `annals export` there, `annals import history` here"
        }
        ErrorKind::NoSpace { .. } => {
            "make room on the device, which compacting needs, too: `annals stats --by prefix` says what takes it, \
             `annals compact --at latest --dry-run` what the past takes"
        }
        ErrorKind::Corrupt(_) => {
            "`annals verify` lists all damage; restore a backup, or let `annals repair --to DIR` save what can be read"
        }
        ErrorKind::Io { .. } => "is the path right, and may this user read and write there?",
        ErrorKind::Poisoned { cause } if cause.corruption().is_some() => {
            "opening the store again does not mend it: `annals verify` lists all damage, `annals repair --to DIR` makes \
             another store of what can be read"
        }
        ErrorKind::Poisoned { .. } => "do away with the cause, and open the store again",
        ErrorKind::OutcomeUnknown { .. } => {
            "do away with the cause, then read what was written: it is there, or it is not"
        }
        _ => "`annals --help` lists what can be done",
    }
}

#[cfg(test)]
mod tests {
    /// The kinds, from the source: the type can grow, and no match of another crate on it is exhaustive.
    #[test]
    fn every_kind_has_a_hint_of_its_own() {
        let source = include_str!("../../../src/error.rs");
        let (_, kinds) = source.split_once("pub enum ErrorKind {\n").unwrap();
        let (kinds, _) = kinds.split_once("\n}\n").unwrap();
        let own = include_str!("hint.rs");
        let mut count = 0;
        for line in kinds.lines() {
            let Some(name) =
                line.strip_prefix("    ").filter(|name| name.starts_with(char::is_uppercase))
            else {
                continue;
            };
            let name: String = name.chars().take_while(char::is_ascii_alphanumeric).collect();
            assert!(own.contains(&format!("ErrorKind::{name}")), "{name} has no hint");
            count += 1;
        }
        assert!(count >= 30, "{count}");
    }
}
