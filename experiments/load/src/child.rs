//! Programs that must not outlive the one that started them.

use std::path::Path;

/// The words before a program's own that make the kernel kill it when we end, whatever we end of; none where the machine
/// has no `setpriv`. What counts is the end of the thread that starts it, which should therefore be the main one.
///
/// Had we ended before the kernel was asked for that, it would not be done: so the program is begun only while its parent is still we.
pub fn dies_with_us() -> Vec<String> {
    let setpriv = ["/usr/bin/setpriv", "/bin/setpriv"].iter().any(|path| Path::new(path).exists());
    if !setpriv {
        return Vec::new();
    }
    let begin = format!("[ $PPID = {} ] || exit 1; exec \"$@\"", std::process::id());
    ["setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", &begin, "sh"].map(str::to_owned).to_vec()
}
