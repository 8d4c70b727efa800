//! The object layer through its public interface.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::doc_markdown,
    clippy::too_many_lines,
    unreachable_pub,
    reason = "what fails here fails the test; the rows at the heads of files name tests, which are tables"
)]

mod apply;
mod between;
mod calls;
mod collection;
mod convert;
mod delete;
mod documents;
mod dry;
mod edges;
mod encrypt;
mod encrypted;
#[cfg(feature = "etcd")]
#[path = "../support/etcd.rs"]
mod etcd;
#[cfg(feature = "etcd")]
#[path = "../support/etcd_process.rs"]
mod etcd_process;
mod examples;
mod fields;
mod follow;
mod generation;
mod guaranteed;
mod history;
mod kit;
mod list;
mod managers;
mod model;
mod modify;
mod names;
mod pages;
mod paging;
mod patch;
mod patching;
mod race;
#[path = "../support/random.rs"]
mod random;
mod registry;
mod selector;
mod storage;
mod strategic;
mod strategy;
mod stream;
#[path = "../support/tasks.rs"]
mod tasks;
mod typed;
mod under;
mod versions;
mod watch;
mod world;
