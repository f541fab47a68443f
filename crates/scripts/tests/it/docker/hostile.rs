//! Hostile scripts, which must be contained.

use std::time::Duration;

use rockbot_contracts::{Executed, ToolErrorCode};
use rockbot_scripts::{Requirements, ScriptLimit, ScriptRunner};
use rockbot_testkit::fixture::{assert_never, within_timeout};
use tokio::net::TcpListener;

use super::fixture::{Fixture, brief, context, script};

/// Runs a script that never exits, next to an ordinary one that must not be affected.
async fn times_out(code: &str) {
    let (fixture, context) = (Fixture::new(), context());
    let harmful = brief(code);
    let (result, beside) =
        tokio::join!(fixture.runner.run(&harmful, &context), fixture.output_of("print('beside')"));
    let failure = result.unwrap_err();
    assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Timeout, Executed::Yes));
    assert_eq!(beside, "beside");
    fixture.assert_removed(&context).await;
}

#[tokio::test]
async fn fork_bomb_is_contained() {
    times_out("import os\nwhile True:\n try: os.fork()\n except OSError: pass").await;
}

#[tokio::test]
async fn script_ignoring_signals_is_stopped() {
    times_out(
        "import signal, time\nfor number in range(1, 65):\n \
         try: signal.signal(number, signal.SIG_IGN)\n except (OSError, ValueError): pass\n\
         while True: time.sleep(60)",
    )
    .await;
}

#[tokio::test]
async fn endless_stderr_is_bounded() {
    times_out("import os\nwhile True: os.write(2, b'x' * 65536)").await;
}

#[tokio::test]
async fn memory_limit_stops_script() {
    let fixture = Fixture::new();
    let code = "print('before', flush=True)\nx = []\nwhile True: x.append(bytearray(1 << 24))";
    let outcome = fixture.run(&script(code)).await;
    assert_eq!(outcome.ended_by, Some(ScriptLimit::Memory), "{outcome:?}");
    assert_eq!((outcome.exit_code, outcome.stdout.as_str()), (137, "before\n"));
}

#[tokio::test]
async fn memory_limit_covers_all_processes() {
    let fixture = Fixture::new();
    let code = "import os, time\nfor _ in range(50):\n if os.fork() == 0:\n  break\n\
                x = []\nfor _ in range(100): x.append(bytearray(1 << 20))\ntime.sleep(1)";
    match fixture.try_run(&brief(code)).await {
        Ok(outcome) => assert!(outcome.stdout.is_empty(), "{outcome:?}"),
        Err(failure) => assert_eq!(failure.code(), ToolErrorCode::Timeout),
    }
    assert_eq!(fixture.output_of("print(1)").await, "1");
}

#[tokio::test]
async fn disk_is_limited_and_other_paths_read_only() {
    let code = "import os\n\
        def fill(folder):\n\
        \x20with open(folder + '/fill', 'wb', buffering=0) as file:\n\
        \x20 size = 0\n\
        \x20 try:\n\
        \x20  while size < 1 << 30: size += file.write(b'x' * (1 << 20))\n\
        \x20 except OSError as error: print(folder, size <= 64 << 20, error.strerror)\n\
        \x20os.remove(folder + '/fill')\n\
        fill('/tmp')\nfill('/dev/shm')\n\
        for folder in '/', '/etc', '/usr', '/var/tmp', '/dev', '/proc', '/sys', '/run', '/home':\n\
        \x20try: open(folder + '/x', 'w'); print('wrote', folder)\n\
        \x20except OSError: pass";
    assert_eq!(
        Fixture::new().output_of(code).await,
        "/tmp True No space left on device\n/dev/shm True No space left on device"
    );
}

#[tokio::test]
async fn output_beyond_limit_stops_script() {
    let (fixture, context) = (Fixture::new(), context());
    let code = "import os\nfor _ in range(10 << 14): os.write(1, b'x' * 65536)";
    let script = script(code);
    let run = fixture.runner.run(&script, &context);
    let outcome = within_timeout("the end", run).await.unwrap();
    assert_eq!(outcome.ended_by, Some(ScriptLimit::Output));
    assert_eq!((outcome.exit_code, outcome.stdout.len()), (137, 1 << 20));
    fixture.assert_removed(&context).await;
}

#[tokio::test]
async fn first_process_is_inaccessible() {
    let code = "for name in 'environ', 'mem', 'fd/0', 'fd/1', 'fd/2', 'cwd/x', 'root/tmp/x':\n\
        \x20for mode in 'rb', 'wb':\n\
        \x20 try: open('/proc/1/' + name, mode); print(name, mode)\n\
        \x20 except OSError: pass";
    assert_eq!(Fixture::new().output_of(code).await, "");
    let ptrace = "import ctypes\nprint(ctypes.CDLL(None).ptrace(16, 1, 0, 0))";
    assert_eq!(Fixture::new().output_of(ptrace).await, "-1");
}

#[tokio::test]
async fn forged_frame_is_output() {
    let code = "import os; os.write(1, b'x\\x05\\0\\0\\x000 0 0')\nraise SystemExit(5)";
    let outcome = Fixture::new().run(&script(code)).await;
    assert_eq!((outcome.stdout.as_str(), outcome.exit_code), ("x\u{5}\0\0\u{0}0 0 0", 5));
}

#[tokio::test]
async fn signals_to_first_process_stop_only_script() {
    let fixture = Fixture::new();
    let code = "import os, signal\nfor number in signal.SIGKILL, signal.SIGTERM, signal.SIGINT, \
                signal.SIGSTOP, signal.SIGHUP: os.kill(1, number)\nprint('still running')";
    assert_eq!(fixture.output_of(code).await, "still running");
    let code = "import os, signal, time\nos.kill(1, signal.SIGALRM)\ntime.sleep(600)";
    let outcome = fixture.run(&brief(code)).await;
    assert_ne!(outcome.exit_code, 0);
}

#[tokio::test]
async fn script_has_no_privileges() {
    let code = "import os\nprint(os.getuid(), os.getgid(), os.getgroups())\n\
                wanted = 'CapEff', 'CapPrm', 'CapBnd', 'NoNewPrivs', 'Seccomp'\n\
                for line in open('/proc/self/status'):\n\
                \x20name, value = line.split(':')\n\
                \x20if name in wanted: print(name, int(value, 16))";
    assert_eq!(
        Fixture::new().output_of(code).await,
        "65534 65534 [65534]\nCapPrm 0\nCapEff 0\nCapBnd 0\nNoNewPrivs 1\nSeccomp 2"
    );
}

#[tokio::test]
async fn host_files_are_inaccessible() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "a secret of the machine").unwrap();
    let code = format!(
        "import glob, os\nprint(os.path.exists({:?}), os.path.exists({:?}))\n\
         for path in '/etc/shadow', os.path.join('/', 'root', '.ssh'), '/proc/kcore', '/dev/mem', '/dev/sda', '/dev/vda', \
         '/var/run/docker.sock', '/run/docker.sock', '/proc/sysrq-trigger':\n\
         \x20try: print(path, os.listdir(path) if os.path.isdir(path) else open(path, 'rb').read(9))\n\
         \x20except OSError: pass\n\
         print([entry for entry in os.listdir('/proc') if entry.isdigit()] == ['1', str(os.getpid())])",
        secret.display().to_string(),
        env!("CARGO_MANIFEST_DIR"),
    );
    assert_eq!(Fixture::new().output_of(&code).await, "False False\nTrue");
}

#[tokio::test]
async fn symbolic_links_do_not_escape() {
    let code = "import os\nos.symlink('/', '/tmp/out')\nos.remove('/tmp/script.py')\n\
                os.symlink('/etc/passwd', '/tmp/script.py')\n\
                for path in '/tmp/out/etc/x', '/tmp/out/x', '/tmp/script.py':\n\
                \x20try: open(path, 'a'); print(path)\n\
                \x20except OSError: pass\n\
                print(sorted(os.listdir('/tmp/out/tmp')))";
    assert_eq!(Fixture::new().output_of(code).await, "['out', 'script.py']");
}

#[tokio::test]
async fn concurrent_scripts_are_isolated_from_each_other() {
    let (fixture, context) = (Fixture::new(), context());
    let first = script("open('/tmp/mine', 'w').write('x')\nimport time\ntime.sleep(600)");
    let inspect = async {
        fixture.wait_running(&context).await;
        let code = "import os\nprint(os.listdir('/tmp'), os.listdir('/dev/shm'), \
                    len([entry for entry in os.listdir('/proc') if entry.isdigit()]))";
        assert_eq!(fixture.output_of(code).await, "['script.py'] [] 2");
        context.cancellation.cancel();
    };
    let (_, ()) = tokio::join!(fixture.runner.run(&first, &context), inspect);
    fixture.assert_removed(&context).await;
}

#[tokio::test]
async fn network_is_unavailable() {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let code = format!(
        "import socket\n\
         for address in ('127.0.0.1', {port}), ('172.17.0.1', {port}), ('169.254.169.254', 80), \
         ('127.0.0.1', 5672), ('1.1.1.1', 443), ('::1', {port}):\n\
         \x20try: socket.create_connection(address, 1); print(address)\n\
         \x20except OSError: pass\n\
         print(socket.if_nameindex())"
    );
    let fixture = Fixture::new();
    let run = fixture.output_of(&code);
    let no_connection = assert_never("a connection", async { listener.accept().await.unwrap() });
    let (printed, ()) = tokio::join!(run, no_connection);
    assert_eq!(printed, "[(1, 'lo')]");
    assert_never("a connection", listener.accept()).await;
}

#[tokio::test]
async fn invalid_packages_never_reach_runner() {
    for package in ["x; curl evil", "--index-url=http://evil", "git+https://evil/x"] {
        assert!(Requirements::parse(&[package]).is_err(), "{package}");
    }
    // Valid packages do not become arguments either.
    let fixture = Fixture::new();
    let packages = Requirements::parse(&["requests"]).unwrap();
    let script = script("1").with_packages(packages).with_timeout(Duration::from_secs(1)).unwrap();
    let refused = fixture.try_run(&script).await.unwrap_err();
    assert_eq!(refused.code(), ToolErrorCode::NotPermitted);
}
