//! What the chart makes of values, document by document.

use anyhow::{Result, bail, ensure};

/// Labels that every object has, which would only hide what differs.
const EVERYWHERE: [&str; 5] = [
    "app.kubernetes.io/instance:",
    "app.kubernetes.io/managed-by:",
    "app.kubernetes.io/part-of:",
    "app.kubernetes.io/version:",
    "helm.sh/chart:",
];

/// Templates that hand on files of another folder as they are.
const HANDED_ON: [&str; 3] = [
    "# Source: rockbot/templates/monitoring/rules.yaml",
    "# Source: rockbot/templates/monitoring/dashboards.yaml",
    "# Source: rockbot/templates/tests/files.yaml",
];

/// The documents of a stream, each from its comments on.
pub(super) fn documents(stream: &str) -> impl Iterator<Item = &str> {
    let stream = stream.strip_prefix("---\n").unwrap_or(stream);
    stream.split("\n---\n").map(str::trim).filter(|document| !document.is_empty())
}

/// What a person looks at when the chart changes: without what is the same in every object, and of
/// files that are only handed on no more than that they are there.
pub(super) fn essential(stream: &str) -> String {
    let mut kept = String::new();
    for document in documents(stream) {
        let handed_on = HANDED_ON.iter().any(|source| document.starts_with(source));
        kept.push_str("---\n");
        for line in document.lines() {
            if handed_on && (line == "spec:" || line == "data:") {
                break;
            }
            if !EVERYWHERE.iter().any(|label| line.trim_start().starts_with(label)) {
                kept.push_str(line.trim_end());
                kept.push('\n');
            }
        }
    }
    kept
}

/// What must hold for every pod that the chart makes, whatever the values.
pub(super) fn check_fences(stream: &str) -> Result<()> {
    let mut pods = 0;
    for document in documents(stream) {
        let kind = value(document, "kind: ").unwrap_or_default();
        if !["Deployment", "StatefulSet", "Pod"].contains(&kind) {
            continue;
        }
        pods += 1;
        let name = value(document, "  name: ").unwrap_or_default();
        for fence in [
            "runAsNonRoot: true",
            "allowPrivilegeEscalation: false",
            "readOnlyRootFilesystem: true",
            "drop: [ALL]",
            "type: RuntimeDefault",
        ] {
            ensure!(document.contains(fence), "{kind} {name} is without `{fence}`");
        }
        let has_token = document.contains("automountServiceAccountToken: true");
        let may = name.ends_with("-scripts-manager") || name.ends_with("-test-permission");
        ensure!(has_token == may, "{kind} {name}: a token of the cluster is for others");
        ensure!(
            !document.contains("secretKeyRef"),
            "{kind} {name} has a secret in its environment"
        );
    }
    ensure!(pods > 0, "the chart makes no pod");
    let secret = |document: &&str| value(document, "kind: ") == Some("Secret");
    if let Some(secret) = documents(stream).find(secret) {
        let name = value(secret, "  name: ").unwrap_or_default();
        bail!("the chart makes the secret {name}, which the history of releases would keep");
    }
    Ok(())
}

/// What follows the first line that begins so.
fn value<'a>(document: &'a str, beginning: &str) -> Option<&'a str> {
    document.lines().find_map(|line| line.strip_prefix(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "---\n# Source: a\nkind: Deployment\nmetadata:\n  name: rockbot-agent\nspec:\n  \
                       automountServiceAccountToken: false\n  runAsNonRoot: true\n  \
                       allowPrivilegeEscalation: false\n  readOnlyRootFilesystem: true\n  drop: [ALL]\n  \
                       type: RuntimeDefault\n";

    #[test]
    fn a_pod_without_a_fence_is_told_by_name() {
        assert!(check_fences(POD).is_ok());
        let open = POD.replace("  readOnlyRootFilesystem: true\n", "");
        let problem = check_fences(&open).unwrap_err().to_string();
        assert_eq!(problem, "Deployment rockbot-agent is without `readOnlyRootFilesystem: true`");
        let with_token = POD.replace("Token: false", "Token: true");
        assert!(check_fences(&with_token).unwrap_err().to_string().contains("a token"));
    }

    #[test]
    fn a_secret_of_the_charts_own_is_a_problem() {
        let secret = format!("{POD}---\nkind: Secret\nmetadata:\n  name: made-up\n");
        assert!(check_fences(&secret).unwrap_err().to_string().contains("made-up"));
    }

    #[test]
    fn a_snapshot_holds_what_differs() {
        let stream = "---\n# Source: rockbot/templates/monitoring/rules.yaml\nkind: PrometheusRule\n\
                      metadata:\n  labels:\n    helm.sh/chart: rockbot-0.1.0\n    own: label\nspec:\n  much\n";
        let kept = essential(stream);
        assert!(kept.contains("    own: label\n"));
        assert!(!kept.contains("helm.sh/chart") && !kept.contains("much"));
    }
}
