//! Checks of the Prometheus rules and their tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::metrics::Metrics;
use super::{files, read as read_file, relative_name};

const MANUAL: &str = "https://github.com/rockbot/rockbot/blob/main/docs/operations.md";
const SEVERITIES: [&str; 2] = ["critical", "warning"];

/// A rule file.
#[derive(Debug)]
pub(crate) struct RuleFile {
    path: PathBuf,
    rules: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
struct Groups {
    groups: Vec<Group>,
}

#[derive(Debug, Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
struct Rule {
    alert: Option<String>,
    record: Option<String>,
    expr: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct TestFile {
    tests: Vec<Case>,
}

#[derive(Debug, Deserialize)]
struct Case {
    #[serde(default)]
    alert_rule_test: Vec<AlertTest>,
}

/// The expected state of an alert at a point in time.
#[derive(Debug, Deserialize)]
pub(crate) struct AlertTest {
    alertname: String,
    exp_alerts: Vec<Firing>,
}

/// A firing alert. promtool compares its content.
#[derive(Debug, Deserialize)]
struct Firing {}

/// Reads the rule files of a folder.
pub(crate) fn read(folder: &Path) -> Result<Vec<RuleFile>> {
    let read = |path: PathBuf| {
        let groups: Groups = parse(&path)?;
        let rules = groups.groups.into_iter().flat_map(|group| group.rules).collect();
        Ok(RuleFile { path, rules })
    };
    files(folder, "yaml")?.into_iter().map(read).collect()
}

/// Reads the alert tests of a folder.
pub(crate) fn read_tests(folder: &Path) -> Result<Vec<AlertTest>> {
    let mut tests = Vec::new();
    for path in files(folder, "yaml")? {
        let file: TestFile = parse(&path)?;
        tests.extend(file.tests.into_iter().flat_map(|case| case.alert_rule_test));
    }
    Ok(tests)
}

fn parse<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T> {
    serde_saphyr::from_str(&read_file(path)?).with_context(|| format!("in {}", relative_name(path)))
}

/// Returns the names of the alerts.
pub(crate) fn alerts(files: &[RuleFile]) -> impl Iterator<Item = &str> {
    files.iter().flat_map(|file| &file.rules).filter_map(|rule| rule.alert.as_deref())
}

/// Returns the metrics of the recording rules.
pub(crate) fn recorded(files: &[RuleFile]) -> Metrics {
    let rules = files.iter().flat_map(|file| &file.rules);
    Metrics::recorded(rules.filter_map(|rule| rule.record.as_deref()))
}

/// Checks the rules. Every alert needs a test that fires, a test that does not, and documentation.
pub(crate) fn check(
    files: &[RuleFile],
    tests: &[AlertTest],
    metrics: &Metrics,
    manual: &str,
    problems: &mut Vec<String>,
) {
    for file in files {
        for rule in &file.rules {
            let rule_name = rule.alert.as_ref().or(rule.record.as_ref());
            let rule_name = rule_name.map_or("unnamed rule", String::as_str);
            let mut problem = |text: &str| {
                problems.push(format!("{}: {rule_name}: {text}", relative_name(&file.path)));
            };
            metrics.check(&rule.expr).iter().for_each(|text| problem(text));
            if let Some(alert) = &rule.alert {
                check_alert(alert, rule, manual, &mut problem);
                check_tests(alert, tests, &mut problem);
            }
        }
    }
    for heading in headings(manual).filter(|heading| heading.starts_with("RockBot")) {
        if !alerts(files).any(|alert| alert == heading) {
            problems.push(format!("docs/operations.md: unknown alert {heading}"));
        }
    }
}

fn check_alert(alert: &str, rule: &Rule, manual: &str, problem: &mut impl FnMut(&str)) {
    if !rule.labels.get("severity").is_some_and(|value| SEVERITIES.contains(&value.as_str())) {
        problem("the severity must be critical or warning");
    }
    for text in ["summary", "description"] {
        if rule.annotations.get(text).is_none_or(|text| text.trim().is_empty()) {
            problem(&format!("the {text} is missing"));
        }
    }
    let anchor = format!("{MANUAL}#{}", alert.to_lowercase());
    if rule.annotations.get("runbook_url") != Some(&anchor) {
        problem(&format!("the runbook_url must be {anchor}"));
    }
    if !headings(manual).any(|heading| heading == alert) {
        problem(&format!("document it in docs/operations.md, below `### {alert}`"));
    }
}

fn check_tests(alert: &str, tests: &[AlertTest], problem: &mut impl FnMut(&str)) {
    let alert_tests = || tests.iter().filter(|test| test.alertname == alert);
    if !alert_tests().any(|test| !test.exp_alerts.is_empty()) {
        problem("no test in which the alert fires");
    }
    if !alert_tests().any(|test| test.exp_alerts.is_empty()) {
        problem("no test in which the alert does not fire");
    }
}

fn headings(manual: &str) -> impl Iterator<Item = &str> {
    manual.lines().filter_map(|line| line.strip_prefix("### ")).map(str::trim)
}
