//! Page 0 of a WAL file, which is written together with the first batch.

use annals_format::cursor::is_zero;
use annals_format::sector::{PAGE_BYTES, SECTOR_BYTES, Sector};
use annals_format::wal_file::WalFileHeader;

use super::WalScan;
use crate::error::Result;
use crate::wal::found::Tail;
use crate::wal::undecodable;

impl WalScan {
    /// Reads page 0. A file without a header has no complete batch, since both are one write.
    pub(super) fn read_header_page(&mut self) -> Result<Option<Tail>> {
        if self.limit == 0 {
            return Ok(Some(Tail { end: 0, torn_sectors: 0, missing: 0 }));
        }
        match self.window.sector(&self.path, 0)? {
            Sector::Unwritten => return self.torn_header(0).map(Some),
            Sector::Rotten { expected, found } => return Err(self.rot(0, expected, found)),
            Sector::Written { first: false, .. } => {
                return Err(self.damage(0, "wal file header", "a first sector", "another sector"));
            }
            Sector::Written { first: true, data } => {
                let data = *data;
                let header = WalFileHeader::decode(&data)
                    .map_err(|error| undecodable(&self.path, 0, &error, None))?;
                self.check_padding(0, data.get(annals_format::wal_file::BYTES..))?;
                let (number, store) = (self.place.file, self.place.store);
                if header.number != number || header.store != store {
                    let found = format!("file {} of store {}", header.number, header.store);
                    let expected = format!("file {number} of store {store}");
                    return Err(self.damage(0, "wal file header", expected, found));
                }
                let first_seq = self.last_seq.map_or(header.first_seq, |last| last + 1);
                if header.first_seq != first_seq {
                    let (expected, found) = (first_seq.to_string(), header.first_seq.to_string());
                    return Err(self.damage(48, "wal file header first_seq", expected, found));
                }
                if let Some(missing) = self.missing_of_header_page()? {
                    return self.torn_header(missing).map(Some);
                }
                self.last_seq = Some(first_seq - 1);
                self.previous_crc = header.crc();
                self.header = Some(header);
            }
        }
        self.offset = PAGE_BYTES as u64;
        Ok(None)
    }

    /// The first sector of page 0 behind the header that was never written.
    fn missing_of_header_page(&mut self) -> Result<Option<u64>> {
        for offset in (SECTOR_BYTES as u64..PAGE_BYTES as u64).step_by(SECTOR_BYTES) {
            match self.window.sector(&self.path, offset)? {
                Sector::Unwritten => return Ok(Some(offset)),
                Sector::Rotten { expected, found } => {
                    return Err(self.rot(offset, expected, found));
                }
                Sector::Written { first: false, data } if is_zero(data) => {}
                Sector::Written { .. } => {
                    let structure = "wal file header padding";
                    return Err(self.damage(offset, structure, "zero bytes", "other bytes"));
                }
            }
        }
        Ok(None)
    }

    /// Page 0 is not whole, so it was being written, together with the first batch.
    fn torn_header(&mut self, missing: u64) -> Result<Tail> {
        let first = PAGE_BYTES as u64;
        let extent = match self.window.sector(&self.path, first)? {
            Sector::Written { first: true, data } if first < self.limit => {
                let data = *data;
                let (header, _) = self.decode_header(first, &data)?;
                Some(first + header.stored_bytes())
            }
            _ => None,
        };
        self.judge_tail(0, extent, missing)
    }
}
