//! The code of README's first page is that of an example which compiles and runs.

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
