#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| frond_tool::decoders::encoded_text(bytes));
