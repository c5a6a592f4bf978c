//! Keys and values as text: plain, hexadecimal, or with escapes.
//!
//! The escaped form is lossless and never holds a control character, so that a row is one line and a tab separates key
//! and value: `\t \n \r \\` and `\xNN` stand for what they do in C; valid UTF-8 stands for itself; any other byte is `\xNN`.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
#[cfg(test)]
use std::os::unix::ffi::OsStringExt;

use clap::{Args, ValueEnum};

use crate::failure::{Failure, Outcome};

/// How keys and values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Encoding {
    /// As they are, nothing escaped
    Text,
    /// Two hexadecimal digits a byte
    Hex,
    /// Text with \n, \t, \r, \\ and \xNN
    #[default]
    Escaped,
}

/// `--encoding`, for all commands that take or print keys.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct EncodingArgs {
    /// How keys and values are written in arguments, input and output
    #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
    pub encoding: Encoding,
}

impl EncodingArgs {
    /// The bytes that an argument stands for.
    pub(crate) fn argument(self, what: &str, argument: &OsStr) -> Outcome<Vec<u8>> {
        self.encoding.decode(argument.as_bytes()).map_err(|reason| {
            Failure::usage(format!("{what} {argument:?}: {reason}, encoding={}", self.encoding.name()))
        })
    }

    /// As [`EncodingArgs::argument`], for an option that may be left out.
    pub(crate) fn option(self, what: &str, argument: Option<&OsString>) -> Outcome<Option<Vec<u8>>> {
        argument.map(|argument| self.argument(what, argument)).transpose()
    }
}

impl Encoding {
    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Encoding::Text => "text",
            Encoding::Hex => "hex",
            Encoding::Escaped => "escaped",
        }
    }

    /// Appends the written form of `bytes` to `out`.
    pub(crate) fn encode(self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Encoding::Text => out.extend_from_slice(bytes),
            Encoding::Hex => bytes.iter().for_each(|byte| push_hex(out, *byte)),
            Encoding::Escaped => escape(bytes, out),
        }
    }

    /// The bytes that `text` stands for; an error says what is wrong with it.
    pub(crate) fn decode(self, text: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Encoding::Text => Ok(text.to_vec()),
            Encoding::Hex => unhex(text),
            Encoding::Escaped => unescape(text),
        }
    }
}

/// The escaped form, for messages.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let mut out = Vec::new();
    escape(bytes, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

fn push_hex(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => out.extend_from_slice(br"\\"),
                '\n' => out.extend_from_slice(br"\n"),
                '\t' => out.extend_from_slice(br"\t"),
                '\r' => out.extend_from_slice(br"\r"),
                control if control.is_control() => {
                    let mut buffer = [0; 4];
                    control.encode_utf8(&mut buffer).bytes().for_each(|byte| push_escape(out, byte));
                }
                other => {
                    let mut buffer = [0; 4];
                    out.extend_from_slice(other.encode_utf8(&mut buffer).as_bytes());
                }
            }
        }
        chunk.invalid().iter().for_each(|byte| push_escape(out, *byte));
    }
}

fn push_escape(out: &mut Vec<u8>, byte: u8) {
    out.extend_from_slice(br"\x");
    push_hex(out, byte);
}

fn digit(byte: Option<&u8>) -> Option<u8> {
    char::from(*byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn unhex(text: &[u8]) -> Result<Vec<u8>, String> {
    if text.len() % 2 == 1 {
        return Err(format!("an odd number of hexadecimal digits, digits={}", text.len()));
    }
    let byte = |pair: &[u8]| Some(digit(pair.first())? << 4 | digit(pair.get(1))?);
    text.chunks(2)
        .map(|pair| byte(pair).ok_or_else(|| format!("not hexadecimal: {:?}", String::from_utf8_lossy(pair))))
        .collect()
}

fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        out.push(match bytes.next() {
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'r') => b'\r',
            Some(b'0') => 0,
            Some(b'\\') => b'\\',
            Some(b'x') => match (digit(bytes.next()), digit(bytes.next())) {
                (Some(high), Some(low)) => high << 4 | low,
                _ => return Err("\\x needs two hexadecimal digits".to_owned()),
            },
            Some(other) => return Err(format!("unknown escape \\{}; a backslash is \\\\", char::from(*other))),
            None => return Err("a backslash at the end; a backslash is \\\\".to_owned()),
        });
    }
    Ok(out)
}

/// A tree's name as people see it: names are text, so only what a terminal must not get is escaped.
pub(crate) fn shown_name(name: &str) -> String {
    let mut out = String::new();
    for character in name.chars() {
        if character.is_control() {
            // Writing to a string cannot fail.
            let _ = write!(out, "{}", character.escape_default());
        } else {
            out.push(character);
        }
    }
    out
}

/// Bytes as an operating-system string, for tests of arguments.
#[cfg(test)]
fn argument(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_string_survives_hex_and_escapes() {
        let all: Vec<u8> = (0..=255).chain([b'\\', b'x', b'4', b'1']).chain("ü €\u{85}".bytes()).collect();
        for encoding in [Encoding::Hex, Encoding::Escaped] {
            let mut text = Vec::new();
            encoding.encode(&all, &mut text);
            assert!(text.iter().all(|byte| *byte >= b' ' && *byte != 0x7f), "{encoding:?}");
            assert_eq!(encoding.decode(&text), Ok(all.clone()), "{encoding:?}");
        }
    }

    #[test]
    fn escapes_are_short_and_text_stays_text() {
        assert_eq!(shown("a\tü\\\n\0".as_bytes()), "a\\tü\\\\\\n\\x00");
        assert_eq!(shown(b"\xff\xfe"), "\\xff\\xfe");
    }

    #[test]
    fn malformed_arguments_say_what_is_wrong() {
        for (encoding, text, part) in [
            (Encoding::Hex, "abc", "odd number"),
            (Encoding::Hex, "zz", "not hexadecimal"),
            (Encoding::Escaped, "a\\q", "unknown escape"),
            (Encoding::Escaped, "a\\", "at the end"),
            (Encoding::Escaped, "\\x4", "two hexadecimal digits"),
        ] {
            let reason = encoding.decode(text.as_bytes()).expect_err(text);
            assert!(reason.contains(part), "{reason}");
        }
        let arguments = EncodingArgs { encoding: Encoding::Text };
        assert_eq!(arguments.argument("key", &argument(b"\xff\\")).ok(), Some(b"\xff\\".to_vec()));
    }
}
