//! libFuzzer's entry to [`annals_fuzz::TARGETS`]; elsewhere it runs the files named as arguments.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    annals_fuzz::run("object_patch", data);
});

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    annals_fuzz::run_files("object_patch")
}
