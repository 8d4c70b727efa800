//! What objects go through on their way to the store and back: `storage/value.Transformer` of Kubernetes.

use super::status::{Reason, Result, Status};

/// What the bytes of objects begin with that are encrypted, whatever with.
const ENCRYPTED_PREFIX: &[u8] = b"k8s:enc:";

/// Changes the bytes of an object before they are stored, and back.
///
/// `key` is the full key under which they lie. One that encrypts authenticates it, so that a value that was copied to
/// another key cannot be read there.
pub trait Transformer: Send + Sync + 'static {
    /// What the bytes in the store stand for, and whether they are *stale*: to be written anew with the next update,
    /// also where that changes nothing, as after a change of keys.
    ///
    /// # Errors
    ///
    /// Why they cannot be read.
    #[expect(clippy::wrong_self_convention, reason = "it is what Kubernetes calls it")]
    fn from_storage(&self, data: &[u8], key: &[u8]) -> Result<(Vec<u8>, bool)>;

    /// What is to be stored.
    ///
    /// # Errors
    ///
    /// Why it cannot be.
    fn to_storage(&self, data: &[u8], key: &[u8]) -> Result<Vec<u8>>;
}

/// Stores objects as they are, that is: not encrypted. Bytes that are encrypted it refuses to read, so that they are not
/// taken for an object.
///
/// As the last of the transformers of a [`Prefixed`](super::Prefixed) it reads what was stored before there was
/// encryption; as the first it is the way back.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "it has no state")]
pub struct Identity;

impl Transformer for Identity {
    fn from_storage(&self, data: &[u8], _: &[u8]) -> Result<(Vec<u8>, bool)> {
        if data.starts_with(ENCRYPTED_PREFIX) {
            return Err(failed("identity transformer tried to read encrypted data".into()));
        }
        Ok((data.to_vec(), false))
    }

    fn to_storage(&self, data: &[u8], _: &[u8]) -> Result<Vec<u8>> {
        Ok(data.to_vec())
    }
}

/// 500. Who asked for the object puts before it what failed.
pub(super) fn failed(message: String) -> Status {
    Status::new(Reason::InternalError, message)
}
