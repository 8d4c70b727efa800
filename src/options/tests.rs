//! What text an option takes, and which values.

use super::*;

#[test]
fn numbers_take_suffixes_and_nothing_else() {
    let cases = [("0", 0), ("17", 17), ("64K", 65_536), ("2MiB", 2 << 20), ("3g", 3 << 30)];
    for (text, number) in cases {
        assert_eq!(parse_number(text), Some(number), "{text}");
    }
    for text in ["", "K", "+1", "-1", "1 K", "1T", "0x10", "1.5M", "99999999999999999999", "K1"] {
        assert_eq!(parse_number(text), None, "{text}");
    }
    assert_eq!(parse_number("18446744073709551615K"), None);
}

#[test]
fn every_number_knob_can_be_set_to_its_bounds_and_not_beyond() {
    for knob in KNOBS {
        let Some(range) = knob.range else { continue };
        let mut options = Options::new();
        let value = |options: &mut Options| {
            options.numbers_mut().into_iter().find(|(n, _)| *n == knob.name).map(|(_, v)| *v)
        };
        assert_eq!(value(&mut options), Some(range.default), "{}", knob.name);
        for bound in [range.min, range.max] {
            options.set(knob.name, &bound.to_string()).unwrap();
            assert_eq!(value(&mut options), Some(bound), "{}", knob.name);
            options.validate().unwrap();
        }
        let before = value(&mut options);
        assert!(options.set(knob.name, &(range.max + 1).to_string()).is_err());
        if range.min > 0 {
            assert!(options.set(knob.name, &(range.min - 1).to_string()).is_err());
        }
        assert_eq!(value(&mut options), before, "{}: changed by an error", knob.name);
    }
}

#[test]
fn what_the_options_allow_the_format_holds() {
    let bounds = |name: &str| {
        let knob = KNOBS.iter().find(|knob| knob.name == name);
        knob.and_then(|knob| knob.range).map(|range| (range.min, range.max))
    };
    for (name, held) in [
        ("key_bytes_max", limits::KEY_BYTES_MAX),
        ("value_bytes_max", limits::VALUE_BYTES_MAX),
        ("transaction_bytes_max", annals_format::frame::PAYLOAD_BYTES_MAX),
        ("transaction_operations_max", limits::TRANSACTION_OPERATIONS_MAX),
        ("metadata_bytes_max", limits::METADATA_BYTES_MAX),
    ] {
        assert_eq!(bounds(name).map(|(_, max)| max), Some(held), "{name}");
    }
    let (min, max) = bounds("wal_bytes").unwrap();
    assert!(min == limits::WAL_BYTES_MIN && max <= limits::WAL_BYTES_MAX);
}

#[test]
fn words_are_checked() {
    let mut options = Options::new();
    options.set("durability", "buffered").unwrap();
    assert_eq!(options.durability, Durability::Buffered);
    options.set("read_mode", "pread").unwrap();
    assert_eq!(options.read_mode, ReadMode::Pread);
    options.set("background", "false").unwrap();
    assert!(!options.background);
    for (word, codec) in [("raw", HistoryCodec::Raw), ("zstd-blocks", HistoryCodec::ZstdBlocks)] {
        options.set("history_codec", word).unwrap();
        assert_eq!(options.history_codec, codec);
    }
    for (name, value) in
        [("history_codec", "zstd"), ("durability", "Sync"), ("read_mode", ""), ("create", "yes")]
    {
        assert!(options.set(name, value).is_err());
    }
}

#[test]
fn a_setter_is_checked_on_open() {
    assert!(Options::new().memtable_bytes(16 << 10).validate().is_ok());
    let error = Options::new().memtable_bytes(1).validate().unwrap_err();
    assert!(error.to_string().contains("memtable_bytes=1"), "{error}");
}
