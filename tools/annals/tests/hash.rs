//! `hash`: the same for the same content, at any revision.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::Tool;

#[test]
fn equal_histories_have_equal_hashes_and_others_do_not() {
    let [one, other] = [Tool::new(), Tool::new()];
    for tool in [&one, &other] {
        tool.ok(&["put", "/a", "1"]);
        tool.ok(&["put", "/b", "2"]);
        tool.ok(&["del", "/a"]);
    }
    other.ok(&["put", "/b", "3"]);
    let [newest, differs] = [&one, &other].map(|tool| tool.json(&["hash"]));
    assert_eq!(
        (newest["revision"].as_u64(), newest["compacted_revision"].as_u64()),
        (Some(4), Some(0))
    );
    assert_ne!(newest["hash"], differs["hash"]);
    assert_eq!(other.json(&["hash", "--at", "4"]), newest);
    // CRC-32C of "key" and of one line of etcd's table, worked out by hand.
    let object = one.ok(&["hash", "--at", "2", "-o", "raw"]);
    assert_eq!(object, "revision 2\nhash 2150085451\ncompacted_revision 0\n");

    one.run(&["hash", "--at", "9"]).code(6);
    one.ok(&["compact", "--at", "3", "--confirm"]);
    one.run(&["hash", "--at", "2"]).code(6);
    let compacted = one.json(&["hash"]);
    assert_eq!(compacted["compacted_revision"].as_u64().unwrap(), 3);
}
