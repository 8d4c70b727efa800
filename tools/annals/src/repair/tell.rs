//! What a repair says of what it has done, and of what it could not save.

use annals::inspect::LostPast;
use annals::{CheckReport, Store};
use serde_json::{Value, json};

use super::{Repaired, past};
use crate::args::Global;
use crate::backup::note_users;
use crate::bytes::{json as bytes_json, show};
use crate::exit::{Failure, Outcome};
use crate::output::{Format, Output};

/// Says what was done, and made.
pub(super) fn tell(
    made: &Global,
    mut repaired: Repaired,
    report: &CheckReport,
    out: &mut Output,
) -> Outcome {
    let to = made.data()?;
    let past_lost = repaired.past_lost;
    // A compaction may be in the log alone, which is not in the report.
    let store = if report.damage.is_empty() { Some(made.read()?) } else { None };
    let compacted = store.as_ref().map_or(report.compacted, Store::compacted_revision);
    if let Some(store) = &store {
        repaired.lost.forget_origins(past::floor_of(store));
    }
    let is_all = repaired.lost.is_empty() && !past_lost;
    // Of hundreds of files the few that have lost something are looked for.
    let only_losses = out.format() == Format::Table;
    let mut rows = out.rows("files");
    let mut lost = 0_u64;
    for row in &repaired.files {
        let has_loss = !row.0["lost"].is_null();
        lost += u64::from(has_loss);
        if has_loss || !only_losses {
            rows.push(row)?;
        }
    }
    rows.finish(&[
        ("way", json!(repaired.way)),
        ("files_with_losses", json!(lost)),
        ("lost_keys", json!(repaired.lost.keys)),
        ("lost_revisions", json!(repaired.lost.revisions)),
        ("lost_records", json!(repaired.lost.records)),
        ("past_lost", json!(past_lost)),
        ("past_given_up", json!(repaired.past.iter().map(given_up).collect::<Vec<_>>())),
        ("brought_back_at", json!(repaired.brought_back.map(|(_, last)| last))),
        ("added_revision", json!(repaired.added)),
        ("lost_entries", json!(repaired.lost.entries)),
        ("lost_origins", json!(repaired.lost.origins)),
        ("revision", json!(report.revision)),
        ("compacted_revision", json!(compacted)),
    ])?;
    let whole = repaired.files.len() as u64 - lost;
    if only_losses && whole > 0 {
        out.note(format_args!("{whole} files have lost nothing; -o json names them"))?;
    }
    repaired.lost.tell(out)?;
    if !repaired.lost.origins.is_empty() {
        // A rebuilt store does not know that these times are none.
        out.note(match repaired.way {
            "copy" => "such revisions have the time of the next one; for what was there at a time among theirs ask by revision",
            _ => "such revisions have the time of the next one: a time among theirs is answered by what was before; ask by revision",
        })?;
    }
    if let Some(damage) = report.damage.first() {
        return Err(Failure::Other(format!("{}: it is not sound: {damage}", to.display())));
    }
    let (way, revision) = (repaired.way, report.revision);
    let readable = match compacted {
        0 => format!("every revision up to {revision} is readable"),
        compacted => format!("revisions {compacted} to {revision} are readable"),
    };
    // Of keys that are named below less, so that a range which has one of them is refused below that.
    let given_up = repaired.past.iter().map(LostPast::from).max();
    let readable = match given_up.filter(|from| *from > compacted.max(1)) {
        Some(from) => format!("{readable}, of all keys together those from {from} on"),
        None => readable,
    };
    let all = match (repaired.lost.is_empty(), repaired.lost.is_only_origins(), past_lost) {
        (true, _, false) => "",
        (true, _, true) => ", but not all of the past is in it",
        (_, true, false) => ", but not who wrote all of it, and when",
        (_, true, true) => ", but not all of the past is in it, nor who wrote all of it, and when",
        _ => ", but not all that was committed is in it",
    };
    out.note(format_args!("{way}: {} is a sound store{all}; {readable}", to.display()))?;
    tell_added(&repaired, out)?;
    let rules = store.map_or_else(Vec::new, |store| store.retention());
    let is_lost = |prefix: &[u8]| repaired.past.iter().any(|lost| lost.prefix == prefix);
    for rule in rules.iter().filter(|rule| !rule.prefix.is_empty() && !is_lost(&rule.prefix)) {
        let (prefix, from) = (show(&rule.prefix, 60), rule.floor.max(1));
        out.note(format_args!("keys with {prefix}: revisions {from} to {revision} are readable"))?;
    }
    for lost in repaired.past.iter().filter(|lost| !lost.prefix.is_empty()) {
        let (prefix, from) = (show(&lost.prefix, 60), lost.from());
        out.note(format_args!("lost: the past of keys with {prefix}, before revision {from}"))?;
    }
    if repaired.lost.has_all_written() && way == "rebuild" {
        out.note("the newest version of every key is there, found in other files where its own is damaged")?;
    }
    tell_what_to_do(&repaired, revision, out)?;
    note_users(&repaired.original, out)?;
    if is_all { Ok(()) } else { Err(Failure::Losses) }
}

/// What follows of it for whoever uses the new store, or needs more than that.
fn tell_what_to_do(repaired: &Repaired, revision: u64, out: &mut Output) -> Outcome {
    let added = repaired.brought_back.map(|(first, _)| first).or(repaired.added);
    let newest = added.map_or(revision, |added| added - 1);
    if repaired.lost.reaches_behind(newest) {
        let next = newest + 1;
        out.note(format_args!(
            "revisions from {next} on will be given again: whoever has seen those that are lost (watchers, caches) begins \
             anew"
        ))?;
    } else if !repaired.lost.revisions.is_empty() {
        out.note(
            "a key that was changed by what is lost, and by nothing after it, is what it was before: whoever has seen more \
             (watchers, caches) begins anew",
        )?;
    }
    let has_log_lost = !repaired.lost.revisions.is_empty();
    if has_log_lost && (repaired.lost.has_some_behind() || repaired.past_lost) {
        out.note("`annals help repair` says how to have both the past before the damage and what was written behind it")?;
    }
    if repaired.past_lost && repaired.opens {
        out.note("the damaged store may still answer what of the past is not in it: keep it as long as you need it")?;
    }
    Ok(())
}

/// Which revisions there are that never were.
fn tell_added(repaired: &Repaired, out: &mut Output) -> Outcome {
    let what = "the keys of which the newest version is lost back to what they were before, or deletes them";
    match repaired.brought_back {
        Some((first, last)) if first < last => {
            out.note(format_args!(
                "revisions {first} to {last} were added: each brings some of {what}"
            ))?;
        }
        Some((revision, _)) => {
            out.note(format_args!("revision {revision} was added: it brings {what}"))?;
        }
        None => {}
    }
    if let Some(added) = repaired.added {
        out.note(format_args!("revision {added} was added, which changes nothing: some keys can be read from there on only"))?;
    }
    Ok(())
}

/// From which revision on keys can be read whose past is lost.
fn given_up(lost: &LostPast) -> Value {
    json!({ "prefix": bytes_json(&lost.prefix), "from": lost.from() })
}
