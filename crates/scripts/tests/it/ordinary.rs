//! What every script may rely on.

use crate::bed::{WAYS, plain, run};

#[tokio::test]
async fn output_complaints_and_exit_code_are_told_apart() {
    for warm in WAYS {
        let runner = plain(warm).await;
        let code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)";
        let outcome = run(&runner, code).await;
        println!("{:?}", outcome);
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("out\n", "err\n"));
        assert_eq!((outcome.exit_code, outcome.ended_by), (3, None));
    }
}
