//! Handlers killed during a call, without a shared journal.

use std::fs;

use rockbot_testkit::fixture::wait_until;
use rustix::process::Signal;

use crate::fleet::{Fleet, ProcessGroup};

#[tokio::test]
async fn non_idempotent_call_of_dead_handler_is_outcome_unknown() {
    let fleet = Fleet::new();
    let first = fleet.handler("handler-1").await;
    let command = r#"{"command": "echo started >> marker; echo $$ > pid; sleep 1000"}"#;
    let call = fleet.start(&["--json", "tools", "call", "bash", command]);
    let _group = ProcessGroup::from_file(&fleet, "pid").await;

    let mut second = fleet.handler("handler-2").await;
    first.send(Signal::KILL);
    let called = call.wait().await;
    called.assert_code(1);
    let result = called.json();
    assert_eq!(
        (&result["code"], &result["executed"]),
        (&"outcome_unknown".into(), &"unknown".into())
    );
    assert_eq!((&result["ok"], &result["isRetryable"]), (&false.into(), &false.into()));
    assert_eq!(result["ranOn"], "tool-handler/handler-2");
    let marker = fs::read_to_string(fleet.path("marker")).expect("the side effect");
    assert_eq!(marker, "started\n", "the command ran more than once");
    assert!(second.is_alive());
}

/// Waits until the first handler has the file open, which is visible on Linux only.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn read_only_call_of_dead_handler_is_retried() {
    let fleet = Fleet::new();
    // The handlers have different files: the search of the first one takes minutes.
    for (folder, text) in [("slow", ambiguous_text()), ("fast", "abba\n".to_owned())] {
        fs::create_dir(fleet.path(folder)).expect("a folder");
        fleet.write(&format!("{folder}/text.txt"), &text);
    }
    let folder = |name| fleet.path(name).display().to_string();
    let first = fleet.handler_in("handler-1", &folder("slow")).await;
    let search = r#"{"pattern": "a[ab]{2000}[c-z]|abba"}"#;
    let call = fleet.start(&["--json", "tools", "call", "search", search]);
    let open = format!("/proc/{}/fd", first.pid());
    let text = fleet.path("slow/text.txt").canonicalize().expect("it exists");
    let is_open = |entry: std::io::Result<fs::DirEntry>| {
        entry.and_then(|entry| fs::read_link(entry.path())).is_ok_and(|path| path == text)
    };
    wait_until("the search", || fs::read_dir(&open).expect("descriptors").any(is_open)).await;

    let _second = fleet.handler_in("handler-2", &folder("fast")).await;
    first.send(Signal::KILL);
    let called = call.wait().await;
    called.assert_code(0);
    let result = called.json();
    assert_eq!((&result["ok"], &result["executed"]), (&true.into(), &"yes".into()));
    assert_eq!(result["content"], "text.txt:1: abba\n");
    assert_eq!(result["ranOn"], "tool-handler/handler-2");
}

/// Returns a megabyte of pseudo-random `a` and `b` without `abba`, for which a pattern with many states
/// takes milliseconds per byte.
#[cfg(target_os = "linux")]
pub(crate) fn ambiguous_text() -> String {
    let mut state = 1_u32;
    let mut bit = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 31 == 1
    };
    let mut line = || (0..4000).map(|_| if bit() { 'a' } else { 'b' }).collect::<String>();
    let lines = (0..250).map(|_| line().replace("abba", "abab") + "\n");
    lines.collect()
}
