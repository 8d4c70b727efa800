//! One damage to a store, chosen at random.

use std::path::Path;

use annals::vfs::MemoryVfs;

use crate::made::Made;
use crate::support::random::Random;

/// Damages a file of a disk in one of many ways, with or without a sector of zeros, which can look like a write that a
/// kill has cut off. Answers what was done, the file first; nothing where the file is gone already.
pub fn harm(disk: &MemoryVfs, made: &Made, random: &mut Random, zeros: bool) -> String {
    let path = random.pick(&made.paths);
    let name = Path::new(path);
    let Ok(mut content) = disk.read(name) else { return String::new() };
    if content.is_empty() {
        return String::new();
    }
    let at = random.index(content.len());
    let sector = at - at % 512..content.len().min(at - at % 512 + 512);
    let what = match random.below(if zeros { 8 } else { 7 }) {
        0..3 => {
            let bit = random.below(8);
            content[at] ^= 1 << bit;
            format!("bit {bit} of byte {at} flipped")
        }
        3 => {
            content.truncate(at);
            format!("cut to {at}")
        }
        4 => {
            for byte in &mut content[sector.clone()] {
                *byte = u8::try_from(random.below(256)).unwrap();
            }
            format!("sector at {} overwritten", sector.start)
        }
        5 => {
            disk.forget(name);
            return format!("{path} removed");
        }
        6 => {
            let other = random.pick(&made.paths);
            content = made.content(other);
            format!("is {other}")
        }
        _ => {
            content[sector.clone()].fill(0);
            format!("sector at {} zeroed", sector.start)
        }
    };
    disk.overwrite(name, &content);
    format!("{path} {what}")
}
