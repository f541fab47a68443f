//! Scripts that try to escape or to exhaust resources, with warm and cold interpreters.

use std::{net::TcpListener, time::Duration};

use rockbot_contracts::{Executed, ToolCallId};
use rockbot_scripts::{ScriptLimit, ScriptRunner};
use rockbot_tools::ToolFailure;

use crate::fixture::{INTERPRETERS, context, output_of, plain, run, script, try_run};

/// Runs a script that must not print `out`, which mechanisms that an attempt succeeded.
async fn assert_contained(code: &str) {
    for warm in INTERPRETERS {
        let runner = plain(warm).await;
        let outcome = try_run(&runner, code).await.unwrap();
        assert!(!outcome.stdout.contains("out"), "warm: {warm}, {outcome:?}");
        assert_eq!(output_of(&runner, "print(1)").await, "1\n", "the runner failed");
    }
}

/// Returns a script that prints `out` for each attempt that succeeds.
fn attempts(prelude: &str, attempts: &[&str]) -> String {
    let list: Vec<_> = attempts.iter().map(|attempt| format!("lambda: {attempt}")).collect();
    format!(
        "import os, socket, ctypes, signal\n{prelude}\n\
         for number, attempt in enumerate([{}]):\n    \
             try: print('out', number, attempt())\n    \
             except (OSError, ValueError) as error: print(number, error)",
        list.join(",\n")
    )
}

#[tokio::test]
async fn fork_bomb_is_bounded() {
    for warm in INTERPRETERS {
        let runner = plain(warm).await;
        let code = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass";
        let bomb = script(code).with_timeout(Duration::from_secs(1)).unwrap();
        match runner.run(&bomb, &context()).await {
            Err(ToolFailure::TimedOut { executed: Executed::Yes, .. }) => {}
            Ok(outcome) => assert_eq!(outcome.ended_by, Some(ScriptLimit::Memory)),
            other => unreachable!("{other:?}"),
        }
        assert_eq!(output_of(&runner, "print(1)").await, "1\n");
    }
}

#[tokio::test]
async fn memory_is_bounded_for_all_processes_together() {
    for warm in INTERPRETERS {
        let runner = plain(warm).await;
        let outcome = run(&runner, "x = bytearray(10 << 30)").await;
        assert_eq!(outcome.exit_code, 1);
        assert!(outcome.stderr.contains("MemoryError"), "{}", outcome.stderr);
        let many = "import os, time\n\
                    for n in range(8):\n    \
                        if os.fork() == 0: break\n\
                    x = bytearray(b'x') * (200 << 20)\n\
                    signal = __import__('signal'); signal.pause()";
        let outcome = run(&runner, many).await;
        assert_eq!((outcome.ended_by, outcome.exit_code), (Some(ScriptLimit::Memory), 137));
    }
}

#[tokio::test]
async fn kernel_memory_is_bounded_by_files_and_buffers() {
    for warm in INTERPRETERS {
        let runner = plain(warm).await;
        let enlarged = "import fcntl, os, socket\n\
                        for larger in (\n\
                            lambda: socket.socketpair()[0].setsockopt(1, socket.SO_SNDBUF, 1 << 20),\n\
                            lambda: fcntl.fcntl(os.pipe()[0], 1031, 1 << 20)):\n    \
                            try: print('out', larger())\n    \
                            except PermissionError: print('refused')";
        assert_eq!(output_of(&runner, enlarged).await, "refused\nrefused\n");
        let many = "import os, signal, socket\n\
                    for n in range(20):\n    \
                        if os.fork() == 0: break\n\
                    pairs = [socket.socketpair() for n in range(50)]\n\
                    signal.pause()";
        let outcome = run(&runner, many).await;
        assert_eq!((outcome.ended_by, outcome.exit_code), (Some(ScriptLimit::Memory), 137));
        let pool = "from concurrent.futures import ThreadPoolExecutor as Pool\n\
                    import subprocess\n\
                    def ask(n): return subprocess.run(['/bin/echo', str(n)], capture_output=True)\n\
                    print(len(list(Pool(16).map(ask, range(40)))))";
        assert_eq!(output_of(&runner, pool).await, "40\n", "ordinary use was rejected");
    }
}

#[tokio::test]
async fn full_disk_is_ordinary_failure() {
    for warm in INTERPRETERS {
        let code = "for n in range(1000): open(f'f{n}', 'wb').write(b'x' * (10 << 20))";
        let outcome = run(&plain(warm).await, code).await;
        assert_eq!(outcome.exit_code, 1);
        assert!(outcome.stderr.contains("No space left"), "{}", outcome.stderr);
    }
}

#[tokio::test]
async fn signal_handlers_and_background_processes_do_not_survive() {
    for warm in INTERPRETERS {
        let runner = plain(warm).await;
        let deaf = "import signal\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\n\
                    while True: pass";
        let deaf = script(deaf).with_timeout(Duration::from_secs(1)).unwrap();
        let result = runner.run(&deaf, &context()).await;
        assert!(matches!(result, Err(ToolFailure::TimedOut { .. })), "{result:?}");
        let mark = "rockbot-left-behind";
        let hides = format!(
            "import os, ctypes, signal\n\
             if os.fork() == 0:\n    \
                 os.setsid()\n    \
                 if os.fork() == 0:\n        \
                     os.execv('/bin/sleep', ['{mark}', '1000'])\n    \
                 os._exit(0)\n\
             os.wait()\nprint('gone')"
        );
        assert_eq!(output_of(&runner, &hides).await, "gone\n");
        let is_running = std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            command.starts_with(mark.as_bytes())
        });
        assert!(!is_running);
    }
}

#[tokio::test]
async fn host_files_are_inaccessible() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "s").unwrap();
    let secret = secret.display();
    let open = [
        format!("open('{secret}')"),
        "open('/etc/shadow')".to_owned(),
        "open('/proc/1/environ').read()".to_owned(),
        "open('/proc/1/mem', 'r+b')".to_owned(),
        "os.listdir('/proc/1/root')".to_owned(),
        "os.listdir('/proc/1/fd')".to_owned(),
        format!("(os.symlink('{secret}', 'link'), open('link'))"),
        format!("open('../../..{secret}')"),
        "open('/usr/new', 'w')".to_owned(),
        "os.mkdir('/new')".to_owned(),
        "os.chroot('.')".to_owned(),
        "os.write(3, b'x')".to_owned(),
    ];
    assert_contained(&attempts("", &open.each_ref().map(String::as_str))).await;
    for warm in INTERPRETERS {
        let shown = output_of(&plain(warm).await, "print(open('/etc/passwd').read())").await;
        assert!(!shown.contains("root:"), "{shown}");
    }
}

#[tokio::test]
async fn network_and_sockets_are_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let dial = format!("socket.create_connection(('127.0.0.1', {port}), 1)");
    assert_contained(&attempts(
        "",
        &[
            &dial,
            "socket.create_connection(('169.254.169.254', 80), 1)",
            "socket.socket(socket.AF_UNIX)",
            "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
            "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
        ],
    ))
    .await;
}

#[tokio::test]
async fn other_processes_and_kernel_are_inaccessible() {
    let prelude = "libc = ctypes.CDLL(None, use_errno=True)\n\
                   def call(name, *arguments):\n    \
                       if getattr(libc, name)(*arguments) == -1:\n        \
                           raise OSError(ctypes.get_errno(), name)\n    \
                       return name\n";
    assert_contained(&attempts(
        prelude,
        &[
            "call('ptrace', 16, os.getppid(), 0, 0)",
            "call('unshare', 0x10000000)",
            "call('mount', b'x', b'/tmp', b'tmpfs', 0, None)",
            "call('umount2', b'/proc', 2)",
            "call('setuid', 0)",
            "call('process_vm_readv', os.getppid(), None, 0, None, 0, 0)",
            "call('syscall', 425, 1, None)",
            "call('syscall', 435, None, 0)",
            "call('memfd_create', b'x', 0)",
            "call('inotify_init')",
            "call('inotify_init1', 0)",
            "call('syscall', 447, 0)",
            "call('shmget', 0, 4096, 0o1600)",
            "call('semctl', 0, 0, 0)",
        ],
    ))
    .await;
    for warm in INTERPRETERS {
        let runner = plain(warm).await;
        let outcome = run(
            &runner,
            "import os\nfor pid in (-1, 1):\n try: os.kill(pid, 9)\n except OSError: pass",
        )
        .await;
        assert_eq!(outcome.exit_code, 0, "{outcome:?}");
        let outcome = run(&runner, "import os; os.kill(os.getpid(), 11)").await;
        assert_eq!(outcome.exit_code, 128 + 11);
    }
}

#[tokio::test]
async fn concurrent_scripts_are_isolated_from_each_other() {
    for warm in INTERPRETERS {
        let runner = plain(warm).await;
        let code = "import os, time\nopen('/tmp/mine', 'x').write('x')\n\
                    print(sorted(os.listdir('/tmp')), [p for p in os.listdir('/proc') if p.isdigit()])";
        let (one, other) = tokio::join!(output_of(&runner, code), output_of(&runner, code));
        assert_eq!(one, other);
        assert!(one.starts_with("['mine', 'script.py']"), "{one}");
    }
}

#[tokio::test]
async fn manipulated_interpreter_exit_does_not_affect_others() {
    for warm in INTERPRETERS {
        let runner = plain(warm).await;
        let outcome = run(&runner, "import os; print('x', flush=True); os._exit(5)").await;
        assert_eq!((outcome.stdout.as_str(), outcome.exit_code), ("x\n", 5));
        let late = "import atexit, sys\natexit.register(print, 'late')\n\
                    sys.settrace(lambda *a: None)\nsys.excepthook = None\nimport builtins\n\
                    builtins.print = None";
        assert_eq!(output_of(&runner, late).await, "late\n");
        assert_eq!(output_of(&runner, "print(1)").await, "1\n");
    }
}

#[tokio::test]
async fn unusual_call_id_is_accepted() {
    let runner = plain(true).await;
    let mut context = context();
    let odd: String = "../😀".chars().cycle().take(280).collect();
    context.tool_call_id = ToolCallId::new(odd).unwrap_or_else(|_| ToolCallId::generate());
    let outcome = runner.run(&script("print(1)"), &context).await.unwrap();
    assert_eq!(outcome.stdout, "1\n");
}
