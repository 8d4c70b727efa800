//! Groups that lie: every bit flipped, every byte replaced, every length cut, noise, and each rule
//! broken by hand. Nothing panics, and the check lets nothing through that says the same twice.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test that is how to fail")]

mod groups_made;

use annals_format::Problem;
use annals_format::group::{
    FLAG_DEATHS, FLAG_LEASE, FLAG_LEASES, FLAG_LIFETIMES, FLAG_SUBS, Groups, KIND_DICTIONARY,
    KIND_NEIGHBOUR, KIND_OWN, KIND_RAW, KIND_TOMBSTONE, KIND_ZSTD, OPS_MAX, Scratch, Shape,
};
use groups_made::{
    Backwards, DICTIONARY, Made, PREFIX, SAMPLE_COUNTS, block, ops, rows, sample, sample_groups,
    sample_rows, shape, varints,
};

/// Runs everything that reads groups, for the sake of not panicking.
fn read(stored: &[u8]) {
    let _ = rows(stored, SAMPLE_COUNTS.0, SAMPLE_COUNTS.1);
    let Ok(groups) = Groups::parse(stored) else { return };
    for key in [&b""[..], b"\x01/p/a", b"\x01/p/b", b"\x01/p/c"] {
        for at in [0, 65, 640, 975, u64::MAX] {
            let _ = groups.find(key, at);
        }
    }
    let (mut codec, mut scratch) = (Backwards(DICTIONARY), Scratch::default());
    for number in 0..groups.count().min(5) {
        let Ok(group) = groups.group(number) else { continue };
        for version in 0..=group.len() {
            let _ = (group.fields(version), group.value_bytes(version), group.revision(version));
            // Longer values are bounded by the format, but slow.
            if group.value_bytes(version).is_ok_and(|bytes| bytes < 1 << 16) {
                let _ = groups.value_of(&group, version, &mut codec, &mut scratch);
            }
        }
    }
    let _ = groups.group(usize::MAX);
}

#[test]
fn no_two_blocks_say_the_same() {
    let good = sample();
    let mut meaningless = Vec::new();
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        match rows(&bad, SAMPLE_COUNTS.0, SAMPLE_COUNTS.1) {
            // It says something else, and only the block's checksum can tell.
            Ok(rows) if rows != sample_rows() => {}
            Ok(_) => meaningless.push(bit),
            Err(error) => assert!(error.offset <= good.len() as u64, "bit {bit}: {error}"),
        }
    }
    // A value can be made in several ways: here of the dictionary in place of version 0, of version
    // 0 in place of 1, and the empty one of a frame. Nothing else can be said twice.
    let (kind_of_1, kind_of_4, base_of_3) = (96, 99, 105);
    assert_eq!(meaningless, [kind_of_1 * 8, kind_of_4 * 8 + 1, base_of_3 * 8]);
}

#[test]
fn no_damage_panics_even_under_a_good_checksum() {
    let good = sample();
    for at in 0..good.len() {
        for value in 0..=255 {
            let mut bad = good.clone();
            bad[at] = value;
            read(&bad);
        }
    }
    for cut in 0..good.len() {
        assert!(rows(&good[..cut], SAMPLE_COUNTS.0, SAMPLE_COUNTS.1).is_err(), "{cut}");
        read(&good[..cut]);
    }
}

#[test]
fn no_noise_panics() {
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state >> 33
    };
    let good = sample();
    for round in 0..60_000_u64 {
        let mut noise = if round % 2 == 0 { Vec::new() } else { good.clone() };
        // Either small numbers behind a plausible start, or a sample with some bytes replaced.
        if noise.is_empty() {
            noise.extend([1, 0, 0]);
            noise.extend((0..60).map(|_| random().to_le_bytes()[0] >> (random() % 8)));
            noise[3] &= 0x7f;
            noise[4] = noise[4] % 8 + 1;
        } else {
            for _ in 0..=random() % 6 {
                let at = usize::try_from(random()).unwrap() % noise.len();
                noise[at] = random().to_le_bytes()[0] >> (random() % 8);
            }
        }
        read(&noise);
    }
}

/// The field that the check finds at fault in the sample after a change.
fn fault(change: impl FnOnce(&mut [Made; 3])) -> &'static str {
    let mut groups = sample_groups();
    change(&mut groups);
    let stored = block(PREFIX, &groups);
    read(&stored);
    rows(&stored, SAMPLE_COUNTS.0, SAMPLE_COUNTS.1).expect_err("a lie").field
}

#[test]
fn heads_and_columns_that_lie_are_found() {
    assert_eq!(fault(|g| g[0].flags |= 0x80), "flags");
    assert_eq!(fault(|g| g[0].flags |= FLAG_LEASE), "flags");
    assert_eq!(fault(|g| g[1].flags |= 1), "flags", "an offset wider than needed");
    assert_eq!(fault(|g| g[1].lease = 0), "flags", "no lease to speak of");
    assert_eq!(fault(|g| g[0].lived = 0), "lived");
    assert_eq!(fault(|g| g[0].lived = u64::MAX), "lived");
    assert_eq!(fault(|g| g[0].life.1 = 1001), "create", "created before revision 0");
    assert_eq!(fault(|g| g[0].life.0 = 1), "version", "the version before the first");
    assert_eq!(fault(|g| g[0].life.0 = 0), "version", "below a tombstone");
    assert_eq!(fault(|g| g[0].offsets[0] = 0), "revision_offset");
    assert_eq!(fault(|g| g[0].offsets[3] = 60), "revision_offset");
    assert_eq!(fault(|g| g[0].offsets[6] = 1001), "revision_offset");
    assert_eq!(fault(|g| g[0].shape_of.clear()), "versions");
    assert_eq!(fault(|g| g[1].shape_of = vec![0; 65]), "versions");
    // Marks that say nothing, and columns that do.
    let column = |at: usize, byte: u8| fault(move |g| g[0].columns[at] = byte);
    assert_eq!(column(0, 0), "flags", "no marks");
    assert_eq!(column(0, 5), "deaths", "version 0 cannot be marked");
    assert_eq!(column(1, 40), "lived", "it died as the one before was born");
    assert_eq!(column(2, 0x08), "end", "a life without a mark");
    assert_eq!(fault(|g| g[0].columns.push(0)), "end");
    let needless = |flag: u8, columns: &[u64]| {
        fault(move |g| {
            g[1].flags |= flag;
            g[1].columns = varints(columns);
        })
    };
    assert_eq!(needless(FLAG_DEATHS, &[0]), "flags");
    assert_eq!(needless(FLAG_LIFETIMES, &[0]), "flags");
    assert_eq!(needless(FLAG_SUBS, &[]), "flags");
    assert_eq!(needless(FLAG_SUBS, &[0]), "flags");
    let same = |g: &mut [Made; 3]| {
        g[2].flags |= FLAG_LEASES;
        g[2].columns = varints(&[7]);
    };
    assert_eq!(fault(same), "flags");
    // A mark on a version that follows the one before.
    let follows = |g: &mut [Made; 3]| {
        g[0].flags &= !(FLAG_DEATHS | FLAG_SUBS | FLAG_LEASES);
        g[0].columns = varints(&[0x1c, 0, 9, 840, 8, 800]);
    };
    assert_eq!(fault(follows), "version");
}

#[test]
fn hashes_and_widths_that_lie_are_found() {
    let good = sample();
    let hash = good.iter().position(|byte| *byte == b'/').unwrap();
    let hashes_at = hash + b"/p/".len() + 2 * 4;
    for group in 0..3 {
        let mut bad = good.clone();
        bad[hashes_at + group] ^= 1;
        let error = rows(&bad, SAMPLE_COUNTS.0, SAMPLE_COUNTS.1).unwrap_err();
        assert_eq!((error.field, error.offset), ("key_hash", (hashes_at + group) as u64));
        read(&bad);
    }
    // Columns wider than needed, with the numbers they would have then.
    let wide = |byte: u8, columns: &[u8]| {
        let mut stored = block(b"\x01/p/a", &[Made::raw(b"", 60, b"v")]);
        let at = stored.len() - 1 - 4 - 1;
        assert_eq!(stored[at..], [0, KIND_RAW, 0, 1, 1, b'v']);
        stored[at] = byte;
        stored.splice(at + 3..at + 5, columns.iter().copied());
        rows(&stored, 1, 1).map_err(|error| error.field)
    };
    assert!(wide(0, &[1, 1]).is_ok());
    assert_eq!(wide(1, &[1, 0, 1]), Err("widths"));
    assert_eq!(wide(4, &[1, 1, 0]), Err("widths"));
    assert_eq!(wide(16, &[1, 1, 0]), Err("widths"));
}

#[test]
fn orders_and_counts_that_lie_are_found() {
    let between = |g: &mut [Made; 3]| {
        g[1] = Made { key_suffix: b"a", revision: 640, ..g[1].clone() };
    };
    assert_eq!(fault(between), "key_suffix", "no older than the group before");
    assert_eq!(fault(|g| g[2].revision = 70), "key_suffix");
    assert_eq!(fault(|g| g[1].key_suffix = b"c"), "key_suffix");
    assert_eq!(fault(|g| g.iter_mut().for_each(|g| g.key_suffix = b"x")), "prefix");
    let stored = block(b"\x01/p", &sample_groups().map(|g| Made { key_suffix: b"/x", ..g }));
    assert_eq!(rows(&stored, 10, 157).unwrap_err().field, "prefix");
    for (entries, bytes, field) in [(9, 157, "entry_count"), (10, 158, "raw_bytes")] {
        assert_eq!(rows(&sample(), entries, bytes).unwrap_err().field, field);
    }
    for count in [0_u16, 4097] {
        let mut stored = sample();
        stored[..2].copy_from_slice(&count.to_le_bytes());
        assert_eq!(
            Groups::parse(&stored).unwrap_err().problem,
            Problem::Invalid { found: count.into() }
        );
    }
}

#[test]
fn shapes_and_ops_that_lie_are_found() {
    let of = |change: fn(&mut Made)| fault(move |g| change(&mut g[0]));
    assert_eq!(of(|g| g.shapes[0].kind = 7), "kind");
    assert_eq!(of(|g| g.shapes[0].alphabet = 3), "kind");
    assert_eq!(of(|g| g.shapes[4].alphabet = 1), "kind", "no literals to be packed");
    assert_eq!(of(|g| g.shapes[0].base = 1), "base");
    assert_eq!(of(|g| g.shapes[2].kind = KIND_ZSTD), "kind", "an empty value for a tombstone");
    let no_value = |g: &mut [Made; 3]| {
        g[2].shapes[0] = shape(KIND_TOMBSTONE, 0, 0, 0, 0);
        g[2].payloads.clear();
    };
    assert_eq!(fault(no_value), "kind", "a tombstone with a lifetime");
    assert_eq!(of(|g| g.shapes[2].value_bytes = 1), "value_bytes");
    assert_eq!(of(|g| g.shapes[0].value_bytes = 0), "value_bytes");
    assert_eq!(of(|g| g.shapes[5].value_bytes = (512 << 20) + 1), "value_bytes");
    assert_eq!(of(|g| g.shapes[4].value_bytes = 1), "payload_bytes");
    assert_eq!(of(|g| g.shapes[5].payload_bytes = 5), "payload");
    assert_eq!(of(|g| g.payloads.push(vec![0])), "payload");
    assert_eq!(of(|g| g.shape_of[0] = 1), "shape_of", "not in the order of first use");
    assert_eq!(of(|g| g.shape_of[7] = 9), "shape_of");
    assert_eq!(of(|g| g.shapes.push(shape(KIND_RAW, 0, 0, 0, 0))), "shape_count");
    assert_eq!(of(|g| g.ops.extend(ops(&[(1, 0, 0)]))), "ops");
    assert_eq!(of(|g| g.shapes[1].ops_at = 7), "ops_at");
    assert_eq!(of(|g| g.shapes[5].ops_at = 1), "ops_at", "a frame has none");
    assert_eq!(fault(|g| g[2].widths_flipped = 0x80), "widths");
    assert_eq!(fault(|g| g[2].widths_flipped = 0x40), "widths");
    assert_eq!(of(|g| g.shapes[1].ops_at = 3), "insert", "half of another's");
    assert_eq!(of(|g| g.ops = ops(&[(0, 10, 0), (0, 0, 0), (7, 15, 7)])), "insert");
    assert_eq!(of(|g| g.ops = ops(&[(0, 10, 0), (7, 16, 7)])), "value_bytes");
    assert_eq!(of(|g| g.ops = ops(&[(0, 10, 0), (7, 0, 0), (0, 15, 7)])), "copy");
    assert_eq!(of(|g| g.ops = ops(&[(32, 0, 1)])), "copy", "a skip to nowhere");
    assert_eq!(of(|g| g.ops = ops(&[(0, 10, 0), (7, 15, 8)])), "copy");
    assert_eq!(of(|g| g.ops = ops(&[(0, 10, -1), (7, 15, 7)])), "copy");
    assert_eq!(of(|g| g.ops = ops(&[(0, 10, 0), (8, 14, 8)])), "insert");
    assert_eq!(of(|g| g.ops = ops(&[(0, 10, 0), (6, 16, 6)])), "payload", "a literal left");
    assert_eq!(of(|g| g.payloads[1][3] |= 0x10), "payload", "the odd tail of packed literals");
    let twins = |g: &mut [Made; 3]| {
        g[2] = Made { shape_of: vec![0, 1], offsets: vec![1], ..g[2].clone() };
        g[2].life = (2, 0);
        g[2].shapes.push(g[2].shapes[0]);
        g[2].payloads.push(b"w".to_vec());
    };
    assert_eq!(fault(twins), "shape_count", "one shape would do");
    let none = |g: &mut [Made; 3]| g[1].shapes[0].alphabet = 1;
    assert_eq!(fault(none), "kind", "no literals to be packed");
}

#[test]
fn bases_that_lie_are_found() {
    let of = |change: fn(&mut Made)| fault(move |g| change(&mut g[0]));
    assert_eq!(of(|g| g.shapes[1].base = 1), "base", "itself");
    assert_eq!(of(|g| g.shapes[3].base = 200), "base");
    assert_eq!(of(|g| g.shapes[3].base = 2), "base", "a tombstone");
    assert_eq!(fault(|g| g[1].shapes[0].base = 0), "base");
    assert_eq!(fault(|g| g[1].shapes[0].base = 2), "base", "before the first");
    // The neighbour's version is itself made of a neighbour's.
    assert_eq!(
        fault(|g| {
            g[2].shapes = g[1].shapes.clone();
            g[2].ops = g[1].ops.clone();
            g[2].payloads.clear();
        }),
        "base"
    );
    // A frame that does not become what the shape says.
    assert_eq!(
        fault(|g| {
            g[0].shapes[5] = shape(KIND_ZSTD, 0, 5, 4, 0);
        }),
        "payload"
    );
}

/// A group of versions each made of the one before, behind one the first is made of.
fn chain(steps: u8) -> Vec<u8> {
    let copy = |kind, base| shape(kind, base, 3, 0, 0);
    let mut made = Made { life: (100, 800), revision: 900, ..Made::raw(b"b", 900, b"") };
    made.offsets = (1..=u64::from(steps)).collect();
    made.shape_of = (0..=steps).collect();
    made.shapes = (0..=steps).map(|nth| copy(KIND_OWN, nth.saturating_sub(1))).collect();
    made.shapes[0] = copy(KIND_NEIGHBOUR, 1);
    made.ops = ops(&[(0, 3, 0)]);
    made.payloads.clear();
    let mut first = Made::raw(b"a", 5, b"");
    first.shapes = vec![copy(KIND_DICTIONARY, 0)];
    first.ops = ops(&[(0, 3, 2)]);
    block(b"", &[first, made])
}

#[test]
fn ways_to_a_value_are_short() {
    let all = rows(&chain(8), 10, 30).unwrap();
    assert!(all.iter().all(|row| row.7.as_deref() == Some(&DICTIONARY[2..5])));
    let error = rows(&chain(9), 11, 33).unwrap_err();
    assert_eq!((error.field, error.problem), ("base", Problem::TooLong { max: 8, found: 9 }));
}

#[test]
fn ops_of_a_shape_are_few() {
    for (count, good) in [(OPS_MAX, true), (OPS_MAX + 1, false)] {
        let mut made = Made::raw(b"", 5, b"");
        made.shapes = vec![shape(KIND_DICTIONARY, 0, count, 0, 0)];
        // The first byte of the dictionary again and again.
        made.ops = ops(&[(0, 1, 0)]);
        made.ops.extend((1..count).flat_map(|_| ops(&[(0, 1, -1)])));
        let found = rows(&block(b"k", &[made]), 1, u32::try_from(count).unwrap());
        assert_eq!(found.is_ok(), good, "{count}");
    }
}

#[test]
fn a_length_is_believed_only_if_the_ops_make_it() {
    // 512 MiB from six bytes, but the second op is not there.
    let mut made = Made::raw(b"", 5, b"");
    made.shapes = vec![Shape { ..shape(KIND_DICTIONARY, 0, 512 << 20, 0, 0) }];
    made.ops = ops(&[(0, 32, 0)]);
    let stored = block(b"k", &[made]);
    let groups = Groups::parse(&stored).unwrap();
    let (mut codec, mut scratch) = (Backwards(DICTIONARY), Scratch::default());
    let group = groups.group(0).unwrap();
    let error = groups.value_of(&group, 0, &mut codec, &mut scratch).unwrap_err();
    assert_eq!(error.field, "insert");
}
