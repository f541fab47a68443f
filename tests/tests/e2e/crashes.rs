//! Handlers killed during a call, without a shared journal.

use std::fs;

use rockbot_testkit::fixture::wait_until;
use rustix::process::Signal;

use crate::fleet::{Fleet, Group};

#[tokio::test]
async fn non_idempotent_call_of_dead_handler_is_outcome_unknown() {
    let fleet = Fleet::new();
    let first = fleet.handler("handler-1").await;
    let command = r#"{"command": "echo started >> marker; echo $$ > pid; sleep 1000"}"#;
    let call = fleet.start(&["--json", "tools", "call", "bash", command]);
    let _group = Group::from_file(&fleet, "pid").await;

    let mut second = fleet.handler("handler-2").await;
    first.send(Signal::KILL);
    let called = call.ended().await;
    called.assert_code(1);
    let said = called.json();
    assert_eq!((&said["code"], &said["executed"]), (&"outcome_unknown".into(), &"unknown".into()));
    assert_eq!((&said["ok"], &said["isRetryable"]), (&false.into(), &false.into()));
    assert_eq!(said["ranOn"], "tool-handler/handler-2");
    let marker = fs::read_to_string(fleet.path("marker")).expect("the side effect");
    assert_eq!(marker, "started\n", "the command ran more than once");
    assert!(second.is_alive());
}

/// The event is that the first handler has the file open, which only Linux tells.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn read_only_call_of_dead_handler_is_retried() {
    let fleet = Fleet::new();
    // One name, two folders: where the first handler works, the search takes minutes.
    for (folder, text) in [("slow", tangle()), ("quick", "abba\n".to_owned())] {
        fs::create_dir(fleet.path(folder)).expect("a folder");
        fleet.write(&format!("{folder}/text.txt"), &text);
    }
    let folder = |name| fleet.path(name).display().to_string();
    let first = fleet.handler_in("handler-1", &folder("slow")).await;
    let search = r#"{"pattern": "a[ab]{2000}[c-z]|abba"}"#;
    let call = fleet.start(&["--json", "tools", "call", "search", search]);
    let open = format!("/proc/{}/fd", first.pid());
    let text = fleet.path("slow/text.txt").canonicalize().expect("it exists");
    let reads = |entry: std::io::Result<fs::DirEntry>| {
        entry.and_then(|entry| fs::read_link(entry.path())).is_ok_and(|path| path == text)
    };
    wait_until("the search", || fs::read_dir(&open).expect("descriptors").any(reads)).await;

    let _second = fleet.handler_in("handler-2", &folder("quick")).await;
    first.send(Signal::KILL);
    let called = call.ended().await;
    called.assert_code(0);
    let said = called.json();
    assert_eq!((&said["ok"], &said["executed"]), (&true.into(), &"yes".into()));
    assert_eq!(said["content"], "text.txt:1: abba\n");
    assert_eq!(said["ranOn"], "tool-handler/handler-2");
}

/// A megabyte of `a` and `b` without order and without `abba`, which makes a pattern with many
/// states take milliseconds a byte.
#[cfg(target_os = "linux")]
pub(crate) fn tangle() -> String {
    let mut state = 1_u32;
    let mut bit = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 31 == 1
    };
    let mut line = || (0..4000).map(|_| if bit() { 'a' } else { 'b' }).collect::<String>();
    let lines = (0..250).map(|_| line().replace("abba", "abab") + "\n");
    lines.collect()
}
