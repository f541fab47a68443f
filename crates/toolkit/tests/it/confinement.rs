use std::{
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rockbot_toolkit::files::{self, FilesConfig, FilesError};
use rockbot_tools::{ToolFailure, ToolHints, ToolSource};
use rustix::fs::{CWD, RenameFlags, mkfifoat, renameat_with};
use serde_json::{Value, json};

use crate::sandbox::{SECRET, Sandbox};

/// Returns a call of each tool that takes a path.
fn calls_with(path: &str) -> [(&'static str, Value); 5] {
    [
        ("read_file", json!({"path": path})),
        ("write_file", json!({"path": path, "content": "changed"})),
        ("edit_file", json!({"path": path, "old_text": "secret", "new_text": "changed"})),
        ("list_files", json!({"path": path, "recursive": true})),
        ("search", json!({"path": path, "pattern": "secret"})),
    ]
}

async fn check_rejected(sandbox: &Sandbox, path: &str) {
    for (tool, arguments) in calls_with(path) {
        let message = sandbox.call_error(tool, arguments).await;
        assert!(!message.contains(SECRET), "{tool} {path}: {message}");
    }
    let secret = fs::read_to_string(sandbox.outside("secret.txt")).unwrap();
    assert_eq!(secret, SECRET, "{path} was written outside");
    assert_eq!(fs::read_dir(sandbox.outside("")).unwrap().count(), 2, "{path} created a file");
}

#[tokio::test]
async fn paths_cannot_escape_root() {
    let sandbox = Sandbox::new();
    sandbox.put("inside/file.txt", "secret inside");
    let absolute = sandbox.outside("secret.txt");
    for path in [
        "..",
        "../outside",
        "../outside/secret.txt",
        "./.././outside/secret.txt",
        "inside/../../outside/secret.txt",
        "../workplace/../outside/secret.txt",
        "../outside/new.txt",
        "inside/../../outside/new/file.txt",
        absolute.to_str().unwrap(),
        "/",
        "/etc/passwd",
    ] {
        check_rejected(&sandbox, path).await;
    }
}

#[tokio::test]
async fn symbolic_links_cannot_escape_root() {
    let sandbox = Sandbox::new();
    let outside = sandbox.outside("");
    symlink("../outside/secret.txt", sandbox.root("file")).unwrap();
    symlink(outside.join("secret.txt"), sandbox.root("absolute")).unwrap();
    symlink("../outside", sandbox.root("directory")).unwrap();
    symlink("../outside/new.txt", sandbox.root("dangling")).unwrap();
    fs::create_dir(sandbox.root("nested")).unwrap();
    symlink("../directory", sandbox.root("nested/second")).unwrap();
    symlink("nested/second", sandbox.root("third")).unwrap();
    symlink("..", sandbox.root("nested/up")).unwrap();
    for path in [
        "file",
        "absolute",
        "directory",
        "directory/secret.txt",
        "directory/new.txt",
        "directory/deep/new/file.txt",
        "dangling",
        "third",
        "third/secret.txt",
        "nested/up/../outside/secret.txt",
        "nested/up/directory/secret.txt",
    ] {
        check_rejected(&sandbox, path).await;
    }
    let listing = sandbox.call_text("list_files", json!({"recursive": true})).await;
    assert!(listing.contains("directory (symbolic link)"), "{listing}");
    assert!(!listing.contains("secret.txt") && !listing.contains("outside"), "{listing}");
    let found = sandbox.call_text("search", json!({"pattern": "secret"})).await;
    assert_eq!(found, "[no line matches]\n");
}

#[tokio::test]
async fn symbolic_links_inside_root_are_followed() {
    let sandbox = Sandbox::new();
    sandbox.put("real/file.txt", "one");
    symlink("real", sandbox.root("linked")).unwrap();
    symlink("real/file.txt", sandbox.root("file")).unwrap();
    assert_eq!(sandbox.call_text("read_file", json!({"path": "linked/file.txt"})).await, "one");
    sandbox.call_text("write_file", json!({"path": "file", "content": "two"})).await;
    assert_eq!(sandbox.text("real/file.txt"), "two");
    assert!(sandbox.root("file").is_symlink(), "the link was replaced by a file");
    let edit = json!({"path": "linked/../linked/file.txt", "old_text": "two", "new_text": "three"});
    sandbox.call_text("edit_file", edit).await;
    assert_eq!(sandbox.text("real/file.txt"), "three");
    assert_eq!(
        sandbox.call_text("list_files", json!({"path": "linked"})).await,
        "real/file.txt (5 bytes)\n"
    );
}

#[tokio::test]
async fn gitignore_link_to_outside_is_not_read() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.outside("secret.txt"), "*.txt\n").unwrap();
    sandbox.put("a.txt", "x");
    symlink(sandbox.outside("secret.txt"), sandbox.root(".gitignore")).unwrap();
    let listing = sandbox.call_text("list_files", json!({"pattern": "*.txt"})).await;
    assert_eq!(listing, "a.txt (1 bytes)\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directory_swapped_for_link_cannot_escape_root() {
    let sandbox = Sandbox::new();
    sandbox.put("swap/secret.txt", "inside");
    symlink("../outside", sandbox.root("link")).unwrap();
    let (swap, link) = (sandbox.root("swap"), sandbox.root("link"));
    let done = Arc::new(AtomicBool::new(false));
    let swapping = {
        let done = Arc::clone(&done);
        tokio::task::spawn_blocking(move || {
            while !done.load(Ordering::Relaxed) {
                renameat_with(CWD, &swap, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        })
    };
    for _ in 0..200 {
        for (tool, arguments) in [
            ("read_file", json!({"path": "swap/secret.txt"})),
            ("write_file", json!({"path": "swap/secret.txt", "content": "inside"})),
            ("search", json!({"pattern": "secret outside"})),
            ("list_files", json!({"recursive": true, "pattern": "deep"})),
        ] {
            if let Ok(result) = sandbox.call(tool, arguments).await {
                let text = result.to_text();
                assert!(!text.contains(SECRET) && !text.contains("deep/"), "{tool}: {text}");
            }
        }
    }
    done.store(true, Ordering::Relaxed);
    swapping.await.unwrap();
    assert_eq!(fs::read_to_string(sandbox.outside("secret.txt")).unwrap(), SECRET);
}

#[tokio::test]
async fn fifo_and_socket_are_rejected_at_once() {
    let sandbox = Sandbox::new();
    mkfifoat(CWD, sandbox.root("fifo"), 0o600.into()).unwrap();
    let _socket = UnixListener::bind(sandbox.root("socket")).unwrap();
    let rejections = async {
        for (tool, arguments) in calls_with("fifo").into_iter().chain(calls_with("socket")) {
            sandbox.call_error(tool, arguments).await;
        }
        let listing = sandbox.call_text("list_files", json!({})).await;
        assert_eq!(listing, "fifo (special file)\nsocket (special file)\n");
        sandbox.call_text("search", json!({"pattern": "x"})).await;
    };
    tokio::time::timeout(Duration::from_secs(5), rejections).await.unwrap();
}

#[tokio::test]
async fn cancelled_or_expired_call_changes_nothing() {
    let sandbox = Sandbox::new();
    let tool = sandbox.tool("write_file");
    let arguments = || json!({"path": "new/late.txt", "content": "x"});
    let context = crate::sandbox::context("write_file");
    context.cancellation.cancel();
    let failure = tool.call(arguments(), &context).await.unwrap_err();
    assert!(matches!(failure, ToolFailure::Cancelled { .. }), "{failure:?}");
    let mut context = crate::sandbox::context("write_file");
    context.deadline = tokio::time::Instant::now();
    let failure = tool.call(arguments(), &context).await.unwrap_err();
    assert!(matches!(failure, ToolFailure::TimedOut { .. }), "{failure:?}");
    assert_eq!(fs::read_dir(sandbox.root("")).unwrap().count(), 0);
}

#[tokio::test]
async fn unknown_arguments_are_rejected() {
    let sandbox = Sandbox::new();
    for name in sandbox.names() {
        let message = sandbox.call_error(name, json!({"paht": "x"})).await;
        assert!(message.contains("paht"), "{name}: {message}");
    }
}

#[test]
fn tool_hints_describe_effects() {
    let sandbox = Sandbox::new();
    let names = ["read_file", "write_file", "edit_file", "list_files", "search", "bash"];
    assert_eq!(sandbox.names(), names);
    for name in names {
        let tool = sandbox.tool(name);
        let registration = tool.registration();
        assert_eq!(registration.source, ToolSource::Files);
        assert_eq!(registration.parameters["additionalProperties"], json!(false));
        let hints = registration.hints;
        match name {
            "write_file" => assert!(hints.idempotent && hints.destructive && !hints.open_world),
            "edit_file" => assert!(!hints.idempotent && hints.destructive && !hints.open_world),
            "bash" => {
                assert!(!hints.may_retry() && hints.destructive && hints.open_world);
                assert_eq!(registration.timeout_ms, Some(600_000));
            }
            _ => assert_eq!(hints, ToolHints::READ_ONLY),
        }
    }
    let without = Sandbox::with(|config| config.allow_bash = false);
    assert!(!without.names().contains(&"bash"));
}

#[test]
fn invalid_root_is_an_error() {
    let sandbox = Sandbox::new();
    let missing = files::tools(&FilesConfig::new(sandbox.root("missing"))).err().unwrap();
    assert!(matches!(missing, FilesError::Root { .. }), "{missing}");
    sandbox.put("file", "");
    let file = files::tools(&FilesConfig::new(sandbox.root("file"))).err().unwrap();
    assert!(matches!(file, FilesError::NotADirectory { .. }), "{file}");
    let config = FilesConfig { shell: "/missing".into(), ..FilesConfig::new(sandbox.root("")) };
    let shell = files::tools(&config).err().unwrap();
    assert!(matches!(shell, FilesError::Shell { .. }), "{shell}");
}
