//! The one version that a point read wants of a block.

use std::cell::RefCell;

use annals_format::FileKind;
use annals_format::block::{BLOCK_HEADER_BYTES, Body};
use annals_format::group::{Groups, Scratch, Value};
use bytes::Bytes;

use super::blocks::{Block, Caching, Held};
use super::group_codec::BlockCodec;
use super::opened::Opened;
use super::reader::{Version, Want};
use crate::error::Result;

thread_local! {
    /// Memory that making values takes, used again and again.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Block<'_> {
    /// The newest version of `key` with a revision of at most `at`, if the block has it; in HISTORY
    /// only if it had not died by then.
    pub(super) fn find_at(
        &self,
        file: &Opened,
        key: &[u8],
        at: u64,
        want: Want,
    ) -> Result<Option<Version>> {
        if self.in_groups {
            return self.find_in_groups(file, key, at, want);
        }
        let Self { handle, bytes, .. } = self;
        let found = Body::parse(bytes.as_slice(), file.kind()).and_then(|body| body.find(key, at));
        let Some(item) = found.map_err(|error| file.damaged_body(*handle, &error))? else {
            return Ok(None);
        };
        if file.kind() == FileKind::History && item.fields.death <= at {
            return Ok(None);
        }
        let value_bytes = item.fields.value.len();
        let value = match bytes {
            _ if want == Want::Fields => Bytes::new(),
            _ if let Some(blob) = item.fields.blob => {
                file.blob_value(handle.offset, key, (&item.fields, blob), Caching::Keep)?
            }
            _ if value_bytes == 0 => Bytes::new(),
            Held::Owned(body) => body.slice(item.value_offset..item.value_offset + value_bytes),
            Held::Mapped(_) => {
                let start = (BLOCK_HEADER_BYTES + item.value_offset) as u64;
                file.part(handle.offset + start, value_bytes as u64)?
            }
        };
        Ok(Some(Version::new(&item.fields, value)))
    }

    fn find_in_groups(
        &self,
        file: &Opened,
        key: &[u8],
        at: u64,
        want: Want,
    ) -> Result<Option<Version>> {
        let Self { handle, bytes, .. } = self;
        let damaged = |error| file.damaged_body(*handle, &error);
        let groups = Groups::parse(bytes.as_slice()).map_err(damaged)?;
        let Some((group, version)) = groups.find(key, at).map_err(damaged)? else {
            return Ok(None);
        };
        let fields = group.fields(version).map_err(damaged)?;
        if fields.death <= at {
            return Ok(None);
        }
        let value = match want {
            Want::Fields => Bytes::new(),
            Want::Value => {
                let mut last = None;
                let mut codec = BlockCodec::new(file, *handle, Caching::Keep, &mut last)?;
                let value = SCRATCH
                    .with_borrow_mut(|scratch| {
                        groups.value_of(&group, version, &mut codec, scratch)
                    })
                    .map_err(damaged)?;
                match value {
                    Value::Stored(part) => bytes.keep(part),
                    Value::Made(made) => Bytes::from(made),
                    Value::Frame(frame) => frame,
                }
            }
        };
        Ok(Some(Version::new(&fields.entry(&[], &[]), value)))
    }
}
