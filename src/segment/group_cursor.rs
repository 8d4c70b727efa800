//! Walks the versions of one block of groups in both directions.

use std::cmp::Ordering;

use annals_format::block::compare;
use annals_format::entry::EntryRef;
use annals_format::error::{DecodeError, Problem};
use annals_format::group::{Fields, Groups, Scratch, Value};
use annals_format::page::Handle;
use bytes::Bytes;

use super::blocks::Caching;
use super::group_codec::{BlockCodec, LastFrame};
use super::opened::Opened;
use super::reader::Want;
use crate::error::Result;

/// A position in the versions of a block, or past either end of it.
///
/// A step in either direction decodes one version; its value only if values are wanted, and with it
/// the few that it is made from.
#[derive(Debug)]
pub(super) struct GroupCursor {
    caching: Caching,
    want: Want,
    handle: Handle,
    stored: Bytes,
    at: Option<Position>,
    key: Vec<u8>,
    /// The key it was at before.
    left: Vec<u8>,
    /// The revision of the version that was left forward and whose key is still in `key`: what comes
    /// next must lie behind it.
    passed: Option<u64>,
    value: Bytes,
    last_frame: LastFrame,
    scratch: Box<Scratch>,
}

/// A version of the block.
#[derive(Clone, Copy, Debug)]
struct Position {
    group: usize,
    version: usize,
    /// How many versions the group has.
    versions: usize,
    fields: Fields,
}

impl GroupCursor {
    pub(super) fn new(caching: Caching, want: Want) -> Self {
        Self {
            caching,
            want,
            handle: Handle::default(),
            stored: Bytes::new(),
            at: None,
            key: Vec::new(),
            left: Vec::new(),
            passed: None,
            value: Bytes::new(),
            last_frame: None,
            scratch: Box::default(),
        }
    }

    /// Takes up the stored bytes of a block; it is at no version then.
    pub(super) fn load(&mut self, handle: Handle, stored: Bytes) {
        self.leave();
        self.handle = handle;
        self.stored = stored;
        // Of one file: so a base is made once, not for each version.
        self.scratch.of_block(handle.offset);
    }

    /// Goes to no version.
    pub(super) fn leave(&mut self) {
        self.at = None;
        self.passed = None;
        self.value = Bytes::new();
    }

    /// The revision of the version that the last step forward led from, out of the block.
    pub(super) const fn passed(&mut self) -> Option<u64> {
        self.passed.take()
    }

    /// After the next block was taken up: the versions go on behind that one.
    pub(super) const fn follow(&mut self, passed: Option<u64>) {
        self.passed = passed;
    }

    /// Goes to the first version at or after (`key`, `at`), if the block has one.
    pub(super) fn seek(&mut self, file: &Opened, key: &[u8], at: u64) -> Result<()> {
        self.leave();
        let target = self.in_block(file, |groups| lower_bound(groups, key, at))?;
        match target {
            Some((group, version)) => self.enter(file, group, version),
            None => Ok(()),
        }
    }

    /// Goes to the first version.
    pub(super) fn first(&mut self, file: &Opened) -> Result<()> {
        self.enter(file, 0, 0)
    }

    /// Goes to the last version.
    pub(super) fn last(&mut self, file: &Opened) -> Result<()> {
        let last = self.in_block(file, |groups| Ok(groups.count() - 1))?;
        self.enter(file, last, usize::MAX)
    }

    /// Goes to the next version.
    pub(super) fn next(&mut self, file: &Opened) -> Result<()> {
        let Some(at) = self.at.take() else { return Ok(()) };
        let passed = at.fields.revision;
        self.passed = Some(passed);
        if at.version + 1 < at.versions {
            return self.enter(file, at.group, at.version + 1);
        }
        if at.group + 1 < self.in_block(file, |groups| Ok(groups.count()))? {
            return self.enter(file, at.group + 1, 0);
        }
        self.leave();
        self.passed = Some(passed);
        Ok(())
    }

    /// Goes to the version before.
    pub(super) fn prev(&mut self, file: &Opened) -> Result<()> {
        let Some(at) = self.at.take() else { return Ok(()) };
        if let Some(version) = at.version.checked_sub(1) {
            return self.enter(file, at.group, version);
        }
        if let Some(group) = at.group.checked_sub(1) {
            return self.enter(file, group, usize::MAX);
        }
        self.leave();
        Ok(())
    }

    /// Whether it is at a version.
    pub(super) const fn is_at_entry(&self) -> bool {
        self.at.is_some()
    }

    /// The version it is at; without its value if values are not wanted.
    pub(super) fn entry(&self) -> Option<EntryRef<'_>> {
        Some(self.at.as_ref()?.fields.entry(&self.key, &self.value))
    }

    /// The value of the version it is at.
    pub(super) fn value(&self) -> Bytes {
        self.value.clone()
    }

    fn in_block<T>(
        &self,
        file: &Opened,
        look: impl FnOnce(&Groups<'_>) -> annals_format::error::Result<T>,
    ) -> Result<T> {
        Groups::parse(&self.stored)
            .and_then(|groups| look(&groups))
            .map_err(|error| file.damaged_body(self.handle, &error))
    }

    /// Goes to a version of a group, or to its last if it has fewer. After a step forward it must lie
    /// behind the one before: a checksum says only that the writer made it so.
    fn enter(&mut self, file: &Opened, group: usize, version: usize) -> Result<()> {
        let passed = self.passed.take();
        self.leave();
        std::mem::swap(&mut self.key, &mut self.left);
        let Self { key, left, scratch, last_frame, .. } = self;
        let mut codec = match self.want {
            Want::Value => Some(BlockCodec::new(file, self.handle, self.caching, last_frame)?),
            Want::Fields => None,
        };
        let entered = Groups::parse(&self.stored).and_then(|groups| {
            let found = groups.group(group)?;
            let version = version.min(found.len() - 1);
            let fields = found.fields(version)?;
            key.clear();
            key.extend_from_slice(groups.prefix());
            key.extend_from_slice(found.key_suffix());
            if let Some(revision) = passed
                && compare(key, fields.revision, left, revision).is_le()
            {
                return Err(out_of_order());
            }
            let value = match &mut codec {
                Some(codec) => match groups.value_of(&found, version, codec, scratch)? {
                    Value::Stored(bytes) => self.stored.slice_ref(bytes),
                    Value::Made(bytes) => Bytes::from(bytes),
                    Value::Frame(bytes) => bytes,
                },
                None => Bytes::new(),
            };
            Ok((Position { group, version, versions: found.len(), fields }, value))
        });
        let (position, value) = entered.map_err(|error| file.damaged_body(self.handle, &error))?;
        self.at = Some(position);
        self.value = value;
        Ok(())
    }
}

fn out_of_order() -> DecodeError {
    DecodeError { structure: "groups", field: "key_suffix", offset: 0, problem: Problem::Order }
}

/// The first version at or after (`key`, `at`), as the numbers of its group and of it in the group.
fn lower_bound(
    groups: &Groups<'_>,
    key: &[u8],
    at: u64,
) -> annals_format::error::Result<Option<(usize, usize)>> {
    let Some(suffix) = key.strip_prefix(groups.prefix()) else {
        // All keys of the block lie on the same side of this one as what they begin with.
        return Ok((key < groups.prefix()).then_some((0, 0)));
    };
    let (mut low, mut high) = (0, groups.count());
    // Invariant: groups below `low` begin at or before the target, groups from `high` on after it.
    while low < high {
        let middle = usize::midpoint(low, high);
        let group = groups.group(middle)?;
        match compare(group.key_suffix(), group.newest().revision, suffix, at) {
            Ordering::Greater => high = middle,
            _ => low = middle + 1,
        }
    }
    if let Some(before) = low.checked_sub(1) {
        let group = groups.group(before)?;
        if group.key_suffix() == suffix
            && let Some(version) = group.position_at(at)
        {
            return Ok(Some((before, version)));
        }
    }
    Ok((low < groups.count()).then_some((low, 0)))
}
