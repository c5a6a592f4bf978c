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
                written = output.line(self.line(event));
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

    fn line(&self, event: &LogEvent<'_>) -> Vec<u8> {
        let mut line = format!("lsn={} txn={} ", event.lsn, event.txn).into_bytes();
        let mut field = |name: &str, bytes: &[u8]| {
            line.extend_from_slice(name.as_bytes());
            self.encoding.encoding.encode(bytes, &mut line);
        };
        match event.action {
            LogAction::Message { kind, tree, key, payload, blob } => {
                field(&format!("step={} {kind} tree={tree} key=", event.step), key);
                if blob {
                    field(" value=(blob)", b"");
                } else if !kind.ends_with("delete") {
                    field(" value=", payload);
                }
            }
            LogAction::RangeDelete { tree, start, end } => {
                field(&format!("step={} range-delete tree={tree} from=", event.step), start);
                field(" to=", end);
            }
            LogAction::Commit { number } => field(&format!("commit number={number}"), b""),
            LogAction::Abort => field("abort", b""),
            LogAction::AbortSteps { from, to } => field(&format!("abort-steps from={from} to={to}"), b""),
            LogAction::Prepare { xid, locks } => {
                field(&format!("prepare locks={locks} xid="), xid);
            }
        }
        line
    }
}
