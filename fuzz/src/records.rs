//! Small records of the store's own, and the names of its files.

use annals_format::name::FileName;
use annals_format::retention::Rule;
use annals_format::space::Key;
use annals_format::{lease, space};

use crate::input::Input;

/// The first byte says what the rest is. What is accepted has one spelling.
pub(crate) fn records(data: &[u8]) -> bool {
    let mut input = Input(data);
    let kind = input.below(4);
    let bytes = input.0;
    match kind {
        0 => {
            let Ok(value) = lease::Value::decode(bytes) else { return false };
            assert_eq!(value.encode(), bytes);
            assert!(value.remaining_millis() <= value.whole_millis());
        }
        1 => {
            let Ok(rule) = Rule::decode(bytes) else { return false };
            assert_eq!(rule.encode(), bytes);
        }
        2 => {
            let Ok(key) = Key::decode(bytes) else { return false };
            assert_eq!(key.encode(), bytes);
            assert_eq!(space::is_user(bytes), matches!(key, Key::User(_)));
        }
        _ => {
            let Ok(text) = std::str::from_utf8(bytes) else { return false };
            let Some(name) = FileName::parse(text) else { return false };
            assert_eq!(name.to_string(), text);
            assert!(text.ends_with(&name.base()) && text.starts_with(name.directory()));
            assert_eq!(FileName::parse(&name.unfinished()), None);
        }
    }
    true
}

/// Records that are accepted, by name and kind.
pub(crate) fn seeds() -> Vec<(&'static str, u8, Vec<u8>)> {
    let rule = Rule { revisions: Some(7), age: Some(60), removed: false, floor: 3 };
    vec![
        ("lease", 0, lease::Value { ttl: 60, remaining: Some(7) }.encode()),
        ("lease_whole", 0, lease::Value { ttl: 60, remaining: None }.encode()),
        ("rule", 1, rule.encode()),
        ("rule_removed", 1, Rule { removed: true, floor: 9, ..Rule::default() }.encode()),
        ("key", 2, Key::User(b"/pods/a").encode()),
        ("key_lease", 2, Key::Lease { id: -7 }.encode()),
        ("key_attachment", 2, Key::Attachment { id: 7, key: b"/a" }.encode()),
        ("key_retention", 2, Key::Retention { prefix: b"/events/" }.encode()),
        ("name", 3, b"seg/00000007.hist".to_vec()),
        ("name_manifest", 3, b"MANIFEST-00000007".to_vec()),
    ]
}
