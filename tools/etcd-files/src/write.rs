//! Writing what etcd keeps on disk: a database that it can begin with.
//!
//! A file of bbolt is made from its entries in the order of their keys, bucket after bucket ([`BoltWriter`]); which
//! buckets etcd has, and what is in them, knows [`DatabaseWriter`]; and what does not come in that order is brought
//! into it by a [`Sorter`]. In memory is what the longest value takes, and what a sorter was allowed.

mod database;
mod pages;
mod sort;
mod tree;

use std::collections::BTreeMap;
use std::io::{Seek, Write};

use pages::{BUCKET_FLAG, Pages};
use tree::Tree;

use crate::{Error, Result};

pub use database::{Bucket, DatabaseWriter, Meta, RevisionKey, encode_lease, revision_key};
pub use sort::Sorter;

/// A file of bbolt in the making, written from its beginning to its end, and then its two meta pages.
///
/// Pages have 4096 bytes. Before [`finish`](Self::finish) has returned, nobody takes what is there for a database.
#[derive(Debug)]
pub struct BoltWriter<W: Write + Seek> {
    pages: Pages<W>,
    /// The bucket that is being written.
    open: Option<(Vec<u8>, Tree)>,
    /// Those written, each as the element of its name says it.
    buckets: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl<W: Write + Seek> BoltWriter<W> {
    /// Begins a file, at offset 0 of `out`.
    ///
    /// # Errors
    /// What the system answers.
    pub fn create(out: W) -> Result<Self> {
        Ok(Self { pages: Pages::create(out)?, open: None, buckets: BTreeMap::new() })
    }

    /// Begins a bucket, and ends the one before. Their names may come in any order.
    ///
    /// # Errors
    /// There was one of this name, or the name is no key; what the system answers.
    pub fn bucket(&mut self, name: &[u8]) -> Result<()> {
        self.end_bucket()?;
        if self.buckets.contains_key(name) {
            let what = format!("a second bucket {}", name.escape_ascii());
            return Err(self.pages.refused(what));
        }
        self.open = Some((name.to_vec(), Tree::new(0)));
        Ok(())
    }

    /// Adds an element to the bucket. Keys ascend.
    ///
    /// # Errors
    /// No bucket has begun; the key is empty, has more than 32768 bytes, or is not after the one before; the
    /// value has 2 GiB or more; what the system answers.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match &mut self.open {
            Some((_, tree)) => tree.put(&mut self.pages, key, value),
            None => Err(self.pages.refused("an element of no bucket")),
        }
    }

    /// Ends the file. Answers what it was written to, and how many bytes it has.
    ///
    /// # Errors
    /// What the system answers.
    pub fn finish(mut self) -> Result<(W, u64)> {
        self.end_bucket()?;
        let mut root = Tree::new(BUCKET_FLAG);
        for (name, bucket) in std::mem::take(&mut self.buckets) {
            root.put(&mut self.pages, &name, &bucket)?;
        }
        let root = root.finish(&mut self.pages)?;
        self.pages.finish(root)
    }

    fn end_bucket(&mut self) -> Result<()> {
        if let Some((name, tree)) = self.open.take() {
            let bucket = match tree.inline() {
                Some(inline) => inline,
                None => bucket_header(tree.finish(&mut self.pages)?).to_vec(),
            };
            self.buckets.insert(name, bucket);
        }
        Ok(())
    }
}

/// What a bucket begins with: its root, 0 for one that follows; and a sequence, which etcd does not use.
fn bucket_header(root: u64) -> [u8; 16] {
    let mut header = [0; 16];
    let (number, _) = header.split_at_mut(8);
    number.copy_from_slice(&root.to_le_bytes());
    header
}

fn io_at(offset: u64) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::Io { offset, error }
}
