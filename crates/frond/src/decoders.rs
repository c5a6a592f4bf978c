//! The decoders of what users hand in, for the fuzz targets: each takes bytes, and panics on a defect.

use crate::command::{csv_form, line_form};
use crate::encoding::Encoding;

/// A target: bytes in, a panic for a defect.
pub type Target = fn(&[u8]);

/// All targets by name; their seeds are in `fuzz/corpus`.
pub const TARGETS: &[(&str, Target)] =
    &[("dump_line", dump_line), ("encoded_text", encoded_text), ("csv_rows", csv_rows)];

/// A line of a dump: what was read and written again is the same line.
pub fn dump_line(bytes: &[u8]) {
    let Ok(line) = line_form::parse(bytes) else { return };
    let mut again = Vec::new();
    match &line {
        line_form::Line::Tree { name, codec, metadata } => line_form::tree_line(name, *codec, metadata, &mut again),
        line_form::Line::Row { key, value } => line_form::row_line(key, value, &mut again),
        line_form::Line::End { rows } => again = line_form::end_line(*rows).into_bytes(),
    }
    assert_eq!(line_form::parse(&again).ok().as_ref(), Some(&line));
}

/// Text in each encoding; and any bytes, written as text.
pub fn encoded_text(bytes: &[u8]) {
    for encoding in [Encoding::Text, Encoding::Hex, Encoding::Escaped] {
        let mut text = Vec::new();
        encoding.encode(bytes, &mut text);
        assert_eq!(encoding.decode(&text).as_deref(), Ok(bytes));
        let Ok(decoded) = encoding.decode(bytes) else { continue };
        text.clear();
        encoding.encode(&decoded, &mut text);
        assert_eq!(encoding.decode(&text), Ok(decoded));
    }
}

/// A CSV input; what was read and written again is the same rows. First byte odd: the first record is a header.
pub fn csv_rows(bytes: &[u8]) {
    let Some((form, input)) = bytes.split_first() else { return };
    let mut read = csv_form::Records::new(input, form % 2 == 1, Encoding::Text);
    let (mut rows, mut text, mut one, mut line) = (Vec::new(), Vec::new(), Vec::new(), 0);
    while let Ok(Some(row)) = read.next() {
        assert!(row.line >= line && row.line > 0, "lines are counted upwards");
        line = row.line;
        csv_form::record([&row.key, &row.value], &mut one).expect("memory does not fail");
        text.extend_from_slice(&one);
        rows.push((row.key, row.value));
    }
    let mut again = csv_form::Records::new(text.as_slice(), false, Encoding::Text);
    for row in rows {
        let got = again.next().ok().flatten().map(|got| (got.key, got.value));
        assert_eq!(got, Some(row));
    }
    assert!(matches!(again.next(), Ok(None)));
}
