//! The one version that a point read wants of a block.

use std::cell::RefCell;

use annals_format::FileKind;
use annals_format::block::{BLOCK_HEADER_BYTES, Body};
use annals_format::group::{Groups, Scratch, Value};
use annals_format::page::Handle;
use bytes::Bytes;

use super::blocks::{Block, Caching, Stored};
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
        let (handle, body) = match self {
            Self::Mapped { handle, body } => (*handle, *body),
            Self::Owned { handle, body } => (*handle, &**body),
            Self::Groups { handle, stored } => {
                return find_in_groups(file, *handle, stored, (key, at), want);
            }
        };
        let found = Body::parse(body, file.kind()).and_then(|body| body.find(key, at));
        let Some(item) = found.map_err(|error| file.damaged_body(handle, &error))? else {
            return Ok(None);
        };
        if file.kind() == FileKind::History && item.fields.death <= at {
            return Ok(None);
        }
        let bytes = item.fields.value.len();
        let value = match (self, want) {
            (_, Want::Fields) | (Self::Groups { .. }, _) => Bytes::new(),
            _ if bytes == 0 => Bytes::new(),
            (Self::Owned { body, .. }, _) => {
                body.slice(item.value_offset..item.value_offset + bytes)
            }
            (Self::Mapped { handle, .. }, _) => {
                let start = (BLOCK_HEADER_BYTES + item.value_offset) as u64;
                file.part(handle.offset + start, bytes as u64)?
            }
        };
        Ok(Some(Version::new(&item.fields, value)))
    }
}

fn find_in_groups(
    file: &Opened,
    handle: Handle,
    stored: &Stored<'_>,
    (key, at): (&[u8], u64),
    want: Want,
) -> Result<Option<Version>> {
    let damaged = |error| file.damaged_body(handle, &error);
    let groups = Groups::parse(stored.as_slice()).map_err(damaged)?;
    let Some((group, version)) = groups.find(key, at).map_err(damaged)? else { return Ok(None) };
    let fields = group.fields(version).map_err(damaged)?;
    if fields.death <= at {
        return Ok(None);
    }
    let value = match want {
        Want::Fields => Bytes::new(),
        Want::Value => {
            let mut last = None;
            let mut codec = BlockCodec::new(file, handle, Caching::Keep, &mut last)?;
            let value = SCRATCH
                .with_borrow_mut(|scratch| groups.value_of(&group, version, &mut codec, scratch))
                .map_err(damaged)?;
            match value {
                Value::Stored(bytes) => stored.keep(bytes),
                Value::Made(bytes) => Bytes::from(bytes),
                Value::Frame(bytes) => bytes,
            }
        }
    };
    Ok(Some(Version::new(&fields.entry(&[], &[]), value)))
}
