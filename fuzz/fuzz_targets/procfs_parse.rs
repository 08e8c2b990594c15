//! Any bytes: see `taskdiag_fuzz_cases::procfs_parse`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| taskdiag_fuzz_cases::procfs_parse(data));
