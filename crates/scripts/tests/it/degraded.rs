//! Machines that allow less: what is claimed there is true.

use rockbot_scripts::local::{LocalOptions, LocalRunner, Means, Sandbox, StartError};

use crate::bed::{printed, run, runner};

fn without_namespaces(bubblewrap: bool) -> LocalOptions {
    let means = Means { namespaces: false, bubblewrap, ..Means::default() };
    LocalOptions { means, ..LocalOptions::default() }
}

#[tokio::test]
async fn bubblewrap_takes_the_place_of_namespaces() {
    let runner = runner(without_namespaces(true)).await;
    assert!(runner.isolation().by.contains("bubblewrap"), "{}", runner.isolation());
    assert_eq!(printed(&runner, "print(1)").await, "1\n");
    let outcome = run(&runner, "open('/etc/shadow')").await;
    assert!(outcome.stderr.contains("FileNotFoundError"), "{}", outcome.stderr);
}

#[tokio::test]
async fn without_any_namespace_files_and_sockets_are_still_out_of_reach() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "s").unwrap();
    for warm in [true, false] {
        let runner = runner(LocalOptions { warm, ..without_namespaces(false) }).await;
        assert!(!runner.isolation().is_complete());
        for denied in [
            format!("open('{}')", secret.display()),
            "open('/etc/passwd')".to_owned(),
            "__import__('socket').socket()".to_owned(),
            "__import__('os').kill(__import__('os').getppid(), 9)".to_owned(),
        ] {
            let outcome = run(&runner, &denied).await;
            assert!(outcome.stderr.contains("PermissionError"), "{denied}: {outcome:?}");
        }
        let code = "open('x', 'w').write('x'); print(open('x').read())";
        assert_eq!(printed(&runner, code).await, "x\n");
    }
}

#[tokio::test]
async fn a_runner_that_must_isolate_completely_does_not_start_where_it_cannot() {
    let options = LocalOptions { sandbox: Sandbox::Required, ..without_namespaces(false) };
    let refused = LocalRunner::start(options).await.unwrap_err();
    assert!(matches!(refused, StartError::Isolation { .. }), "{refused}");
    assert!(refused.to_string().contains("install bubblewrap"), "{refused}");
    let required = LocalOptions { sandbox: Sandbox::Required, ..LocalOptions::default() };
    assert!(runner(required).await.isolation().is_complete());
}
