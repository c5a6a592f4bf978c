//! CPU time of processes, from /proc.

use std::fs;

/// User and system time of a process so far, in seconds; `None` if there is no such process.
pub(crate) fn seconds(pid: u32) -> Option<f64> {
    /// Clock ticks per second of /proc on Linux.
    const TICKS: f64 = 100.0;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.rsplit_once(')')?.1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let user: f64 = fields.get(11)?.parse().ok()?;
    let system: f64 = fields.get(12)?.parse().ok()?;
    Some((user + system) / TICKS)
}

/// CPU time of this process and of the server over a stretch of work.
pub(crate) struct Stretch {
    server_pid: Option<u32>,
    client: f64,
    server: f64,
}

impl Stretch {
    pub(crate) fn begin(server_pid: Option<u32>) -> Self {
        let now = |pid| seconds(pid).unwrap_or(0.0);
        Stretch { server_pid, client: now(std::process::id()), server: server_pid.map_or(0.0, now) }
    }

    /// Members of a JSON object, with a comma before.
    pub(crate) fn json(&self) -> String {
        let client = seconds(std::process::id()).unwrap_or(0.0) - self.client;
        let server = self.server_pid.and_then(seconds).map(|now| now - self.server);
        match server {
            Some(server) => format!(",\"client_cpu_s\":{client:.2},\"server_cpu_s\":{server:.2}"),
            None => format!(",\"client_cpu_s\":{client:.2}"),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_process_has_used_the_processor_and_no_process_is_none() {
        assert!(super::seconds(std::process::id()).is_some());
        assert_eq!(super::seconds(u32::MAX), None);
    }
}
