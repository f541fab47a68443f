//! Behavior that every script can rely on.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use rockbot_contracts::{Executed, ToolErrorCode};
use rockbot_scripts::{Script, ScriptLimit, ScriptRunner};
use rockbot_testkit::fixture::{wait_until, within_timeout};
use rockbot_tools::{ToolFailure, ToolUpdate};

use crate::fixture::{INTERPRETERS, children, context, output_of, plain, run, script, try_run};

#[tokio::test]
async fn stdout_stderr_and_exit_code_are_separate() {
    for warm in INTERPRETERS {
        let runner = plain(warm).await;
        let code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)";
        let outcome = run(&runner, code).await;
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("out\n", "err\n"));
        assert_eq!((outcome.exit_code, outcome.ended_by), (3, None));
        assert!(outcome.isolation.is_complete(), "{}", outcome.isolation);
    }
}

#[tokio::test]
async fn failed_script_shows_own_line_and_end_of_stderr() {
    for warm in INTERPRETERS {
        let runner = plain(warm).await;
        let outcome = run(&runner, "x = 1\nraise ValueError('no')").await;
        assert_eq!(outcome.exit_code, 1);
        assert!(outcome.stderr.contains("script.py\", line 2"), "{}", outcome.stderr);
        assert!(outcome.stderr.ends_with("ValueError: no\n"), "{}", outcome.stderr);
        assert!(!outcome.stderr.contains("run.py"), "{}", outcome.stderr);
        let outcome = run(&runner, "x = 1\ny = = 2").await;
        let shown = "  File \"/tmp/script.py\", line 2\n    y = = 2\n        ^\nSyntaxError: invalid syntax\n";
        assert_eq!((outcome.exit_code, outcome.stderr.as_str()), (1, shown));
        let outcome = run(&runner, "import sys; sys.stderr.write('x' * 99999 + 'end')").await;
        assert_eq!(outcome.stderr.len(), 16 * 1024);
        assert!(outcome.stderr.ends_with("xend"));
    }
}

#[tokio::test]
async fn replaced_streams_lose_no_output() {
    for warm in INTERPRETERS {
        let runner = plain(warm).await;
        for (code, out) in [
            ("sys.stdout.reconfigure(encoding='utf-8'); print('é')", "é\n"),
            ("sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8'); print(1)", "1\n"),
            ("sys.stdout = io.TextIOWrapper(sys.stdout.detach()); print(1)", "1\n"),
            ("print(1); sys.stdout = io.StringIO(); print(2)", "1\n"),
            ("print(1); sys.stdout.close()", "1\n"),
            ("print(1); sys.stdout = None; print(2)", "1\n"),
            ("print(sys.stdout.seekable())", "False\n"),
        ] {
            assert_eq!(output_of(&runner, &format!("import io, sys\n{code}")).await, out, "{code}");
        }
        let full = run(&runner, "import sys; sys.stdout = open('/dev/full', 'w'); print(1)").await;
        assert_eq!((full.exit_code, full.stdout.as_str()), (120, ""));
        assert_eq!(full.stderr, "OSError: [Errno 28] No space left on device\n");
        for hook in ["sys.excepthook = None", "del sys.excepthook", "sys.excepthook = lambda: 1"] {
            let failed = run(&runner, &format!("import sys; {hook}\n1/0")).await;
            assert_eq!(failed.exit_code, 1, "{hook}");
            let complaint = &failed.stderr;
            assert!(complaint.ends_with("ZeroDivisionError: division by zero\n"), "{complaint}");
            assert!(!complaint.contains("run.py"), "{complaint}");
        }
    }
}

#[tokio::test]
async fn script_compiles_as_utf8_with_future_imports() {
    for warm in INTERPRETERS {
        let code = "# coding: latin-1\n\
                    from __future__ import annotations\n\
                    def price(euros: Nothing): return f'{euros} €'\n\
                    print(price(3), price.__annotations__)";
        assert_eq!(output_of(&plain(warm).await, code).await, "3 € {'euros': 'Nothing'}\n");
    }
}

#[tokio::test]
async fn large_input_is_in_file_only() {
    for warm in INTERPRETERS {
        let runner = plain(warm).await;
        let code = "import os\n\
                    print(os.environ.get('ROCKBOT_INPUT', 'none'))\n\
                    path = os.environ.get('ROCKBOT_INPUT_FILE')\n\
                    print(len(open(path).read()) if path else 'none')";
        let small = script(code).with_input("hé").unwrap();
        let outcome = runner.run(&small, &context()).await.unwrap();
        assert_eq!(outcome.stdout, "hé\n2\n");
        let large = script(code).with_input("x".repeat(200_000)).unwrap();
        let outcome = runner.run(&large, &context()).await.unwrap();
        assert_eq!(outcome.stdout, "none\n200000\n");
        assert_eq!(output_of(&runner, code).await, "none\nnone\n");
    }
}

#[tokio::test]
async fn standard_input_is_empty_and_other_descriptors_closed() {
    for warm in INTERPRETERS {
        let runner = plain(warm).await;
        let code = "import os, sys\n\
                    print(repr(sys.stdin.read()), os.open('/dev/null', os.O_RDONLY))";
        assert_eq!(output_of(&runner, code).await, "'' 3\n");
    }
}

#[tokio::test]
async fn script_is_main_without_traces_of_runner() {
    let code = "import os, sys\n\
                open('mine.py', 'w').write('x = 7')\n\
                import mine\n\
                print(__name__, sys.argv, os.getcwd(), os.environ['HOME'], mine.x)\n\
                print(sorted(set(sys.modules) & {'jail', 'server', 'plan', 'run'}))\n\
                print(sorted(os.environ), sorted(os.listdir('/tmp')))\n\
                exit(0)";
    let mut all = Vec::new();
    for warm in INTERPRETERS {
        all.push(output_of(&plain(warm).await, code).await);
    }
    assert_eq!(all[0], all[1]);
    // Also in a process that has rehearsed a start.
    let runner = plain(true).await;
    let server = children("warm")[0].as_raw_nonzero().to_string();
    for _ in 0..3 {
        wait_until("two have rehearsed", || {
            let scripts = waiting(&server);
            scripts.len() == 2 && scripts.iter().all(|script| has_rehearsed(script))
        })
        .await;
        assert_eq!(output_of(&runner, code).await, all[0]);
    }
    assert!(all[0].starts_with("__main__ ['script.py'] /tmp /tmp 7\n[]\n"), "{}", all[0]);
    assert!(!all[0].contains("CARGO"), "{}", all[0]);
}

#[tokio::test]
async fn timeout_and_cancellation_stop_script() {
    for warm in INTERPRETERS {
        let runner = plain(warm).await;
        let endless = script("while True: pass").with_timeout(Duration::from_secs(1)).unwrap();
        let failure = runner.run(&endless, &context()).await.unwrap_err();
        assert!(
            matches!(failure, ToolFailure::TimedOut { executed: Executed::Yes, .. }),
            "{failure:?}"
        );
        let (endless, context) = (script("while True: pass"), context());
        let cancel = context.cancellation.clone();
        let running = runner.run(&endless, &context);
        let (result, ()) = tokio::join!(running, async {
            tokio::task::yield_now().await;
            cancel.cancel();
        });
        assert!(matches!(result, Err(ToolFailure::Cancelled { .. })), "{result:?}");
    }
}

#[tokio::test]
async fn output_of_running_script_is_reported() {
    for warm in INTERPRETERS {
        let runner = plain(warm).await;
        let mut context = context();
        let (sender, mut updates) = tokio::sync::mpsc::channel(8);
        context.updates = Some(Arc::new(move |update| drop(sender.try_send(update))));
        let code = "import time\nprint('one', flush=True)\ntime.sleep(60)";
        let script = script(code);
        let cancel = context.cancellation.clone();
        let (result, ()) = tokio::join!(runner.run(&script, &context), async {
            let update = within_timeout("the output", updates.recv()).await;
            assert_eq!(update, Some(ToolUpdate::Progress("one".to_owned())));
            cancel.cancel();
        });
        let failure = result.unwrap_err();
        assert_eq!(failure.to_string(), "cancelled\nstdout until then:\none");
        assert_eq!(failure.executed(), Executed::Yes);
    }
}

#[tokio::test]
async fn timeout_reports_printed_output() {
    for warm in INTERPRETERS {
        let runner = plain(warm).await;
        let code =
            "import sys\nprint(1, flush=True)\nprint('slow', file=sys.stderr)\nwhile True: pass";
        let endless = script(code).with_timeout(Duration::from_secs(1)).unwrap();
        let failure = runner.run(&endless, &context()).await.unwrap_err();
        let expected = "timeout\nstdout until then:\n1\nstderr until then:\nslow";
        assert_eq!(failure.to_string(), expected);
        assert_eq!(failure.code(), ToolErrorCode::Timeout);
    }
}

#[tokio::test]
async fn concurrent_scripts_get_their_own_output() {
    for warm in INTERPRETERS {
        let runner = plain(warm).await;
        let scripts = (0..10).map(|n| {
            let runner = &runner;
            async move { output_of(runner, &format!("print({n})")).await }
        });
        let outputs: Vec<_> = stream::iter(scripts).buffered(10).collect().await;
        assert_eq!(outputs, (0..10).map(|n| format!("{n}\n")).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn output_beyond_limit_stops_script() {
    for warm in INTERPRETERS {
        let outcome = run(&plain(warm).await, "while True: print('x' * 1000)").await;
        assert_eq!(outcome.ended_by, Some(ScriptLimit::Output));
        assert_eq!(outcome.stdout.len(), 1024 * 1024);
    }
}

#[tokio::test]
async fn killed_warm_interpreter_is_replaced() {
    let runner = plain(true).await;
    assert_eq!(output_of(&runner, "print(1)").await, "1\n");
    let warm = children("warm");
    for pid in &warm {
        rustix::process::kill_process(*pid, rustix::process::Signal::KILL).unwrap();
    }
    // A dying server could still take the request.
    for pid in warm {
        let pid = pid.as_raw_nonzero().to_string();
        wait_until("it is dead", || is_dead(&pid)).await;
    }
    assert_eq!(output_of(&runner, "print(2)").await, "2\n");
}

#[tokio::test]
async fn killed_spare_cells_are_replaced() {
    let runner = plain(true).await;
    let server = children("warm")[0].as_raw_nonzero().to_string();
    // The supervisors, their replacements, and the script processes of the next ones.
    for of_scripts in [false, false, true] {
        let killed = || if of_scripts { waiting(&server) } else { started_by(&server) };
        wait_until("two are ready", || killed().len() == 2).await;
        for process in killed() {
            let pid = process.parse().ok().and_then(rustix::process::Pid::from_raw).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            wait_until("it is dead", || is_dead(&process)).await;
        }
    }
    assert_eq!(within_timeout("a spare", output_of(&runner, "print(2)")).await, "2\n");
    assert_eq!(children("warm")[0].as_raw_nonzero().to_string(), server);
}

#[tokio::test]
async fn deadline_and_cancellation_hold_during_interpreter_start() {
    let runner = plain(true).await;
    let server = children("warm")[0];
    let command = std::fs::read_to_string(format!("/proc/{server}/cmdline")).unwrap();
    let modules =
        command.split('\0').find(|argument| argument.contains("rockbot-scripts-")).unwrap();
    // From now on interpreters never become ready.
    std::fs::write(format!("{modules}/server.py"), "import _signal; _signal.pause()").unwrap();
    let number = server.as_raw_nonzero().to_string();
    let spares = started_by(&number);
    rustix::process::kill_process(server, rustix::process::Signal::KILL).unwrap();
    // A spare cell that dies with it could still take the request.
    for process in spares.into_iter().chain([number]) {
        wait_until("it is dead", || is_dead(&process)).await;
    }

    let mut short = context();
    short.deadline = tokio::time::Instant::now() + Duration::from_secs(1);
    let one = script("print(1)");
    let result = within_timeout("the deadline", runner.run(&one, &short)).await;
    assert!(
        matches!(result, Err(ToolFailure::TimedOut { executed: Executed::No, .. })),
        "{result:?}"
    );
    let context = context();
    let cancel = context.cancellation.clone();
    let (result, ()) = within_timeout("the cancel", async {
        tokio::join!(runner.run(&one, &context), async { cancel.cancel() })
    })
    .await;
    assert!(matches!(result, Err(ToolFailure::Cancelled { executed: Executed::No })), "{result:?}");
}

/// Returns the children of a process: for a server, the supervisors of spare cells.
fn started_by(process: &str) -> Vec<String> {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    children.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

/// Returns the processes that wait to become a script, which are children of supervisors.
fn waiting(server: &str) -> Vec<String> {
    started_by(server).iter().flat_map(|supervisor| started_by(supervisor)).collect()
}

/// Returns whether a waiting process has rehearsed a start, which sets the umask of scripts.
fn has_rehearsed(process: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status.lines().any(|line| line == "Umask:\t0077")
}

fn is_dead(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('Z'))
}

#[tokio::test]
async fn closed_runner_leaves_no_processes() {
    let runner = plain(true).await;
    assert!(!children("warm").is_empty());
    let endless = try_run(&runner, "while True: pass");
    let (result, ()) =
        within_timeout("the end", async { tokio::join!(endless, runner.close()) }).await;
    assert!(matches!(result, Err(ToolFailure::Unavailable { .. })), "{result:?}");
    assert!(children("warm").is_empty());
    let refused = runner.run(&Script::new("1").unwrap(), &context()).await;
    assert!(matches!(refused, Err(ToolFailure::Unavailable { executed: Executed::No, .. })));
}
