//! The `annals` tool.
fn main() {}
