//! How handles look to `{:?}`: what they are, never what is stored.
//!
//! A service derives `Debug` for what it holds, and prints it into its log. So none of these shows keys or
//! values, nor walks through what may be large.

use std::fmt::{Debug, Formatter, Result};

use super::log::Log;
use super::store::{AllLeases, Store};
use super::view::{DiffIter, History, RangeIter, View};

impl Debug for Store {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Store").field("path", &self.path()).finish_non_exhaustive()
    }
}

impl Debug for View {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("View").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

impl Debug for RangeIter {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("RangeIter").finish_non_exhaustive()
    }
}

impl Debug for History {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("History").finish_non_exhaustive()
    }
}

impl Debug for DiffIter {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("DiffIter").finish_non_exhaustive()
    }
}

impl Debug for AllLeases {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("AllLeases").field("revision", &self.revision).finish_non_exhaustive()
    }
}

impl Debug for Log {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{Store, put};

    #[test]
    fn what_is_printed_of_a_handle_is_short_and_shows_nothing_stored() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        store.put("/secret", "hunter2").unwrap();
        store.reorganise().unwrap();
        store.put("/secret", "hunter2").unwrap();
        let mut range = store.latest().unwrap().range(..);
        range.next().unwrap().unwrap();
        let mut history = store.history("/secret");
        history.next().unwrap().unwrap();
        let mut log = store.log(2..).with_values();
        log.next().unwrap().unwrap();
        let mut diff = store.diff(1, 3, ..).unwrap();
        diff.next().unwrap().unwrap();
        let lease = store.lease(Duration::from_secs(9)).unwrap();
        let watch = store.watch("/secret").from(2);
        let session = store.txn().then([put("/a", "b")]);
        let printed = [
            format!("{store:?}"),
            format!("{:?}", store.latest().unwrap()),
            format!("{range:?}"),
            format!("{history:?}"),
            format!("{log:?}"),
            format!("{diff:?}"),
            format!("{lease:?}"),
            format!("{:?}", store.leases()),
            format!("{watch:?}"),
            format!("{:?}", watch.clone().start().unwrap()),
            format!("{session:?}"),
        ];
        for text in printed {
            // 104, 117, 110: "hun", as a list of bytes shows it.
            let stored = text.contains("hunter2") || text.contains("104, 117, 110");
            assert!(text.len() < 1_000 && !stored, "{} bytes: {text:.1000}", text.len());
        }
    }
}
