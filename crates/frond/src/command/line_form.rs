//! The lossless text form of a database, one row a line.
//!
//! | line | fields, separated by tabs |
//! |---|---|
//! | first | `frond-dump 1` |
//! | a tree begins | `tree`, name, codec, metadata |
//! | a row of it | key, value |
//! | last | `end rows=N` |
//!
//! Names, keys, values and metadata are escaped ([`Encoding::Escaped`]), so that a line has as many tabs as its kind
//! says and nothing else looks like the last line. Other control characters come from somebody who changed the file, as
//! a conversion to CRLF line ends does, and are refused. A dump without its last line was cut short, and loading it says so.

use fronddb::Codec;

use super::create::{parse_codec, show_codec};
use crate::encoding::Encoding;

/// What the first line says, and how a dump is told from CSV.
pub(crate) const FIRST: &str = "frond-dump 1";
/// How the first line of any version begins.
pub(crate) const FIRST_WORD: &str = "frond-dump ";

const ESCAPED: Encoding = Encoding::Escaped;

/// A line, decoded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A tree begins.
    Tree {
        /// Its name.
        name: String,
        /// Its codec.
        codec: Codec,
        /// Its owner's bytes.
        metadata: Vec<u8>,
    },
    /// A row of it.
    Row {
        /// Its key.
        key: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    },
    /// Nothing follows.
    End {
        /// How many rows there were.
        rows: u64,
    },
}

/// Reads a line that is not the first, without its newline.
pub(crate) fn parse(line: &[u8]) -> Result<Line, String> {
    if let Some(control) = line.iter().find(|byte| byte.is_ascii_control() && **byte != b'\t') {
        let shown = control.escape_ascii();
        let from = if *control == b'\r' { "; were the line ends converted to CRLF?" } else { "" };
        return Err(format!("a control character, {shown}: a dump has it escaped{from}"));
    }
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b'\t').collect();
    match fields.as_slice() {
        [key, value] => Ok(Line::Row { key: ESCAPED.decode(key)?, value: ESCAPED.decode(value)? }),
        [b"tree", name, codec, metadata] => Ok(Line::Tree {
            name: String::from_utf8(ESCAPED.decode(name)?).map_err(|_| "a tree's name is not UTF-8".to_owned())?,
            codec: parse_codec(&String::from_utf8_lossy(codec))?,
            metadata: ESCAPED.decode(metadata)?,
        }),
        [end] if end.starts_with(b"end rows=") => String::from_utf8_lossy(&end["end rows=".len()..])
            .parse()
            .map(|rows| Line::End { rows })
            .map_err(|_| "the last line does not say how many rows there are".to_owned()),
        _ => Err(format!("neither a row (key, tab, value) nor a tree, fields={}", fields.len())),
    }
}

/// Replaces `out` by the line that begins a tree.
pub(crate) fn tree_line(name: &str, codec: Codec, metadata: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(b"tree\t");
    ESCAPED.encode(name.as_bytes(), out);
    out.push(b'\t');
    out.extend_from_slice(show_codec(codec).as_bytes());
    out.push(b'\t');
    ESCAPED.encode(metadata, out);
}

/// Replaces `out` by a row's line.
pub(crate) fn row_line(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.clear();
    ESCAPED.encode(key, out);
    out.push(b'\t');
    ESCAPED.encode(value, out);
}

/// The last line.
pub(crate) fn end_line(rows: u64) -> String {
    format!("end rows={rows}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_back_whatever_they_hold() {
        let nasty = b"tree\tend rows=1\n\\\xff\0";
        let mut out = Vec::new();
        row_line(nasty, b"", &mut out);
        assert_eq!(parse(&out), Ok(Line::Row { key: nasty.to_vec(), value: Vec::new() }));
        tree_line("a\tb", Codec::Zstd { level: 3 }, nasty, &mut out);
        let tree = Line::Tree { name: "a\tb".to_owned(), codec: Codec::Zstd { level: 3 }, metadata: nasty.to_vec() };
        assert_eq!(parse(&out), Ok(tree));
        assert_eq!(parse(end_line(7).as_bytes()), Ok(Line::End { rows: 7 }));
    }

    #[test]
    fn a_line_of_another_kind_is_refused() {
        for line in ["", "a", "a\tb\tc", "end rows=", "end rows=x", "tree\tn\tgzip\t", "a\tb\\"] {
            assert!(parse(line.as_bytes()).is_err(), "{line:?}");
        }
    }

    #[test]
    fn control_characters_that_nobody_escaped_are_refused() {
        for line in ["a\tb\r", "a\rb\tc", "tree\tn\tnone\t\r", "end rows=1\r", "a\0\tb", "a\t\u{7f}"] {
            let reason = parse(line.as_bytes()).expect_err(line);
            assert!(reason.contains("control character"), "{line:?}: {reason}");
            assert_eq!(reason.contains("CRLF"), line.contains('\r'), "{line:?}: {reason}");
        }
    }
}
