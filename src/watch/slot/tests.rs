//! What a slot keeps, who it wakes, and what comes next.

use super::*;
use crate::error::ErrorKind;
use crate::sync::current;

fn slot(offered: u64) -> Slot {
    Slot::new(KeyRange::all(), 0, offered)
}

fn next(slot: &Slot, scanned: u64) -> String {
    format!("{:?}", slot.next(scanned))
}

#[test]
fn revisions_are_due_once_and_in_order() {
    let slot = slot(4);
    for revision in [3, 4, 5, 5, 7] {
        let _ = slot.offer(revision);
    }
    assert_eq!(next(&slot, 7), "Revision(5)");
    assert_eq!(next(&slot, 7), "Revision(7)");
    assert_eq!(next(&slot, 7), "Nothing");
}

#[test]
fn what_finds_no_room_is_read_from_the_log() {
    let slot = slot(0);
    let full = RING as u64;
    for revision in 1..=full + 5 {
        let _ = slot.offer(revision);
    }
    for revision in 1..=full {
        assert_eq!(next(&slot, 100), format!("Revision({revision})"));
    }
    // Also what is offered when there is room again: it comes after what is read.
    let _ = slot.offer(full + 6);
    assert_eq!(next(&slot, 100), format!("Overflow({})", full + 1));
    slot.resume_after(full + 6);
    let _ = slot.offer(full + 6);
    let _ = slot.offer(full + 7);
    assert_eq!(next(&slot, 100), format!("Revision({})", full + 7));
    assert_eq!(next(&slot, 100), "Nothing");
}

#[test]
fn the_ring_goes_round() {
    let slot = slot(0);
    for revision in 1..=10 * RING as u64 {
        let _ = slot.offer(revision);
        assert_eq!(next(&slot, 0), format!("Revision({revision})"));
    }
}

#[test]
fn a_future_start_keeps_its_place_when_it_resumes() {
    let slot = Slot::new(KeyRange::all(), 50, 10);
    slot.resume_after(20);
    let _ = slot.offer(50);
    assert_eq!(next(&slot, 50), "Nothing");
    let _ = slot.offer(51);
    assert_eq!(next(&slot, 51), "Revision(51)");
}

#[test]
fn a_sleeper_is_given_out_once_by_whatever_there_is_to_tell() {
    let sleeper = || Sleeper::Thread(current());
    let wakes: [fn(&Slot) -> Sleeper; 4] = [
        |slot| slot.offer(5).unwrap_or_default(),
        |slot| slot.fail(&ErrorKind::Closed.into()),
        Slot::cancel,
        |slot| {
            slot.ask_progress(3);
            slot.reach(3).0
        },
    ];
    for wake in wakes {
        let slot = slot(4);
        assert!(slot.sleep(2, sleeper()));
        assert!(slot.offer(4).is_none());
        assert!(wake(&slot).is_some());
        assert!(!wake(&slot).is_some());
        // Not left there by who has something to do.
        assert!(!slot.sleep(2, sleeper()));
        assert!(!slot.cancel().is_some());
    }
}

#[test]
fn who_is_not_to_sleep_takes_nothing() {
    let slot = slot(0);
    let _ = slot.offer(1);
    assert!(!slot.sleep(1, Sleeper::Thread(current())));
    assert!(!slot.cancel().is_some(), "nobody sleeps");
    let slot = self::slot(0);
    let _ = slot.offer(1);
    assert!(!slot.sleep(1, Sleeper::Thread(current())));
    assert_eq!(next(&slot, 1), "Revision(1)");
    // Who only looks takes no other's place.
    assert!(slot.sleep(1, Sleeper::Thread(current())) && slot.sleep(1, Sleeper::None));
    assert!(slot.cancel().is_some());
}

#[test]
fn progress_comes_after_what_is_due_and_not_before_the_hub_is_there() {
    let slot = slot(0);
    slot.ask_progress(9);
    let _ = slot.offer(8);
    assert_eq!(next(&slot, 8), "Revision(8)");
    assert_eq!(next(&slot, 8), "Nothing");
    assert!(slot.reach(8).1, "it has to wait");
    assert!(!slot.reach(9).1);
    // Who has read how far the hub was before it was there looks again.
    assert_eq!(next(&slot, 8), "Again");
    assert_eq!(next(&slot, 9), "Progress");
    assert_eq!(next(&slot, 9), "Nothing");
}

#[test]
fn who_asks_for_progress_again_is_told_what_was_asked_first() {
    let slot = slot(0);
    slot.ask_progress(5);
    slot.ask_progress(9);
    slot.ask_progress(7);
    assert!(slot.reach(6).1, "the later one has to wait");
    assert_eq!(next(&slot, 6), "Progress");
    assert_eq!(next(&slot, 8), "Nothing");
    assert!(!slot.reach(9).1);
    assert_eq!(next(&slot, 8), "Again");
    assert_eq!(next(&slot, 9), "Progress");
    assert_eq!(next(&slot, 20), "Nothing");
    // One is enough where the hub is as far as the latest.
    slot.ask_progress(21);
    slot.ask_progress(22);
    assert!(!slot.reach(22).1);
    assert_eq!(next(&slot, 22), "Progress");
    assert_eq!(next(&slot, 22), "Nothing");
}

#[test]
fn what_the_hub_skips_is_read_from_the_log() {
    let slot = slot(4);
    let _ = slot.offer(6);
    let _ = slot.skip(8);
    let _ = slot.offer(12);
    assert_eq!(next(&slot, 12), "Revision(6)");
    assert_eq!(next(&slot, 12), "Overflow(8)");
    slot.resume_after(12);
    let _ = slot.offer(13);
    assert_eq!(next(&slot, 13), "Revision(13)");
    let future = Slot::new(KeyRange::all(), 50, 4);
    assert!(future.sleep(4, Sleeper::Thread(current())));
    assert!(future.skip(8).is_some());
    assert_eq!(next(&future, 12), "Overflow(51)");
    let _ = future.cancel();
    assert!(!future.skip(8).is_some());
}

#[test]
fn a_failure_is_told_after_what_is_due_and_a_cancellation_at_once() {
    let slot = slot(0);
    let _ = slot.offer(1);
    let _ = slot.fail(&ErrorKind::Closed.into());
    assert!(slot.is_over());
    assert_eq!(next(&slot, 1), "Revision(1)");
    assert!(matches!(slot.next(1), Next::Ended(Some(_))));
    let _ = slot.cancel();
    assert!(matches!(slot.next(1), Next::Ended(None)));
    let slot = self::slot(0);
    let _ = slot.offer(1);
    let _ = slot.cancel();
    assert_eq!(next(&slot, 1), "Ended(None)");
}
