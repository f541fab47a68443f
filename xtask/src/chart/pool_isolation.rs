//! What a handler and its commands must not reach: keys, requests and permissions of another pool.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{calls, stdout};
use crate::workspace;

/// The key of the pool `web`. Commands look for its beginning.
pub(super) const KEY: &str = "marked-key-of-the-pool-web";

/// Prints every value with the mark in environments and files that a command can read, and the token for the
/// API of Kubernetes. The mark is changed, so that no redaction hides a key.
const SEARCH: &str = "{ env; cat /proc/[0-9]*/environ | tr '\\0' '\\n'; grep -rhs marked- /run /etc /var/lib /files; \
                      } 2>/dev/null | grep -a marked- | sed s/marked-/found-/; \
                      ls /var/run/secrets/kubernetes.io/serviceaccount/token 2>/dev/null; echo searched";

/// Calls `bash` in the pool without a name, as the caller of this URL, and searches for the key of the pool
/// `web`.
pub(super) fn check_key(url: &str) -> Result<()> {
    let arguments = format!("{{\"command\": {SEARCH:?}}}");
    let mut call = Command::new(workspace::program("rockbot")?);
    call.args(["tools", "call", "bash", &arguments]).env("ROCKBOT_BUS__URL", url);
    let found = stdout(&mut call).context("cannot call bash")?;
    for expected in ["searched", "found-own"] {
        ensure!(found.contains(expected), "the search did not find {expected}:\n{found}");
    }
    let key = KEY.replace("marked-", "found-");
    ensure!(!found.contains(&key), "a command read the key of the pool web");
    ensure!(
        !found.contains("serviceaccount"),
        "a command can read a token for the API of Kubernetes"
    );
    Ok(())
}

/// Tries to receive the requests of the pool `web` as the user of this URL.
pub(super) fn check_queue(url: &str) -> Result<()> {
    let mut receive = Command::new(calls::python()?);
    receive.arg(workspace::peer_file("refused_consumer.py")).args([url, "tool.invoke.pool.web"]);
    stdout(&mut receive)
        .context("the user of a handler can receive requests of another pool")
        .map(|_| ())
}

/// Checks that the accounts of handlers have no permission for secrets and pods.
pub(super) fn check_account(kubectl: &Path, namespace: &str) -> Result<()> {
    let accounts = ["rockbot-tool-handler", "rockbot-tool-handler-web"];
    for account in accounts {
        for (verb, object) in [("get", "secrets"), ("list", "secrets"), ("create", "pods/exec")] {
            let mut can = Command::new(kubectl);
            can.args(["--namespace", namespace, "auth", "can-i", verb, object, "--as"]);
            can.arg(format!("system:serviceaccount:{namespace}:{account}"));
            let output = super::output(&mut can)?;
            let answer = super::text(&output.stdout);
            ensure!(answer.trim() == "no", "{account} may {verb} {object}: {answer}");
        }
    }
    Ok(())
}
