//! The directory that a repair writes to: what may be there before, and how it begins anew in it.

use std::fs;
use std::path::Path;

use annals::Options;
use annals::inspect::PutTogether;
use annals_format::name::{LOADING, LOCK};

use crate::exit::{Failure, Outcome};
use crate::target::UNFINISHED;

/// Refuses a directory that has something in it, before anything long is begun.
pub(super) fn check_empty(to: &Path) -> Outcome {
    let Ok(entries) = fs::read_dir(to) else { return Ok(()) };
    let mut is_empty = true;
    for entry in entries {
        let entry = entry.map_err(|error| Failure::io(to.display().to_string(), error))?;
        let name = entry.file_name();
        if name == LOADING {
            return Err(Failure::Other(format!("{}: {UNFINISHED}", to.display())));
        }
        // One that was let go of.
        is_empty &= name == LOCK;
    }
    if is_empty {
        return Ok(());
    }
    let what = "there is something in it: give another directory";
    Err(Failure::Other(format!("{}: {what}", to.display())))
}

/// Removes what a copy has put there, so that another way can begin in an empty directory. Whenever this stops, it is
/// no store: the marker is the last to go.
pub(super) fn clear(target: PutTogether) -> Outcome {
    remove_all(target.path())?;
    Ok(target.finish()?)
}

/// Removes what a loading has put there that was given up, and claims the directory anew.
pub(super) fn again(to: &Path, options: &Options) -> Outcome<PutTogether> {
    remove_all(to)?;
    let marker = to.join(LOADING);
    fs::remove_file(&marker).map_err(|e| Failure::io(marker.display().to_string(), e))?;
    Ok(PutTogether::begin(to, options)?)
}

/// Removes all but what says that it is no store, and that somebody is at it.
fn remove_all(path: &Path) -> Outcome {
    let failed = |error| Failure::io(path.display().to_string(), error);
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        if name == LOADING || name == LOCK {
            continue;
        }
        if entry.file_type().map_err(failed)?.is_dir() {
            fs::remove_dir_all(entry.path()).map_err(failed)?;
        } else {
            fs::remove_file(entry.path()).map_err(failed)?;
        }
    }
    Ok(())
}
