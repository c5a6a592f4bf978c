//! Sizes on disk, and making the next open cold.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

use crate::{At, Result};

fn for_each_file(directory: &Path, visit: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    for entry in std::fs::read_dir(directory).at_path(directory)? {
        let path = entry.at_path(directory)?.path();
        if path.is_dir() { for_each_file(&path, visit)? } else { visit(&path)? }
    }
    Ok(())
}

/// Bytes allocated to the files below `directory`, holes excluded.
pub fn disk_bytes(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for_each_file(directory, &mut |path| {
        // A file may go away between listing and looking: background work goes on.
        bytes += std::fs::metadata(path).map_or(0, |metadata| metadata.blocks() * 512);
        Ok(())
    })?;
    Ok(bytes)
}

/// Writes back and forgets the cached pages of every file below `directory`, so that the next open reads the device.
pub fn drop_cached_pages(directory: &Path) -> Result<()> {
    for_each_file(directory, &mut |path| {
        let forget = |file: File| {
            file.sync_all()?;
            fadvise(&file, 0, None, Advice::DontNeed).map_err(std::io::Error::from)
        };
        File::open(path).and_then(forget).at_path(path)
    })
}
