//! Resource use over a minute of load.

#![cfg(target_os = "linux")]

use std::{
    fs,
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use rustix::process::Pid;
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};

use crate::{caller::Caller, fleet::Fleet};

const IN_FLIGHT: usize = 64;
const WARM_UP: Duration = Duration::from_secs(20);
const SOAK: Duration = Duration::from_secs(60);

/// What a process holds.
#[derive(Debug, Clone, Copy)]
struct Holds {
    memory_kib: u64,
    descriptors: usize,
}

fn holds(process: &str) -> Holds {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("its status");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    let memory_kib = resident.trim().trim_end_matches(" kB").parse().expect("a number");
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).expect("descriptors").count();
    Holds { memory_kib, descriptors }
}

#[tokio::test(flavor = "multi_thread")]
async fn minute_of_load_leaks_no_resources() {
    let fleet = Fleet::new();
    let handler = fleet.handler("handler-1").await;
    let caller = Caller::new(fleet.bus(|_| {}).await, Duration::from_secs(30));
    let calls = Arc::new(AtomicU64::new(0));
    let ends = Instant::now() + WARM_UP + SOAK;
    let mut callers = JoinSet::new();
    for number in 0..IN_FLIGHT {
        let (caller, calls) = (caller.clone(), calls.clone());
        callers.spawn(async move {
            while Instant::now() < ends {
                let file = json!({"path": format!("file-{number}"), "content": "x".repeat(200)});
                let result = caller.call("write_file", file).await.expect("a result");
                assert!(!result.is_error, "{}", result.to_text());
                calls.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let pid = Pid::as_raw_nonzero(handler.pid()).to_string();
    let mut looks = Vec::new();
    let mut look = tokio::time::interval_at(Instant::now() + WARM_UP, SOAK / 6);
    while Instant::now() < ends {
        tokio::select! {
            _ = look.tick() => looks.push((holds(&pid), holds("self"))),
            Some(ended) = callers.join_next() => ended.expect("no panic"),
        }
    }
    while let Some(ended) = callers.join_next().await {
        ended.expect("no panic");
    }
    let made = calls.load(Ordering::Relaxed);
    let rate = made as f64 / (WARM_UP + SOAK).as_secs_f64();
    println!("{made} calls, {rate:.0} a second\n{looks:#?}");
    assert_eq!(caller.requester.pending(), 0);
    let ((handler_then, caller_then), (handler_now, caller_now)) =
        (looks[0], looks[looks.len() - 1]);
    for (who, then, now) in
        [("handler", handler_then, handler_now), ("caller", caller_then, caller_now)]
    {
        assert!(now.descriptors <= then.descriptors + 2, "{who}: {then:?}, then {now:?}");
        // A leak of one kilobyte a call would be far more, and an allocator under load takes some.
        let allowed = then.memory_kib + then.memory_kib / 3 + 8192;
        assert!(now.memory_kib <= allowed, "{who}: {then:?}, then {now:?}, {made} calls");
    }
}
