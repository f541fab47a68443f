//! Environment and outcome of ordinary scripts.

use std::time::Duration;

use rockbot_contracts::{Executed, ToolCallId, ToolErrorCode};
use rockbot_scripts::{DockerOptions, DockerRunner, PreparedImage, Requirements, ScriptRunner};
use rockbot_testkit::fixture::within_timeout;
use rockbot_tools::ToolContext;

use super::fixture::{Fixture, context, options, script};

#[tokio::test]
async fn stdout_and_stderr_are_separate() {
    let fixture = Fixture::new();
    let code = "import sys; print('é', 1); print('a warning', file=sys.stderr); sys.exit(3)";
    let outcome = fixture.run(&script(code)).await;
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("é 1\n", "a warning\n"));
    assert_eq!((outcome.exit_code, outcome.ended_by), (3, None));
    assert_eq!(outcome.isolation.to_string(), "docker (runc)");
    assert!(outcome.elapsed < Duration::from_secs(10));
    assert_eq!(fixture.run(&script("import os; os.kill(os.getpid(), 6)")).await.exit_code, 134);
}

#[tokio::test]
async fn error_shows_line_of_script() {
    let outcome = Fixture::new().run(&script("x = 1\nx / 0")).await;
    assert!(outcome.stderr.contains("script.py\", line 2"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("ZeroDivisionError"), "{}", outcome.stderr);
    assert_eq!(outcome.exit_code, 1);
}

#[tokio::test]
async fn input_is_in_variable_and_file() {
    let code = "import os\nvalue = os.environ['ROCKBOT_INPUT']\n\
                file = open(os.environ['ROCKBOT_INPUT_FILE'], newline='').read()\n\
                print(value == file, repr(value))";
    let script = script(code).with_input("a\r\n\"é\"\u{2028}$(id)").unwrap();
    let outcome = Fixture::new().run(&script).await;
    assert_eq!(outcome.stdout, "True 'a\\r\\n\"é\"\\u2028$(id)'\n", "{}", outcome.stderr);
}

#[tokio::test]
async fn large_input_is_in_file_only() {
    let code = "import os\nprint(len(open(os.environ['ROCKBOT_INPUT_FILE']).read()))\n\
                print('ROCKBOT_INPUT' in os.environ)";
    let fixture = Fixture::new();
    let largest = "x".repeat(512 * 1024);
    let outcome = fixture.run(&script(code).with_input(largest).unwrap()).await;
    assert_eq!(outcome.stdout, "524288\nFalse\n");
    // The largest input that fits into a variable.
    let fitting = "x".repeat(128 * 1024 - 32);
    let outcome = fixture.run(&script(code).with_input(fitting).unwrap()).await;
    assert_eq!(outcome.stdout, "131040\nTrue\n");
    assert_eq!(
        fixture.output_of("import os; print('ROCKBOT_INPUT_FILE' in os.environ)").await,
        "False"
    );
}

#[tokio::test]
async fn largest_script_runs() {
    let code = format!("print(len('{}'))", "é".repeat(131_000));
    assert_eq!(Fixture::new().output_of(&code).await, "131000");
}

#[tokio::test]
async fn environment_is_minimal_and_folder_empty() {
    let code = "import os; print(sorted(os.environ), os.getcwd(), os.listdir('.'), \
                os.environ['HOME'], input.__name__, os.read(0, 9))";
    assert_eq!(
        Fixture::new().output_of(code).await,
        "['HOME', 'LANG', 'PATH', 'TMPDIR'] /tmp ['script.py'] /tmp input b''"
    );
}

#[tokio::test]
async fn background_process_does_not_delay_result() {
    let code = "import os, time\nif os.fork() == 0:\n os.setsid()\n time.sleep(600)\nprint('done')";
    let outcome = Fixture::new().run(&script(code)).await;
    assert_eq!((outcome.stdout.as_str(), outcome.exit_code), ("done\n", 0));
}

#[tokio::test]
async fn running_call_is_not_run_again() {
    let fixture = Fixture::new();
    let (first, second) = (context(), context());
    let second = ToolContext { tool_call_id: first.tool_call_id.clone(), ..second };
    let name = DockerRunner::container_name(&first.tool_call_id);
    let script = script("import time; time.sleep(600)");
    let again = async {
        fixture.wait_running(&first).await;
        let refused = fixture.runner.run(&script, &second).await.unwrap_err();
        assert_eq!(refused.code(), ToolErrorCode::OutcomeUnknown, "{refused}");
        // The rejected call leaves the first container alone.
        assert!(
            fixture.docker(&["top", &name]).await.contains("script.py"),
            "the first container was removed"
        );
        first.cancellation.cancel();
    };
    let (result, ()) =
        within_timeout("both", async { tokio::join!(fixture.runner.run(&script, &first), again) })
            .await;
    assert_eq!(result.unwrap_err().executed(), Executed::Yes);
    fixture.assert_removed(&first).await;
}

#[tokio::test]
async fn surplus_scripts_are_rejected_as_overloaded() {
    let fixture = Fixture::with_options(DockerOptions { concurrency: 1, waiting: 0, ..options() });
    let script = script("import time; time.sleep(600)");
    let running = context();
    let other = async {
        fixture.wait_running(&running).await;
        let refused = fixture.try_run(&script).await.unwrap_err();
        assert_eq!(refused.code(), ToolErrorCode::Overloaded);
        running.cancellation.cancel();
    };
    let (_, ()) = tokio::join!(fixture.runner.run(&script, &running), other);
    fixture.assert_removed(&running).await;
}

#[tokio::test]
async fn waiting_scripts_all_run() {
    let fixture = Fixture::with_options(DockerOptions { concurrency: 3, ..options() });
    let mut scripts = Vec::new();
    for number in 0..9 {
        scripts.push((script(&format!("print({number})")), context()));
    }
    let runs = scripts.iter().map(|(script, context)| fixture.runner.run(script, context));
    let outcomes = within_timeout("all", futures_util::future::try_join_all(runs)).await.unwrap();
    let printed: String = outcomes.into_iter().map(|outcome| outcome.stdout).collect();
    assert_eq!(printed.replace('\n', ""), "012345678");
    for (_, context) in &scripts {
        fixture.assert_removed(context).await;
    }
}

#[tokio::test]
async fn packages_select_prepared_image_or_are_rejected() {
    let asking = || script("print('ran')").with_packages(Requirements::parse(&["numpy"]).unwrap());
    let refused = Fixture::new().try_run(&asking()).await.unwrap_err();
    assert_eq!(refused.code(), ToolErrorCode::NotPermitted);
    assert_eq!(refused.executed(), Executed::No);
    let options = options();
    let prepared =
        PreparedImage { image: options.image.clone(), packages: vec!["numpy==2.1".to_owned()] };
    let images = vec![prepared];
    let fixture = Fixture::with_options(DockerOptions {
        image: "not-this-one".to_owned(),
        images,
        ..options
    });
    assert_eq!(fixture.run(&asking()).await.stdout, "ran\n");
}

#[tokio::test]
async fn unusual_call_id_is_accepted() {
    let fixture = Fixture::new();
    let id = |repeats| ToolCallId::new("/../🦀 $(id)".repeat(repeats));
    // Call ids are limited in length.
    assert!(id(40).is_err());
    let call = ToolContext { tool_call_id: id(18).unwrap(), ..context() };
    let outcome = fixture.runner.run(&script("print(1)"), &call).await.unwrap();
    assert_eq!((outcome.stdout.as_str(), outcome.ended_by), ("1\n", None));
    fixture.assert_removed(&call).await;
}
