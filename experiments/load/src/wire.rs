//! A connection to a MariaDB server: the text protocol over a Unix socket, and no more of it than this program needs.
//!
//! It is written out here because the client must cost next to nothing beside the server that it measures, and because the
//! libraries for it bring more than a hundred crates (TLS, URLs, decimal and date types), where this is a screenful: one
//! statement at a time, values as the server prints them, `mysql_native_password` with an empty password.
//!
//! A packet is length (3 bytes, little endian), sequence number, payload. A statement's answer is OK, ERR, or a result set:
//! count of columns, their definitions, EOF, rows, EOF.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Longest statement: one packet of the protocol.
pub const STATEMENT_BYTES_MAX: usize = (1 << 24) - 2;

/// A value as the server prints it; `None` is NULL.
pub type Value = Option<Vec<u8>>;
pub type Row = Vec<Value>;

/// What a statement came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Done { affected: u64, last_id: u64, warnings: u16 },
    Rows(Vec<Row>),
}

/// Why a statement gave no answer.
#[derive(Debug)]
pub enum Failure {
    /// The server refused it; the connection lives.
    Refused { code: u16, message: String },
    /// The connection is gone; what the statement did is unknown.
    Lost(String),
}

impl Failure {
    /// The server's error number; 0 for a lost connection.
    pub fn code(&self) -> u16 {
        match self {
            Failure::Refused { code, .. } => *code,
            Failure::Lost(_) => 0,
        }
    }

    pub fn is_lost(&self) -> bool {
        matches!(self, Failure::Lost(_))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused { code, message } => write!(f, "error {code}: {message}"),
            Failure::Lost(why) => write!(f, "connection lost: {why}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Lost(error.to_string())
    }
}

fn damaged(what: &str) -> Failure {
    Failure::Lost(format!("unexpected answer: {what}"))
}

/// One connection, of one thread.
pub struct Connection {
    stream: io::BufReader<UnixStream>,
    out: Vec<u8>,
    packet: Vec<u8>,
    sequence: u8,
}

const LONG_PASSWORD: u32 = 1;
const CONNECT_WITH_DB: u32 = 8;
const PROTOCOL_41: u32 = 0x200;
const TRANSACTIONS: u32 = 0x2000;
const SECURE_CONNECTION: u32 = 0x8000;
const MULTI_RESULTS: u32 = 0x2_0000;
const PLUGIN_AUTH: u32 = 0x8_0000;
const MORE_RESULTS: u16 = 8;
const UTF8MB4: u8 = 45;

impl Connection {
    /// Connects as root without a password. An empty `database` means none.
    pub fn open(socket: &Path, database: &str) -> Result<Self, Failure> {
        let stream = UnixStream::connect(socket)?;
        let mut connection = Connection {
            stream: io::BufReader::with_capacity(64 << 10, stream),
            out: Vec::new(),
            packet: Vec::new(),
            sequence: 0,
        };
        connection.receive()?;
        connection.refusal()?;
        let mut capabilities =
            LONG_PASSWORD | PROTOCOL_41 | TRANSACTIONS | SECURE_CONNECTION | MULTI_RESULTS | PLUGIN_AUTH;
        if !database.is_empty() {
            capabilities |= CONNECT_WITH_DB;
        }
        let mut hello = Vec::new();
        hello.extend_from_slice(&capabilities.to_le_bytes());
        hello.extend_from_slice(&(1u32 << 24).to_le_bytes());
        hello.push(UTF8MB4);
        hello.extend_from_slice(&[0; 23]);
        hello.extend_from_slice(b"root\0\0");
        if !database.is_empty() {
            hello.extend_from_slice(database.as_bytes());
            hello.push(0);
        }
        hello.extend_from_slice(b"mysql_native_password\0");
        connection.send(&[&hello])?;
        connection.receive()?;
        if connection.packet.first() == Some(&0xfe) {
            connection.send(&[])?;
            connection.receive()?;
        }
        connection.refusal()?;
        Ok(connection)
    }

    /// Runs a statement; of several result sets (a CALL) the first one is given.
    pub fn run(&mut self, statement: impl AsRef<[u8]>) -> Result<Answer, Failure> {
        let statement = statement.as_ref();
        assert!(statement.len() <= STATEMENT_BYTES_MAX, "a statement of {} bytes", statement.len());
        self.sequence = 0;
        self.send(&[&[3], statement])?;
        let (answer, mut more) = self.answer()?;
        while more {
            (_, more) = self.answer()?;
        }
        Ok(answer)
    }

    /// The rows of a query.
    pub fn rows(&mut self, query: &str) -> Result<Vec<Row>, Failure> {
        match self.run(query)? {
            Answer::Rows(rows) => Ok(rows),
            Answer::Done { .. } => Ok(Vec::new()),
        }
    }

    /// The first column of a query's rows, as text; NULL is "NULL".
    pub fn column(&mut self, query: &str) -> Result<Vec<String>, Failure> {
        Ok(self.rows(query)?.iter().map(|row| text(row.first().unwrap_or(&None))).collect())
    }

    /// The only value of a query, as a number.
    pub fn number(&mut self, query: &str) -> Result<i64, Failure> {
        let column = self.column(query)?;
        let first = column.first().map_or("", String::as_str);
        first.parse().map_err(|_| damaged(&format!("no number from query={query} value={first}")))
    }

    fn answer(&mut self) -> Result<(Answer, bool), Failure> {
        self.receive()?;
        self.refusal()?;
        let mut at = Cursor(&self.packet);
        let first = at.number().ok_or_else(|| damaged("empty packet"))?;
        if first == 0 {
            let (affected, last_id) = (at.number(), at.number());
            let (status, warnings) = (at.short(), at.short());
            let (Some(affected), Some(last_id), Some(status), Some(warnings)) = (affected, last_id, status, warnings)
            else {
                return Err(damaged("OK packet"));
            };
            return Ok((Answer::Done { affected, last_id, warnings }, status & MORE_RESULTS != 0));
        }
        for _ in 0..first {
            self.receive()?;
        }
        self.receive()?;
        let mut rows = Vec::new();
        loop {
            self.receive()?;
            self.refusal()?;
            let mut at = Cursor(&self.packet);
            if self.packet.first() == Some(&0xfe) && self.packet.len() < 9 {
                at.0 = &self.packet[3.min(self.packet.len())..];
                return Ok((Answer::Rows(rows), at.short().unwrap_or(0) & MORE_RESULTS != 0));
            }
            let mut row = Vec::with_capacity(first as usize);
            for _ in 0..first {
                row.push(at.value().ok_or_else(|| damaged("row"))?);
            }
            rows.push(row);
        }
    }

    fn refusal(&self) -> Result<(), Failure> {
        if self.packet.first() != Some(&0xff) {
            return Ok(());
        }
        let mut at = Cursor(&self.packet[1..]);
        let code = at.short().ok_or_else(|| damaged("ERR packet"))?;
        let rest = if at.0.first() == Some(&b'#') { &at.0[6.min(at.0.len())..] } else { at.0 };
        Err(Failure::Refused { code, message: String::from_utf8_lossy(rest).into_owned() })
    }

    fn send(&mut self, parts: &[&[u8]]) -> Result<(), Failure> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.out.clear();
        self.out.extend_from_slice(&(length as u32).to_le_bytes()[..3]);
        self.out.push(self.sequence);
        for part in parts {
            self.out.extend_from_slice(part);
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.stream.get_mut().write_all(&self.out)?;
        Ok(())
    }

    fn receive(&mut self) -> Result<(), Failure> {
        self.packet.clear();
        loop {
            let mut header = [0; 4];
            self.stream.read_exact(&mut header)?;
            let length = u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
            self.sequence = header[3].wrapping_add(1);
            let before = self.packet.len();
            self.packet.resize(before + length, 0);
            self.stream.read_exact(&mut self.packet[before..])?;
            if length < 0xff_ffff {
                return Ok(());
            }
        }
    }
}

/// A value for people.
pub fn text(value: &Value) -> String {
    match value {
        None => "NULL".into(),
        Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// The rest of a packet.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }

    fn little_endian(&mut self, bytes: usize) -> Option<u64> {
        Some(self.take(bytes)?.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn short(&mut self) -> Option<u16> {
        self.little_endian(2).map(|number| number as u16)
    }

    /// A length-encoded number.
    fn number(&mut self) -> Option<u64> {
        match self.little_endian(1)? {
            0xfc => self.little_endian(2),
            0xfd => self.little_endian(3),
            0xfe => self.little_endian(8),
            small => Some(small),
        }
    }

    fn value(&mut self) -> Option<Value> {
        if self.0.first() == Some(&0xfb) {
            self.take(1)?;
            return Some(None);
        }
        let length = self.number()?;
        Some(Some(self.take(length as usize)?.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::Cursor;

    #[test]
    fn lengths_take_one_to_nine_bytes() {
        let bytes = [5, 0xfc, 1, 2, 0xfd, 1, 2, 3, 0xfe, 1, 0, 0, 0, 0, 0, 0, 1, 0xfc, 1];
        let mut at = Cursor(&bytes);
        assert_eq!(at.number(), Some(5));
        assert_eq!(at.number(), Some(0x201));
        assert_eq!(at.number(), Some(0x30201));
        assert_eq!(at.number(), Some(0x0100_0000_0000_0001));
        assert_eq!(at.number(), None, "cut off");
    }

    #[test]
    fn null_is_not_the_empty_string() {
        let mut at = Cursor(&[0xfb, 0, 2, b'a', b'b', 9]);
        assert_eq!(at.value(), Some(None));
        assert_eq!(at.value(), Some(Some(Vec::new())));
        assert_eq!(at.value(), Some(Some(b"ab".to_vec())));
        assert_eq!(at.value(), None, "cut off");
    }
}
