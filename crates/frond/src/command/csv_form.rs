//! CSV: two columns, key and value, quoted as RFC 4180 has it.

use csv::{ByteRecord, ReaderBuilder, Terminator, WriterBuilder};

use crate::encoding::Encoding;

/// The header that a dump begins with.
pub(crate) const HEADER: [&str; 2] = ["key", "value"];

/// Replaces `out` by a record with its newline.
pub(crate) fn record(fields: [&[u8]; 2], out: &mut Vec<u8>) -> std::io::Result<()> {
    out.clear();
    let mut writer = WriterBuilder::new().terminator(Terminator::Any(b'\n')).from_writer(&mut *out);
    writer.write_record(fields)?;
    writer.flush()
}

/// A CSV input, record by record.
pub(crate) struct Records<R> {
    reader: csv::Reader<R>,
    record: ByteRecord,
    encoding: Encoding,
}

/// A row, and where it began.
pub(crate) struct Row {
    /// Line of the input, from 1.
    pub line: u64,
    /// Decoded.
    pub key: Vec<u8>,
    /// Decoded.
    pub value: Vec<u8>,
}

/// What is wrong, and on which line.
pub(crate) type LineError = (u64, String);

impl<R: std::io::Read> Records<R> {
    /// Reads from `input`; its first record is skipped if it is a header.
    pub(crate) fn new(input: R, header: bool, encoding: Encoding) -> Records<R> {
        let reader = ReaderBuilder::new().has_headers(header).flexible(true).from_reader(input);
        Records { reader, record: ByteRecord::new(), encoding }
    }

    /// The next row; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Row>, LineError> {
        let before = self.reader.position().line();
        match self.reader.read_byte_record(&mut self.record) {
            Ok(false) => return Ok(None),
            Ok(true) => {}
            Err(error) => return Err((before, error.to_string())),
        }
        let line = self.record.position().map_or(before, csv::Position::line);
        let (Some(key), Some(value), 2) = (self.record.get(0), self.record.get(1), self.record.len()) else {
            return Err((line, format!("two columns wanted, key and value; columns={}", self.record.len())));
        };
        let decode = |what: &str, field: &[u8]| {
            self.encoding.decode(field).map_err(|reason| (line, format!("{what}: {reason}")))
        };
        Ok(Some(Row { line, key: decode("key", key)?, value: decode("value", value)? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_back_and_lines_counted_across_newlines_in_quotes() {
        let mut text = Vec::new();
        let mut one = Vec::new();
        for fields in [["key", "value"], ["a\"b", "x,y\nz"], ["", "2"]] {
            record(fields.map(str::as_bytes), &mut one).expect("memory does not fail");
            text.extend_from_slice(&one);
        }
        text.extend_from_slice(b"only\n");
        let mut records = Records::new(text.as_slice(), true, Encoding::Text);
        let first = records.next().expect("well formed").expect("a row");
        assert_eq!((first.line, first.key.as_slice(), first.value.as_slice()), (2, &b"a\"b"[..], &b"x,y\nz"[..]));
        assert_eq!(records.next().expect("well formed").map(|row| row.line), Some(4));
        assert_eq!(records.next().err().map(|(line, _)| line), Some(5));
    }
}
