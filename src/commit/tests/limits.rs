//! What the log could not be read back with gets no place in it.

use annals_format::frame::{FrameSize, PAYLOAD_BYTES_MAX};
use annals_format::limits::{
    INTERNAL_KEY_BYTES_MAX, KEY_BYTES_MAX, METADATA_BYTES_MAX, NUMBER_MAX,
    TRANSACTION_OPERATIONS_MAX, VALUE_BYTES_MAX,
};

use super::*;
use crate::commit::order::{NUMBERS_RESERVED, check_limits};
use crate::error::ErrorKind;

fn zeros(bytes: u64) -> Bytes {
    // Zeroed by the system, page by page, and nobody looks at them.
    vec![0; usize::try_from(bytes).unwrap()].into()
}

fn put_of(key: Bytes, value: Bytes) -> Write<'static> {
    let (key, value) = (InternalKey::from_slice(&key), Vec::from(value).into());
    Write { key, kind: WriteKind::Put { value, lease: 0 } }
}

/// Whether the chain refuses the plan, and goes on as if it had never seen it.
fn refusal(plan: &Plan<'_>) -> ErrorKind {
    let fixture = Fixture::small();
    fixture.order(&super::plan([put("a", "before")]));
    let refused = match fixture.try_order(plan) {
        Err(OrderError::Failed(error)) => error.into_kind(),
        other => panic!("not refused: {other:?}"),
    };
    assert_eq!(fixture.chain.applied().seq, 1, "nothing has changed");
    fixture.order(&super::plan([put("a", "after")]));
    fixture.verify();
    refused
}

#[test]
fn beyond_each_limit_of_the_format_is_refused() {
    let fits = |plan: &Plan<'_>| {
        let size = FrameSize::of(plan.metadata, plan.writes.iter().map(Write::op));
        check_limits(plan, &size).expect("it fits exactly");
    };
    let key = |bytes: u64| {
        let mut key = vec![b'k'; usize::try_from(bytes).unwrap()];
        key[0] = space::USER;
        Bytes::from(key)
    };
    let longest = vec![b'k'; usize::try_from(KEY_BYTES_MAX).unwrap()];
    let attachment = space::Key::Attachment { id: i64::MAX, key: &longest }.encode();
    fits(&plan([put_of(attachment.into(), Bytes::new())]));
    let long = plan([put_of(key(INTERNAL_KEY_BYTES_MAX + 1), Bytes::new())]);
    assert!(matches!(refusal(&long), ErrorKind::KeyTooLong { bytes, max } if bytes == max + 1));
    fits(&plan([put_of(user("k"), zeros(VALUE_BYTES_MAX))]));
    let long = plan([put_of(user("k"), zeros(VALUE_BYTES_MAX + 1))]);
    assert!(matches!(refusal(&long), ErrorKind::ValueTooLong { bytes, max } if bytes == max + 1));
    let metadata = vec![0; usize::try_from(METADATA_BYTES_MAX + 1).unwrap()].leak();
    fits(&Plan { metadata: &metadata[1..], ..plan([put("k", "")]) });
    let long = Plan { metadata, ..plan([put("k", "")]) };
    assert!(
        matches!(refusal(&long), ErrorKind::MetadataTooLong { bytes, max } if bytes == max + 1)
    );

    // Each part within its limit, and one byte too many in all.
    let parts = |last: u64| {
        let half = zeros(VALUE_BYTES_MAX - 16);
        plan([
            put_of(user("a"), half.clone()),
            put_of(user("b"), half),
            put_of(user("c"), zeros(last)),
        ])
    };
    let size = |plan: &Plan<'_>| FrameSize::of(plan.metadata, plan.writes.iter().map(Write::op));
    let bytes = size(&parts(8)).payload_bytes as u64;
    fits(&parts(8 + PAYLOAD_BYTES_MAX - bytes));
    let max = PAYLOAD_BYTES_MAX;
    let found = refusal(&parts(9 + PAYLOAD_BYTES_MAX - bytes));
    assert!(
        matches!(found, ErrorKind::TransactionTooLarge { bytes, max: of } if bytes == max + 1 && of == max)
    );
}

#[test]
fn the_operations_counted_are_those_of_the_frame() {
    let plan = plan([put("k", "")]);
    let mut size = FrameSize::of(plan.metadata, plan.writes.iter().map(Write::op));
    size.op_count = usize::try_from(TRANSACTION_OPERATIONS_MAX).unwrap();
    check_limits(&plan, &size).expect("as many as it holds");
    size.op_count += 1;
    let refused = check_limits(&plan, &size).unwrap_err().into_kind();
    assert!(matches!(refused, ErrorKind::TooManyOperations { count, max } if count == max + 1));
}

#[test]
fn the_last_numbers_are_kept_for_what_the_store_adds() {
    let last = NUMBER_MAX - NUMBERS_RESERVED;
    let start = |seq, revision| Position { seq, revision, time: 0 };
    let order = |position| {
        let size = GenerationSize { arena_bytes: 1 << 16, keys: 100 };
        let store = Fixture::without_log(size, position);
        store.try_order(&plan([put("a", "")])).is_ok()
    };
    assert!(order(start(last, last)) && order(start(1, last)) && order(start(last, 1)));
    assert!(!order(start(last + 1, 1)) && !order(start(1, last + 1)));
}
