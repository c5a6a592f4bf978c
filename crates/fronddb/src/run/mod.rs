//! Runs: immutable sorted sequences of messages in the data file.
//!
//! Rooms: [`options`], [`writer`], [`reader`], [`cursor`], [`blob_io`], [`counters`].

pub mod blob_io;
pub mod counters;
pub mod cursor;
pub mod options;
pub mod reader;
pub mod writer;

use crate::store::Store;
pub use blob_io::{read_blob, write_blob};
pub use counters::RunCounters;
pub use cursor::{CursorMode, RunCursor};
pub use options::{CodecTable, RunOptions};
pub use reader::Run;
pub use writer::RunWriter;
