//! Which keys damage is of, as far as the index of a segment file tells.

use std::collections::BTreeMap;
use std::path::Path;

use annals::Corruption;
use annals::inspect::StoreFiles;
use annals_format::FileKind;
use annals_format::name::FileName;
use annals_format::space::is_user;
use serde_json::Value;

use super::{key_json, within};
use crate::bytes::json;

/// The keys of a damaged block: none of them is before the first of these, none after the second.
#[derive(Clone, Debug)]
pub(crate) struct DamagedKeys {
    pub(crate) first: Value,
    pub(crate) upto: Value,
}

/// A bound, which may be no key but how one begins.
fn bound(kind: FileKind, key: &[u8]) -> Value {
    match key.split_first() {
        Some((_, user)) if is_user(key) => json(user),
        _ => key_json(kind, key),
    }
}

/// The keys of each damage that lies in one block, in the order of the damage. Cost: the index of each damaged file is read once.
pub(crate) fn damaged_keys(
    files: &StoreFiles,
    data: &Path,
    damage: &[Corruption],
) -> Vec<Option<DamagedKeys>> {
    let mut of_files: BTreeMap<FileName, Vec<usize>> = BTreeMap::new();
    for (place, damage) in damage.iter().enumerate() {
        let name = FileName::parse(&within(data, &damage.file).to_string_lossy());
        if let Some(name) = name {
            of_files.entry(name).or_default().push(place);
        }
    }
    let mut found = vec![None; damage.len()];
    for meta in &files.manifest().files {
        // The keys of EVENTS are revisions, which the damage tells; blobs have none.
        let has_keys = !matches!(meta.kind, FileKind::Events | FileKind::Blob);
        let places = of_files.remove(&FileName::new(meta.kind, meta.number));
        let Some(places) = places.filter(|_| has_keys) else { continue };
        // What cannot be told because the index is damaged is not told.
        let _ = files.segment(meta).and_then(|segment| {
            segment.block_keys(&mut |block| {
                for &place in &places {
                    if block.place.contains(&damage[place].offset) {
                        let keys = [block.first, block.upto];
                        let [first, upto] = keys.map(|key| bound(meta.kind, key));
                        found[place] = Some(DamagedKeys { first, upto });
                    }
                }
                Ok(true)
            })
        });
    }
    found
}
