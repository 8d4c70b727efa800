//! The examples of the object layer do what they say.

#[path = "../../examples/controller.rs"]
mod controller;

#[cfg(feature = "encryption")]
#[path = "../../examples/objects.rs"]
mod objects;

#[cfg(feature = "encryption")]
#[test]
fn every_call_is_shown() {
    objects::main().expect("it runs");
}

#[test]
fn the_controller_makes_it_so_and_goes_on_after_a_restart() {
    controller::main().expect("it runs");
}
