//! Walking a log for people and for repair.

use super::*;

fn opened(vfs: &Arc<dyn Vfs>) -> Arc<dyn File> {
    vfs.open(Path::new(&wal_path(1)), Access::Read).unwrap()
}

#[test]
fn walking_a_log_names_every_byte() {
    for disk in [closed_store(), killed_store()] {
        let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
        let length = disk.read(Path::new(&wal_path(1))).unwrap().len() as u64;
        let (mut next, mut frames, mut batches) = (0, 0, 0);
        walk(&context(&vfs), opened(&vfs), 1, length, &mut |offset, bytes, part| {
            if let WalPart::Frame(..) = part {
                frames += 1;
                return Ok(());
            }
            batches += u32::from(matches!(part, WalPart::Batch(_)));
            assert_eq!(offset, next, "{part:?}");
            next = offset + bytes;
            Ok(())
        })
        .unwrap();
        assert_eq!((next, frames, batches), (length, 6, 3));
    }
}

#[test]
fn walking_steps_over_damage() {
    let disk = killed_store();
    let path = wal_path(1);
    let mut bytes = disk.read(Path::new(&path)).unwrap();
    // In the second of three batches.
    bytes[2 * PAGE_BYTES + 700] ^= 1;
    disk.overwrite(Path::new(&path), &bytes);
    let vfs: Arc<dyn Vfs> = Arc::new(disk);
    let (mut seen, mut damage) = (Vec::new(), Vec::new());
    walk(&context(&vfs), opened(&vfs), 1, bytes.len() as u64, &mut |_, _, part| {
        match part {
            WalPart::Frame(frame, _) => seen.push(frame.seq),
            WalPart::Damage(found) => damage.push(found.offset),
            _ => {}
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(seen, [1, 5, 6]);
    assert_eq!(damage, [2 * PAGE_BYTES as u64 + 512]);
}
