//! What a power cut could leave of a disk.
//!
//! `ANNALS_IMAGES`, `ANNALS_EVERY` and `ANNALS_TEARS` set how many images are taken; see [`Take`].

use std::collections::BTreeSet;

use annals::vfs::{CrashMode, MemoryVfs};

use super::number_from_env;

/// How many images are taken.
#[derive(Clone, Copy, Debug)]
pub struct Take {
    /// Random ones.
    pub random: u64,
    /// All there are, if they are at most so many.
    pub every: usize,
    /// Tears of the write in flight, with and without what was written before it.
    pub tears: usize,
}

impl Take {
    /// This, where the environment says nothing else.
    pub fn or_env(self) -> Self {
        let size =
            |name, default: usize| usize::try_from(number_from_env(name, default as u64)).unwrap();
        Self {
            random: number_from_env("ANNALS_IMAGES", self.random),
            every: size("ANNALS_EVERY", self.every),
            tears: size("ANNALS_TEARS", self.tears),
        }
    }

    /// Fewer, for recoveries, of which there are very many.
    pub fn fewer(self) -> Self {
        Self { random: 1, every: self.every.min(4), tears: self.tears.min(2) }
    }
}

/// An image, and how it was made.
pub type Image = (String, MemoryVfs);

/// The images of a disk, each content once.
pub fn of(disk: &MemoryVfs, take: Take, seed: u64) -> Vec<Image> {
    let mut images: Vec<Image> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut add = |how: String, image: MemoryVfs| {
        if seen.insert(image.content_hash()) {
            images.push((how, image));
        }
    };
    add("LoseAll".into(), disk.crash(0, CrashMode::LoseAll));
    if disk.is_settled() {
        return images;
    }
    add("KeepAll".into(), disk.crash(0, CrashMode::KeepAll));
    for earlier in [CrashMode::KeepAll, CrashMode::LoseAll] {
        for (n, image) in disk.crash_torn(earlier, seed, take.tears).into_iter().enumerate() {
            add(format!("tear {n}, earlier {earlier:?}, seed {seed}"), image);
        }
    }
    if let Some(every) = disk.crash_every(take.every) {
        for (n, image) in every.into_iter().enumerate() {
            add(format!("{n} of every"), image);
        }
    } else {
        for seed in seed..seed + take.random {
            add(format!("random {seed}"), disk.crash(seed, CrashMode::Random));
        }
    }
    images
}
