//! Who waits for the log is woken, whoever did what it waits for.

use std::sync::mpsc;
use std::time::Duration;

use super::*;

/// Two wait while somebody leads; a third does what they wait for, or fails. The leader, who does not know, wakes one of them.
fn two_wait(wanted: Wanted, fails: bool) {
    let log = Arc::new(create(&memory().1).expect("create"));
    let ends = [1, 2].map(|byte| log.append(&[byte]).expect("append").end);
    let (role, waiters) = match wanted {
        Wanted::Write => (&log.write_role, &log.wait_write),
        Wanted::Sync => (&log.sync_role, &log.wait_sync),
    };
    let leads = role.lock();
    let (tell, told) = mpsc::channel();
    for end in ends {
        let (log, tell) = (Arc::clone(&log), tell.clone());
        std::thread::spawn(move || {
            tell.send(match wanted {
                Wanted::Write => log.wait_written(end),
                Wanted::Sync => log.wait_durable(end),
            })
        });
    }
    while waiters.count() < 2 {
        std::thread::yield_now();
    }
    if fails {
        // As for two that had seen no failure yet and began to wait after those who did so were woken.
        log.poisoned.store(true, Ordering::Release);
    } else {
        log.write_up_to(ends[1], Wanted::Sync).and_then(|()| log.sync_pass()).expect("sync");
    }
    drop(leads);
    waiters.served(0);
    for _ in ends {
        let told = told.recv_timeout(Duration::from_secs(20)).expect("both are told");
        assert_eq!(told.is_err(), fails, "{wanted:?}: {told:?}");
    }
}

#[test]
fn who_is_woken_to_lead_and_need_not_wakes_another() {
    for wanted in [Wanted::Write, Wanted::Sync] {
        for fails in [false, true] {
            two_wait(wanted, fails);
        }
    }
}

/// Somebody gathers and gets no processor again: others wait while they are few, and the one by whom they are enough leads.
#[test]
fn a_large_group_does_not_wait_for_who_gathers() {
    let options = LogOptions { processors: 1, ..options() };
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let log = Arc::new(Log::create(storage, &dir(), options, Lsn(0)).expect("create"));
    let (tell, told) = mpsc::channel();
    let come = |count: usize| {
        for byte in 0..count as u8 {
            let (log, tell) = (Arc::clone(&log), tell.clone());
            std::thread::spawn(move || {
                let end = log.append(&[byte]).expect("append").end;
                tell.send(log.wait_durable(end))
            });
        }
    };
    let all_wait = |count: usize| {
        while log.wait_sync.count() < count {
            assert!(told.try_recv().is_err(), "one of few leads although somebody gathers");
            std::thread::yield_now();
        }
    };
    let all_are_told = |count: usize| {
        for _ in 0..count {
            told.recv_timeout(Duration::from_secs(20)).expect("all are told").expect("durable");
        }
    };
    let leads = log.sync_role.lock();
    come(5);
    all_wait(5);
    drop(leads);
    log.wait_sync.served(0);
    all_are_told(5);
    assert_eq!(log.wait_sync.crowd(), 5);

    log.gathering.store(true, Ordering::Release);
    come(3);
    all_wait(3);
    come(1);
    all_are_told(4);
}

#[test]
fn a_crowd_is_who_waited_and_who_led() {
    let (waiters, reached) = (Waiters::default(), AtomicU64::new(0));
    assert_eq!(waiters.crowd(), 0, "nobody has led");
    std::thread::scope(|scope| {
        for end in [1, 2] {
            let (waiters, reached) = (&waiters, &reached);
            // Who is not served is woken to lead; it leads nothing here.
            scope.spawn(move || {
                let mut turn = waiters.turn(reached);
                turn.wait(end, || true);
                std::mem::forget(turn);
            });
        }
        while waiters.count() < 2 {
            std::thread::yield_now();
        }
        waiters.served(1);
    });
    assert_eq!((waiters.crowd(), waiters.count()), (3, 0));
}
