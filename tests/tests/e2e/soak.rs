//! Resource use over a minute of load.

#![cfg(target_os = "linux")]

use std::{
    fs,
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use serde_json::json;
use tokio::{task::JoinSet, time::Instant};

use crate::{caller::Caller, fleet::Fleet, process::memory_kib};

const IN_FLIGHT: usize = 64;
const WARM_UP: Duration = Duration::from_secs(20);
const SOAK: Duration = Duration::from_secs(60);

/// Resources of a process.
#[derive(Debug, Clone, Copy)]
struct Usage {
    memory_kib: u64,
    descriptors: usize,
}

fn usage(process: &str) -> Usage {
    let memory_kib = memory_kib(process, "VmRSS");
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).expect("descriptors").count();
    Usage { memory_kib, descriptors }
}

#[tokio::test(flavor = "multi_thread")]
async fn minute_of_load_leaks_no_resources() {
    let fleet = Fleet::new();
    let handler = fleet.handler("handler-1").await;
    let caller = Caller::new(fleet.bus(|_| {}).await, Duration::from_secs(30));
    let calls = Arc::new(AtomicU64::new(0));
    let end = Instant::now() + WARM_UP + SOAK;
    let mut callers = JoinSet::new();
    for number in 0..IN_FLIGHT {
        let (caller, calls) = (caller.clone(), calls.clone());
        callers.spawn(async move {
            while Instant::now() < end {
                let file = json!({"path": format!("file-{number}"), "content": "x".repeat(200)});
                let result = caller.call("write_file", file).await.expect("a result");
                assert!(!result.is_error, "{}", result.to_text());
                calls.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let pid = handler.pid().to_string();
    let mut samples = Vec::new();
    let mut ticks = tokio::time::interval_at(Instant::now() + WARM_UP, SOAK / 6);
    while Instant::now() < end {
        tokio::select! {
            _ = ticks.tick() => samples.push((usage(&pid), usage("self"))),
            Some(call) = callers.join_next() => call.expect("no panic"),
        }
    }
    while let Some(call) = callers.join_next().await {
        call.expect("no panic");
    }
    let count = calls.load(Ordering::Relaxed);
    let rate = count as f64 / (WARM_UP + SOAK).as_secs_f64();
    println!("{count} calls, {rate:.0} per second\n{samples:#?}");
    assert_eq!(caller.requester.pending(), 0);
    let (first, last) = (samples[0], samples[samples.len() - 1]);
    for (process, before, after) in [("handler", first.0, last.0), ("caller", first.1, last.1)] {
        assert!(
            after.descriptors <= before.descriptors + 2,
            "{process}: {before:?}, then {after:?}"
        );
        // Tolerance for the allocator. A leak of one kilobyte per call would exceed it.
        let limit = before.memory_kib + before.memory_kib / 3 + 8192;
        assert!(after.memory_kib <= limit, "{process}: {before:?}, then {after:?}, {count} calls");
    }
}
