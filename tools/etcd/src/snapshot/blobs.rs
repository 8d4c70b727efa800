//! A database as a client gets it: pieces of it, each with how much is still to come, and at last its checksum.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use sha2::{Digest as _, Sha256};

use crate::proto::etcdserverpb::SnapshotResponse;

/// What etcd sends at once.
const BLOB_BYTES: usize = 32 << 10;
const PIECE_BYTES: usize = 1 << 20;

/// The messages of a snapshot, in their order. Each is read from the file when it is asked for, which blocks. After an
/// error it ends.
#[derive(Debug)]
pub struct Blobs {
    file: File,
    at: u64,
    bytes: u64,
    version: String,
    /// None when all has been told.
    digest: Option<Sha256>,
}

impl Blobs {
    pub(super) fn new(file: File, bytes: u64, version: String) -> Self {
        Self { file, at: 0, bytes, version, digest: Some(Sha256::new()) }
    }

    fn message(&self, blob: Vec<u8>) -> SnapshotResponse {
        SnapshotResponse {
            header: None,
            remaining_bytes: self.bytes - self.at,
            blob: blob.into(),
            version: self.version.clone(),
        }
    }
}

impl Iterator for Blobs {
    type Item = io::Result<SnapshotResponse>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut digest = self.digest.take()?;
        if self.at == self.bytes {
            return Some(Ok(self.message(digest.finalize().to_vec())));
        }
        let mut blob = vec![0; piece(self.bytes - self.at, BLOB_BYTES)];
        if let Err(error) = self.file.read_exact_at(&mut blob, self.at) {
            return Some(Err(error));
        }
        self.at += blob.len() as u64;
        digest.update(&blob);
        self.digest = Some(digest);
        Some(Ok(self.message(blob)))
    }
}

impl std::iter::FusedIterator for Blobs {}

/// How much is read at once of what is left.
fn piece(left: u64, most: usize) -> usize {
    usize::try_from(left).map_or(most, |left| left.min(most))
}

/// The checksum of the first bytes of a file.
pub(super) fn digest(file: &File, bytes: u64) -> io::Result<[u8; 32]> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; piece(bytes, PIECE_BYTES)];
    let mut at = 0;
    while at < bytes {
        let piece = buffer.get_mut(..piece(bytes - at, PIECE_BYTES)).unwrap_or_default();
        file.read_exact_at(piece, at)?;
        digest.update(&*piece);
        at += piece.len() as u64;
    }
    Ok(digest.finalize().into())
}
