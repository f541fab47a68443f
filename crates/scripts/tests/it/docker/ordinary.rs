//! What a script is given, and what becomes of it.

use std::time::Duration;

use rockbot_contracts::{Executed, ToolCallId, ToolErrorCode};
use rockbot_scripts::{DockerOptions, DockerRunner, PreparedImage, Requirements, ScriptRunner};
use rockbot_testkit::fixture::within_timeout;
use rockbot_tools::ToolContext;

use super::bed::{Stage, context, options, script};

#[tokio::test]
async fn what_a_script_prints_and_what_it_complains_about_stay_apart() {
    let stage = Stage::set();
    let code = "import sys; print('é', 1); print('so it goes', file=sys.stderr); sys.exit(3)";
    let outcome = stage.run(&script(code)).await;
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("é 1\n", "so it goes\n"));
    assert_eq!((outcome.exit_code, outcome.ended_by), (3, None));
    assert_eq!(outcome.isolation.to_string(), "docker (runc)");
    assert!(outcome.elapsed < Duration::from_secs(10));
    assert_eq!(stage.run(&script("import os; os.kill(os.getpid(), 6)")).await.exit_code, 134);
}

#[tokio::test]
async fn a_mistake_in_a_script_is_shown_where_it_is() {
    let outcome = Stage::set().run(&script("x = 1\nx / 0")).await;
    assert!(outcome.stderr.contains("script.py\", line 2"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("ZeroDivisionError"), "{}", outcome.stderr);
    assert_eq!(outcome.exit_code, 1);
}

#[tokio::test]
async fn input_is_in_a_variable_and_in_a_file() {
    let code = "import os\nvalue = os.environ['ROCKBOT_INPUT']\n\
                file = open(os.environ['ROCKBOT_INPUT_FILE'], newline='').read()\n\
                print(value == file, repr(value))";
    let script = script(code).with_input("a\r\n\"é\"\u{2028}$(id)").unwrap();
    let outcome = Stage::set().run(&script).await;
    assert_eq!(outcome.stdout, "True 'a\\r\\n\"é\"\\u2028$(id)'\n", "{}", outcome.stderr);
}

#[tokio::test]
async fn input_that_no_variable_holds_is_in_a_file_only() {
    let code = "import os\nprint(len(open(os.environ['ROCKBOT_INPUT_FILE']).read()))\n\
                print('ROCKBOT_INPUT' in os.environ)";
    let stage = Stage::set();
    let largest = "x".repeat(512 * 1024);
    let outcome = stage.run(&script(code).with_input(largest).unwrap()).await;
    assert_eq!(outcome.stdout, "524288\nFalse\n");
    // The largest that fits.
    let fitting = "x".repeat(128 * 1024 - 32);
    let outcome = stage.run(&script(code).with_input(fitting).unwrap()).await;
    assert_eq!(outcome.stdout, "131040\nTrue\n");
    assert_eq!(
        stage.printed("import os; print('ROCKBOT_INPUT_FILE' in os.environ)").await,
        "False"
    );
}

#[tokio::test]
async fn the_largest_script_runs() {
    let code = format!("print(len('{}'))", "é".repeat(131_000));
    assert_eq!(Stage::set().printed(&code).await, "131000");
}

#[tokio::test]
async fn a_script_finds_an_empty_environment_and_its_own_folder() {
    let code = "import os; print(sorted(os.environ), os.getcwd(), os.listdir('.'), \
                os.environ['HOME'], input.__name__, os.read(0, 9))";
    assert_eq!(
        Stage::set().printed(code).await,
        "['HOME', 'LANG', 'PATH', 'TMPDIR'] /tmp ['script.py'] /tmp input b''"
    );
}

#[tokio::test]
async fn a_process_that_a_script_leaves_behind_keeps_nobody_waiting() {
    let code = "import os, time\nif os.fork() == 0:\n os.setsid()\n time.sleep(600)\nprint('done')";
    let outcome = Stage::set().run(&script(code)).await;
    assert_eq!((outcome.stdout.as_str(), outcome.exit_code), ("done\n", 0));
}

#[tokio::test]
async fn a_call_whose_script_runs_is_not_run_again() {
    let stage = Stage::set();
    let (first, second) = (context(), context());
    let second = ToolContext { tool_call_id: first.tool_call_id.clone(), ..second };
    let name = DockerRunner::container_name(&first.tool_call_id);
    let script = script("import time; time.sleep(600)");
    let again = async {
        stage.running(&first).await;
        let refused = stage.runner.run(&script, &second).await.unwrap_err();
        assert_eq!(refused.code(), ToolErrorCode::OutcomeUnknown, "{refused}");
        // The refused one takes nothing of the first with it.
        assert!(stage.docker(&["top", &name]).await.contains("script.py"), "the first is gone");
        first.cancellation.cancel();
    };
    let (ended, ()) =
        within_timeout("both", async { tokio::join!(stage.runner.run(&script, &first), again) })
            .await;
    assert_eq!(ended.unwrap_err().executed(), Executed::Yes);
    stage.clear_of(&first).await;
}

#[tokio::test]
async fn scripts_beyond_those_that_may_wait_are_refused() {
    let stage = Stage::with(DockerOptions { at_once: 1, waiting: 0, ..options() });
    let script = script("import time; time.sleep(600)");
    let running = context();
    let other = async {
        stage.running(&running).await;
        let refused = stage.try_run(&script).await.unwrap_err();
        assert_eq!(refused.code(), ToolErrorCode::Overloaded);
        running.cancellation.cancel();
    };
    let (_, ()) = tokio::join!(stage.runner.run(&script, &running), other);
    stage.clear_of(&running).await;
}

#[tokio::test]
async fn more_scripts_than_run_at_once_all_have_their_turn() {
    let stage = Stage::with(DockerOptions { at_once: 3, ..options() });
    let mut scripts = Vec::new();
    for number in 0..9 {
        scripts.push((script(&format!("print({number})")), context()));
    }
    let runs = scripts.iter().map(|(script, context)| stage.runner.run(script, context));
    let outcomes = within_timeout("all", futures_util::future::try_join_all(runs)).await.unwrap();
    let printed: String = outcomes.into_iter().map(|outcome| outcome.stdout).collect();
    assert_eq!(printed.replace('\n', ""), "012345678");
    for (_, context) in &scripts {
        stage.clear_of(context).await;
    }
}

#[tokio::test]
async fn packages_choose_a_prepared_image_or_are_refused() {
    let asking = || script("print('ran')").with_packages(Requirements::parse(&["numpy"]).unwrap());
    let refused = Stage::set().try_run(&asking()).await.unwrap_err();
    assert_eq!(refused.code(), ToolErrorCode::NotPermitted);
    assert_eq!(refused.executed(), Executed::No);
    let options = options();
    let prepared =
        PreparedImage { image: options.image.clone(), packages: vec!["numpy==2.1".to_owned()] };
    let images = vec![prepared];
    let stage = Stage::with(DockerOptions { image: "not-this-one".to_owned(), images, ..options });
    assert_eq!(stage.run(&asking()).await.stdout, "ran\n");
}

#[tokio::test]
async fn a_call_with_the_strangest_id_runs() {
    let stage = Stage::set();
    let id = |repeats| ToolCallId::new("/../🦀 $(id)".repeat(repeats));
    // Ids have a limit of their own.
    assert!(id(40).is_err());
    let call = ToolContext { tool_call_id: id(18).unwrap(), ..context() };
    let outcome = stage.runner.run(&script("print(1)"), &call).await.unwrap();
    assert_eq!((outcome.stdout.as_str(), outcome.ended_by), ("1\n", None));
    stage.clear_of(&call).await;
}
