//! Any bytes: see `taskdiag_fuzz_cases::filter`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| taskdiag_fuzz_cases::filter(data));
