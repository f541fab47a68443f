//! Memory cgroups of scripts, under a kernel of the test's own: few machines delegate a memory controller to a test.
//!
//! The kernel is user-mode Linux with the machine's files, read-only. It runs this test again, in a delegated cgroup.
//! Distributions have it for x86-64 only.
#![cfg(target_arch = "x86_64")]

use std::{env, fs::File, os::unix::fs::PermissionsExt, process::Stdio, time::Duration};

use rockbot_scripts::{
    ScriptLimit,
    local::{LocalOptions, Mechanisms},
};
use tokio::{process::Command, time::timeout};

use crate::fixture::{run, runner};

/// Set by the init program of the kernel.
const INSIDE: &str = "ROCKBOT_TEST_INSIDE_UML";
const BOOT_AND_TEST: Duration = Duration::from_secs(240);
const MIB: u64 = 1024 * 1024;

/// Four processes write to pairs of sockets and do not read: about 200 MiB, in memory of the kernel.
const UNREAD: &str = r"
import os, signal, socket
full, fill = os.pipe()
held = []
child = next((number for number in range(3) if os.fork() == 0), None)
try:
    while True:
        pair = socket.socketpair()
        held.append(pair)
        for one in pair:
            one.setblocking(False)
            try:
                while True:
                    one.send(b'x' * 65536)
            except BlockingIOError:
                pass
except OSError:
    pass
os.write(fill, b'x')
if child is not None:
    signal.pause()
for _ in range(4):
    os.read(full, 1)
print('held')
";

fn options(warm: bool, cgroups: bool) -> LocalOptions {
    let mechanisms = Mechanisms { cgroups, ..Mechanisms::default() };
    LocalOptions {
        warm,
        mechanisms,
        memory_bytes: 64 * MIB,
        open_files: 256,
        disk_bytes: MIB,
        ..LocalOptions::default()
    }
}

fn cgroups_of_scripts() -> Vec<String> {
    let folder = env::var("ROCKBOT_TEST_CGROUP").unwrap();
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("script-")).collect()
}

/// Runs in the test's own kernel, as root with warm interpreters and as another user with cold ones.
async fn limits_hold() {
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        let plain = runner(options(true, false)).await;
        let isolation = plain.isolation().to_string();
        assert!(isolation.contains("kernel memory is not limited"), "{isolation}");
        let outcome = run(&plain, UNREAD).await;
        assert_eq!((outcome.stdout.as_str(), outcome.ended_by), ("held\n", None), "{outcome:?}");
        plain.close().await;
    }
    let limited = runner(options(is_root, true)).await;
    let isolation = limited.isolation().to_string();
    assert!(isolation.contains("memory cgroup"), "{isolation}");
    assert!(!isolation.contains("kernel memory"), "{isolation}");
    let outcome = run(&limited, UNREAD).await;
    assert_eq!(outcome.ended_by, Some(ScriptLimit::Memory), "{outcome:?}");
    // What the limits permit is kept, also after another script was ended.
    let code = "held = bytearray(20 << 20); open('file', 'wb').write(b'x' * 900_000); \
                print(open('/proc/self/cgroup').read())";
    let outcome = run(&limited, code).await;
    assert_eq!(outcome.ended_by, None, "{outcome:?}");
    assert!(outcome.stdout.contains("/script-"), "{outcome:?}");
    // Another one of the same process finds the same cgroup.
    let other = runner(options(is_root, true)).await;
    let isolation = other.isolation().to_string();
    assert!(isolation.contains("memory cgroup"), "{isolation}");
    other.close().await;
    limited.close().await;
    // The last one of each may still be ending.
    assert!(cgroups_of_scripts().len() <= 2, "{:?}", cgroups_of_scripts());
}

#[tokio::test]
async fn scripts_of_delegated_cgroup_cannot_exceed_memory_with_the_kernels_own() {
    if env::var_os(INSIDE).is_some() {
        return limits_hold().await;
    }
    let kernel = env::var("ROCKBOT_TEST_UML").expect("run `cargo xtask test`, which provides it");
    let folder = tempfile::tempdir().unwrap();
    let program = env::current_exe().unwrap();
    let test = "cgroups::scripts_of_delegated_cgroup_cannot_exceed_memory_with_the_kernels_own";
    // As root with the mark of systemd, and as the owner of the cgroup.
    let init = format!(
        r#"#!/bin/bash
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t tmpfs run /run
mount -t cgroup2 -o nsdelegate none /sys/fs/cgroup
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
export {INSIDE}=1 PATH=/usr/bin:/bin
for user in 0 1000; do
  export ROCKBOT_TEST_CGROUP=/sys/fs/cgroup/user-$user
  mkdir $ROCKBOT_TEST_CGROUP
  chown $user $ROCKBOT_TEST_CGROUP $ROCKBOT_TEST_CGROUP/cgroup.{{procs,subtree_control,threads}}
  if [ $user = 0 ]; then
    python3 -c 'import os; os.setxattr(os.environ["ROCKBOT_TEST_CGROUP"], "user.delegate", b"1")'
  fi
  (
    echo $BASHPID > $ROCKBOT_TEST_CGROUP/cgroup.procs
    cd /
    exec setpriv --reuid=$user --clear-groups {program} --exact {test} --nocapture
  ) 2>&1
  echo "user $user ended with $?"
done
echo o > /proc/sysrq-trigger
sleep 60
"#,
        program = program.display(),
    );
    let script = folder.path().join("init");
    std::fs::write(&script, init).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new(kernel);
    command
        .args(["mem=1500M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet"])
        .arg(format!("init={}", script.display()))
        .args(["con=null", "con0=null,fd:1"])
        .env("TMPDIR", folder.path())
        .stdin(Stdio::null())
        .stdout(File::create(folder.path().join("console")).unwrap())
        .kill_on_drop(true);
    let ended = timeout(BOOT_AND_TEST, command.status()).await;
    let output = std::fs::read(folder.path().join("console")).unwrap();
    let output = String::from_utf8_lossy(&output);
    assert!(ended.is_ok(), "the kernel did not end: {output}");
    for user in ["0", "1000"] {
        assert!(output.contains(&format!("user {user} ended with 0")), "{output}");
    }
    assert_eq!(output.matches("test result: ok. 1 passed").count(), 2, "{output}");
}
