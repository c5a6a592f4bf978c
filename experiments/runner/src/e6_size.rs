//! Experiment 6: size on disk after loading, and what loading wrote. Bytes per inserted row come with experiment 1.

use crate::context::Context;
use crate::dataset;
use crate::failure::Failure;
use crate::plan::{Finding, Part};

pub(crate) fn run(context: &Context, part: &Part) -> Result<Finding, Failure> {
    let mut finding = Finding::new(part);
    if let Some(kind) = part.dataset {
        let loaded = dataset::ensure(context, part.engine, kind)?;
        finding.set("rows", loaded.rows as f64);
        finding.set("bytes_on_disk", loaded.bytes_on_disk as f64);
        finding.works.insert("load".into(), loaded.work);
    }
    Ok(finding)
}
