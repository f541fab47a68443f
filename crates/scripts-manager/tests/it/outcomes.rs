//! Outcomes of scripts.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use rockbot_contracts::{Executed, ToolErrorCode};
use rockbot_scripts::{ScriptLimit, ScriptRunner};
use rockbot_scripts_manager::PodsSection;
use tokio::time::Instant;

use crate::fixture::{call, in_cluster, is_running, run, script};

/// Time limit of a script that exceeds its disk. A kubelet measures volumes once a minute.
const DISK_CHECK: Duration = Duration::from_secs(240);

#[tokio::test]
async fn stdout_stderr_and_exit_code_are_returned() {
    in_cluster(async |cluster| {
        let runner = cluster.runner();
        let code = "
import os, sys
print('42 é')
print('no', file=sys.stderr)
print(os.environ.get('ROCKBOT_INPUT'), end='')
sys.exit(3)
";
        let script = script(code).with_input("{\"a\": \"ü\"}\r\n").unwrap();
        let start = Instant::now();
        let outcome = runner.run(&script, &call()).await.unwrap();

        assert_eq!(outcome.stdout, "42 é\n{\"a\": \"ü\"}\r\n");
        assert_eq!((outcome.stderr.as_str(), outcome.exit_code), ("no\n", 3));
        assert_eq!(outcome.ended_by, None);
        assert!(outcome.elapsed < start.elapsed(), "{:?}", outcome.elapsed);
        let isolation = outcome.isolation.to_string();
        assert_eq!(isolation, "pod (not isolated from: the network (not probed))");
        cluster.wait_for_none().await;
    })
    .await;
}

#[tokio::test]
async fn large_input_is_in_file_only() {
    in_cluster(async |cluster| {
        let runner = cluster.runner();
        let code = "
import os
text = open(os.environ['ROCKBOT_INPUT_FILE'], encoding='utf-8', newline='').read()
print(len(text), text[-1], os.environ.get('ROCKBOT_INPUT') == text)
";
        let small = script(code).with_input("x".repeat(100_000) + "é").unwrap();
        let outcome = runner.run(&small, &call()).await.unwrap();
        assert_eq!(outcome.stdout, "100001 é True\n", "{}", outcome.stderr);
        let large = script(code).with_input("x".repeat(200_000) + "é").unwrap();
        let outcome = runner.run(&large, &call()).await.unwrap();
        assert_eq!(outcome.stdout, "200001 é False\n", "{}", outcome.stderr);
        let outcome = run(&runner, "import os; print('ROCKBOT_INPUT_FILE' in os.environ)").await;
        assert_eq!(outcome.unwrap().stdout, "False\n");
    })
    .await;
}

#[tokio::test]
async fn timeout_deletes_pod() {
    in_cluster(async |cluster| {
        let runner = cluster.runner();
        // The script ignores signals.
        let code = "
import signal, time
for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
    signal.signal(number, signal.SIG_IGN)
while True: time.sleep(1000)
";
        let script = script(code).with_timeout(Duration::from_secs(2)).unwrap();
        let failure = runner.run(&script, &call()).await.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::Timeout, "{failure}");
        assert_eq!(failure.executed(), Executed::Yes);
        cluster.wait_for_none().await;
    })
    .await;
}

#[tokio::test]
async fn cancellation_and_deadline_delete_pod() {
    in_cluster(async |cluster| {
        let runner = cluster.runner();
        let forever = script("import time; time.sleep(1000)");
        let context = call();
        let (result, ()) = tokio::join!(runner.run(&forever, &context), async {
            cluster.wait_for("the script runs", 1, is_running).await;
            context.cancellation.cancel();
        });
        let failure = result.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::Cancelled, "{failure}");
        assert_ne!(failure.executed(), Executed::No);
        cluster.wait_for_none().await;

        let mut context = call();
        context.deadline = Instant::now() + Duration::from_millis(200);
        let failure = runner.run(&forever, &context).await.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::Timeout, "{failure}");
        cluster.wait_for_none().await;
    })
    .await;
}

#[tokio::test]
async fn output_beyond_limit_stops_script() {
    in_cluster(async |cluster| {
        let runner = cluster.runner();
        let limit = 3 * 1024 * 1024;
        let largest = format!("import sys; sys.stdout.write('é\\n' * {})", limit / 3);
        let outcome = run(&runner, &largest).await.unwrap();
        assert_eq!((outcome.exit_code, outcome.ended_by), (0, None));
        assert_eq!(outcome.stdout, "é\n".repeat(limit / 3));
        let over_limit = format!("import sys; sys.stdout.write('x' * {})", limit + 1);
        for code in [over_limit.as_str(), "print('x' * 10_000_000)"] {
            let outcome = run(&runner, code).await.unwrap();
            assert_eq!(outcome.ended_by, Some(ScriptLimit::Output));
            assert_eq!(outcome.stdout, "x".repeat(limit));
        }
        cluster.wait_for_none().await;
    })
    .await;
}

#[tokio::test]
async fn memory_limit_is_reported() {
    in_cluster(async |cluster| {
        let small =
            PodsSection { memory: "64Mi".to_owned(), disk: "16Mi".to_owned(), ..cluster.section() };
        let runner = cluster.runner_with(small);
        let allocate = "
print('started', flush=True)
blocks = []
while True: blocks.append(bytearray(8 << 20))
";
        let outcome = run(&runner, allocate).await.unwrap();
        assert_eq!(outcome.ended_by, Some(ScriptLimit::Memory), "{outcome:?}");
        assert_eq!((outcome.stdout.as_str(), outcome.exit_code), ("started\n", 137));
        // A script that kills itself reached no limit.
        let outcome = run(&runner, "import os; os.kill(os.getpid(), 9)").await.unwrap();
        assert_eq!((outcome.exit_code, outcome.ended_by), (137, None));
        // The folder is in memory: filling it is an error or exceeds the memory limit.
        let full = "
with open('/tmp/x', 'wb') as file:
    while True: file.write(bytes(1 << 20))
";
        let outcome = run(&runner, full).await.unwrap();
        assert_ne!(outcome.exit_code, 0, "{outcome:?}");
        let is_reported = outcome.ended_by.is_some() || outcome.stderr.contains("No space left");
        assert!(is_reported, "{outcome:?}");
        cluster.wait_for_none().await;
    })
    .await;
}

#[tokio::test]
async fn disk_limit_is_reported() {
    in_cluster(async |cluster| {
        // On the disk, the node enforces the limit.
        let runner = cluster.runner_with(PodsSection {
            disk: "16Mi".to_owned(),
            disk_in_memory: false,
            ..cluster.section()
        });
        // Written pages count as memory until they are on the disk.
        let full = "
import os, time
with open('/tmp/x', 'wb', buffering=0) as file:
    for _ in range(32):
        file.write(bytes(1 << 20))
        os.fsync(file.fileno())
time.sleep(1000)
";
        let script = script(full).with_timeout(DISK_CHECK).unwrap();
        let mut context = call();
        context.deadline = Instant::now() + DISK_CHECK;
        let outcome = runner.run(&script, &context).await.unwrap();
        assert_eq!(outcome.ended_by, Some(ScriptLimit::Disk), "{outcome:?}");
        cluster.wait_for_none().await;
    })
    .await;
}

#[tokio::test]
async fn concurrent_scripts_get_their_own_output() {
    in_cluster(async |cluster| {
        let runner = &cluster.runner();
        let outputs = stream::iter(0..20).map(|number| async move {
            run(runner, &format!("print({number})")).await.unwrap().stdout
        });
        let outputs: Vec<_> = outputs.buffered(20).collect().await;
        let expected: Vec<_> = (0..20).map(|number| format!("{number}\n")).collect();
        assert_eq!(outputs, expected);
        cluster.wait_for_none().await;
    })
    .await;
}
