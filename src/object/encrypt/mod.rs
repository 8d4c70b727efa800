//! Encryption of objects at rest: AES-GCM, as the provider `aesgcm` of a Kubernetes API server does it, with the
//! same bytes.
//!
//! ```text
//! k8s:enc:aesgcm:v1: NAME : nonce (12 bytes) ciphertext tag (16 bytes)
//! ```
//!
//! What whoever uses it has to know is told at [`AesGcm`].

use std::fmt;

use aes_gcm::aead::array::Array;
use aes_gcm::aead::consts::{U12, U16};
use aes_gcm::aes::Aes192;
use aes_gcm::{AeadInOut, Aes128Gcm, Aes256Gcm, KeyInit};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::status::{Result, Status};
use super::transform::{Transformer, beginning, failed, is_encrypted};

/// What encrypted objects begin with.
const PREFIX: &str = "k8s:enc:aesgcm:v1:";
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
        let head = PREFIX.len() + self.name.len() + 1 + NONCE_BYTES;
        let mut sealed = Vec::with_capacity(head + data.len() + TAG_BYTES);
        sealed.extend_from_slice(PREFIX.as_bytes());
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

/// Encrypts objects, as the provider `aesgcm` of a Kubernetes API server does, with the same bytes: the
/// [`transformer`](super::Objects::transformer) for encryption at rest. The first key writes; what another key has written
/// is read, and stale.
///
/// ```
/// use std::sync::Arc;
/// use annals::object::{AesGcm, EncryptionKey, Kind, Objects};
/// use serde_json::json;
/// # let directory = tempfile::tempdir().expect("a temporary directory");
///
/// # let (new, old) = (&[1; 32], &[2; 32]);
/// let store = Arc::new(annals::Store::open(directory.path())?);
/// let keys = AesGcm::new(EncryptionKey::new("2026", new)?).or(EncryptionKey::new("2025", old)?)?;
/// let secrets = Objects::new(Arc::clone(&store), Kind::new("v1", "Secret", "secrets"))
///     // Without `or_unencrypted`, what was stored before there was encryption cannot be read.
///     .transformer(Arc::new(keys.or_unencrypted()));
///
/// let secret = json!({"metadata": {"name": "db"}, "data": {"password": "aHVudGVyMg=="}});
/// secrets.create("default", secret, &Default::default())?;
/// let stored = store.get("/registry/secrets/default/db")?.expect("it is there").value;
/// assert!(stored.starts_with(b"k8s:enc:aesgcm:v1:2026:"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What it does and what not
///
/// - Keys of the store are not encrypted: kind, namespace and name of an object can be seen, and how large it is.
/// - The key under which an object lies is authenticated with it: a value that somebody copies to another key cannot be
///   read there. Who can write to the store can still put back an older value of the same key; and with
///   [`or_unencrypted`](Self::or_unencrypted), one without encryption.
/// - A nonce is random. With one key no more than 2^32 values may be written: beyond that the chance that a nonce repeats
///   exceeds 2^-32 (NIST SP 800-38D, 8.3), and two values under one nonce give away their difference and the key of
///   the authentication. So change the key in time, at a thousand writes a second every seven weeks.
///
/// # Changing the key
///
/// The store keeps every version of every object until it is compacted, each as it was written: with the old key, or without
/// any. A key that is left out too early takes the past with it, and one that has leaked opens it.
///
/// 1. Put the new key behind the old one, in every process and handle that has the store: all of them can read it. Then
///    put it before the old one: of two that write with another key each, each takes for stale what the other writes.
/// 2. [`rewrite_stale`](super::Objects::rewrite_stale), of each kind: then every object as it is now has the new key.
/// 3. [`Store::compact`](crate::Store::compact) at the revision that it answers, or wait until all readers and watches are
///    beyond it and retention has forgotten what was before. Rules of retention may keep prefixes for longer.
/// 4. Leave out the old key, or `or_unencrypted`. Backups and checkpoints from before can be read with it alone; files of
///    the store, too, have what was compacted until they are written again.
///
/// Of a version that no key opens, a [`get`](super::Objects::get) or a [`list`](super::Objects::list) says with 500 by what it
/// was encrypted, and a [`history`](super::Objects::history) goes on with the next. A watch that comes upon one ends with
/// 410: what there is has to be listed anew. An object that is lost for good can be
/// [deleted](super::DeleteOptions::ignore_store_read_error).
#[derive(Debug)]
pub struct AesGcm {
    first: EncryptionKey,
    others: Vec<EncryptionKey>,
    reads_unencrypted: bool,
}

impl AesGcm {
    /// The key that writes.
    pub fn new(key: EncryptionKey) -> Self {
        Self { first: key, others: Vec::new(), reads_unencrypted: false }
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

    /// And objects that are not encrypted are read, which are stale: those from before there was encryption. As long as
    /// that is so, nothing shows that a value was really written with a key.
    #[must_use]
    pub fn or_unencrypted(mut self) -> Self {
        self.reads_unencrypted = true;
        self
    }

    fn keys(&self) -> impl Iterator<Item = &EncryptionKey> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

impl Transformer for AesGcm {
    fn from_storage(&self, data: &[u8], key: &[u8]) -> Result<(Vec<u8>, bool)> {
        let Some(sealed) = data.strip_prefix(PREFIX.as_bytes()) else {
            if self.reads_unencrypted && !is_encrypted(data) {
                return Ok((data.to_vec(), true));
            }
            return Err(failed(format!("no matching prefix found: {}", beginning(data))));
        };
        for (place, secret) in self.keys().enumerate() {
            if let Some(opened) = secret.open(sealed, key) {
                return Ok((opened?, place > 0));
            }
        }
        let why = "no matching key was found for the provided AES transformer";
        Err(failed(format!("{why}: {}", beginning(data))))
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
