//! `rockbot watch` with the monitor user, and on a terminal.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::unix::ffi::OsStrExt,
    pin::pin,
    time::Duration,
};

use rockbot_bus::{Publication, PublishError, Subscription};
use rockbot_contracts::{
    BindingPattern, Envelope, InstanceId, QueueSpec, ToolCallId, ToolCancel,
    identity::User,
    topology::{tool_cancel, tool_invoke},
};
use rockbot_testkit::{
    InspectionProxy,
    documented_output::sample,
    fixture::{TEST_TIMEOUT, within_timeout},
    inspection_proxy::InspectionRule,
};
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
    fleet::{Fleet, assert_contains},
    identity::SecuredFleet,
    process::{Exit, Running},
};

const CALL: [&str; 4] = ["tools", "call", "read_file", r#"{"path": "notes.md"}"#];
const SECRET: &str = "the-bus-carries-each-call";

/// Makes calls until one is shown, within the time limit of its output.
async fn call_until_shown(watch: &mut Running, call: impl AsyncFn() -> Exit) {
    let mut shown = pin!(watch.expect_output(r#""event":"requested""#));
    loop {
        tokio::select! {
            () = &mut shown => break,
            called = call() => called.assert_code(0),
        }
    }
}

#[tokio::test]
async fn monitor_user_observes_call_from_request_to_reply() {
    let secured = SecuredFleet::start().await;
    secured.fleet.write("notes.md", SECRET);
    let mut handler = secured.program("rockbot-tool-handler", "tool-handler");
    handler.env("ROCKBOT_SERVICE__INSTANCE", "handler-1");
    let mut handler = Running::start(handler);
    handler.expect_log("ready").await;

    let mut watch = secured.program("rockbot", "monitor");
    watch.args(["watch", "--calls", "1"]);
    let mut watch = Running::start(watch);
    watch.expect_log("watching RabbitMQ").await;
    secured.cli(&CALL).await.assert_code(0);
    let seen = watch.wait().await;
    seen.assert_code(0);
    let events: Vec<Value> =
        seen.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [requested, replied] = &events[..] else { panic!("{}", seen.stdout) };
    assert_eq!((&requested["event"], &replied["event"]), (&"requested".into(), &"replied".into()));
    assert_eq!((&requested["call"], &requested["tool"]), (&replied["call"], &"read_file".into()));
    assert_eq!((&requested["agent"], &requested["state"]), (&"cli".into(), &"requested".into()));
    let user = format!("{}.cli", secured.fleet.namespace);
    assert_eq!((&requested["user"], &requested["key"]), (&user.into(), &"tool.invoke".into()));
    assert_eq!((&replied["state"], &replied["executed"]), (&"ok".into(), &"yes".into()));
    assert_eq!(replied["handler"], "tool-handler/handler-1");
    assert!(replied["latencyMs"].as_f64().is_some_and(|latency| latency > 0.0), "{replied}");
    assert!(!seen.stdout.contains("notes.md") && !seen.stdout.contains(SECRET), "{}", seen.stdout);

    // The monitor user has no other permissions, and other users cannot watch.
    let monitor = secured.bus("monitor").await;
    let cancel = ToolCancel { tool_call_id: ToolCallId::generate(), reason: String::new() };
    let cancel = Publication::mandatory(tool_cancel(), Envelope::from_payload(&cancel));
    let sent =
        within_timeout("a refusal", monitor.publish(cancel.within(Duration::from_secs(5)))).await;
    let refused = sent.expect_err("no permission to publish").to_string();
    assert_contains(&refused, &["ACCESS_REFUSED"]);
    let messages = vec![BindingPattern::new("user.message.*")];
    let messages = QueueSpec::monitor(&InstanceId::generate(), messages);
    let refused = monitor.consume(Subscription::new(messages, 1)).await;
    let refused = refused.expect_err("no permission to bind");
    assert_contains(&refused.to_string(), &["ACCESS_REFUSED"]);
    let refused = secured.cli(&["watch"]).await;
    refused.assert_code(69);
    assert_contains(&refused.stderr, &["ACCESS_REFUSED", ".monitor"]);
    assert!(handler.is_alive());
}

/// The proxy refuses inspections as brokers from 4.2.6 on do.
#[tokio::test]
async fn watch_lists_requests_whose_queues_may_not_be_inspected() {
    let secured = SecuredFleet::start().await;
    secured.fleet.write("notes.md", SECRET);
    let mut handler = Running::start(secured.program("rockbot-tool-handler", "tool-handler"));
    handler.expect_log("ready").await;
    let namespace = &secured.fleet.namespace;
    for rule in [InspectionRule::MayDeclare, InspectionRule::AnyRight] {
        let url = secured.url("monitor");
        let proxy = InspectionProxy::start(&url, namespace, &User::Monitor, rule).await;
        let mut watch = secured.program_at("rockbot", proxy.url().to_owned());
        watch.arg("watch");
        let mut watch = Running::start(watch);
        watch.expect_log("watching RabbitMQ").await;
        watch.expect_log("requests of script.invoke, tool.invoke, tool.invoke.mcp").await;
        watch.expect_log("are shown after their handler's first reply").await;
        // The first reply shows that the queue exists, and later requests are observed.
        call_until_shown(&mut watch, async || secured.cli(&CALL).await).await;
        watch.send(Signal::TERM);
        watch.wait().await.assert_code(0);
    }
    // A user with every permission is not refused on any broker.
    let mut watch = secured.program("rockbot", "foreign");
    watch.arg("watch");
    let mut watch = Running::start(watch);
    watch.expect_log("watching RabbitMQ").await;
    watch.send(Signal::TERM);
    let watched = watch.wait().await;
    watched.assert_code(0);
    assert!(!watched.stderr.contains("are shown after"), "{}", watched.stderr);
}

#[tokio::test]
async fn watch_keeps_unserved_calls_unroutable() {
    let fleet = Fleet::new();
    fleet.write("notes.md", SECRET);
    let mut watch = fleet.start(&["watch", "--json"]);
    watch.expect_log("watching").await;
    let bus = fleet.bus(|_| {}).await;
    let request = Envelope::raw("ToolInvokeRequest", b"{}".to_vec());
    let outcome =
        within_timeout("an error", bus.publish(Publication::mandatory(tool_invoke(), request)))
            .await;
    assert!(matches!(outcome, Err(PublishError::Unroutable { .. })), "{outcome:?}");

    let _handler = fleet.handler("handler-1").await;
    call_until_shown(&mut watch, async || fleet.run(&CALL).await).await;
    watch.send(Signal::TERM);
    watch.wait().await.assert_code(0);
}

/// A program on a pseudo terminal.
struct Terminal {
    /// The program's side, kept open to read the modes after its exit.
    terminal: File,
    control: File,
    output: watch::Receiver<String>,
    child: Child,
}

impl Terminal {
    fn spawn(mut command: Command) -> Self {
        let control = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo terminal");
        grantpt(&control).expect("granted");
        unlockpt(&control).expect("unlocked");
        let size = Winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&control, size).expect("sized");
        let name = ptsname(&control, Vec::new()).expect("a name");
        let path = std::ffi::OsStr::from_bytes(name.as_bytes());
        let terminal = OpenOptions::new().read(true).write(true).open(path).expect("opened");
        let stream = || terminal.try_clone().expect("a descriptor");
        command.env("TERM", "xterm-256color").stdin(stream()).stdout(stream()).stderr(stream());
        let child = command.kill_on_drop(true).spawn().expect("started");
        drop(command);
        let control = File::from(control);
        let mut reader = control.try_clone().expect("a descriptor");
        let (sender, output) = watch::channel(String::new());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                sender.send_modify(|output| output.push_str(&text));
            }
        });
        Self { terminal, control, output, child }
    }

    /// Waits until a word was sent to the screen. Updates contain changed cells only, so spaces between
    /// words may be missing.
    async fn expect_word(&mut self, word: &str) {
        let contains = self.output.wait_for(|output| output.contains(word));
        let found = matches!(timeout(TEST_TIMEOUT, contains).await, Ok(Ok(_)));
        assert!(found, "{word:?} is not output:\n{:?}", *self.output.borrow());
    }

    fn press(&mut self, keys: &str) {
        self.control.write_all(keys.as_bytes()).expect("typed");
    }

    fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.terminal).expect("a terminal").local_modes;
        !modes.contains(LocalModes::ICANON) && !modes.contains(LocalModes::ECHO)
    }

    fn send(&self, signal: Signal) {
        let id = self.child.id().expect("running");
        kill_process(Pid::from_raw(id.cast_signed()).expect("a process id"), signal).expect("sent");
    }

    /// Waits for the exit of the program, and checks that it has restored the terminal.
    async fn expect_restored(mut self) {
        let status = within_timeout("the exit", self.child.wait()).await.expect("a status");
        // Leaves the alternate screen and expect_word the cursor.
        self.expect_word("\u{1b}[?1049l").await;
        self.expect_word("\u{1b}[?25h").await;
        assert_eq!(status.code(), Some(0), "{:?}", *self.output.borrow());
        assert!(!self.is_raw(), "the terminal is still in raw mode");
    }
}

#[tokio::test]
async fn watch_terminal_shows_call_and_is_restored() {
    let fleet = Fleet::new();
    fleet.write("notes.md", SECRET);
    let _handler = fleet.handler("handler-1").await;
    let watch = |arguments: &[&str]| {
        let mut command = fleet.program("rockbot");
        command.arg("watch").args(arguments);
        Terminal::spawn(command)
    };
    let mut table = watch(&[]);
    table.expect_word("live,").await;
    assert!(table.is_raw());
    fleet.run(&CALL).await.assert_code(0);
    table.expect_word("tool-handler/handler-1").await;
    // The first line up to the broker, the start of the queues, the names of the columns, and the keys.
    let documented = sample("docs/watch.md", "rockbot watch  ");
    let lines: Vec<_> = documented.lines().collect();
    let [status, queues, columns, .., keys] = &lines[..] else { panic!("{documented}") };
    let queues = queues.split_whitespace().next().expect("a word");
    let (status, _) = status.split_once(" at ").expect("a broker");
    for word in [status, queues, *columns, *keys].into_iter().flat_map(str::split_whitespace) {
        // Not the values, nor the unit of a time.
        if !word.contains(|c: char| c.is_ascii_digit()) && word != "ms," {
            table.expect_word(word).await;
        }
    }
    table.press("\r");
    table.expect_word("session").await;
    table.expect_word("executed:").await;
    assert!(!table.output.borrow().contains(SECRET));
    table.press("q");
    table.expect_restored().await;

    // In raw mode Ctrl-C is a key.
    let mut by_key = watch(&[]);
    by_key.expect_word("live,").await;
    by_key.press("\u{3}");
    by_key.expect_restored().await;
    for signal in [Signal::TERM, Signal::INT] {
        let mut by_signal = watch(&[]);
        by_signal.expect_word("live,").await;
        by_signal.send(signal);
        by_signal.expect_restored().await;
    }

    let mut with_content = watch(&["--content"]);
    with_content.expect_word("live,").await;
    fleet.run(&CALL).await.assert_code(0);
    with_content.expect_word("handler-1").await;
    with_content.press("\r");
    with_content.expect_word(SECRET).await;
    with_content.press("q");
    with_content.expect_restored().await;
}

#[tokio::test]
async fn unwatchable_bus_is_a_usage_error() {
    let fleet = Fleet::new();
    let mut embedded = fleet.program_without_bus("rockbot");
    embedded.args(["watch"]);
    let exit = Running::start(embedded).wait().await;
    exit.assert_code(64);
    assert_contains(&exit.stderr, &["--bus"]);
    let exit = fleet.run(&["watch", "--state", "faild"]).await;
    exit.assert_code(64);
    assert_contains(&exit.stderr, &["faild", "failed"]);
    let exit = fleet.run(&["watch", "--json", "--for", "1"]).await;
    exit.assert_code(0);
    assert_eq!(exit.stdout, "");
}
