//! How many users' keys live in a range, as far as one file tells: by two look-ups, whatever lies
//! between.

use annals_format::block::Body;
use annals_format::entry::Neighbour;
use annals_format::{FileKind, living};

use super::blocks::Caching;
use super::opened::Opened;
use super::reader::Segment;
use crate::error::Result;

impl Segment {
    /// What the entries of the keys from `start` to before `end` weigh, see
    /// [`annals_format::living`]: in HEAD how many of the keys live, in L0 by how many the flush changed
    /// that.
    ///
    /// Costs one page a level and one block for each bound that lies within the file.
    pub(crate) fn living(&self, start: &[u8], end: &[u8]) -> Result<i64> {
        let file = self.opened()?;
        let meta = self.meta();
        let upto = if end > meta.last_key.as_slice() {
            file.footer().living
        } else {
            file.living_before(end)?
        };
        let before =
            if start <= meta.first_key.as_slice() { 0 } else { file.living_before(start)? };
        let most = i64::try_from(meta.entries).unwrap_or(i64::MAX);
        let least = if meta.kind == FileKind::L0 { -most } else { 0 };
        // A checksum says only that a writer made it so.
        match upto.checked_sub(before) {
            Some(living) if (least..=most).contains(&living) => Ok(living),
            _ => {
                let expected = format!("ranks that differ by {least} to {most}");
                let found = format!("{before} and {upto}");
                let offset = file.footer().index_offset;
                Err(file.corrupt(offset, "index page: rank", &expected, &found))
            }
        }
    }
}

impl Opened {
    /// What all entries of keys before `key` weigh.
    fn living_before(&self, key: &[u8]) -> Result<i64> {
        let Some((handle, rank)) = self.locate_ranked(key, u64::MAX)? else { return Ok(0) };
        let block = self.block(handle, Caching::Keep, &mut None)?;
        if block.in_groups {
            // What HISTORY has weighs nothing.
            return Ok(i64::from(rank));
        }
        let body = block.bytes.as_slice();
        let within = || -> annals_format::error::Result<i64> {
            let (mut weight, mut at) = (0, Vec::new());
            for item in Body::parse(body, self.kind())?.resume(0, Neighbour::default()) {
                let item = item?;
                at.truncate(item.shared);
                at.extend_from_slice(item.suffix);
                if at.as_slice() >= key {
                    break;
                }
                weight += living::weight(self.kind(), &at, &item.fields);
            }
            Ok(weight)
        };
        Ok(i64::from(rank) + within().map_err(|error| self.damaged_body(handle, &error))?)
    }
}
