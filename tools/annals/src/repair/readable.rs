//! What the user may not read is not damaged: whoever may read it repairs the store.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use annals_format::name::{FileName, SEGMENT_DIR, WAL_DIR};

use crate::exit::{Failure, Outcome};

/// Refuses a store of which a file, or a directory, is forbidden. What cannot be read for any other reason counts as damaged.
pub(super) fn check(data: &Path) -> Outcome {
    for directory in ["", WAL_DIR, SEGMENT_DIR] {
        let path = data.join(directory);
        for entry in allowed(&path, fs::read_dir(&path))?.into_iter().flatten().flatten() {
            let path = entry.path();
            let inside = path.strip_prefix(data).ok().and_then(Path::to_str);
            // A pipe would be waited for.
            let is_file = || fs::metadata(&path).is_ok_and(|meta| meta.is_file());
            if inside.and_then(FileName::parse).is_some() && is_file() {
                allowed(&path, File::open(&path))?;
            }
        }
    }
    Ok(())
}

fn allowed<T>(path: &Path, opened: io::Result<T>) -> Outcome<Option<T>> {
    match opened {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let what = "that is no damage: repair as a user who may read all files of the store";
            Err(Failure::Other(format!("{}: {error}; {what}", path.display())))
        }
        opened => Ok(opened.ok()),
    }
}
