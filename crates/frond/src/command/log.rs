//! `frond log`: the recovery log, record by record.

use clap::Args;
use fronddb::{LogAction, LogEvent};

use crate::encoding::EncodingArgs;
use crate::failure::{During, Outcome};
use crate::output::Output;
use crate::target::Target;

/// Print the live records of the log, oldest first: what a restart would replay
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frond log demo | head
  frond log demo --txn 17                  what one transaction did
  frond log demo --tree 3 --from 1000000   changes of one tree (ids: `frond trees`), from a position on")]
pub(crate) struct Log {
    #[command(flatten)]
    target: Target,
    /// Only from this position (LSN) on
    #[arg(long, value_name = "LSN", default_value_t = 0)]
    from: u64,
    /// Only this transaction
    #[arg(long, value_name = "ID")]
    txn: Option<u64>,
    /// Only changes of this tree
    #[arg(long, value_name = "ID")]
    tree: Option<u32>,
    /// At most so many lines
    #[arg(short = 'n', long, value_name = "LINES")]
    limit: Option<u64>,
    #[command(flatten)]
    encoding: EncodingArgs,
}

impl Log {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        let mut output = Output::standard();
        let mut left = self.limit.unwrap_or(u64::MAX);
        let mut written = Ok(());
        let options = self.target.opening.check_options();
        let read = fronddb::log_records(&self.target.path, &options, &mut |event| {
            if left == 0 {
                return false;
            }
            if self.wants(event) {
                left -= 1;
                let mut encode = |bytes: &[u8], line: &mut Vec<u8>| self.encoding.encoding.encode(bytes, line);
                written = output.line(event.line(&mut encode));
            }
            written.is_ok()
        });
        written?;
        // What could be read is printed also when the rest is damaged.
        output.finish()?;
        read.during(format_args!("read the log of {}", self.target.name()))
    }

    fn wants(&self, event: &LogEvent<'_>) -> bool {
        let tree = match event.action {
            LogAction::Message { tree, .. } | LogAction::RangeDelete { tree, .. } => Some(tree.0),
            _ => None,
        };
        event.lsn.0 >= self.from
            && self.txn.is_none_or(|txn| txn == event.txn.0)
            && self.tree.is_none_or(|wanted| tree == Some(wanted))
    }
}
