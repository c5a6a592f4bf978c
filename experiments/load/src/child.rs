//! Programs that must not outlive the one that started them.

use std::path::Path;

/// The words before a program's own that make the kernel kill it when we end, whatever we end of; none where the machine
/// has no `setpriv`. What counts is the end of the thread that starts it, which should therefore be the main one.
pub fn dies_with_us() -> &'static [&'static str] {
    let setpriv = ["/usr/bin/setpriv", "/bin/setpriv"].iter().any(|path| Path::new(path).exists());
    if setpriv { &["setpriv", "--pdeathsig", "KILL", "--"] } else { &[] }
}
