//! A directory that stands in for a store whose CURRENT is damaged: the same files, and a new CURRENT that names
//! the newest manifest that is whole, or one made of what the directory holds.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::symlink;
use std::path::Path;

use annals_format::current::{BYTES, Current, CurrentFile};
use annals_format::limits::MANIFEST_BYTES_MAX;
use annals_format::name::{CURRENT, FileName, SEGMENT_DIR, WAL_DIR};
use annals_format::{FileKind, Manifest};
use tempfile::TempDir;

use super::{found, write_new};
use crate::exit::{Failure, Outcome};

/// The directory.
#[derive(Debug)]
pub(super) struct StandIn {
    directory: TempDir,
    /// Whether its manifest was made of what the directory holds.
    pub(super) from_names: bool,
}

impl StandIn {
    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Makes it; `None` where there is nothing to make it of.
pub(super) fn stand_in(data: &Path) -> Outcome<Option<StandIn>> {
    let about = |error| Failure::io(data.display().to_string(), error);
    let data = fs::canonicalize(data).map_err(about)?;
    let mut found: Vec<(Option<u64>, Vec<u8>)> = Vec::new();
    for entry in fs::read_dir(&data).map_err(about)? {
        let name = entry.map_err(about)?.file_name();
        let name = name.to_str().and_then(FileName::parse);
        let Some(name) = name.filter(|name| name.kind == FileKind::Manifest) else { continue };
        found.extend(
            read_bounded(&data.join(name.to_string())).ok().map(|bytes| (Some(name.number), bytes)),
        );
    }
    // The copy in CURRENT, whatever else of it is damaged.
    if let Ok(bytes) = read_bounded(&data.join(CURRENT))
        && let Some(copy) = bytes.get(BYTES..bytes.len().saturating_sub(BYTES))
    {
        found.push((None, copy.to_vec()));
    }
    let mut newest: Option<(Manifest, Vec<u8>)> = None;
    for (number, bytes) in found {
        let Ok(manifest) = Manifest::decode(&bytes) else { continue };
        let is_newer = newest.as_ref().is_none_or(|(known, _)| known.number < manifest.number);
        let is_named = number.is_none_or(|number| number == manifest.number);
        if is_newer && is_named && has_its_files(&data, &manifest) {
            newest = Some((manifest, bytes));
        }
    }
    let from_names = newest.is_none();
    let found = || found::manifest(&data).map(|manifest| (manifest.clone(), manifest.encode().0));
    let Some((manifest, bytes)) = newest.or_else(found) else { return Ok(None) };
    let stand_in = tempfile::tempdir().map_err(|e| Failure::io("a temporary directory", e))?;
    for directory in [SEGMENT_DIR, WAL_DIR] {
        symlink(data.join(directory), stand_in.path().join(directory)).map_err(about)?;
    }
    let name = FileName::new(FileKind::Manifest, manifest.number);
    write_new(&stand_in.path().join(name.to_string()), &bytes[..])?;
    let current = Current { store: manifest.store, manifest: manifest.stamp() };
    write_new(&stand_in.path().join(CURRENT), &CurrentFile::encode(&current, &bytes)[..])?;
    Ok(Some(StandIn { directory: stand_in, from_names }))
}

/// Reads a file, up to as long as it can be. To open a pipe would wait for whoever writes to it.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    let limit = MANIFEST_BYTES_MAX + 2 * BYTES as u64;
    fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn has_its_files(data: &Path, manifest: &Manifest) -> bool {
    let segments = manifest.files.iter().map(|meta| FileName::new(meta.kind, meta.number));
    let logs = manifest.wal.iter().map(|file| FileName::new(FileKind::Wal, file.number));
    segments.chain(logs).all(|name| data.join(name.to_string()).is_file())
}
