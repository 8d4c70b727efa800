//! libFuzzer's entry to [`annals_fuzz::TARGETS`]; elsewhere it runs the files named as arguments.
#![cfg_attr(fuzzing, no_main)]

annals_fuzz::target!("block");
