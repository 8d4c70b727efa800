//! `tour`: what a store can do, on the git history of the repository at hand.
//!
//! Every step but one (moving all into files, which a store does by itself) is a command line that
//! the reader could type, printed and then run by the same code.
//! Where there is no git or no repository, a small generated history takes its place.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use annals::Store;
use clap::{Args, Parser as _};

use crate::args::{Cli, Global};
use crate::bytes::{count, human};
use crate::exit::{Failure, Outcome};
use crate::import::find_repository;
use crate::output::{Format, Output};

/// Arguments of `tour`.
#[derive(Debug, Args)]
#[command(
    after_help = "The store is made in -C DIR and kept, or without it in a temporary directory.

Examples:
  $ annals tour                                        # of the git repository around
  $ annals -C toured tour repo                         # keeps the store"
)]
pub(crate) struct TourArgs {
    /// A path in the repository.
    #[arg(default_value = ".")]
    path: PathBuf,
}

/// What the steps are shown on.
#[derive(Debug)]
struct Chosen {
    key: String,
    /// The revision of a version of it halfway back, and of the one before the newest.
    halfway: u64,
    before: u64,
    newest: u64,
    /// The revision of the store when it was chosen, behind the import.
    imported: u64,
}

/// What a moment's files take, and what is in them.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    versions: u64,
    raw_bytes: u64,
    disk_bytes: u64,
}

/// Below this, what every store has weighs more than what is in it.
const PERCENT_FROM: u64 = 128 << 10;

impl Sizes {
    /// Bytes on disk, with how much of the values that is.
    fn disk(&self) -> String {
        let disk = human(self.disk_bytes);
        if self.raw_bytes < PERCENT_FROM {
            return disk;
        }
        #[expect(clippy::cast_precision_loss, reason = "a percentage for people")]
        let percent = self.disk_bytes as f64 * 100.0 / self.raw_bytes as f64;
        format!("{disk}, {percent:.0} % of that")
    }
}

/// `tour`: from an empty directory to a compacted, verified store.
pub(crate) fn tour(global: &Global, args: &TourArgs, out: &mut Output) -> Outcome {
    if out.format() != Format::Table {
        return Err(Failure::Usage("tour writes a transcript for people: leave -o out".into()));
    }
    let name = || args.path.display().to_string();
    std::fs::metadata(&args.path).map_err(|e| Failure::io(name(), e))?;
    let temporary = match &global.data {
        Some(_) => None,
        None => Some(tempfile::tempdir().map_err(|e| Failure::io("a temporary directory", e))?),
    };
    let data = match (&global.data, &temporary) {
        (Some(data), _) => data.clone(),
        (None, Some(temporary)) => temporary.path().join("store"),
        (None, None) => return Ok(()),
    };
    let global = Global { data: Some(data.clone()), ..global.clone() };
    if !global.is_absent()? {
        return Err(Failure::Other(format!(
            "{}: there is a store already, and the tour begins with an empty one: give another \
             directory, or leave -C out",
            data.display()
        )));
    }
    let generated = tempfile::tempdir().map_err(|e| Failure::io("a temporary directory", e))?;
    out.inline_notes();
    let mut guide = Guide { data, global, out };
    guide.import(&args.path, generated.path())?;
    let chosen = guide.choose()?;
    guide.look(&chosen)?;
    guide.change(&chosen)?;
    guide.follow(&chosen)?;
    let all = guide.pack()?;
    guide.clean_up(&chosen)?;
    guide.compare(&chosen, &all)?;
    if temporary.is_some() {
        guide.say("The store was temporary and is gone now. Give -C DIR to keep one.")?;
    }
    Ok(())
}

struct Guide<'a> {
    data: PathBuf,
    global: Global,
    out: &'a mut Output,
}

impl Guide<'_> {
    fn say(&mut self, text: &str) -> Outcome {
        self.out.bytes(format!("\n# {text}\n").as_bytes())
    }

    /// Prints a command line and runs it; a failure is an answer, too.
    fn run(&mut self, arguments: &[&str], expected: u8) -> Outcome {
        let mut words: Vec<OsString> = vec!["annals".into(), "-C".into(), self.data.clone().into()];
        for option in &self.global.options {
            words.extend(["-O".into(), option.into()]);
        }
        words.extend(arguments.iter().map(OsString::from));
        let mut line = "$".to_owned();
        for word in words.iter().map(|word| word.to_string_lossy()) {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+".contains(c);
            if !word.is_empty() && word.chars().all(plain) {
                let _ = write!(line, " {word}");
            } else {
                let _ = write!(line, " '{}'", word.replace('\'', "'\\''"));
            }
        }
        line.push('\n');
        self.out.bytes(line.as_bytes())?;
        let cli = Cli::try_parse_from(words).map_err(|e| Failure::Other(e.to_string()))?;
        match crate::commands::dispatch(&cli, self.out) {
            Ok(()) => Ok(()),
            Err(failure) if failure.code() == expected && expected != 0 => {
                let text = match failure.to_string() {
                    text if text.is_empty() => String::new(),
                    text => format!("annals: {text}\n"),
                };
                self.out.bytes(format!("{text}(exit code {expected})\n").as_bytes())
            }
            Err(failure) => Err(failure),
        }
    }

    fn import(&mut self, path: &Path, generated: &Path) -> Outcome {
        match find_repository(path, "HEAD") {
            Ok(_) => {
                self.say("Import a git repository: every file a key, every commit a revision.")?;
                let path = path.to_string_lossy().into_owned();
                self.run(&["import", "git", &path], 0)
            }
            Err(why) => {
                self.say(&format!("No git history here ({why}): a small generated one instead."))?;
                let file = generated.join("history.jsonl");
                std::fs::write(&file, generate()).map_err(|e| Failure::io("the history", e))?;
                let file = file.to_string_lossy().into_owned();
                self.run(&["import", "history", &file], 0)
            }
        }
    }

    /// What is in the store, and what that takes.
    fn sizes(&self) -> Outcome<Sizes> {
        let store = self.global.read()?;
        let (mut versions, mut raw_bytes) = (0, 0);
        for transaction in store.log(2..).with_values() {
            for value in transaction?.changes.iter().filter_map(|change| change.value.as_ref()) {
                versions += 1;
                raw_bytes += value.len() as u64;
            }
        }
        let disk_bytes = self.disk_bytes()?;
        Ok(Sizes { versions, raw_bytes, disk_bytes })
    }

    fn disk_bytes(&self) -> Outcome<u64> {
        Ok(crate::files::disk_bytes(&crate::files::open(&self.global)?))
    }

    /// The key with the most versions, as long as it is a text one can look at.
    fn choose(&self) -> Outcome<Chosen> {
        let store = Store::open_read_only(&self.data)?;
        let view = store.latest()?;
        let mut best: Option<(u64, bytes::Bytes)> = None;
        for kv in view.range(..) {
            let kv = kv?;
            let printable = std::str::from_utf8(&kv.key).is_ok() && kv.value.len() < 1 << 20;
            if printable && best.as_ref().is_none_or(|(version, _)| kv.version > *version) {
                best = Some((kv.version, kv.key));
            }
        }
        let Some((_, key)) = best else {
            return Err(Failure::Other("nothing to show: no key is alive at the end".into()));
        };
        let mut revisions = Vec::new();
        for version in view.history(&key) {
            let version = version?;
            if !version.tombstone {
                revisions.push(version.mod_revision);
            }
        }
        // A key that is alive has a version, and no version is of revision 1 or before.
        let newest = revisions.first().copied().unwrap_or(view.revision()).max(2);
        Ok(Chosen {
            key: String::from_utf8_lossy(&key).into_owned(),
            halfway: revisions.get(revisions.len() / 2).copied().unwrap_or(newest),
            before: revisions.get(1).copied().unwrap_or(newest),
            newest,
            imported: view.revision(),
        })
    }

    fn look(&mut self, chosen: &Chosen) -> Outcome {
        let Chosen { key, halfway, before, newest, .. } = chosen;
        let (halfway, before, newest) =
            (halfway.to_string(), before.to_string(), newest.to_string());
        self.say("One key and its versions, newest first.")?;
        self.run(&["history", key, "--limit", "8"], 0)?;
        if before == newest {
            return self.say("It has a single version, so there is nothing to look back to.");
        }
        self.say("The same key as it was halfway back. Every read can name a revision or a time.")?;
        self.run(&["get", key, "--at", &halfway], 0)?;
        self.say("How many keys there were then.")?;
        self.run(&["range", "--prefix", "", "--count-only", "--at", &halfway], 0)?;
        self.say("All that changed in the store between the two newest versions of that key.")?;
        self.run(&["diff", &before, &newest, "--limit", "12"], 0)
    }

    fn change(&mut self, chosen: &Chosen) -> Outcome {
        let key = &chosen.key;
        let stale = format!("mod={}", chosen.halfway);
        let current = format!("mod={}", chosen.newest);
        if chosen.halfway != chosen.newest {
            self.say("Compare-and-swap against a revision that is no longer the newest: refused.")?;
            self.run(&["put", key, "changed by the tour", "--if", &stale], 5)?;
        }
        self.say("Compare-and-swap against the newest: done, and that is a new revision.")?;
        self.run(&["put", key, "changed by the tour", "--if", &current, "--prev-kv"], 0)?;
        self.say("Nothing is lost: the version before is still there.")?;
        self.run(&["history", key, "--limit", "2"], 0)
    }

    fn follow(&mut self, chosen: &Chosen) -> Outcome {
        let since = (chosen.imported + 1).to_string();
        self.say("A key with a lease is deleted when nobody renews it.")?;
        self.run(&["lease", "grant", "60", "--id", "7"], 0)?;
        self.run(&["put", "/tour/worker", "at work", "--lease", "7"], 0)?;
        self.run(&["lease", "revoke", "7"], 0)?;
        self.say("A watch tells each change from any revision on, once and in order.")?;
        self.run(&["watch", "--since", &since, "--keys-only", "--once"], 0)
    }

    /// Moves everything from the log into files, so that compaction is seen to give back what was
    /// compacted, and not what compression saves.
    fn pack(&mut self) -> Outcome<Sizes> {
        let options = self.global.engine_options()?.create(false).background(false);
        let store = Store::open_with(&self.data, &options)?;
        let done = store.reorganise();
        let closed = store.close();
        done?;
        closed?;
        let all = self.sizes()?;
        let Sizes { versions, raw_bytes, .. } = all;
        self.say(&format!(
            "A store writes to its log first; as it grows it moves that into compressed files by \
             itself.\n# That has been done now: {} with {} of values take {}.",
            count(versions, "version"),
            human(raw_bytes),
            all.disk()
        ))?;
        Ok(all)
    }

    fn clean_up(&mut self, chosen: &Chosen) -> Outcome {
        let oldest = chosen.newest.to_string();
        self.say(
            "What it would take away to forget all before that key's newest import: the plan,",
        )?;
        self.run(&["compact", "--at", &oldest], 7)?;
        self.say("then the deed.")?;
        self.run(&["compact", "--at", &oldest, "--confirm"], 0)?;
        let early = (chosen.newest - 1).to_string();
        self.say("Older revisions now say so.")?;
        self.run(&["get", &chosen.key, "--at", &early], 6)?;
        self.say("Keys with a prefix can be kept for a time of their own.")?;
        self.run(&["retention", "set", "--prefix", "/tour/", "--for", "1h"], 0)?;
        self.say("Check every byte of every file.")?;
        self.run(&["verify"], 0)?;
        self.say("How far the store is, and its files.")?;
        self.run(&["stats", "--short"], 0)
    }

    fn compare(&mut self, chosen: &Chosen, all: &Sizes) -> Outcome {
        let left = self.disk_bytes()?;
        let given_back = match all.disk_bytes.checked_sub(left) {
            Some(bytes @ 1..) => format!("{} given back", human(bytes)),
            _ => "too little to give any back".to_owned(),
        };
        let mut text = format!(
            "Before compacting every revision could be read, and the files took {}. Now it is \
             those from\n# revision {} on, and the files take {}: {given_back}.",
            human(all.disk_bytes),
            chosen.newest,
            human(left),
        );
        if all.raw_bytes < PERCENT_FROM {
            text.push_str(
                "\n# With so little in it, a store is mostly what every store has: a log, and a \
                 list of files.",
            );
        }
        self.say(&text)
    }
}

/// 400 changes of 24 small configuration files, the same every time.
fn generate() -> String {
    let mut text = String::new();
    let mut random = 1u64;
    let mut next = |bound: u64| {
        // Knuth's linear congruential generator: the lines must differ, no more.
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    for i in 0..400u64 {
        let file = next(6) * next(5);
        let value = (0..40).map(|line| {
            let changed = if line == i % 40 { i } else { line };
            format!("setting.{line} = {}\n", changed * 7 + file)
        });
        let line = serde_json::json!({
            "commit": format!("{i:040x}"),
            "time": 1_700_000_000 + i * 3600,
            "puts": { format!("config/service-{file:02}.toml"): value.collect::<String>() },
            "deletes": [],
        });
        let _ = writeln!(text, "{line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generated_history_is_a_history() {
        let text = generate();
        assert_eq!(text.lines().count(), 400);
        for line in text.lines() {
            crate::import::Line::parse(line.as_bytes()).unwrap();
        }
        assert_eq!(text, generate());
    }
}
