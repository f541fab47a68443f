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
async fn packages_that_are_not_there_leave_nothing_and_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let runner = with_packages(true, folder.path()).await;
    let missing = Requirements::parse(&["six==999.999"]).unwrap();
    let failed = runner.run(&script("1").with_packages(missing), &context()).await.unwrap_err();
    assert!(failed.to_string().contains("six==999.999"), "{failed}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn packages_are_refused_where_they_are_switched_off() {
    let six = Requirements::parse(&["six"]).unwrap();
    let runner = plain(true).await;
    let refused = runner.run(&script("1").with_packages(six), &context()).await;
    assert!(matches!(refused, Err(ToolFailure::NotPermitted { .. })), "{refused:?}");
}
