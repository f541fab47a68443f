//! Packages from a reachable index.

use rockbot_scripts::{
    Requirements, ScriptRunner,
    local::{LocalOptions, LocalRunner, PackageOptions},
};
use rockbot_tools::ToolFailure;

use crate::fixture::{INTERPRETERS, context, plain, runner, script};

async fn with_packages(warm: bool, folder: &std::path::Path) -> LocalRunner {
    let packages = Some(PackageOptions::new(folder));
    runner(LocalOptions { warm, packages, ..LocalOptions::default() }).await
}

#[tokio::test]
async fn package_is_installed_once_for_warm_and_cold() {
    let folder = tempfile::tempdir().unwrap();
    let six = Requirements::parse(&["six==1.16.0"]).unwrap();
    for warm in INTERPRETERS {
        let runner = with_packages(warm, folder.path()).await;
        let uses = script("import six, os; print(six.__version__, os.listdir('/packages'))")
            .with_packages(six.clone());
        let (one, other) = (context(), context());
        let (one, other) = tokio::join!(runner.run(&uses, &one), runner.run(&uses, &other));
        for outcome in [one.unwrap(), other.unwrap()] {
            assert_eq!(outcome.stdout, "1.16.0 []\n", "{outcome:?}");
        }
        let sets = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(sets, 1);
    }
}

#[tokio::test]
async fn package_startup_code_counts_as_executed() {
    let folder = tempfile::tempdir().unwrap();
    let six = Requirements::parse(&["six==1.16.0"]).unwrap();
    for warm in INTERPRETERS {
        let runner = with_packages(warm, folder.path()).await;
        let uses = script("import six; print(six.__name__)").with_packages(six.clone());
        assert_eq!(runner.run(&uses, &context()).await.unwrap().stdout, "six\n");
        let set = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        // All writable descriptors, by F_GETFL (3); this file itself is open, too.
        let speaks = "import os; [os.write(n, b'failed no\\n') for n in range(3, 99) \
                      if os.path.exists(f'/dev/fd/{n}') and not os.path.isdir(f'/dev/fd/{n}') \
                      and __import__('fcntl').fcntl(n, 3) & os.O_ACCMODE]; os._exit(9)\n";
        std::fs::write(set.join("start.pth"), speaks).unwrap();
        let outcome = runner.run(&uses, &context()).await.unwrap();
        assert_eq!((outcome.exit_code, outcome.stdout.as_str()), (9, ""), "{outcome:?}");
        std::fs::remove_file(set.join("start.pth")).unwrap();
    }
}

#[tokio::test]
async fn failed_installation_is_reported_and_leaves_no_set() {
    let folder = tempfile::tempdir().unwrap();
    let runner = with_packages(true, folder.path()).await;
    let missing = Requirements::parse(&["six==999.999"]).unwrap();
    let failed = runner.run(&script("1").with_packages(missing), &context()).await.unwrap_err();
    assert!(failed.to_string().contains("six==999.999"), "{failed}");
    assert!(matches!(failed, ToolFailure::InvalidArguments { .. }), "a retry does not help");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn packages_are_readable_despite_restrictive_umask() {
    let folder = tempfile::tempdir().unwrap();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let six = Requirements::parse(&["six==1.16.0"]).unwrap();
    let runner = with_packages(true, &folder.path().join("packages")).await;
    let uses = script("import six; print(six.__version__)").with_packages(six);
    let outcome = runner.run(&uses, &context()).await.unwrap();
    assert_eq!(outcome.stdout, "1.16.0\n", "{outcome:?}");
}

#[tokio::test]
async fn unusable_package_folder_affects_only_packages() {
    let runner = with_packages(true, std::path::Path::new("/dev/null/packages")).await;
    let runs = runner.run(&script("print(1)"), &context()).await.unwrap();
    assert_eq!(runs.stdout, "1\n");
    assert!(runs.isolation.is_complete(), "{}", runs.isolation);
    let six = Requirements::parse(&["six"]).unwrap();
    let refused = runner.run(&script("1").with_packages(six), &context()).await;
    assert!(matches!(refused, Err(ToolFailure::Unavailable { .. })), "{refused:?}");
}

#[tokio::test]
async fn packages_are_rejected_when_disabled() {
    let six = Requirements::parse(&["six"]).unwrap();
    let runner = plain(true).await;
    let refused = runner.run(&script("1").with_packages(six), &context()).await;
    assert!(matches!(refused, Err(ToolFailure::NotPermitted { .. })), "{refused:?}");
}
