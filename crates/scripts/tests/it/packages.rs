//! Packages, from an index that is reachable.

use rockbot_scripts::{
    Requirements, ScriptRunner,
    local::{LocalOptions, LocalRunner, PackageOptions},
};
use rockbot_tools::ToolFailure;

use crate::bed::{WAYS, context, plain, runner, script};

async fn with_packages(warm: bool, folder: &std::path::Path) -> LocalRunner {
    let packages = Some(PackageOptions::new(folder));
    runner(LocalOptions { warm, packages, ..LocalOptions::default() }).await
}

#[tokio::test]
async fn a_package_is_installed_once_and_imported_by_both_ways() {
    let folder = tempfile::tempdir().unwrap();
    let six = Requirements::parse(&["six==1.16.0"]).unwrap();
    for warm in WAYS {
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
async fn what_a_package_runs_at_every_start_is_told_as_run() {
    let folder = tempfile::tempdir().unwrap();
    let six = Requirements::parse(&["six==1.16.0"]).unwrap();
    for warm in WAYS {
        let runner = with_packages(warm, folder.path()).await;
        let uses = script("import six; print(six.__name__)").with_packages(six.clone());
        assert_eq!(runner.run(&uses, &context()).await.unwrap().stdout, "six\n");
        let set = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        // Whatever can be written to, as F_GETFL (3) says; this file itself is open too.
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
async fn packages_that_are_not_there_leave_nothing_and_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let runner = with_packages(true, folder.path()).await;
    let missing = Requirements::parse(&["six==999.999"]).unwrap();
    let failed = runner.run(&script("1").with_packages(missing), &context()).await.unwrap_err();
    assert!(failed.to_string().contains("six==999.999"), "{failed}");
    assert!(matches!(failed, ToolFailure::InvalidArguments { .. }), "asking again is no use");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn packages_are_everybodys_to_read_whatever_our_umask() {
    let folder = tempfile::tempdir().unwrap();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let six = Requirements::parse(&["six==1.16.0"]).unwrap();
    let runner = with_packages(true, &folder.path().join("packages")).await;
    let uses = script("import six; print(six.__version__)").with_packages(six);
    let outcome = runner.run(&uses, &context()).await.unwrap();
    assert_eq!(outcome.stdout, "1.16.0\n", "{outcome:?}");
}

#[tokio::test]
async fn a_folder_for_packages_that_cannot_be_used_is_in_nobodys_way_but_theirs() {
    let runner = with_packages(true, std::path::Path::new("/dev/null/packages")).await;
    let runs = runner.run(&script("print(1)"), &context()).await.unwrap();
    assert_eq!(runs.stdout, "1\n");
    assert!(runs.isolation.is_complete(), "{}", runs.isolation);
    let six = Requirements::parse(&["six"]).unwrap();
    let refused = runner.run(&script("1").with_packages(six), &context()).await;
    assert!(matches!(refused, Err(ToolFailure::Unavailable { .. })), "{refused:?}");
}

#[tokio::test]
async fn packages_are_refused_where_they_are_switched_off() {
    let six = Requirements::parse(&["six"]).unwrap();
    let runner = plain(true).await;
    let refused = runner.run(&script("1").with_packages(six), &context()).await;
    assert!(matches!(refused, Err(ToolFailure::NotPermitted { .. })), "{refused:?}");
}
