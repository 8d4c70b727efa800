//! Puts the real revision of a commit into an answer that was made before it was known.

use crate::kv::response::{OpResponse, TxnResponse};
use crate::kv::types::KeyValue;

/// What a revision of the evaluation stands for once the transaction has its place.
#[derive(Clone, Copy, Debug)]
pub(in crate::kv) struct Patch {
    /// The revision the evaluation started from; its own was taken to be the next.
    pub(in crate::kv) base: u64,
    /// The revision the transaction got.
    pub(in crate::kv) revision: u64,
}

impl Patch {
    fn is_identity(self) -> bool {
        self.revision == self.base + 1
    }

    /// A header's revision: before the transaction's first change, or its own; 0 stays 0.
    fn header(self, revision: u64) -> u64 {
        match revision {
            0 => 0,
            before if before == self.base => self.revision - 1,
            _ => self.revision,
        }
    }

    fn key_value(self, kv: &mut KeyValue) {
        let pending = self.base + 1;
        for revision in [&mut kv.create_revision, &mut kv.mod_revision] {
            if *revision == pending {
                *revision = self.revision;
            }
        }
    }

    pub(in crate::kv) fn transaction(self, response: &mut TxnResponse) {
        if self.is_identity() {
            return;
        }
        response.revision = self.header(response.revision);
        for response in &mut response.responses {
            match response {
                OpResponse::Put(put) => put.revision = self.header(put.revision),
                OpResponse::DeleteRange(delete) => delete.revision = self.header(delete.revision),
                OpResponse::Txn(nested) => self.transaction(nested),
                OpResponse::Range(range) => {
                    range.revision = self.header(range.revision);
                    range.kvs.iter_mut().for_each(|kv| self.key_value(kv));
                }
            }
        }
    }
}

/// Takes back the revision a transaction would have had, when all its changes were undone.
pub(super) fn unchanged(response: &mut TxnResponse, base: u64) {
    for response in &mut response.responses {
        let revision = match response {
            OpResponse::Put(put) => &mut put.revision,
            OpResponse::DeleteRange(delete) => &mut delete.revision,
            OpResponse::Range(range) => &mut range.revision,
            OpResponse::Txn(nested) => {
                unchanged(nested, base);
                continue;
            }
        };
        *revision = base.min(*revision);
    }
}
