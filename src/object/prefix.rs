//! Several transformers side by side, told apart by what the stored bytes begin with, so that one can follow
//! another: `NewPrefixTransformers` of `k8s.io/apiserver/pkg/storage/value`.

use std::fmt;
use std::sync::Arc;

use super::status::Result;
use super::transform::{Transformer, beginning, failed};

/// Transformers, each with the beginning of the bytes that are its own. The first one writes; all of them read,
/// and what another than the first has read is stale, so that the next update writes it anew.
///
/// For transformers of one's own, and for the way back from encryption:
/// `Prefixed::new("", Identity).or("", AesGcm::new(key))`. With one more key, or for what was stored before there was
/// encryption, [`AesGcm`](super::AesGcm) needs none.
///
/// ```
/// use annals::object::{Identity, Prefixed, Transformer};
///
/// let before = Prefixed::new("v1:", Identity);
/// let after = Prefixed::new("v2:", Identity).or("v1:", Identity);
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
