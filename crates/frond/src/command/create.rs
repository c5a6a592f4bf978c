//! `frond create`: a new database, or new trees in one.

use clap::Args;
use fronddb::{Codec, ErrorKind, TreeOptions};

use crate::failure::{During, Outcome};
use crate::target::Target;

/// Make a database, and trees in it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frond create demo                    an empty database in the directory `demo`
  frond create demo fruit vegetables   with two trees; in a database that is there, only the trees are new
  frond create demo archive --codec zstd:9")]
pub(crate) struct Create {
    #[command(flatten)]
    target: Target,
    /// Trees to make
    #[arg(value_name = "TREE")]
    trees: Vec<String>,
    /// How the trees' blocks are compressed: none, lz4, zstd or zstd:LEVEL [default: zstd:1]
    #[arg(long, value_parser = parse_codec)]
    codec: Option<Codec>,
    /// No error for a tree that is there already
    #[arg(long)]
    if_missing: bool,
}

impl Create {
    /// Does it: all trees or none.
    pub(crate) fn run(self) -> Outcome {
        let db = self.target.open_with(self.target.opening.options().create_if_missing(true))?;
        let options = TreeOptions { codec: self.codec, ..TreeOptions::default() };
        if !self.trees.is_empty() {
            let txn = db.begin(Default::default()).during("create trees")?;
            for name in &self.trees {
                match txn.create_tree(name, &options) {
                    Ok(_) => {}
                    Err(error) if self.if_missing && error.kind() == ErrorKind::KeyExists => {}
                    Err(error) => return Err(error).during(format_args!("create tree {name:?}")),
                }
            }
            txn.commit().during("create trees")?;
        }
        self.target.close(db)
    }
}

/// Parses a codec as the command line has it.
pub(crate) fn parse_codec(text: &str) -> Result<Codec, String> {
    let (name, level) = text.split_once(':').unwrap_or((text, "1"));
    match (name, level.parse::<i8>()) {
        ("none", _) => Ok(Codec::None),
        ("lz4", _) => Ok(Codec::Lz4),
        ("zstd", Ok(level)) if (-7..=22).contains(&level) => Ok(Codec::Zstd { level }),
        ("zstd", _) => Err(format!("zstd levels go from -7 to 22: {level}")),
        _ => Err(format!("codecs are none, lz4, zstd and zstd:LEVEL, not {text:?}")),
    }
}

/// A codec as the command line has it.
pub(crate) fn show_codec(codec: Codec) -> String {
    match codec {
        Codec::None => "none".to_owned(),
        Codec::Lz4 => "lz4".to_owned(),
        Codec::Zstd { level } => format!("zstd:{level}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_are_shown_as_they_are_parsed() {
        for text in ["none", "lz4", "zstd:1", "zstd:-7", "zstd:22"] {
            assert_eq!(parse_codec(text).map(show_codec), Ok(text.to_owned()));
        }
        assert!(parse_codec("zstd:23").is_err());
        assert!(parse_codec("gzip").is_err());
    }
}
