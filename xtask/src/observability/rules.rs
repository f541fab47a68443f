//! The rules of Prometheus and their tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::metrics::Metrics;
use super::{files, name, read as read_file};

const MANUAL: &str = "https://github.com/rockbot/rockbot/blob/main/docs/operations.md";
const SEVERITIES: [&str; 2] = ["critical", "warning"];

/// A file of rules.
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

/// What a test says of an alert at one moment.
#[derive(Debug, Deserialize)]
pub(crate) struct AlertTest {
    alertname: String,
    exp_alerts: Vec<Firing>,
}

/// promtool compares what is in it.
#[derive(Debug, Deserialize)]
struct Firing {}

/// Reads the files of rules in a folder.
pub(crate) fn read(folder: &Path) -> Result<Vec<RuleFile>> {
    let read = |path: PathBuf| {
        let groups: Groups = parse(&path)?;
        let rules = groups.groups.into_iter().flat_map(|group| group.rules).collect();
        Ok(RuleFile { path, rules })
    };
    files(folder, "yaml")?.into_iter().map(read).collect()
}

/// Reads what the tests in a folder say of alerts.
pub(crate) fn read_tests(folder: &Path) -> Result<Vec<AlertTest>> {
    let mut tests = Vec::new();
    for path in files(folder, "yaml")? {
        let file: TestFile = parse(&path)?;
        tests.extend(file.tests.into_iter().flat_map(|case| case.alert_rule_test));
    }
    Ok(tests)
}

fn parse<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T> {
    serde_saphyr::from_str(&read_file(path)?).with_context(|| format!("in {}", name(path)))
}

/// The names of the alerts.
pub(crate) fn alerts(files: &[RuleFile]) -> impl Iterator<Item = &str> {
    files.iter().flat_map(|file| &file.rules).filter_map(|rule| rule.alert.as_deref())
}

/// The metrics that rules record.
pub(crate) fn recorded(files: &[RuleFile]) -> Metrics {
    let rules = files.iter().flat_map(|file| &file.rules);
    Metrics::recorded(rules.filter_map(|rule| rule.record.as_deref()))
}

/// Checks the rules, that each alert is shown to fire and to stay quiet, and that it is explained.
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
            let rule_name = rule_name.map_or("a rule without a name", String::as_str);
            let mut problem = |what: &str| {
                problems.push(format!("{}: {rule_name}: {what}", name(&file.path)));
            };
            metrics.check(&rule.expr).iter().for_each(|what| problem(what));
            if let Some(alert) = &rule.alert {
                check_alert(alert, rule, manual, &mut problem);
                check_tests(alert, tests, &mut problem);
            }
        }
    }
    for heading in headings(manual).filter(|heading| heading.starts_with("RockBot")) {
        if !alerts(files).any(|alert| alert == heading) {
            problems.push(format!("docs/operations.md: there is no alert {heading}"));
        }
    }
}

fn check_alert(alert: &str, rule: &Rule, manual: &str, problem: &mut impl FnMut(&str)) {
    if !rule.labels.get("severity").is_some_and(|its| SEVERITIES.contains(&its.as_str())) {
        problem("its severity is critical or warning");
    }
    for text in ["summary", "description"] {
        if rule.annotations.get(text).is_none_or(|text| text.trim().is_empty()) {
            problem(&format!("it has no {text}"));
        }
    }
    let anchor = format!("{MANUAL}#{}", alert.to_lowercase());
    if rule.annotations.get("runbook_url") != Some(&anchor) {
        problem(&format!("its runbook_url is {anchor}"));
    }
    if !headings(manual).any(|heading| heading == alert) {
        problem(&format!("explain it in docs/operations.md, below `### {alert}`"));
    }
}

fn check_tests(alert: &str, tests: &[AlertTest], problem: &mut impl FnMut(&str)) {
    let of_it = || tests.iter().filter(|test| test.alertname == alert);
    if !of_it().any(|test| !test.exp_alerts.is_empty()) {
        problem("no test shows that it fires");
    }
    if !of_it().any(|test| test.exp_alerts.is_empty()) {
        problem("no test shows that it stays quiet");
    }
}

fn headings(manual: &str) -> impl Iterator<Item = &str> {
    manual.lines().filter_map(|line| line.strip_prefix("### ")).map(str::trim)
}
