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

use crate::workshop::{SECRET, Workshop};

/// Each tool that takes a path, aimed at one.
fn aimed_at(path: &str) -> [(&'static str, Value); 5] {
    [
        ("read_file", json!({"path": path})),
        ("write_file", json!({"path": path, "content": "changed"})),
        ("edit_file", json!({"path": path, "old_text": "secret", "new_text": "changed"})),
        ("list_files", json!({"path": path, "recursive": true})),
        ("search", json!({"path": path, "pattern": "secret"})),
    ]
}

async fn check_refused(workshop: &Workshop, path: &str) {
    for (tool, arguments) in aimed_at(path) {
        let message = workshop.refusal(tool, arguments).await;
        assert!(!message.contains(SECRET), "{tool} {path}: {message}");
    }
    let secret = fs::read_to_string(workshop.outside("secret.txt")).unwrap();
    assert_eq!(secret, SECRET, "{path} was written outside");
    assert_eq!(fs::read_dir(workshop.outside("")).unwrap().count(), 2, "{path} made something");
}

#[tokio::test]
async fn no_path_leads_out_of_the_root() {
    let workshop = Workshop::new();
    workshop.put("inside/file.txt", "secret inside");
    let absolute = workshop.outside("secret.txt");
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
        check_refused(&workshop, path).await;
    }
}

#[tokio::test]
async fn no_symbolic_link_leads_out_of_the_root() {
    let workshop = Workshop::new();
    let outside = workshop.outside("");
    symlink("../outside/secret.txt", workshop.root("file")).unwrap();
    symlink(outside.join("secret.txt"), workshop.root("absolute")).unwrap();
    symlink("../outside", workshop.root("directory")).unwrap();
    symlink("../outside/new.txt", workshop.root("dangling")).unwrap();
    fs::create_dir(workshop.root("nested")).unwrap();
    symlink("../directory", workshop.root("nested/second")).unwrap();
    symlink("nested/second", workshop.root("third")).unwrap();
    symlink("..", workshop.root("nested/up")).unwrap();
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
        check_refused(&workshop, path).await;
    }
    let listing = workshop.said("list_files", json!({"recursive": true})).await;
    assert!(listing.contains("directory (symbolic link)"), "{listing}");
    assert!(!listing.contains("secret.txt") && !listing.contains("outside"), "{listing}");
    let found = workshop.said("search", json!({"pattern": "secret"})).await;
    assert_eq!(found, "[no line matches]\n");
}

#[tokio::test]
async fn symbolic_links_that_stay_inside_are_followed() {
    let workshop = Workshop::new();
    workshop.put("real/file.txt", "one");
    symlink("real", workshop.root("linked")).unwrap();
    symlink("real/file.txt", workshop.root("file")).unwrap();
    assert_eq!(workshop.said("read_file", json!({"path": "linked/file.txt"})).await, "one");
    workshop.said("write_file", json!({"path": "file", "content": "two"})).await;
    assert_eq!(workshop.text("real/file.txt"), "two");
    assert!(workshop.root("file").is_symlink(), "the link was replaced by a file");
    let edit = json!({"path": "linked/../linked/file.txt", "old_text": "two", "new_text": "three"});
    workshop.said("edit_file", edit).await;
    assert_eq!(workshop.text("real/file.txt"), "three");
    assert_eq!(
        workshop.said("list_files", json!({"path": "linked"})).await,
        "real/file.txt (5 bytes)\n"
    );
}

#[tokio::test]
async fn a_gitignore_that_is_a_link_to_the_outside_is_not_read() {
    let workshop = Workshop::new();
    fs::write(workshop.outside("secret.txt"), "*.txt\n").unwrap();
    workshop.put("a.txt", "x");
    symlink(workshop.outside("secret.txt"), workshop.root(".gitignore")).unwrap();
    let listing = workshop.said("list_files", json!({"pattern": "*.txt"})).await;
    assert_eq!(listing, "a.txt (1 bytes)\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_swapped_for_a_link_while_tools_run_leads_nowhere() {
    let workshop = Workshop::new();
    workshop.put("swap/secret.txt", "inside");
    symlink("../outside", workshop.root("link")).unwrap();
    let (swap, link) = (workshop.root("swap"), workshop.root("link"));
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
            if let Ok(result) = workshop.call(tool, arguments).await {
                let text = result.to_text();
                assert!(!text.contains(SECRET) && !text.contains("deep/"), "{tool}: {text}");
            }
        }
    }
    done.store(true, Ordering::Relaxed);
    swapping.await.unwrap();
    assert_eq!(fs::read_to_string(workshop.outside("secret.txt")).unwrap(), SECRET);
}

#[tokio::test]
async fn a_fifo_and_a_socket_are_refused_at_once() {
    let workshop = Workshop::new();
    mkfifoat(CWD, workshop.root("fifo"), 0o600.into()).unwrap();
    let _socket = UnixListener::bind(workshop.root("socket")).unwrap();
    let refusals = async {
        for (tool, arguments) in aimed_at("fifo").into_iter().chain(aimed_at("socket")) {
            workshop.refusal(tool, arguments).await;
        }
        let listing = workshop.said("list_files", json!({})).await;
        assert_eq!(listing, "fifo (special file)\nsocket (special file)\n");
        workshop.said("search", json!({"pattern": "x"})).await;
    };
    tokio::time::timeout(Duration::from_secs(5), refusals).await.unwrap();
}

#[tokio::test]
async fn a_cancelled_or_late_call_changes_nothing() {
    let workshop = Workshop::new();
    let tool = workshop.tool("write_file");
    let arguments = || json!({"path": "new/late.txt", "content": "x"});
    let context = crate::workshop::context("write_file");
    context.cancellation.cancel();
    let failure = tool.call(arguments(), &context).await.unwrap_err();
    assert!(matches!(failure, ToolFailure::Cancelled { .. }), "{failure:?}");
    let mut context = crate::workshop::context("write_file");
    context.deadline = tokio::time::Instant::now();
    let failure = tool.call(arguments(), &context).await.unwrap_err();
    assert!(matches!(failure, ToolFailure::TimedOut { .. }), "{failure:?}");
    assert_eq!(fs::read_dir(workshop.root("")).unwrap().count(), 0);
}

#[tokio::test]
async fn unknown_arguments_are_refused() {
    let workshop = Workshop::new();
    for name in workshop.names() {
        let message = workshop.refusal(name, json!({"paht": "x"})).await;
        assert!(message.contains("paht"), "{name}: {message}");
    }
}

#[test]
fn the_tools_say_what_they_may_do() {
    let workshop = Workshop::new();
    let names = ["read_file", "write_file", "edit_file", "list_files", "search", "bash"];
    assert_eq!(workshop.names(), names);
    for name in names {
        let tool = workshop.tool(name);
        let registration = tool.registration();
        assert_eq!(registration.source, ToolSource::Files);
        assert_eq!(registration.parameters["additionalProperties"], json!(false));
        let hints = registration.hints;
        match name {
            "write_file" => assert!(hints.idempotent && hints.destructive && !hints.open_world),
            "edit_file" => assert!(!hints.idempotent && hints.destructive && !hints.open_world),
            "bash" => {
                assert!(!hints.may_run_again() && hints.destructive && hints.open_world);
                assert_eq!(registration.timeout_ms, Some(600_000));
            }
            _ => assert_eq!(hints, ToolHints::READ_ONLY),
        }
    }
    let without = Workshop::with(|config| config.allow_bash = false);
    assert!(!without.names().contains(&"bash"));
}

#[test]
fn a_root_that_is_no_directory_is_an_error() {
    let workshop = Workshop::new();
    let missing = files::tools(&FilesConfig::new(workshop.root("missing"))).err().unwrap();
    assert!(matches!(missing, FilesError::Root { .. }), "{missing}");
    workshop.put("file", "");
    let file = files::tools(&FilesConfig::new(workshop.root("file"))).err().unwrap();
    assert!(matches!(file, FilesError::NotADirectory { .. }), "{file}");
    let config = FilesConfig { shell: "/missing".into(), ..FilesConfig::new(workshop.root("")) };
    let shell = files::tools(&config).err().unwrap();
    assert!(matches!(shell, FilesError::Shell { .. }), "{shell}");
}
