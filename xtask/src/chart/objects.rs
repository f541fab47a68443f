//! Rendered objects of the chart.

use anyhow::{Result, bail, ensure};

/// Labels of every object, which snapshots leave out.
const COMMON_LABELS: [&str; 5] = [
    "app.kubernetes.io/instance:",
    "app.kubernetes.io/managed-by:",
    "app.kubernetes.io/part-of:",
    "app.kubernetes.io/version:",
    "helm.sh/chart:",
];

/// Templates that copy files, whose content snapshots leave out.
const COPYING_TEMPLATES: [&str; 3] = [
    "# Source: rockbot/templates/monitoring/rules.yaml",
    "# Source: rockbot/templates/monitoring/dashboards.yaml",
    "# Source: rockbot/templates/tests/files.yaml",
];

/// Returns the documents of a stream with their leading comments.
pub(super) fn documents(stream: &str) -> impl Iterator<Item = &str> {
    let stream = stream.strip_prefix("---\n").unwrap_or(stream);
    stream.split("\n---\n").map(str::trim).filter(|document| !document.is_empty())
}

/// Returns the text of a snapshot, without common labels and the content of copied files.
pub(super) fn normalized(stream: &str) -> String {
    let mut text = String::new();
    for document in documents(stream) {
        let is_copy = COPYING_TEMPLATES.iter().any(|source| document.starts_with(source));
        text.push_str("---\n");
        for line in document.lines() {
            if is_copy && (line == "spec:" || line == "data:") {
                break;
            }
            if !COMMON_LABELS.iter().any(|label| line.trim_start().starts_with(label)) {
                text.push_str(line.trim_end());
                text.push('\n');
            }
        }
    }
    text
}

/// Checks the security settings of every pod, and that the chart creates no secret.
pub(super) fn check_hardening(stream: &str) -> Result<()> {
    let mut pods = 0;
    for document in documents(stream) {
        let kind = value(document, "kind: ").unwrap_or_default();
        if !["Deployment", "StatefulSet", "Pod"].contains(&kind) {
            continue;
        }
        pods += 1;
        let name = value(document, "  name: ").unwrap_or_default();
        for setting in [
            "runAsNonRoot: true",
            "allowPrivilegeEscalation: false",
            "readOnlyRootFilesystem: true",
            "drop: [ALL]",
            "type: RuntimeDefault",
        ] {
            ensure!(document.contains(setting), "{kind} {name} lacks `{setting}`");
        }
        let has_token = document.contains("automountServiceAccountToken: true");
        let needs_token = name.ends_with("-scripts-manager") || name.ends_with("-test-permission");
        ensure!(
            has_token == needs_token,
            "{kind} {name}: only the scripts manager and its test mount a service account token"
        );
        ensure!(
            !document.contains("secretKeyRef"),
            "{kind} {name} has a secret in its environment"
        );
    }
    ensure!(pods > 0, "the chart creates no pod");
    let secret = |document: &&str| value(document, "kind: ") == Some("Secret");
    if let Some(secret) = documents(stream).find(secret) {
        let name = value(secret, "  name: ").unwrap_or_default();
        bail!("the chart creates the secret {name}, which the release history would contain");
    }
    Ok(())
}

/// Returns the rest of the first line with a prefix.
fn value<'a>(document: &'a str, prefix: &str) -> Option<&'a str> {
    document.lines().find_map(|line| line.strip_prefix(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "---\n# Source: a\nkind: Deployment\nmetadata:\n  name: rockbot-agent\nspec:\n  \
                       automountServiceAccountToken: false\n  runAsNonRoot: true\n  \
                       allowPrivilegeEscalation: false\n  readOnlyRootFilesystem: true\n  drop: [ALL]\n  \
                       type: RuntimeDefault\n";

    #[test]
    fn pod_without_hardening_is_refused() {
        assert!(check_hardening(POD).is_ok());
        let writable = POD.replace("  readOnlyRootFilesystem: true\n", "");
        let error = check_hardening(&writable).unwrap_err().to_string();
        assert_eq!(error, "Deployment rockbot-agent lacks `readOnlyRootFilesystem: true`");
        let with_token = POD.replace("Token: false", "Token: true");
        assert!(check_hardening(&with_token).unwrap_err().to_string().contains("token"));
    }

    #[test]
    fn secret_in_the_chart_is_refused() {
        let secret = format!("{POD}---\nkind: Secret\nmetadata:\n  name: generated\n");
        assert!(check_hardening(&secret).unwrap_err().to_string().contains("generated"));
    }

    #[test]
    fn snapshot_omits_common_labels_and_copied_files() {
        let stream = "---\n# Source: rockbot/templates/monitoring/rules.yaml\nkind: PrometheusRule\n\
                      metadata:\n  labels:\n    helm.sh/chart: rockbot-0.1.0\n    own: label\nspec:\n  much\n";
        let text = normalized(stream);
        assert!(text.contains("    own: label\n"));
        assert!(!text.contains("helm.sh/chart") && !text.contains("much"));
    }
}
