//! The examples of the object layer do what they say.

#[path = "../../examples/controller.rs"]
mod controller;

#[test]
fn the_controller_makes_it_so_and_goes_on_after_a_restart() {
    controller::main().expect("it runs");
}
