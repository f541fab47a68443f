//! Checks of the Prometheus rules and their tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::metrics::Metrics;
use super::{files, read as read_file, relative_name};

const RUNBOOK_URL: &str = "https://github.com/rockbot/rockbot/blob/main/docs/operations.md";
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
    exp_alerts: Vec<ExpectedAlert>,
}

/// An expected alert; only the count matters here, promtool compares the fields.
#[derive(Debug, Deserialize)]
struct ExpectedAlert {}

/// Reads the rule files of a folder.
pub(crate) fn read(folder: &Path) -> Result<Vec<RuleFile>> {
    let parse_rules = |path: PathBuf| {
        let groups: Groups = parse(&path)?;
        let rules = groups.groups.into_iter().flat_map(|group| group.rules).collect();
        Ok(RuleFile { path, rules })
    };
    files(folder, "yaml")?.into_iter().map(parse_rules).collect()
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
pub(crate) fn recorded_metrics(files: &[RuleFile]) -> Metrics {
    let rules = files.iter().flat_map(|file| &file.rules);
    Metrics::recorded(rules.filter_map(|rule| rule.record.as_deref()))
}

/// Checks the rules. Every alert needs a test that fires, a test that does not, and documentation. Every
/// test needs an alert.
pub(crate) fn check(
    files: &[RuleFile],
    tests: &[AlertTest],
    metrics: &Metrics,
    operations_md: &str,
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
                check_alert(alert, rule, operations_md, &mut problem);
                check_tests(alert, tests, &mut problem);
            }
        }
    }
    let names: BTreeSet<&str> = alerts(files).collect();
    let tested: BTreeSet<&str> = tests.iter().map(|test| test.alertname.as_str()).collect();
    for alert in tested.difference(&names) {
        problems.push(format!(
            "deploy/observability/prometheus/tests: {alert}: the tested alert has no rule"
        ));
    }
    for heading in headings(operations_md).filter(|heading| heading.starts_with("RockBot")) {
        if !names.contains(heading) {
            problems.push(format!("docs/operations.md: unknown alert {heading}"));
        }
    }
}

fn check_alert(alert: &str, rule: &Rule, operations_md: &str, problem: &mut impl FnMut(&str)) {
    if !rule.labels.get("severity").is_some_and(|value| SEVERITIES.contains(&value.as_str())) {
        problem("the severity must be critical or warning");
    }
    for key in ["summary", "description"] {
        if rule.annotations.get(key).is_none_or(|value| value.trim().is_empty()) {
            problem(&format!("the {key} is missing"));
        }
    }
    let runbook_url = format!("{RUNBOOK_URL}#{}", alert.to_lowercase());
    if rule.annotations.get("runbook_url") != Some(&runbook_url) {
        problem(&format!("the runbook_url must be {runbook_url}"));
    }
    if !headings(operations_md).any(|heading| heading == alert) {
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

fn headings(operations_md: &str) -> impl Iterator<Item = &str> {
    operations_md.lines().filter_map(|line| line.strip_prefix("### ")).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests_of(alert: &str) -> [AlertTest; 2] {
        [vec![], vec![ExpectedAlert {}]]
            .map(|exp_alerts| AlertTest { alertname: alert.to_owned(), exp_alerts })
    }

    #[test]
    fn test_of_unknown_alert_is_reported() {
        let mut tests = Vec::from(tests_of("RockBotDown"));
        let texts = ["summary", "description"].map(|key| (key.to_owned(), "text".to_owned()));
        let url = ("runbook_url".to_owned(), format!("{RUNBOOK_URL}#rockbotdown"));
        let rule = Rule {
            alert: Some("RockBotDown".to_owned()),
            record: None,
            expr: "up == 0".to_owned(),
            labels: BTreeMap::from([("severity".to_owned(), "warning".to_owned())]),
            annotations: texts.into_iter().chain([url]).collect(),
        };
        let files = [RuleFile { path: PathBuf::from("rules.yaml"), rules: vec![rule] }];
        let problems = |tests: &[AlertTest]| {
            let mut problems = Vec::new();
            let metrics = Metrics::recorded(["up"].into_iter());
            check(&files, tests, &metrics, "### RockBotDown\n", &mut problems);
            problems
        };
        assert_eq!(problems(&tests), Vec::<String>::new());
        tests.extend(tests_of("RockBotDwon"));
        let found = problems(&tests);
        assert!(found.len() == 1 && found[0].contains("RockBotDwon"), "{found:?}");
    }
}
