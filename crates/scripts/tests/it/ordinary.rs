//! What every script may rely on.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use rockbot_contracts::Executed;
use rockbot_scripts::{Script, ScriptLimit, ScriptRunner};
use rockbot_testkit::fixture::{wait_until, within_timeout};
use rockbot_tools::ToolFailure;

use crate::bed::{WAYS, children, context, plain, printed, run, script, try_run};

#[tokio::test]
async fn output_complaints_and_exit_code_are_told_apart() {
    for warm in WAYS {
        let runner = plain(warm).await;
        let code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)";
        let outcome = run(&runner, code).await;
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("out\n", "err\n"));
        assert_eq!((outcome.exit_code, outcome.ended_by), (3, None));
        assert!(outcome.isolation.is_complete(), "{}", outcome.isolation);
    }
}

#[tokio::test]
async fn a_script_that_fails_shows_its_own_line_and_the_end_of_a_long_complaint() {
    for warm in WAYS {
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
async fn what_a_script_does_to_its_streams_loses_nothing_and_blames_nobody() {
    for warm in WAYS {
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
            assert_eq!(printed(&runner, &format!("import io, sys\n{code}")).await, out, "{code}");
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
async fn a_script_is_compiled_as_text_with_what_it_takes_from_the_future() {
    for warm in WAYS {
        let code = "# coding: latin-1\n\
                    from __future__ import annotations\n\
                    def price(euros: Nothing): return f'{euros} €'\n\
                    print(price(3), price.__annotations__)";
        assert_eq!(printed(&plain(warm).await, code).await, "3 € {'euros': 'Nothing'}\n");
    }
}

#[tokio::test]
async fn input_is_in_a_variable_and_in_a_file_and_large_input_in_a_file_alone() {
    for warm in WAYS {
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
        assert_eq!(printed(&runner, code).await, "none\nnone\n");
    }
}

#[tokio::test]
async fn standard_input_is_empty_and_no_other_descriptor_is_open() {
    for warm in WAYS {
        let runner = plain(warm).await;
        let code = "import os, sys\n\
                    print(repr(sys.stdin.read()), os.open('/dev/null', os.O_RDONLY))";
        assert_eq!(printed(&runner, code).await, "'' 3\n");
    }
}

#[tokio::test]
async fn a_script_is_main_with_its_own_folder_and_nothing_of_the_runner() {
    let code = "import os, sys\n\
                open('mine.py', 'w').write('x = 7')\n\
                import mine\n\
                print(__name__, sys.argv, os.getcwd(), os.environ['HOME'], mine.x)\n\
                print(sorted(set(sys.modules) & {'jail', 'server', 'plan', 'run'}))\n\
                print(sorted(os.environ), sorted(os.listdir('/tmp')))\n\
                exit(0)";
    let mut all = Vec::new();
    for warm in WAYS {
        all.push(printed(&plain(warm).await, code).await);
    }
    assert_eq!(all[0], all[1]);
    // Also by a process that has gone the way to a first line before.
    let runner = plain(true).await;
    let server = children("warm")[0].as_raw_nonzero().to_string();
    for _ in 0..3 {
        wait_until("two have rehearsed", || {
            let scripts = waiting(&server);
            scripts.len() == 2 && scripts.iter().all(|script| has_rehearsed(script))
        })
        .await;
        assert_eq!(printed(&runner, code).await, all[0]);
    }
    assert!(all[0].starts_with("__main__ ['script.py'] /tmp /tmp 7\n[]\n"), "{}", all[0]);
    assert!(!all[0].contains("CARGO"), "{}", all[0]);
}

#[tokio::test]
async fn a_script_ends_at_its_own_time_out_and_at_a_cancel() {
    for warm in WAYS {
        let runner = plain(warm).await;
        let endless = script("while True: pass").within(Duration::from_secs(1)).unwrap();
        let failure = runner.run(&endless, &context()).await.unwrap_err();
        assert!(
            matches!(failure, ToolFailure::TimedOut { executed: Executed::Yes, .. }),
            "{failure:?}"
        );
        let (endless, context) = (script("while True: pass"), context());
        let cancel = context.cancellation.clone();
        let running = runner.run(&endless, &context);
        let (ended, ()) = tokio::join!(running, async {
            tokio::task::yield_now().await;
            cancel.cancel();
        });
        assert!(matches!(ended, Err(ToolFailure::Cancelled { .. })), "{ended:?}");
    }
}

#[tokio::test]
async fn ten_at_once_get_their_own_answers() {
    for warm in WAYS {
        let runner = plain(warm).await;
        let scripts = (0..10).map(|n| {
            let runner = &runner;
            async move { printed(runner, &format!("print({n})")).await }
        });
        let answers: Vec<_> = stream::iter(scripts).buffered(10).collect().await;
        assert_eq!(answers, (0..10).map(|n| format!("{n}\n")).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn what_is_printed_beyond_the_limit_ends_the_script() {
    for warm in WAYS {
        let outcome = run(&plain(warm).await, "while True: print('x' * 1000)").await;
        assert_eq!(outcome.ended_by, Some(ScriptLimit::Output));
        assert_eq!(outcome.stdout.len(), 1024 * 1024);
    }
}

#[tokio::test]
async fn a_killed_interpreter_is_replaced() {
    let runner = plain(true).await;
    assert_eq!(printed(&runner, "print(1)").await, "1\n");
    let warm = children("warm");
    for pid in &warm {
        rustix::process::kill_process(*pid, rustix::process::Signal::KILL).unwrap();
    }
    // One that is about to die could still take the request.
    for pid in warm {
        let pid = pid.as_raw_nonzero().to_string();
        wait_until("it is dead", || is_dead(&pid)).await;
    }
    assert_eq!(printed(&runner, "print(2)").await, "2\n");
}

#[tokio::test]
async fn spares_that_are_killed_are_replaced() {
    let runner = plain(true).await;
    let server = children("warm")[0].as_raw_nonzero().to_string();
    // The keepers; those that took their place; and what waits to be a script of those after them.
    for of_scripts in [false, false, true] {
        let killed = || if of_scripts { waiting(&server) } else { started_by(&server) };
        wait_until("two are ready", || killed().len() == 2).await;
        for process in killed() {
            let pid = process.parse().ok().and_then(rustix::process::Pid::from_raw).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            wait_until("it is dead", || is_dead(&process)).await;
        }
    }
    assert_eq!(within_timeout("a spare", printed(&runner, "print(2)")).await, "2\n");
    assert_eq!(children("warm")[0].as_raw_nonzero().to_string(), server);
}

#[tokio::test]
async fn a_deadline_and_a_cancel_hold_while_an_interpreter_starts() {
    let runner = plain(true).await;
    let server = children("warm")[0];
    let words = std::fs::read_to_string(format!("/proc/{server}/cmdline")).unwrap();
    let modules = words.split('\0').find(|word| word.contains("rockbot-scripts-")).unwrap();
    // From now on no interpreter is ever ready.
    std::fs::write(format!("{modules}/server.py"), "import _signal; _signal.pause()").unwrap();
    let number = server.as_raw_nonzero().to_string();
    let spares = started_by(&number);
    rustix::process::kill_process(server, rustix::process::Signal::KILL).unwrap();
    // A spare that is about to die with it could still take the request.
    for process in spares.into_iter().chain([number]) {
        wait_until("it is dead", || is_dead(&process)).await;
    }

    let mut short = context();
    short.deadline = tokio::time::Instant::now() + Duration::from_secs(1);
    let one = script("print(1)");
    let ended = within_timeout("the deadline", runner.run(&one, &short)).await;
    assert!(
        matches!(ended, Err(ToolFailure::TimedOut { executed: Executed::No, .. })),
        "{ended:?}"
    );
    let context = context();
    let cancel = context.cancellation.clone();
    let (ended, ()) = within_timeout("the cancel", async {
        tokio::join!(runner.run(&one, &context), async { cancel.cancel() })
    })
    .await;
    assert!(matches!(ended, Err(ToolFailure::Cancelled { executed: Executed::No })), "{ended:?}");
}

/// What a process has started: the keepers that wait for a script, for a server.
fn started_by(process: &str) -> Vec<String> {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    children.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

/// The processes that wait to be a script; their keepers have started them.
fn waiting(server: &str) -> Vec<String> {
    started_by(server).iter().flat_map(|keeper| started_by(keeper)).collect()
}

/// Whether a process that waits to be a script hides what it writes, as only scripts do.
fn has_rehearsed(process: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status.lines().any(|line| line == "Umask:\t0077")
}

fn is_dead(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('Z'))
}

#[tokio::test]
async fn a_closed_runner_leaves_nothing_behind() {
    let runner = plain(true).await;
    assert!(!children("warm").is_empty());
    let endless = try_run(&runner, "while True: pass");
    let (ended, ()) =
        within_timeout("the end", async { tokio::join!(endless, runner.close()) }).await;
    assert!(matches!(ended, Err(ToolFailure::Unavailable { .. })), "{ended:?}");
    assert!(children("warm").is_empty());
    let refused = runner.run(&Script::new("1").unwrap(), &context()).await;
    assert!(matches!(refused, Err(ToolFailure::Unavailable { executed: Executed::No, .. })));
}
