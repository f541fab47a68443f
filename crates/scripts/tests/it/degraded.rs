//! Machines that allow less: what is claimed there is true.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rockbot_scripts::local::{LocalOptions, LocalRunner, Means, Sandbox, StartError};

use crate::bed::{printed, run, runner};

fn without_namespaces(bubblewrap: bool) -> LocalOptions {
    let means = Means { namespaces: false, bubblewrap, ..Means::default() };
    LocalOptions { means, ..LocalOptions::default() }
}

#[tokio::test]
async fn bubblewrap_takes_the_place_of_namespaces() {
    let runner = runner(without_namespaces(true)).await;
    assert!(runner.isolation().by.contains("bubblewrap"), "{}", runner.isolation());
    assert_eq!(printed(&runner, "print(1)").await, "1\n");
    let outcome = run(&runner, "open('/etc/shadow')").await;
    assert!(outcome.stderr.contains("FileNotFoundError"), "{}", outcome.stderr);
}

#[tokio::test]
async fn without_any_namespace_files_and_sockets_are_still_out_of_reach() {
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
        assert_eq!(printed(&runner, code).await, "x\n");
    }
}

/// What is tried without any namespace, each line told as `out` when it worked.
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
async fn without_any_namespace_nothing_of_the_machine_is_changed_or_called() {
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
        assert_eq!(printed(&runner, works).await, "0 False\n");
    }
}

#[tokio::test]
async fn where_landlock_is_missing_the_filter_keeps_signals_and_lengths_and_the_rest_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let options = without_namespaces(false);
    let means = Means { landlock: false, ..options.means };
    let runner = runner(LocalOptions { means, ..options.clone() }).await;
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
    let missing = runner.isolation().missing.join(", ");
    assert!(missing.contains("reading files"), "{missing}");
    assert!(!missing.contains("changing rights"), "{missing}");
    let neither = LocalOptions { means: Means { seccomp: false, ..means }, ..options };
    let told = self::runner(neither).await.isolation().to_string();
    assert!(told.contains("changing rights") && told.contains("devices"), "{told}");
}

#[tokio::test]
async fn a_runner_that_must_isolate_completely_does_not_start_where_it_cannot() {
    let options = LocalOptions { sandbox: Sandbox::Required, ..without_namespaces(false) };
    let refused = LocalRunner::start(options).await.unwrap_err();
    assert!(matches!(refused, StartError::Isolation { .. }), "{refused}");
    assert!(refused.to_string().contains("install bubblewrap"), "{refused}");
    let required = LocalOptions { sandbox: Sandbox::Required, ..LocalOptions::default() };
    assert!(runner(required).await.isolation().is_complete());
}

#[tokio::test]
async fn a_python_that_does_not_work_is_told_in_its_own_words() {
    let folder = tempfile::tempdir().unwrap();
    let python = folder.path().join("python3");
    std::fs::write(&python, "#!/bin/sh\necho no such library: libbroken >&2\nexit 127").unwrap();
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    let options = LocalOptions { python, ..LocalOptions::default() };
    let failed = LocalRunner::start(options).await.unwrap_err();
    assert!(failed.to_string().contains("no such library: libbroken"), "{failed}");
}
