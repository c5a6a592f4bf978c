//! What puts load on a private MariaDB server: shared by the experiments and by the client of the tests.
//!
//! - [`wire`]: a connection, the text protocol over a Unix socket.
//! - [`random`]: numbers from a seed.
//! - [`purchase`]: the rows of iiBench's table as a function of a seed and a row number.
//! - [`insert`]: clients that insert them, at full speed or paced, and what they saw.
//! - [`verify`]: whether a table holds what was acknowledged.
//! - [`child`]: programs that end with the one that started them.
//!
//! The client must cost next to nothing beside the server that it measures: rows are drawn and printed without allocating,
//! and the CPU that it took is part of what it reports.

pub mod child;
pub mod insert;
pub mod purchase;
pub mod random;
pub mod verify;
pub mod wire;
