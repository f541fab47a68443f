//! Check of an orderly shutdown.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::time::{interval, timeout};

use super::{
    announcements::Announcements,
    check::{Problem, Verdict, failed, skipped},
    prober::{BUDGET, Prober},
    subject::Subject,
    timing::SLOW_BUDGET,
};

/// Time for the announcement that a worker has no tools any more.
const WITHDRAWAL: Duration = Duration::from_secs(10);

/// Time for a worker to exit.
const EXIT: Duration = Duration::from_secs(30);

/// Terminates the process `pid` while it runs a call: the call must get its reply, the tools must be
/// withdrawn, and the process must exit.
pub(super) async fn drain(
    prober: &Prober,
    subject: &Subject,
    announcements: &Announcements,
    pid: Option<i32>,
) -> Verdict {
    let Some(pid) = pid else { return skipped("give --drain-pid of the only worker of the pool") };
    let Some(process) = Pid::from_raw(pid) else { return skipped(format!("{pid} is no process")) };
    let call = match subject.slow() {
        Ok(slow) => prober.call(&subject.tool.name, slow, SLOW_BUDGET),
        Err(_) => prober.call(&subject.tool.name, subject.arguments()?, BUDGET),
    };
    let withdrawn = announcements.withdrawals();
    prober.send(&call).await?;
    prober.ping().await?;
    kill_process(process, Signal::TERM)
        .map_err(|error| Problem::Skipped(format!("process {pid} cannot be signalled: {error}")))?;
    let reply = prober.reply_to(&call).await;
    let reply = reply.or_else(|_| failed("SIGTERM: the running call got no reply"))?;
    let gone = announcements.wait_for(WITHDRAWAL, |all| {
        let gone = all.iter().filter(|one| !one.has_tools());
        (gone.count() > withdrawn).then_some(())
    });
    if gone.await.is_none() {
        return failed("SIGTERM: no announcement without tools; agents wait 35 s for its removal");
    }
    let mut poll = interval(Duration::from_millis(50));
    let exited = timeout(EXIT, async {
        while test_kill_process(process).is_ok() {
            poll.tick().await;
        }
    });
    match exited.await {
        Ok(()) => Ok(format!("the call got {}; the process exited", reply.outcome)),
        Err(_) => failed("SIGTERM: the process did not exit within 30 s"),
    }
}
