//! Machines with fewer isolation mechanisms: the reported gaps are correct.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rockbot_scripts::local::{LocalOptions, LocalRunner, Mechanisms, Sandbox, StartError};

use crate::fixture::{output_of, run, runner};

fn without_namespaces(bubblewrap: bool) -> LocalOptions {
    let mechanisms = Mechanisms { namespaces: false, bubblewrap, ..Mechanisms::default() };
    LocalOptions { mechanisms, ..LocalOptions::default() }
}

#[tokio::test]
async fn bubblewrap_replaces_own_namespaces() {
    let runner = runner(without_namespaces(true)).await;
    assert!(runner.isolation().mechanism.contains("bubblewrap"), "{}", runner.isolation());
    assert_eq!(output_of(&runner, "print(1)").await, "1\n");
    let outcome = run(&runner, "open('/etc/shadow')").await;
    assert!(outcome.stderr.contains("FileNotFoundError"), "{}", outcome.stderr);
}

#[tokio::test]
async fn files_and_sockets_are_blocked_without_namespaces() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "s").unwrap();
    for warm in [true, false] {
        let runner = runner(LocalOptions { warm, ..without_namespaces(false) }).await;
        assert!(!runner.isolation().is_complete());
        for denied in [
            format!("open('{}')", secret.display()),
            "open('/etc/passwd')".to_owned(),
            "__import__('socket').socket()".to_owned(),
            "__import__('os').kill(__import__('os').getppid(), 9)".to_owned(),
        ] {
            let outcome = run(&runner, &denied).await;
            assert!(outcome.stderr.contains("PermissionError"), "{denied}: {outcome:?}");
        }
        let code = "open('x', 'w').write('x'); print(open('x').read())";
        assert_eq!(output_of(&runner, code).await, "x\n");
    }
}

/// Returns a script that prints `out` for each attempt that succeeds.
fn tries(runner_sees: &str, attempts: &[&str]) -> String {
    let list: Vec<_> = attempts.iter().map(|attempt| format!("lambda: {attempt}")).collect();
    format!(
        "import ctypes, fcntl, os, signal, socket, sys\n\
         secret = '{runner_sees}'\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         def call(name, *arguments):\n    \
             if getattr(libc, name)(*arguments) == -1:\n        \
                 raise OSError(ctypes.get_errno(), name)\n\
         for number, attempt in enumerate([{}]):\n    \
             try: print('out', number, attempt())\n    \
             except OSError as error: print(number, error)",
        list.join(",\n")
    )
}

#[tokio::test]
async fn machine_is_unchanged_without_namespaces() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let code = tries(
        &secret.display().to_string(),
        &[
            "os.chmod(secret, 0)",
            "os.chmod(secret, 0, follow_symlinks=False)",
            "os.chown(secret, 7, 7)",
            "os.lchown(secret, 7, 7)",
            "os.utime(secret, (0, 0))",
            "os.setxattr(secret, 'user.rockbot', b'x')",
            "os.truncate(secret, 1)",
            "os.fchmod(os.open(sys.executable, os.O_RDONLY), 0o755)",
            "os.utime(os.open(sys.executable, os.O_RDONLY))",
            "fcntl.ioctl(os.open(sys.executable, os.O_RDONLY), 0x40086602, bytes(8))",
            "call('syscall', 452, -100, secret.encode(), 0, 0)",
            "os.listdir('/dev')",
            "os.open('/dev/kmsg', os.O_RDONLY)",
            "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
            "socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW | socket.SOCK_CLOEXEC)",
        ],
    );
    let before = std::fs::metadata(&secret).unwrap();
    let unchanged = |way: &str| {
        let after = std::fs::metadata(&secret).unwrap();
        assert_eq!(before.permissions(), after.permissions(), "{way}");
        assert_eq!(before.modified().unwrap(), after.modified().unwrap(), "{way}");
        assert_eq!((before.len(), before.uid()), (after.len(), after.uid()), "{way}");
    };
    for warm in [true, false] {
        let runner = runner(LocalOptions { warm, ..without_namespaces(false) }).await;
        let outcome = run(&runner, &code).await;
        assert_eq!((outcome.exit_code, outcome.stdout.contains("out")), (0, false), "{outcome:?}");
        unchanged(&outcome.stdout);
        let works = "import asyncio, socket, os\n\
                     socket.socketpair(); socket.socketpair(type=socket.SOCK_SEQPACKET)\n\
                     open('/dev/null', 'w').write('x'); open('/dev/urandom', 'rb').read(1)\n\
                     async def main(): print(len(open('/dev/fd/0').read()), os.isatty(0))\n\
                     asyncio.run(main())";
        assert_eq!(output_of(&runner, works).await, "0 False\n");
    }
}

#[tokio::test]
async fn missing_landlock_is_partly_covered_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let options = without_namespaces(false);
    let mechanisms = Mechanisms { landlock: false, ..options.mechanisms };
    let runner = runner(LocalOptions { mechanisms, ..options.clone() }).await;
    let (parent, file) = ("os.getppid()", "os.open(secret, os.O_RDONLY)");
    let outcome = run(
        &runner,
        &tries(
            &secret.display().to_string(),
            &[
                "os.truncate(secret, 1)",
                "os.open(secret, os.O_RDONLY | os.O_TRUNC)",
                "os.open(secret, os.O_ACCMODE | os.O_TRUNC)",
                &format!("call('tgkill', {parent}, {parent}, 0)"),
                &format!("fcntl.fcntl({file}, fcntl.F_SETOWN, {parent})"),
                &format!("fcntl.fcntl({file}, fcntl.F_SETSIG, 9)"),
            ],
        ),
    )
    .await;
    assert_eq!((outcome.exit_code, outcome.stdout.contains("out")), (0, false), "{outcome:?}");
    assert_eq!(std::fs::read(&secret).unwrap(), b"secret");
    let gaps = runner.isolation().gaps.join(", ");
    assert!(gaps.contains("reading files"), "{gaps}");
    assert!(!gaps.contains("changing permissions"), "{gaps}");
    let neither =
        LocalOptions { mechanisms: Mechanisms { seccomp: false, ..mechanisms }, ..options };
    let isolation = self::runner(neither).await.isolation().to_string();
    assert!(
        isolation.contains("changing permissions") && isolation.contains("devices"),
        "{isolation}"
    );
}

#[tokio::test]
async fn required_isolation_fails_start_when_incomplete() {
    let options = LocalOptions { sandbox: Sandbox::Required, ..without_namespaces(false) };
    let refused = LocalRunner::start(options).await.unwrap_err();
    assert!(matches!(refused, StartError::Isolation { .. }), "{refused}");
    assert!(refused.to_string().contains("install bubblewrap"), "{refused}");
    let required = LocalOptions { sandbox: Sandbox::Required, ..LocalOptions::default() };
    assert!(runner(required).await.isolation().is_complete());
}

#[tokio::test]
async fn broken_python_error_includes_its_stderr() {
    let folder = tempfile::tempdir().unwrap();
    let python = folder.path().join("python3");
    std::fs::write(&python, "#!/bin/sh\necho no such library: libbroken >&2\nexit 127").unwrap();
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    let options = LocalOptions { python, ..LocalOptions::default() };
    let failed = LocalRunner::start(options).await.unwrap_err();
    assert!(failed.to_string().contains("no such library: libbroken"), "{failed}");
}
