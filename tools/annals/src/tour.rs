//! `tour`: what a store can do, on the git history of the repository at hand.
//!
//! Every step is a command line that the reader could type, printed and then run by the same code.
//! Where there is no git or no repository, a small generated history takes its place.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use annals::Store;
use clap::{Args, Parser as _};

use crate::args::{Cli, Global};
use crate::bytes::human;
use crate::exit::{Failure, Outcome};
use crate::import::find_repository;
use crate::output::Output;

/// Arguments of `tour`.
#[derive(Debug, Args)]
#[command(
    after_help = "The store is made in -C DIR and kept, or without it in a temporary directory."
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
}

/// `tour`: from an empty directory to a compacted, verified store.
pub(crate) fn tour(global: &Global, args: &TourArgs, out: &mut Output) -> Outcome {
    let temporary = match &global.data {
        Some(_) => None,
        None => Some(tempfile::tempdir().map_err(|e| Failure::io("a temporary directory", e))?),
    };
    let data = match (&global.data, &temporary) {
        (Some(data), _) => data.clone(),
        (None, Some(temporary)) => temporary.path().join("store"),
        (None, None) => return Ok(()),
    };
    let generated = tempfile::tempdir().map_err(|e| Failure::io("a temporary directory", e))?;
    let mut guide = Guide { data, options: global.options.clone(), out };
    let raw_bytes = guide.import(&args.path, generated.path())?;
    let chosen = guide.choose()?;
    guide.look(&chosen)?;
    guide.change(&chosen)?;
    guide.clean_up(&chosen)?;
    guide.sizes(raw_bytes)?;
    if temporary.is_some() {
        guide.say("The store was temporary and is gone now. Give -C DIR to keep one.")?;
    }
    Ok(())
}

struct Guide<'a> {
    data: PathBuf,
    options: Vec<String>,
    out: &'a mut Output,
}

impl Guide<'_> {
    fn say(&mut self, text: &str) -> Outcome {
        self.out.bytes(format!("\n# {text}\n").as_bytes())
    }

    /// Prints a command line and runs it; a failure is an answer, too.
    fn run(&mut self, arguments: &[&str], expected: u8) -> Outcome {
        let mut line = format!("$ annals -C {}", self.data.display());
        for argument in arguments {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+".contains(c);
            if !argument.is_empty() && argument.chars().all(plain) {
                let _ = write!(line, " {argument}");
            } else {
                let _ = write!(line, " '{}'", argument.replace('\'', "'\\''"));
            }
        }
        line.push('\n');
        self.out.bytes(line.as_bytes())?;
        let mut words: Vec<OsString> = vec!["annals".into(), "-C".into(), self.data.clone().into()];
        for option in &self.options {
            words.extend(["-O".into(), option.into()]);
        }
        words.extend(arguments.iter().map(OsString::from));
        let cli = Cli::try_parse_from(words).map_err(|e| Failure::Other(e.to_string()))?;
        match crate::dispatch(&cli, self.out) {
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

    fn import(&mut self, path: &Path, generated: &Path) -> Outcome<u64> {
        match find_repository(path, "HEAD") {
            Ok(_) => {
                self.say("Import a git repository: every file a key, every commit a revision.")?;
                let path = path.to_string_lossy().into_owned();
                self.run(&["import", "git", &path], 0)?;
            }
            Err(why) => {
                self.say(&format!("No git history here ({why}): a small generated one instead."))?;
                let file = generated.join("history.jsonl");
                std::fs::write(&file, generate()).map_err(|e| Failure::io("the history", e))?;
                let file = file.to_string_lossy().into_owned();
                self.run(&["import", "history", &file], 0)?;
            }
        }
        self.raw_bytes()
    }

    /// The bytes of all versions' values.
    fn raw_bytes(&self) -> Outcome<u64> {
        let store = Store::open_read_only(&self.data)?;
        let mut bytes = 0;
        let latest = store.revision();
        for transaction in store.log(2..=latest).with_values() {
            let changes = transaction?.changes;
            bytes +=
                changes.iter().flat_map(|c| &c.value).map(|value| value.len() as u64).sum::<u64>();
        }
        Ok(bytes)
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
        let newest = revisions.first().copied().unwrap_or(view.revision());
        Ok(Chosen {
            key: String::from_utf8_lossy(&key).into_owned(),
            halfway: revisions.get(revisions.len() / 2).copied().unwrap_or(newest),
            before: revisions.get(1).copied().unwrap_or(newest),
            newest,
        })
    }

    fn look(&mut self, chosen: &Chosen) -> Outcome {
        let Chosen { key, halfway, before, newest } = chosen;
        let (halfway, before, newest) =
            (halfway.to_string(), before.to_string(), newest.to_string());
        self.say("One key and its versions, newest first.")?;
        self.run(&["history", key, "--limit", "8"], 0)?;
        self.say("The same key as it was halfway back. Every read can name a revision or a time.")?;
        self.run(&["get", key, "--at", &halfway], 0)?;
        self.say("How many keys there were then.")?;
        self.run(&["range", "--prefix", "", "--count-only", "--at", &halfway], 0)?;
        self.say("What the two newest versions of it have between them, in the whole store.")?;
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
        self.say("Against the newest: done, and that is a new revision.")?;
        self.run(&["put", key, "changed by the tour", "--if", &current, "--prev-kv"], 0)?;
        self.say("Nothing is lost: the version before is still there.")?;
        self.run(&["history", key, "--limit", "2"], 0)
    }

    fn clean_up(&mut self, chosen: &Chosen) -> Outcome {
        let halfway = chosen.halfway.to_string();
        let early = chosen.halfway.saturating_sub(1).max(1).to_string();
        self.say("What compacting would take away: first the plan,")?;
        self.run(&["compact", "--rev", &halfway], 7)?;
        self.say("then the deed.")?;
        self.run(&["compact", "--rev", &halfway, "--confirm"], 0)?;
        self.say("Older revisions now say so.")?;
        self.run(&["get", &chosen.key, "--at", &early], 6)?;
        self.say("Check every byte of every file.")?;
        self.run(&["verify"], 0)?;
        self.say("What the store is made of.")?;
        self.run(&["stats"], 0)
    }

    fn sizes(&mut self, raw_bytes: u64) -> Outcome {
        let on_disk = directory_bytes(&self.data).map_err(|e| Failure::io("the store", e))?;
        #[expect(clippy::cast_precision_loss, reason = "a percentage for people")]
        let percent = on_disk as f64 * 100.0 / raw_bytes.max(1) as f64;
        let text = format!(
            "All versions that were imported: {}. The store on disk now: {} ({percent:.1} %).",
            human(raw_bytes),
            human(on_disk)
        );
        self.say(&text)
    }
}

/// The bytes of all files below a directory.
fn directory_bytes(path: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { directory_bytes(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
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
