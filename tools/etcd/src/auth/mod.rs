//! Who may do what.

use std::path::Path;

use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::proto::etcdserverpb as pb;

/// Users, roles and whether they are asked for.
#[derive(Debug)]
pub struct Auth;

/// Who asks.
#[derive(Clone, Debug)]
pub struct Caller;

impl Auth {
    /// That of a server's directory.
    pub fn open(_dir: &Path) -> std::io::Result<Self> {
        Ok(Self)
    }
    /// Who asks.
    pub fn caller(
        &self,
        _metadata: &MetadataMap,
        _common_name: Option<&str>,
    ) -> Result<Caller, Status> {
        Ok(Caller)
    }
}

impl Caller {
    /// May read.
    pub fn may_range(&self, _key: &[u8], _end: &[u8]) -> Result<(), Status> {
        Ok(())
    }
    /// May write.
    pub fn may_put(&self, _request: &pb::PutRequest) -> Result<(), Status> {
        Ok(())
    }
    /// May delete.
    pub fn may_delete(&self, _request: &pb::DeleteRangeRequest) -> Result<(), Status> {
        Ok(())
    }
    /// May do all of it.
    pub fn may_txn(&self, _request: &pb::TxnRequest) -> Result<(), Status> {
        Ok(())
    }
    /// Whether anything could be refused.
    pub fn is_restricted(&self) -> bool {
        false
    }
    /// May write this key.
    pub fn may_write_key(&self, _key: &[u8]) -> Result<(), Status> {
        Ok(())
    }
    /// Is root.
    pub fn must_be_admin(&self) -> Result<(), Status> {
        Ok(())
    }
}
