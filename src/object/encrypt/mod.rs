//! Encryption of objects at rest: AES-GCM, as the provider `aesgcm` of a Kubernetes API server does it, with the
//! same bytes.
//!
//! ```text
//! k8s:enc:aesgcm:v1: NAME : nonce (12 bytes) ciphertext tag (16 bytes)
//! ---- Prefixed ----|-------------------- AesGcm --------------------|
//! ```
//!
//! The key under which the object lies is authenticated with it: a value that somebody copies to another key
//! cannot be read there. Who can write to the store can still put back an older value of the same key; and as long as
//! values without encryption are read, too, one of these: leave that out once all objects have been written anew.
//!
//! The nonce is random. With one key no more than 2^32 values may be written: beyond that the chance that a nonce
//! repeats exceeds 2^-32 (NIST SP 800-38D, 8.3), and two values under one nonce give away their difference and
//! the key of the authentication. So change the key in time, at a thousand writes a second every seven weeks: put a
//! new one before it, update all objects, then leave the old one out.

use std::fmt;

use aes_gcm::aead::array::Array;
use aes_gcm::aead::consts::{U12, U16};
use aes_gcm::aes::Aes192;
use aes_gcm::{AeadInOut, Aes128Gcm, Aes256Gcm, KeyInit};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::status::{Result, Status};
use super::transform::{Transformer, failed};

const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;

/// A secret with a name. The memory in which it is kept is wiped when it is dropped (copies on the stack, made while
/// it was read, are not), and no output shows it.
pub struct EncryptionKey {
    name: String,
    cipher: Box<dyn Cipher>,
}

impl EncryptionKey {
    /// A key of 16, 24 or 32 bytes that nobody can guess, as from `/dev/urandom`; 32 for AES-256. What `secret` is
    /// read from is the caller's to wipe.
    ///
    /// # Errors
    ///
    /// 400 for another length, and for a name that is empty or has a colon.
    pub fn new(name: impl Into<String>, secret: &[u8]) -> Result<Self> {
        let name = name.into();
        if name.is_empty() || name.contains(':') {
            let message = format!("the name of a key is not empty and has no colon: {name:?}");
            return Err(Status::bad_request(message));
        }
        let cipher: Option<Box<dyn Cipher>> = match secret.len() {
            16 => boxed::<Aes128Gcm>(secret),
            24 => boxed::<aes_gcm::AesGcm<Aes192, U12>>(secret),
            32 => boxed::<Aes256Gcm>(secret),
            _ => None,
        };
        let wrong = || {
            let bytes = secret.len();
            let message = format!("the key {name:?} has {bytes} bytes, and not 16, 24 or 32");
            Status::bad_request(message)
        };
        Ok(Self { cipher: cipher.ok_or_else(wrong)?, name })
    }

    /// A key in Base64, as `EncryptionConfiguration` of Kubernetes has it.
    ///
    /// # Errors
    ///
    /// 400 for what is not Base64, and as [`new`](Self::new).
    pub fn from_base64(name: impl Into<String>, secret: &str) -> Result<Self> {
        let name = name.into();
        let secret = STANDARD
            .decode(secret)
            // What is wrong with it is not told: it would tell of the secret.
            .map_err(|_| Status::bad_request(format!("the key {name:?} is not Base64")))?;
        Self::new(name, &Zeroizing::new(secret))
    }

    /// What stored objects call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn seal(&self, data: &[u8], key: &[u8]) -> Result<Vec<u8>> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce)
            .map_err(|error| failed(format!("failed to write nonce for AES-GCM: {error}")))?;
        let head = self.name.len() + 1 + NONCE_BYTES;
        let mut sealed = Vec::with_capacity(head + data.len() + TAG_BYTES);
        sealed.extend_from_slice(self.name.as_bytes());
        sealed.push(b':');
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(data);
        let (_, message) = sealed.split_at_mut(head);
        let tag = self
            .cipher
            .seal(&nonce, key, message)
            .ok_or_else(|| failed("the object is too large for AES-GCM".into()))?;
        sealed.extend_from_slice(&tag);
        Ok(sealed)
    }

    /// `None` where the bytes name another key.
    fn open(&self, data: &[u8], key: &[u8]) -> Option<Result<Vec<u8>>> {
        let sealed = data.strip_prefix(self.name.as_bytes())?.strip_prefix(b":")?;
        let Some((nonce, sealed)) = sealed.split_first_chunk::<NONCE_BYTES>() else {
            let message = "the stored data was shorter than the required size";
            return Some(Err(failed(message.into())));
        };
        let wrong = || Some(Err(failed("cipher: message authentication failed".into())));
        let Some((message, tag)) = sealed.split_last_chunk::<TAG_BYTES>() else { return wrong() };
        let mut message = message.to_vec();
        if self.cipher.open(nonce, key, &mut message, tag) { Some(Ok(message)) } else { wrong() }
    }
}

/// The name alone.
impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncryptionKey").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Encrypts objects. The first key writes; what another key has written is read, and stale.
///
/// It is one of the transformers of a [`Prefixed`](super::Prefixed), which says by the bytes that they are
/// encrypted, and with what:
///
/// ```
/// use annals::object::{AesGcm, EncryptionKey, Identity, Prefixed, Transformer};
///
/// # let (new, old) = (&[1; 32], &[2; 32]);
/// let keys = AesGcm::new(EncryptionKey::new("2026", new)?).or(EncryptionKey::new("2025", old)?)?;
/// // Without the last part, objects that were stored before there was encryption cannot be read.
/// let transformer = Prefixed::new(AesGcm::PREFIX, keys).or("", Identity);
///
/// let stored = transformer.to_storage(b"{}", b"/registry/secrets/a")?;
/// assert!(stored.starts_with(b"k8s:enc:aesgcm:v1:2026:"));
/// let (read, is_stale) = transformer.from_storage(&stored, b"/registry/secrets/a")?;
/// assert_eq!((read.as_slice(), is_stale), (&b"{}"[..], false));
/// // Copied to another key, it cannot be read.
/// assert!(transformer.from_storage(&stored, b"/registry/secrets/b").is_err());
/// # Ok::<(), annals::object::Status>(())
/// ```
///
/// No more than 2^32 values may be written with one key: the nonces are random. See
/// [`EncryptionKey`] for what a key is, and leave a key out only when nothing is stored with it any more:
/// whatever was written with it cannot be read without it.
#[derive(Debug)]
pub struct AesGcm {
    first: EncryptionKey,
    others: Vec<EncryptionKey>,
}

impl AesGcm {
    /// What encrypted objects begin with.
    pub const PREFIX: &'static str = "k8s:enc:aesgcm:v1:";

    /// The key that writes.
    pub fn new(key: EncryptionKey) -> Self {
        Self { first: key, others: Vec::new() }
    }

    /// And one more that reads.
    ///
    /// # Errors
    ///
    /// 400 where there is one of this name already.
    pub fn or(mut self, key: EncryptionKey) -> Result<Self> {
        if self.keys().any(|other| other.name == key.name) {
            return Err(Status::bad_request(format!(
                "there are two keys of the name {:?}",
                key.name
            )));
        }
        self.others.push(key);
        Ok(self)
    }

    fn keys(&self) -> impl Iterator<Item = &EncryptionKey> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

impl Transformer for AesGcm {
    fn from_storage(&self, data: &[u8], key: &[u8]) -> Result<(Vec<u8>, bool)> {
        for (place, secret) in self.keys().enumerate() {
            if let Some(opened) = secret.open(data, key) {
                return Ok((opened?, place > 0));
            }
        }
        Err(failed("no matching key was found for the provided AES transformer".into()))
    }

    fn to_storage(&self, data: &[u8], key: &[u8]) -> Result<Vec<u8>> {
        self.first.seal(data, key)
    }
}

/// AES-GCM with a key of any of its lengths.
trait Cipher: Send + Sync {
    /// Encrypts in place and answers the tag; `None` for what is too long.
    fn seal(
        &self,
        nonce: &[u8; NONCE_BYTES],
        authenticated: &[u8],
        message: &mut [u8],
    ) -> Option<[u8; TAG_BYTES]>;

    /// Decrypts in place if the tag is right.
    fn open(
        &self,
        nonce: &[u8; NONCE_BYTES],
        authenticated: &[u8],
        message: &mut [u8],
        tag: &[u8; TAG_BYTES],
    ) -> bool;
}

impl<C: AeadInOut<NonceSize = U12, TagSize = U16> + Send + Sync> Cipher for C {
    fn seal(
        &self,
        nonce: &[u8; NONCE_BYTES],
        authenticated: &[u8],
        message: &mut [u8],
    ) -> Option<[u8; TAG_BYTES]> {
        let tag = self.encrypt_inout_detached(&Array(*nonce), authenticated, message.into());
        tag.ok().map(|tag| tag.0)
    }

    fn open(
        &self,
        nonce: &[u8; NONCE_BYTES],
        authenticated: &[u8],
        message: &mut [u8],
        tag: &[u8; TAG_BYTES],
    ) -> bool {
        let message = message.into();
        self.decrypt_inout_detached(&Array(*nonce), authenticated, message, &Array(*tag)).is_ok()
    }
}

fn boxed<C: KeyInit + Cipher + 'static>(secret: &[u8]) -> Option<Box<dyn Cipher>> {
    C::new_from_slice(secret).ok().map(|cipher| Box::new(cipher) as Box<dyn Cipher>)
}

#[cfg(test)]
mod tests;
