#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fronddb_fuzz::log_segment(bytes));
