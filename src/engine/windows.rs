//! Which HISTORY files background work takes together: those of one class of keys.
//!
//! Files that were written since the rules of retention are as they are hold keys of one class, so what is
//! done with them goes by one floor, and a file goes as a whole when its floor has passed its last death.
//! Older ones may hold keys of several. They are a group of their own (`None`), and are written again,
//! class by class, when a part of them is dead or they are merged: once, as what comes of it is not mixed any more.
//!
//! The class of a file is told by its keys and the rules of now, never by what was true when it was written.

use std::collections::BTreeMap;
use std::ops::Range;

use annals_format::FileMeta;

use crate::reclaim::floors::Floors;
use crate::reclaim::plan::trims;
use crate::sync::Arc;

use super::left_alone::LeftAlone;
use super::tables::{FileSet, SealedFile, Window, windows_of};

/// The oldest revision at which some key of a file can be asked for: what died before can go.
pub(super) fn floor_of(meta: &FileMeta, floors: &Floors) -> u64 {
    floors.least_in(&meta.first_key, &meta.last_key)
}

/// The windows of every class, each by (`upto`, `after`). They are made up of the files of the class alone:
/// what other classes have of the same span does not tell two files of one window apart. Files that are left alone are
/// not among them.
fn by_class(
    files: &FileSet,
    left: &LeftAlone,
    floors: &Floors,
) -> BTreeMap<Option<usize>, Vec<Window>> {
    let mut classes: BTreeMap<Option<usize>, Vec<Arc<SealedFile>>> = BTreeMap::new();
    let all = files.windows.iter().flat_map(|window| &window.files);
    for file in all.filter(|file| !left.has(file)) {
        let class = floors.class_of_all(&file.meta().first_key, &file.meta().last_key);
        classes.entry(class).or_default().push(Arc::clone(file));
    }
    classes.into_iter().map(|(class, files)| (class, windows_of(files))).collect()
}

/// A window that its floor runs through, if at least one in `share` of its revisions is below; or a mixed
/// one of which that is true for some of its keys.
pub(super) fn to_trim(
    files: &FileSet,
    left: &LeftAlone,
    floors: &Floors,
    share: u64,
) -> Option<Window> {
    let is_due = |class: Option<usize>, group: &Window| match class {
        Some(class) => trims((group.after, group.upto), floors.of_class(class), share),
        None => {
            let ranges = group.files.iter().map(|file| file.meta());
            let floor = ranges.map(|m| floors.greatest_in(&m.first_key, &m.last_key)).max();
            let floor = floor.unwrap_or(0);
            floor > group.upto || trims((group.after, group.upto), floor, share)
        }
    };
    let groups = by_class(files, left, floors).into_iter();
    let mut groups = groups.flat_map(|(class, groups)| groups.into_iter().map(move |g| (class, g)));
    groups.find(|(class, group)| is_due(*class, group)).map(|(_, group)| group)
}

/// Windows of one class that are to become one, of which `choose` chooses by their sizes, oldest first; those
/// that end behind `upto` are left out.
pub(super) fn to_merge(
    files: &FileSet,
    left: &LeftAlone,
    floors: &Floors,
    upto: u64,
    choose: impl Fn(&[u64]) -> Option<Range<usize>>,
) -> Option<Window> {
    let run = |mut groups: Vec<Window>| {
        groups.retain(|group| group.upto <= upto);
        let size = |group: &Window| group.files.iter().map(|file| file.meta().bytes).sum();
        let bytes: Vec<u64> = groups.iter().map(size).collect();
        let run = choose(&bytes)?;
        let run = groups.get(run).unwrap_or_default();
        // Of overlapping windows any may begin first.
        let after = run.iter().map(|group| group.after).min()?;
        let upto = run.iter().map(|group| group.upto).max()?;
        let files = run.iter().flat_map(|group| group.files.iter().cloned()).collect();
        Some(Window { after, upto, files })
    };
    by_class(files, left, floors).into_values().find_map(run)
}

/// How many windows the class with the most of them has.
pub(super) fn most(files: &FileSet, left: &LeftAlone, floors: &Floors) -> usize {
    by_class(files, left, floors).into_values().map(|groups| groups.len()).max().unwrap_or(0)
}

/// The files that nobody can ask for any more.
pub(super) fn dead<'f>(
    files: &'f FileSet,
    floors: &Floors,
) -> impl Iterator<Item = &'f Arc<SealedFile>> {
    let windows = files.windows.iter().flat_map(|window| &window.files);
    let windows = windows.filter(|file| file.meta().death_upto < floor_of(file.meta(), floors));
    // Of an event it is not known here whose key it is about.
    let least = floors.least();
    windows.chain(files.events.iter().filter(move |file| file.meta().max_revision < least))
}
