//! CSV: two columns, key and value, quoted as RFC 4180 has it.
//!
//! The reader of records takes the end of the input for the end of a quoted field. Here that is an error: the input was cut short, and
//! so is the value. So what is read is watched for quotes on its way ([`Watched`]).

use std::cell::Cell;
use std::rc::Rc;

use csv::{ByteRecord, QuoteStyle, ReaderBuilder, Terminator, WriterBuilder};

use crate::encoding::Encoding;

/// The header that a dump begins with.
pub(crate) const HEADER: [&str; 2] = ["key", "value"];

/// Replaces `out` by a record with its newline.
pub(crate) fn record(fields: [&[u8]; 2], out: &mut Vec<u8>) -> std::io::Result<()> {
    out.clear();
    // In front of an input a reader would take the mark for the file's own.
    let quotes = if fields[0].starts_with(MARK) { QuoteStyle::Always } else { QuoteStyle::Necessary };
    let mut builder = WriterBuilder::new();
    let mut writer = builder.terminator(Terminator::Any(b'\n')).quote_style(quotes).from_writer(&mut *out);
    writer.write_record(fields)?;
    writer.flush()
}

/// Where an input stands between two bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Where the reader of records passes over a byte order mark.
    InputStart,
    FieldStart,
    Unquoted,
    Quoted,
    /// Behind a quote in a quoted field: it was the last, or one of two.
    AfterQuote,
    /// The input ended in a quoted field.
    CutInQuotes,
}

impl Place {
    fn after(self, byte: u8) -> Place {
        match (self, byte) {
            (Place::Quoted, b'"') => Place::AfterQuote,
            (Place::FieldStart | Place::AfterQuote, b'"') | (Place::Quoted, _) => Place::Quoted,
            (_, b',' | b'\n' | b'\r') => Place::FieldStart,
            _ => Place::Unquoted,
        }
    }
}

/// UTF-8's byte order mark, which spreadsheets begin a file with.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// An input that knows whether it has ended in a quoted field.
struct Watched<R> {
    source: R,
    place: Rc<Cell<Place>>,
}

impl<R: std::io::Read> std::io::Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.source.read(buffer)?;
        let text = &buffer[..read];
        let (place, text) = match self.place.get() {
            Place::InputStart if read > 0 => (Place::FieldStart, text.strip_prefix(MARK).unwrap_or(text)),
            place => (place, text),
        };
        let place = text.iter().fold(place, |place, byte| place.after(*byte));
        let is_cut = read == 0 && !buffer.is_empty() && place == Place::Quoted;
        self.place.set(if is_cut { Place::CutInQuotes } else { place });
        Ok(read)
    }
}

/// A CSV input, record by record.
pub(crate) struct Records<R> {
    reader: csv::Reader<Watched<R>>,
    place: Rc<Cell<Place>>,
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
        let place = Rc::new(Cell::new(Place::InputStart));
        let watched = Watched { source: input, place: Rc::clone(&place) };
        let reader = ReaderBuilder::new().has_headers(header).flexible(true).from_reader(watched);
        Records { reader, place, record: ByteRecord::new(), encoding }
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
        if self.place.get() == Place::CutInQuotes {
            return Err((line, "the input ends inside quotes: it is cut short, or a quote is missing".to_owned()));
        }
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

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_field() {
        let read = |text: &str| {
            let mut records = Records::new(text.as_bytes(), false, Encoding::Text);
            records.next().map(|row| row.map(|row| (row.key, row.value)))
        };
        assert_eq!(read("\u{feff}\"a,\",b"), Ok(Some((b"a,".to_vec(), b"b".to_vec()))));
        let mut text = Vec::new();
        record(["\u{feff}a", "b"].map(str::as_bytes), &mut text).expect("memory does not fail");
        let text = String::from_utf8(text).expect("it is text");
        assert_eq!(read(&text), Ok(Some(("\u{feff}a".into(), b"b".to_vec()))), "that of a key is kept");
        let cut = read("\u{feff}\"a\n\",\"b").expect_err("cut short");
        assert!(cut.1.contains("inside quotes"), "{cut:?}");
    }

    #[test]
    fn an_input_that_ends_inside_quotes_is_cut_short() {
        for (text, rows, is_cut) in [
            ("a,b\nc,\"de", 1, true),
            ("a,b\nc,\"d\"\"", 1, true),
            ("\"a", 0, true),
            ("a,\"b\"\nc,\"d\"\"\"", 2, false),
            ("a,b\"\nc,d", 2, false),
            ("a,\"b\nx\"\r\nc,d\r\n", 2, false),
            ("", 0, false),
        ] {
            // However it comes.
            for piece in [1, 3, 1000] {
                let input = text
                    .as_bytes()
                    .chunks(piece)
                    .fold(Box::new(std::io::empty()) as Box<dyn std::io::Read>, |before, piece| {
                        Box::new(std::io::Read::chain(before, piece))
                    });
                let mut records = Records::new(input, false, Encoding::Text);
                let mut read = 0;
                let end = loop {
                    match records.next() {
                        Ok(Some(_)) => read += 1,
                        end => break end.map(|_| ()),
                    }
                };
                assert_eq!((read, end.is_err()), (rows, is_cut), "{text:?} piece={piece} {end:?}");
            }
        }
    }
}
