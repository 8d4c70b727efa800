//! What becomes of a store when one bit of its files flips, or a file is cut: annals beside the stores a user could take instead.
//!
//! Each store gets the same keys and values, is synced and closed in good order. Then, many times: one bit flips at a
//! random place of its files (or one file is cut at a random length), and another process opens the store in the usual way, gets
//! every key and scans all of them. What it says is one of
//!
//! * **same**: every answer is right (what was damaged was not in use, or was noticed and put right);
//! * **error**: the opening or a read was refused with an error;
//! * **wrong**: an answer that is not what was written, or a key that is not there, and no error;
//! * **died**: a panic, an abort, a bus error;
//! * **hangs**: no end within 5 seconds.
//!
//! Each store is read as its users read it, with its defaults. That is not what all of them promise to find: redb compares
//! checksums only when it repairs and in `check_integrity`; `SQLite` has none unless a checksum VFS is loaded; LMDB has
//! none; fjall has checksums in its blocks and its journal. annals compares every checksum at the read that meets it.

mod stores;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use stores::{ALL, Store};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const KEYS: u64 = 2000;
const PATIENCE: Duration = Duration::from_secs(5);

const USAGE: &str = "\
damage: one flipped bit, or one cut, in the files of annals, redb, fjall, LMDB and SQLite.

Usage: damage [--flips N] [--cut N] [--seed S] [--stores NAME,NAME] [--dir DIR]

  --flips N   flipped bits for each store (default 1000; 0 for none)
  --cut N     cuts for each store (default 0)
  --seed S    where what is random begins (default 1)
  --stores .. some of them
  --dir DIR   where the stores are made and removed (default: the place for temporary files)

Prints a Markdown table on stdout.";

/// Code of a child in which a key was answered wrongly.
const WRONG: u8 = 3;
/// Code of a child that met an error.
const REFUSED: u8 = 4;

/// A generator of numbers that is the same everywhere (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Every key with its value, in order.
pub fn pairs() -> Vec<(Vec<u8>, Vec<u8>)> {
    let value = |n: u64| {
        let mut random = Random(n);
        let len = 60 + random.below(80);
        (0..len).map(|_| b'a' + u8::try_from(random.below(26)).unwrap_or(0)).collect()
    };
    (0..KEYS)
        .map(|n| (format!("/registry/pods/default/pod-{n:05}").into_bytes(), value(n)))
        .collect()
}

/// What came of one damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Same,
    Error,
    Wrong,
    Died,
    Hangs,
}

/// In the child: opens the store, reads everything twice.
fn read(store: &Store, dir: &Path) -> u8 {
    let expected = pairs();
    let found = (store.read)(dir, &expected);
    match found {
        Err(_) => REFUSED,
        Ok((got, scanned)) => {
            let same =
                got.iter().zip(&expected).all(|(found, (_, value))| found.as_ref() == Some(value));
            if same && scanned == expected { 0 } else { WRONG }
        }
    }
}

/// Runs the child, and says what came of it.
fn judge(store: &Store, dir: &Path) -> Result<Fate> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--child", store.name]).arg(dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(match status.code() {
                Some(0) => Fate::Same,
                Some(code) if code == i32::from(WRONG) => Fate::Wrong,
                Some(code) if code == i32::from(REFUSED) => Fate::Error,
                _ => Fate::Died,
            });
        }
        if since.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Ok(Fate::Hangs);
        }
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// Every file of a directory with its content.
fn files(dir: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            let content = std::fs::read(&path)?;
            found.insert(path, content);
        }
    }
    Ok(found)
}

/// Makes a directory what it was.
fn put_back(dir: &Path, sound: &BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
    std::fs::remove_dir_all(dir)?;
    for (path, content) in sound {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, content)?;
    }
    Ok(())
}

struct Wanted {
    flips: u64,
    cuts: u64,
    seed: u64,
    stores: Vec<&'static Store>,
    dir: PathBuf,
}

fn damage(store: &Store, wanted: &Wanted, cut: bool) -> Result<(BTreeMap<Fate, u64>, usize)> {
    let dir = wanted.dir.join(format!("annals-damage-{}-{}", store.name, std::process::id()));
    std::fs::create_dir_all(&dir)?;
    (store.write)(&dir, &pairs())?;
    let sound = files(&dir)?;
    let bytes: usize = sound.values().map(Vec::len).sum();
    if judge(store, &dir)? != Fate::Same {
        return Err(format!("{}: it does not read what it wrote", store.name).into());
    }
    let mut random = Random(wanted.seed);
    let mut fates = BTreeMap::new();
    for _ in 0..if cut { wanted.cuts } else { wanted.flips } {
        put_back(&dir, &sound)?;
        let mut at = usize::try_from(random.below(bytes as u64))?;
        let bit = random.below(8);
        for (path, content) in &sound {
            if at < content.len() {
                let mut content = content.clone();
                if cut {
                    content.truncate(at);
                } else if let Some(byte) = content.get_mut(at) {
                    *byte ^= 1 << bit;
                }
                std::fs::write(path, content)?;
                break;
            }
            at -= content.len();
        }
        *fates.entry(judge(store, &dir)?).or_insert(0) += 1;
    }
    std::fs::remove_dir_all(&dir)?;
    Ok((fates, bytes))
}

fn arguments() -> Result<Option<Wanted>> {
    let mut wanted = Wanted {
        flips: 1000,
        cuts: 0,
        seed: 1,
        stores: ALL.iter().collect(),
        dir: std::env::temp_dir(),
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--flips" => wanted.flips = value()?.parse()?,
            "--cut" => wanted.cuts = value()?.parse()?,
            "--seed" => wanted.seed = value()?.parse()?,
            "--dir" => wanted.dir = value()?.into(),
            "--stores" => {
                let names = value()?;
                wanted.stores.retain(|store| names.split(',').any(|name| name == store.name));
            }
            _ => {
                println!("{USAGE}");
                return Ok(None);
            }
        }
    }
    Ok(Some(wanted))
}

fn run() -> Result<()> {
    let Some(wanted) = arguments()? else { return Ok(()) };
    for (cut, count) in [(false, wanted.flips), (true, wanted.cuts)] {
        if count == 0 {
            continue;
        }
        println!(
            "\n{} for each store, {KEYS} keys, seed {}\n",
            if cut { format!("{count} cuts") } else { format!("{count} flipped bits") },
            wanted.seed
        );
        println!(
            "| store | bytes | same | error | wrong without error | panic or abort | hang | does the usual read compare checksums? |"
        );
        println!("|---|---|---|---|---|---|---|---|");
        for store in &wanted.stores {
            let (fates, bytes) = damage(store, &wanted, cut)?;
            let of = |fate| fates.get(&fate).copied().unwrap_or(0);
            println!(
                "| {} | {bytes} | {} | {} | {} | {} | {} | {} |",
                store.name,
                of(Fate::Same),
                of(Fate::Error),
                of(Fate::Wrong),
                of(Fate::Died),
                of(Fate::Hangs),
                store.scope
            );
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if let [_, child, name, dir] = args.as_slice()
        && child == "--child"
    {
        let Some(store) = ALL.iter().find(|store| store.name == *name) else {
            return ExitCode::FAILURE;
        };
        return ExitCode::from(read(store, Path::new(dir)));
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("damage: {error}");
            ExitCode::FAILURE
        }
    }
}
