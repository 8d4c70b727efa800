//! How a thread leaves its draft with another that has the token, and gets it back.

use std::ptr;

use super::Recent;
use super::exclusive::{Draft, Memtable, Token, Verdict};
use crate::sync::Arc;
use crate::sync::plain::{AtomicPtr, Ordering};

/// A place where a thread leaves a draft for whoever has the token.
#[derive(Debug)]
pub struct Mailbox {
    recent: Arc<Recent>,
    /// Null when free; the draft; one more than the verdict's place in [`VERDICTS`]; and null again.
    word: AtomicPtr<Draft<'static>>,
}

const VERDICTS: [Verdict; 3] = [Verdict::Ordered, Verdict::Conflict, Verdict::Switched];
const _: () = assert!(align_of::<Draft<'_>>() > VERDICTS.len());

impl Mailbox {
    /// A mailbox for drafts of this memtable.
    pub fn new(memtable: &Memtable) -> Self {
        Self { recent: memtable.recent.clone(), word: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Leaves a draft and calls `wait` until it has its verdict. Aborts the process if `wait` panics,
    /// since the draft cannot be taken back.
    ///
    /// # Panics
    /// When another thread uses the mailbox.
    pub fn hand_in(&self, draft: &mut Draft<'_>, mut wait: impl FnMut()) -> Verdict {
        let (null, draft) = (ptr::null_mut(), ptr::from_mut(draft).cast());
        // Release: whoever finds the draft finds what it says.
        let left = self.word.compare_exchange(null, draft, Ordering::Release, Ordering::Relaxed);
        assert!(left.is_ok(), "one thread to a mailbox");
        let abort = AbortOnDrop;
        let answer = loop {
            // Acquire pairs with the Release of `serve`: the draft is this thread's again.
            let word = self.word.load(Ordering::Acquire);
            if word != draft {
                break word;
            }
            wait();
        };
        std::mem::forget(abort);
        self.word.store(null, Ordering::Relaxed);
        VERDICTS[answer.addr() - 1]
    }

    /// Orders the draft that lies here, if there is one.
    ///
    /// # Panics
    /// When the token is of another memtable.
    pub fn serve(&self, memtable: &Memtable, token: &mut Token) {
        assert!(Arc::ptr_eq(&self.recent, &token.recent), "a token of the same memtable");
        let draft = self.word.load(Ordering::Acquire);
        if draft.is_null() || draft.addr() <= VERDICTS.len() {
            return;
        }
        // SAFETY: `hand_in` does not return, nor touch its draft, before it finds a verdict, which is
        // written here only: by the one thread that has the token.
        let verdict = memtable.order(token, unsafe { &mut *draft });
        let answer = VERDICTS.iter().position(|known| *known == verdict).map_or(0, |at| at + 1);
        self.word.store(ptr::without_provenance_mut(answer), Ordering::Release);
    }
}

/// What a draft lies on while it is handed in.
struct AbortOnDrop;

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        std::process::abort();
    }
}
