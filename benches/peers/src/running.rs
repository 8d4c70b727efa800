//! Contestants that are open, and the order in which they have their turns.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::config::Config;
use crate::data;
use crate::peer::{Contestant, Level, Peer, Result, Role};

/// A contestant that is open, and where.
pub struct Running {
    pub contestant: Contestant,
    pub dir: PathBuf,
    pub peer: Box<dyn Peer>,
}

impl Running {
    pub fn open(contestant: Contestant, dir: PathBuf, level: Level) -> Result<Self> {
        std::fs::create_dir_all(&dir)?;
        let peer = (contestant.open)(&dir, level).map_err(|e| said(contestant, "open", &e))?;
        Ok(Self { contestant, dir, peer })
    }

    pub fn is_bare(&self) -> bool {
        self.contestant.role == Role::Bare
    }
}

pub fn said(contestant: Contestant, what: &str, error: &dyn std::fmt::Display) -> String {
    format!("{}, {what}: {error}", contestant.name)
}

/// These contestants open on fresh directories.
pub fn open_all(
    config: &Config,
    contestants: &[Contestant],
    phase: &str,
    level: Level,
) -> Result<Vec<Running>> {
    let fresh = |&contestant: &Contestant| {
        let dir = config.dir.join(phase).join(contestant.name.replace(' ', "-"));
        Running::open(contestant, dir, level)
    };
    contestants.iter().map(fresh).collect()
}

/// The order of a round: rotated, and backwards every other time, so that nobody always comes first or
/// after the same other. The first two, annals and the bare loop, stay neighbours, so that the ratio
/// that depends most on the mood of the disk is taken within the shortest time.
pub fn turns(round: usize, count: usize) -> Vec<usize> {
    let mut units: Vec<Vec<usize>> = vec![(0..count.min(2)).collect()];
    units.extend((2..count).map(|index| vec![index]));
    let rotation = round / 2 % units.len();
    units.rotate_left(rotation);
    let mut turns: Vec<usize> = units.into_iter().flatten().collect();
    if !round.is_multiple_of(2) {
        turns.reverse();
    }
    turns
}

pub fn progress(text: &str) {
    eprintln!("{text}");
}

/// Milliseconds to open a store and read one key.
pub fn timed_open(contestant: Contestant, dir: &Path) -> Result<(f64, Box<dyn Peer>)> {
    let started = Instant::now();
    let peer = (contestant.open)(dir, Level::Sync).map_err(|e| said(contestant, "open", &e))?;
    let found = peer.get(&data::key(7), None, &mut |_, _| {})?;
    let ms = started.elapsed().as_secs_f64() * 1000.0;
    if !found {
        return Err(said(contestant, "open", &"a key is missing").into());
    }
    Ok((ms, peer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_everybody_once_and_the_first_two_side_by_side() {
        for count in 1..6 {
            for round in 0..12 {
                let turns = turns(round, count);
                let mut sorted = turns.clone();
                sorted.sort_unstable();
                assert!(sorted.into_iter().eq(0..count), "{turns:?}");
                let place = |index| turns.iter().position(|&turn| turn == index);
                let apart = place(0).zip(place(1)).map_or(1, |(a, b)| a.abs_diff(b));
                assert_eq!(apart, 1, "{turns:?}");
            }
        }
        assert_eq!([turns(0, 3), turns(1, 3), turns(2, 3)], [[0, 1, 2], [2, 1, 0], [2, 0, 1]]);
    }
}
