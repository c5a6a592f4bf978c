//! `frond trees`: the catalog.

use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use fronddb::{Database, TreeInfo};

use super::create::show_codec;
use crate::encoding::shown_name;
use crate::failure::{During, Outcome};
use crate::output::print;
use crate::quantity;
use crate::target::Target;

/// List the trees, with about how many rows and stored bytes each has
#[derive(Debug, Args)]
#[command(after_help = "\
Where the catalog is damaged, the trees that can be read are listed; where a tree is damaged at an end, how much it
holds is shown as `?` (null in JSON). The exit code tells both.

Examples:
  frond trees demo
  frond trees demo --names | while read -r tree; do frond scan demo \"$tree\" --count; done")]
pub(crate) struct Trees {
    #[command(flatten)]
    target: Target,
    /// Only the names, one a line
    #[arg(long, conflicts_with = "json")]
    names: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Trees {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        let db = self.target.open_read_only()?;
        let during = || format!("read the catalog of {}", self.target.name());
        let (trees, damage) = db.readable_trees().during(during())?;
        let shown = if self.names { Self::show_names(&trees) } else { self.show(&db, trees) };
        // Of two damages that of the catalog, which hides whole trees.
        damage.into_iter().next().map_or(Ok(()), |error| Err(error).during(during())).and(shown)
    }

    fn show_names(trees: &[TreeInfo]) -> Outcome {
        let names: Vec<&str> = trees.iter().map(|tree| tree.name.as_str()).collect();
        if names.is_empty() { Ok(()) } else { print(&names.join("\n")) }
    }

    /// The table or its JSON; after it the failure of the first tree whose size cannot be told.
    fn show(&self, db: &Database, trees: Vec<TreeInfo>) -> Outcome {
        let txn = self.target.begin_read(db)?;
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(["tree", "id", "about rows", "stored", "codec", "metadata"]);
        let mut list = Vec::new();
        let mut failed = Ok(());
        for info in trees {
            let tree = self.target.open_tree(db, &info.name)?;
            let size = txn.estimate(&tree, b"", b"").during(format_args!("estimate tree {:?}", info.name));
            let size = match size {
                Ok(size) => Some(size),
                Err(failure) => {
                    failed = failed.and(Err(failure));
                    None
                }
            };
            if self.json {
                list.push(serde_json::json!({
                    "name": info.name, "id": info.id.0,
                    "rows": size.map(|size| size.rows), "bytes": size.map(|size| size.bytes),
                    "blob_bytes": size.map(|size| size.blob_bytes),
                    "codec": show_codec(info.codec), "metadata_bytes": info.metadata_bytes,
                }));
            } else {
                table.add_row([
                    shown_name(&info.name),
                    info.id.to_string(),
                    size.map_or_else(unknown, |size| quantity::count(size.rows)),
                    size.map_or_else(unknown, |size| quantity::bytes(size.bytes)),
                    show_codec(info.codec),
                    quantity::bytes(info.metadata_bytes as u64),
                ]);
            }
        }
        if self.json {
            return print(&serde_json::Value::from(list).to_string()).and(failed);
        }
        for column in [1, 2, 3, 5] {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let lines: Vec<String> = table.trim_fmt().lines().map(|line| line.trim_start_matches(' ').to_owned()).collect();
        print(&lines.join("\n")).and(failed)
    }
}

/// What is shown where a size cannot be told.
fn unknown() -> String {
    "?".to_owned()
}
