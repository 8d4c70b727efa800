//! Several transformers side by side, told apart by what the stored bytes begin with, so that one can follow
//! another: `NewPrefixTransformers` of `k8s.io/apiserver/pkg/storage/value`.

use std::fmt;
use std::sync::Arc;

use super::status::{Reason, Result, Status};
use super::transform::Transformer;

/// What the bytes of objects begin with that are encrypted, whatever with.
const ENCRYPTED_PREFIX: &[u8] = b"k8s:enc:";

/// So many bytes of what cannot be read are shown at most.
const SHOWN_BYTES: usize = 100;

/// Transformers, each with the beginning of the bytes that are its own. The first one writes; all of them read,
/// and what another than the first has read is stale, so that the next update writes it anew.
///
/// For transformers of one's own, and for the way back from encryption:
/// `Prefixed::new("", Unencrypted).or("", AesGcm::new(key))`. With one more key, or for what was stored before there was
/// encryption, [`AesGcm`](super::AesGcm) needs none.
///
/// ```
/// use annals::object::{Prefixed, Transformer, Unencrypted};
///
/// let before = Prefixed::new("v1:", Unencrypted);
/// let after = Prefixed::new("v2:", Unencrypted).or("v1:", Unencrypted);
/// let stored = before.to_storage(b"{}", b"/registry/pods/web")?;
/// assert_eq!(stored, b"v1:{}");
/// let (read, is_stale) = after.from_storage(&stored, b"/registry/pods/web")?;
/// assert_eq!((read.as_slice(), is_stale), (&b"{}"[..], true));
/// # Ok::<(), annals::object::Status>(())
/// ```
pub struct Prefixed {
    first: (Vec<u8>, Arc<dyn Transformer>),
    others: Vec<(Vec<u8>, Arc<dyn Transformer>)>,
}

impl Prefixed {
    /// The transformer that writes.
    pub fn new(prefix: impl Into<Vec<u8>>, transformer: impl Transformer) -> Self {
        Self { first: (prefix.into(), Arc::new(transformer)), others: Vec::new() }
    }

    /// And one more that reads. Two may have the same beginning: the second is tried where the first fails.
    #[must_use]
    pub fn or(mut self, prefix: impl Into<Vec<u8>>, transformer: impl Transformer) -> Self {
        self.others.push((prefix.into(), Arc::new(transformer)));
        self
    }
}

impl Transformer for Prefixed {
    fn from_storage(&self, data: &[u8], key: &[u8]) -> Result<(Vec<u8>, bool)> {
        let (mut errors, mut last) = (Vec::new(), None);
        for (place, (prefix, transformer)) in
            std::iter::once(&self.first).chain(&self.others).enumerate()
        {
            let Some(rest) = data.strip_prefix(prefix.as_slice()) else { continue };
            match transformer.from_storage(rest, key) {
                Ok((plain, is_stale)) => return Ok((plain, is_stale || place > 0)),
                // One that takes anything says by its error that these bytes are not its own.
                Err(status) if prefix.is_empty() => last = Some(status.message().to_owned()),
                Err(status) => errors.push(status.message().to_owned()),
            }
        }
        Err(failed(match errors.as_slice() {
            [] => last.unwrap_or_else(|| format!("no matching prefix found: {}", beginning(data))),
            [only] => only.clone(),
            more => format!("[{}]", more.join(", ")),
        }))
    }

    fn to_storage(&self, data: &[u8], key: &[u8]) -> Result<Vec<u8>> {
        let (prefix, transformer) = &self.first;
        let mut stored = prefix.clone();
        stored.extend_from_slice(&transformer.to_storage(data, key)?);
        Ok(stored)
    }
}

/// With the beginnings alone: a transformer may hold keys.
impl fmt::Debug for Prefixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = std::iter::once(&self.first).chain(&self.others);
        f.debug_list().entries(all.map(|(prefix, _)| String::from_utf8_lossy(prefix))).finish()
    }
}

/// Objects as they are, that is: not encrypted; what kinds have that are given no other transformer. Bytes that are
/// encrypted it refuses to read, so that they are not taken for an object.
///
/// As the first of the transformers of a [`Prefixed`] it is the way back from encryption.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "it has no state")]
pub struct Unencrypted;

impl Transformer for Unencrypted {
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
