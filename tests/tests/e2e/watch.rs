//! `rockbot watch` with the monitor user, and on a terminal.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::unix::ffi::OsStrExt,
    time::Duration,
};

use rockbot_bus::{Publication, PublishError, Subscription};
use rockbot_contracts::{
    BindingPattern, Envelope, InstanceId, QueueSpec, ToolCallId, ToolCancel,
    topology::{tool_cancel, tool_invoke},
};
use rockbot_testkit::fixture::{TEST_TIMEOUT, within_timeout};
use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};
use serde_json::Value;
use tokio::{
    process::{Child, Command},
    sync::watch,
    time::timeout,
};

use crate::{
    fleet::{Fleet, assert_says},
    identity::Guarded,
    process::Running,
};

const CALL: [&str; 4] = ["tools", "call", "read_file", r#"{"path": "notes.md"}"#];
const SECRET: &str = "the-bus-carries-each-call";

#[tokio::test]
async fn monitor_user_observes_call_from_request_to_reply() {
    let guarded = Guarded::start().await;
    guarded.fleet.write("notes.md", SECRET);
    let mut handler = guarded.program("rockbot-tool-handler", "tool-handler");
    handler.env("ROCKBOT_SERVICE__INSTANCE", "handler-1");
    let mut handler = Running::start(handler);
    handler.says("ready").await;

    let mut watch = guarded.program("rockbot", "monitor");
    watch.args(["watch", "--calls", "1"]);
    let mut watch = Running::start(watch);
    watch.says("watching RabbitMQ").await;
    guarded.cli(&CALL).await.assert_code(0);
    let seen = watch.ended().await;
    seen.assert_code(0);
    let events: Vec<Value> =
        seen.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [requested, replied] = &events[..] else { panic!("{}", seen.out) };
    assert_eq!((&requested["event"], &replied["event"]), (&"requested".into(), &"replied".into()));
    assert_eq!((&requested["call"], &requested["tool"]), (&replied["call"], &"read_file".into()));
    assert_eq!((&requested["agent"], &requested["state"]), (&"cli".into(), &"requested".into()));
    let user = format!("{}.cli", guarded.fleet.namespace);
    assert_eq!((&requested["user"], &requested["key"]), (&user.into(), &"tool.invoke".into()));
    assert_eq!((&replied["state"], &replied["executed"]), (&"ok".into(), &"yes".into()));
    assert_eq!(replied["handler"], "tool-handler/handler-1");
    assert!(replied["latencyMs"].as_f64().is_some_and(|latency| latency > 0.0), "{replied}");
    assert!(!seen.out.contains("notes.md") && !seen.out.contains(SECRET), "{}", seen.out);

    // Nothing else is open to that user, and watching is open to no other.
    let monitor = guarded.bus("monitor").await;
    let cancel = ToolCancel { tool_call_id: ToolCallId::generate(), reason: String::new() };
    let cancel = Publication::mandatory(tool_cancel(), Envelope::from_payload(&cancel));
    let sent =
        within_timeout("a refusal", monitor.publish(cancel.within(Duration::from_secs(5)))).await;
    let refused = sent.expect_err("it may not publish").to_string();
    assert_says(&refused, &["ACCESS_REFUSED"]);
    let people = vec![BindingPattern::new("user.message.*")];
    let people = QueueSpec::monitor(&InstanceId::generate(), people);
    let refused = monitor.consume(Subscription::new(people, 1)).await.expect_err("not its own");
    assert_says(&refused.to_string(), &["ACCESS_REFUSED"]);
    let refused = guarded.cli(&["watch"]).await;
    refused.assert_code(69);
    assert_says(&refused.err, &["ACCESS_REFUSED", ".monitor"]);
    assert!(handler.is_alive());
}

#[tokio::test]
async fn watch_keeps_unserved_calls_unroutable() {
    let fleet = Fleet::new();
    fleet.write("notes.md", SECRET);
    let mut watch = fleet.start(&["watch", "--json"]);
    watch.says("watching").await;
    let bus = fleet.bus(|_| {}).await;
    let request = Envelope::raw("ToolInvokeRequest", b"{}".to_vec());
    let asked =
        within_timeout("an error", bus.publish(Publication::mandatory(tool_invoke(), request)))
            .await;
    assert!(matches!(asked, Err(PublishError::Unroutable { .. })), "{asked:?}");

    let _handler = fleet.handler("handler-1").await;
    loop {
        tokio::select! {
            () = watch.prints(r#""event":"requested""#) => break,
            called = fleet.run(&CALL) => called.assert_code(0),
        }
    }
    watch.send(Signal::TERM);
    watch.ended().await.assert_code(0);
}

/// A watch on a terminal of its own.
struct Terminal {
    /// Kept open, so that its modes can be read when the command has left.
    theirs: File,
    ours: File,
    shown: watch::Receiver<String>,
    child: Child,
}

impl Terminal {
    fn of(mut command: Command) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo terminal");
        grantpt(&ours).expect("granted");
        unlockpt(&ours).expect("unlocked");
        let size = Winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&ours, size).expect("sized");
        let name = ptsname(&ours, Vec::new()).expect("a name");
        let path = std::ffi::OsStr::from_bytes(name.as_bytes());
        let theirs = OpenOptions::new().read(true).write(true).open(path).expect("the other end");
        let end = || theirs.try_clone().expect("one more descriptor");
        command.env("TERM", "xterm-256color").stdin(end()).stdout(end()).stderr(end());
        let child = command.kill_on_drop(true).spawn().expect("it starts");
        drop(command);
        let ours = File::from(ours);
        let mut screen = ours.try_clone().expect("one more descriptor");
        let (sender, shown) = watch::channel(String::new());
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = screen.read(&mut piece) {
                let text = String::from_utf8_lossy(&piece[..length]).into_owned();
                sender.send_modify(|shown| shown.push_str(&text));
            }
        });
        Self { theirs, ours, shown, child }
    }

    /// Waits for a word: only what is new on the screen is sent, and mostly that is not the space
    /// between words.
    async fn shows(&mut self, word: &str) {
        let seen = self.shown.wait_for(|shown| shown.contains(word));
        let found = matches!(timeout(TEST_TIMEOUT, seen).await, Ok(Ok(_)));
        assert!(found, "never showed {word:?}:\n{:?}", *self.shown.borrow());
    }

    fn types(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).expect("typed");
    }

    fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.theirs).expect("a terminal").local_modes;
        !modes.contains(LocalModes::ICANON) && !modes.contains(LocalModes::ECHO)
    }

    fn send(&self, signal: Signal) {
        let id = self.child.id().expect("it still runs");
        kill_process(Pid::from_raw(id.cast_signed()).expect("a process id"), signal).expect("sent");
    }

    /// Waits for its end, after which the terminal must be as it was.
    async fn given_back(mut self) {
        let status = within_timeout("the end", self.child.wait()).await.expect("it was waited for");
        // Leaves the other screen, and shows the cursor.
        self.shows("\u{1b}[?1049l").await;
        self.shows("\u{1b}[?25h").await;
        assert_eq!(status.code(), Some(0), "{:?}", *self.shown.borrow());
        assert!(!self.is_raw(), "the terminal was left raw");
    }
}

#[tokio::test]
async fn watch_terminal_shows_call_and_is_restored() {
    let fleet = Fleet::new();
    fleet.write("notes.md", SECRET);
    let _handler = fleet.handler("handler-1").await;
    let watch = |more: &[&str]| {
        let mut command = fleet.program("rockbot");
        command.arg("watch").args(more);
        Terminal::of(command)
    };
    let mut table = watch(&[]);
    table.shows("live,").await;
    assert!(table.is_raw());
    fleet.run(&CALL).await.assert_code(0);
    table.shows("tool-handler/handler-1").await;
    table.types("\r");
    table.shows("session").await;
    table.shows("executed:").await;
    assert!(!table.shown.borrow().contains(SECRET));
    table.types("q");
    table.given_back().await;

    // Ctrl-C is a key here, and a signal is a signal.
    let mut by_key = watch(&[]);
    by_key.shows("live,").await;
    by_key.types("\u{3}");
    by_key.given_back().await;
    for signal in [Signal::TERM, Signal::INT] {
        let mut by_signal = watch(&[]);
        by_signal.shows("live,").await;
        by_signal.send(signal);
        by_signal.given_back().await;
    }

    let mut with_content = watch(&["--content"]);
    with_content.shows("live,").await;
    fleet.run(&CALL).await.assert_code(0);
    with_content.shows("handler-1").await;
    with_content.types("\r");
    with_content.shows(SECRET).await;
    with_content.types("q");
    with_content.given_back().await;
}

#[tokio::test]
async fn unwatchable_bus_is_a_usage_error() {
    let fleet = Fleet::new();
    let mut embedded = fleet.bare_program("rockbot");
    embedded.args(["watch"]);
    let told = Running::start(embedded).ended().await;
    told.assert_code(64);
    assert_says(&told.err, &["--bus"]);
    let told = fleet.run(&["watch", "--state", "faild"]).await;
    told.assert_code(64);
    assert_says(&told.err, &["faild", "failed"]);
    let over = fleet.run(&["watch", "--json", "--for", "1"]).await;
    over.assert_code(0);
    assert_eq!(over.out, "");
}
