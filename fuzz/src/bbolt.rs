//! The database of an etcd, whose pages are bbolt's.

use annals_etcd_files::bolt::meta_checksum;
use annals_etcd_files::{Error, Snapshot};

use crate::FIX;
use crate::input::Input;

/// Where a meta page has its size, its checksum, and where its own part begins.
const PAGE_SIZE_AT: usize = 24;
const META_AT: usize = 16;
const SUM_AT: usize = META_AT + 56;

/// The first file: whatever it holds is handed out in order, and is the same when it is looked at again.
pub(crate) fn database(data: &[u8]) -> bool {
    let mut input = Input(data);
    let flags = input.byte();
    let mut bytes = input.0.to_vec();
    if flags & FIX != 0 {
        // A database of a server has no checksum but those of its two meta pages.
        bytes.truncate(bytes.len() / 512 * 512);
        let size = bytes.get(PAGE_SIZE_AT..).and_then(|rest| rest.first_chunk());
        let size = size.map_or(0, |size| u32::from_le_bytes(*size)) as usize;
        fix_meta(&mut bytes, 0);
        fix_meta(&mut bytes, size);
    }
    read(&bytes).is_ok()
}

fn fix_meta(bytes: &mut [u8], page: usize) {
    let at = |part: usize| page.saturating_add(part);
    let Some(sum) = bytes.get(at(META_AT)..at(SUM_AT)).map(meta_checksum) else { return };
    if let Some(place) = bytes.get_mut(at(SUM_AT)..at(SUM_AT + 8)) {
        place.copy_from_slice(&sum.to_le_bytes());
    }
}

fn read(bytes: &[u8]) -> Result<(), Error> {
    let snapshot = Snapshot::open(bytes)?;
    let (mut last, mut entries) = (None, 0);
    snapshot.entries::<Error>(|entry| {
        let place = (entry.main, entry.sub);
        assert!(last < Some(place));
        last = Some(place);
        entries += 1;
        // Each takes room in the file.
        assert!(entries <= bytes.len() / 16);
        snapshot.again(entry.place, |again| {
            assert_eq!((again.main, again.sub, again.version), (place.0, place.1, entry.version));
            Ok(())
        })
    })?;
    snapshot.leases::<Error>(|_| Ok(()))
}
