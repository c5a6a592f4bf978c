//! `frond`: the command-line tool of FrondDB; see the library.
#![deny(unsafe_code)]

fn main() -> std::process::ExitCode {
    frond_tool::run()
}
