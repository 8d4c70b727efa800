//! What objects go through on their way to the store and back: `storage/value.Transformer` of Kubernetes.

use super::status::{Reason, Result, Status};

/// What the bytes of objects begin with that are encrypted, whatever with.
const ENCRYPTED_PREFIX: &[u8] = b"k8s:enc:";
/// So many bytes of what cannot be read are shown at most.
const SHOWN_BYTES: usize = 100;

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

/// Stores objects as they are, that is: not encrypted; what kinds have that are given no other transformer. Bytes that
/// are encrypted it refuses to read, so that they are not taken for an object.
///
/// As the first of the transformers of a [`Prefixed`](super::Prefixed) it is the way back from encryption.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "it has no state")]
pub struct Identity;

impl Transformer for Identity {
    fn from_storage(&self, data: &[u8], _: &[u8]) -> Result<(Vec<u8>, bool)> {
        if is_encrypted(data) {
            let why = "identity transformer tried to read encrypted data";
            return Err(failed(format!("{why}: {}", beginning(data))));
        }
        Ok((data.to_vec(), false))
    }

    fn to_storage(&self, data: &[u8], _: &[u8]) -> Result<Vec<u8>> {
        Ok(data.to_vec())
    }
}

/// Whether the bytes are those of an encrypted object, whatever it is encrypted with.
pub(super) fn is_encrypted(data: &[u8]) -> bool {
    data.starts_with(ENCRYPTED_PREFIX)
}

/// What can be told of bytes that cannot be read: how they are encrypted, and with which key. Nothing of an object is shown.
pub(super) fn beginning(data: &[u8]) -> String {
    if !is_encrypted(data) {
        return "the stored object is not encrypted, or in no known way".into();
    }
    let shown = data.get(..SHOWN_BYTES).unwrap_or(data);
    // k8s:enc:PROVIDER:VERSION:KEY:
    let colons = shown.iter().enumerate().filter(|(_, byte)| **byte == b':').map(|(at, _)| at + 1);
    let end = colons.take(5).last().unwrap_or(0);
    let shown = String::from_utf8_lossy(shown.get(..end).unwrap_or_default());
    format!("the stored object is encrypted, as {shown:?}")
}

/// 500. Who asked for the object puts before it what failed.
pub(super) fn failed(message: String) -> Status {
    Status::new(Reason::InternalError, message)
}
