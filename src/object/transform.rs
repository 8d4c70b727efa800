//! What objects go through on their way to the store and back: `storage/value.Transformer` of Kubernetes.

use super::status::Result;

/// Changes the bytes of an object before they are stored, and back: for encryption, take [`AesGcm`](super::AesGcm).
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
