//! Any bytes: see `taskdiag_fuzz_cases::output`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| taskdiag_fuzz_cases::output(data));
