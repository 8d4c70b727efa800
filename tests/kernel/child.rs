//! Where a child of these tests begins. It is a test, so that the program is the one that is there; without
//! a role it does nothing.

use crate::{clock, limits, mapped, odd, process, session, single};

#[test]
#[ignore = "the other side of the other tests"]
fn of_these_tests() {
    let Some(role) = process::role() else { return };
    crate::sys::end_with_parent();
    // Behind what the test harness says.
    session::say("");
    limits::take_on();
    match role.as_str() {
        "session" => session::run(),
        "fork" => odd::fork(),
        "lease" => clock::lease(),
        "modes" => odd::modes(),
        "nowhere" => odd::nowhere(),
        "umask" => odd::umask(),
        "reader" => mapped::reader(),
        "steady" => single::steady(),
        "sweep" => single::sweep(),
        other => panic!("no role is named {other}"),
    }
}
