//! Progress on standard error: a bar when that is a terminal, otherwise nothing.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar. Hidden where there is no terminal; gone when dropped.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Bytes of `total` (0: unknown).
    pub(crate) fn bytes(what: &str, total: u64) -> Progress {
        Progress::new(what, total, "{bytes}", "{total_bytes}", "{bytes_per_sec}")
    }

    /// Rows of `total` (0: unknown).
    pub(crate) fn rows(what: &str, total: u64) -> Progress {
        Progress::new(what, total, "{human_pos}", "{human_len}", "{per_sec}")
    }

    /// Only a line of words.
    pub(crate) fn words(what: &str) -> Progress {
        Progress::styled(what, 0, "{prefix} {spinner} {elapsed} {wide_msg}")
    }

    fn new(what: &str, total: u64, position: &str, length: &str, rate: &str) -> Progress {
        let template = if total == 0 {
            format!("{{prefix}} {{spinner}} {position} {rate} {{wide_msg}}")
        } else {
            format!("{{prefix}} [{{bar:30}}] {{percent}} % {position} of {length}, {rate}, {{eta}} left {{wide_msg}}")
        };
        Progress::styled(what, total, &template)
    }

    fn styled(what: &str, total: u64, template: &str) -> Progress {
        let length = (total > 0).then_some(total);
        let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr_with_hz(10));
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
        }
        bar.set_prefix(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress { bar }
    }

    /// Sets how much is done.
    pub(crate) fn set(&self, done: u64) {
        self.bar.set_position(done);
    }

    /// Sets how much there is.
    pub(crate) fn set_total(&self, total: u64) {
        if total > 0 && self.bar.length() != Some(total) {
            self.bar.set_length(total);
        }
    }

    /// Says something beside the bar.
    pub(crate) fn say(&self, message: impl Into<String>) {
        self.bar.set_message(message.into());
    }

    /// True when nobody sees it.
    pub(crate) fn is_hidden(&self) -> bool {
        self.bar.is_hidden()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
