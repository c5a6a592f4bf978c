//! Threads that help with one piece of work, where the system has them to give.
//!
//! A process may be allowed only so many threads. Whoever asks for help here does the work alone then, in place of failing.

use std::thread::{Builder, Result, scope};

/// Does `work` on this thread, as number 0, and on up to `helpers` others, as 1 and so on: what all of them return, this one first. Each
/// must be able to do without the others. A panic of a helper is an error, one of this thread goes on.
pub fn with_helpers<T: Send>(helpers: usize, work: impl Fn(usize) -> T + Sync) -> Vec<Result<T>> {
    with_started(helpers, Builder::new, work)
}

fn with_started<T: Send>(
    helpers: usize,
    builder: impl Fn() -> Builder,
    work: impl Fn(usize) -> T + Sync,
) -> Vec<Result<T>> {
    let work = &work;
    scope(|scope| {
        let start = |number| builder().spawn_scoped(scope, move || work(number)).ok();
        // Where one is refused, the next would be too.
        let helpers: Vec<_> = (1..=helpers).map_while(start).collect();
        let mut all = vec![Ok(work(0))];
        all.extend(helpers.into_iter().map(|helper| helper.join()));
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_helper_has_a_number_and_a_panic_is_its_own() {
        let all = with_helpers(3, |number| {
            assert_ne!(number, 2, "breaks down");
            number
        });
        assert_eq!(all.into_iter().map(Result::ok).collect::<Vec<_>>(), [Some(0), Some(1), None, Some(3)]);
    }

    #[test]
    fn where_no_thread_can_be_started_the_work_is_done_alone() {
        let no_room = || Builder::new().stack_size(usize::MAX / 4);
        let all = with_started(3, no_room, |number| number);
        assert_eq!(all.into_iter().map(Result::ok).collect::<Vec<_>>(), [Some(0)]);
    }
}
