//! Every maximum, in one place, and how they relate.
//!
//! `_DEFAULT` is what a store enforces unless its options say otherwise; `_MAX` is what the format
//! can hold at all, and what a decoder bounds a length by before it believes it.

/// Largest number of what is counted: seqs, revisions, files, manifests, incarnations, and the bytes
/// and entries of all segments together. A reader takes no larger one, so that nobody who counts on
/// from what was read has to look out for an overflow; a writer stops before it comes there.
pub const NUMBER_MAX: u64 = 1 << 62;

/// The earliest time that a store gives a commit: the beginning of the year 1, in microseconds since the Unix epoch. A reader
/// takes any.
pub const COMMIT_TIME_MIN: i64 = -62_135_596_800_000_000;
/// The latest: the last microsecond of the year 9999.
pub const COMMIT_TIME_MAX: i64 = 253_402_300_799_999_999;

/// Longest key a store takes by default.
pub const KEY_BYTES_DEFAULT: u64 = 64 << 10;
/// Longest key the format holds.
pub const KEY_BYTES_MAX: u64 = 1 << 20;
/// Longest internal key: a key with its space byte, or a lease attachment (space, tag, lease id
/// and key).
pub const INTERNAL_KEY_BYTES_MAX: u64 = KEY_BYTES_MAX + 16;

/// Longest prefix of a rule of retention.
pub const RETENTION_PREFIX_BYTES_MAX: u64 = 1 << 10;

/// Longest value a store takes by default.
pub const VALUE_BYTES_DEFAULT: u64 = 16 << 20;
/// Longest value the format holds.
pub const VALUE_BYTES_MAX: u64 = 512 << 20;

/// Largest transaction a store takes by default, in bytes of its frame's payload.
pub const TRANSACTION_BYTES_DEFAULT: u64 = 64 << 20;
/// Largest transaction the format holds, in bytes of its frame's payload.
pub const TRANSACTION_BYTES_MAX: u64 = 1 << 30;
/// Most keys a transaction may write by default.
pub const TRANSACTION_OPERATIONS_DEFAULT: u64 = 1_000_000;
/// Most operations the format holds in one transaction.
pub const TRANSACTION_OPERATIONS_MAX: u64 = 16_000_000;
/// Longest opaque metadata of a transaction.
pub const METADATA_BYTES_MAX: u64 = 64 << 10;

/// Smallest size a store can be told to let its WAL files grow to.
pub const WAL_BYTES_MIN: u64 = 64 << 10;
/// Largest WAL file: one that was stretched for a batch of this many bytes.
pub const WAL_BYTES_MAX: u64 = 64 << 30;
/// Largest body of one batch. A batch holds what was ordered during one sync, so it is bounded by
/// the memory of the store, not by one transaction.
pub const BATCH_BODY_BYTES_MAX: u64 = 16 << 30;

/// Largest MANIFEST file.
pub const MANIFEST_BYTES_MAX: u64 = 256 << 20;

/// Largest decoded block of a segment: one that was stretched to hold a single largest entry, which
/// is a value, or in EVENTS what one transaction changed.
pub const BLOCK_RAW_BYTES_MAX: u64 = 2 << 30;
/// Largest page of a segment's B+tree index: one that was stretched for the longest keys.
pub const PAGE_BYTES_MAX: u64 = 5 << 20;

const _: () = {
    assert!(KEY_BYTES_DEFAULT <= KEY_BYTES_MAX);
    assert!(VALUE_BYTES_DEFAULT <= VALUE_BYTES_MAX);
    assert!(TRANSACTION_BYTES_DEFAULT <= TRANSACTION_BYTES_MAX);
    assert!(TRANSACTION_OPERATIONS_DEFAULT <= TRANSACTION_OPERATIONS_MAX);
    // A transaction must be able to hold one largest put, a batch one largest transaction, and a
    // WAL file one largest batch in its sectors (508 of 512 bytes are payload).
    assert!(VALUE_BYTES_MAX + KEY_BYTES_MAX + METADATA_BYTES_MAX < TRANSACTION_BYTES_MAX);
    assert!(TRANSACTION_BYTES_MAX < BATCH_BODY_BYTES_MAX);
    assert!(BATCH_BODY_BYTES_MAX < WAL_BYTES_MAX / 2);
    // Lengths inside a frame and a block are 32 bits; beside its payload a frame has 16 bytes for
    // each operation and less than a hundred of its own.
    assert!(TRANSACTION_BYTES_MAX + 16 * TRANSACTION_OPERATIONS_MAX + 100 < u32::MAX as u64);
    assert!(BLOCK_RAW_BYTES_MAX < u32::MAX as u64);
    // An entry takes at most 64 bytes beside key and value, an event 48 beside its key.
    assert!(VALUE_BYTES_MAX + INTERNAL_KEY_BYTES_MAX + 64 < BLOCK_RAW_BYTES_MAX);
    let events = TRANSACTION_BYTES_MAX + 48 * TRANSACTION_OPERATIONS_MAX;
    assert!(events + METADATA_BYTES_MAX + (1 << 10) < BLOCK_RAW_BYTES_MAX);
    // A page has at most two items more than its target, each with its own key, and a prefix.
    assert!(3 * INTERNAL_KEY_BYTES_MAX + (64 << 10) < PAGE_BYTES_MAX);
};
