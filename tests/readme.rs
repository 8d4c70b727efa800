//! The code of README's first page is that of an example which compiles and runs.

use std::time::Duration;

use annals::{Op, PutRequest, Store, put};

/// What stands between two lines, each time, without indentation.
fn between<'t>(text: &'t str, begin: &str, end: &str) -> Vec<Vec<&'t str>> {
    let mut found: Vec<Vec<&str>> = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        match line.trim() {
            line if line == begin => {
                found.push(Vec::new());
                is_inside = true;
            }
            line if is_inside && line == end => is_inside = false,
            line if is_inside => {
                if let Some(block) = found.last_mut() {
                    block.push(line);
                }
            }
            _ => {}
        }
    }
    found
}

/// What README says in a sentence about lists of operations.
#[test]
fn a_put_with_a_lease_goes_beside_others() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let id = store.lease_grant(0, Duration::from_secs(60)).unwrap().id;
    let sentence = r#"`.then([put("/a", "1"), Op::from(PutRequest::new("/b", "2").lease(id))])`"#;
    assert!(include_str!("../README.md").contains(sentence));
    let done =
        store.txn().then([put("/a", "1"), Op::from(PutRequest::new("/b", "2").lease(id))]).commit();
    assert_eq!(done.unwrap().responses.len(), 2);
    assert_eq!(store.get("/b").unwrap().unwrap().lease, id);
}

#[test]
fn the_first_code_of_the_readme_is_that_of_the_example() {
    let readme = between(include_str!("../README.md"), "```rust", "```");
    let example = include_str!("../examples/quick_start.rs");
    let example = between(example, "// README begins", "// README ends");
    assert_eq!(example.len(), 2);
    for (number, code) in example.iter().enumerate() {
        // The first block begins with what it imports.
        let shown = &readme[number];
        let shown = &shown[shown.len().saturating_sub(code.len())..];
        assert_eq!(shown, code, "block {number} of README.md and examples/quick_start.rs");
    }
}
