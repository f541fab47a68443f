//! Checks of the Grafana dashboards.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::metrics::Metrics;
use super::{files, read as read_file, relative_name};

/// Schema of Grafana 11.
const OLDEST_SCHEMA: u64 = 39;
/// Keys that Grafana sets on saving, without meaning for the repository.
const INSTANCE_KEYS: [&str; 3] = ["id", "version", "iteration"];
/// Panels that show numbers and need a unit.
const NEEDS_A_UNIT: [&str; 2] = ["timeseries", "stat"];
/// Grafana's variables and values that stand for them. Variables of the dashboards occur in string
/// literals only.
const VARIABLES: [(&str, &str); 2] = [("$__rate_interval", "5m"), ("$__range", "1h")];

/// A dashboard file.
#[derive(Debug)]
pub(crate) struct Dashboard {
    path: PathBuf,
    content: Value,
}

/// A query of a panel.
#[derive(Debug)]
pub(crate) struct Query<'a> {
    panel: &'a str,
    expression: &'a str,
}

impl Dashboard {
    /// Returns the queries of all panels.
    pub(crate) fn queries(&self) -> impl Iterator<Item = Query<'_>> {
        self.panels().flat_map(|panel| {
            let targets = panel["targets"].as_array().into_iter().flatten();
            targets.map(|target| Query {
                panel: panel["title"].as_str().unwrap_or_default(),
                expression: target["expr"].as_str().unwrap_or_default(),
            })
        })
    }

    fn panels(&self) -> impl Iterator<Item = &Value> {
        self.content["panels"].as_array().into_iter().flatten()
    }

    fn variables(&self) -> impl Iterator<Item = &Value> {
        self.content["templating"]["list"].as_array().into_iter().flatten()
    }
}

/// Reads the dashboards in a folder.
pub(crate) fn read(folder: &Path) -> Result<Vec<Dashboard>> {
    let read = |path: PathBuf| {
        let content = serde_json::from_str(&read_file(&path)?)
            .with_context(|| format!("in {}", relative_name(&path)))?;
        Ok(Dashboard { path, content })
    };
    files(folder, "json")?.into_iter().map(read).collect()
}

/// Checks names, keys, panels and metrics of the dashboards.
pub(crate) fn check(dashboards: &[Dashboard], metrics: &Metrics, problems: &mut Vec<String>) {
    for dashboard in dashboards {
        let path = relative_name(&dashboard.path);
        let mut problem = |text: &str| problems.push(format!("{path}: {text}"));
        check_metadata(dashboard, &mut problem);
        check_panels(dashboard, &mut problem);
        for query in dashboard.queries() {
            for text in metrics.check(query.expression) {
                problem(&format!("{}: {text}", query.panel));
            }
        }
        for variable in dashboard.variables().filter(|variable| variable["type"] == "query") {
            let query = variable["query"]["query"].as_str().unwrap_or_default();
            match as_grouping(query) {
                Some(expression) => {
                    metrics.check(&expression).iter().for_each(|text| problem(text));
                }
                None => problem(&format!("a variable must use label_values, not {query}")),
            }
        }
    }
}

fn check_metadata(dashboard: &Dashboard, problem: &mut impl FnMut(&str)) {
    let content = &dashboard.content;
    let stem = dashboard.path.file_stem().unwrap_or_default().to_string_lossy();
    if content["uid"] != format!("rockbot-{stem}") {
        problem(&format!("the uid must be rockbot-{stem}"));
    }
    if content["title"].as_str().unwrap_or_default().is_empty() {
        problem("the title is missing");
    }
    if content["schemaVersion"].as_u64() < Some(OLDEST_SCHEMA) {
        problem(&format!("the schemaVersion must be at least {OLDEST_SCHEMA}"));
    }
    for key in INSTANCE_KEYS {
        if !content[key].is_null() {
            problem(&format!("remove {key}, which belongs to a Grafana instance"));
        }
    }
    for variable in ["job", "instance"] {
        if !dashboard.variables().any(|found| found["name"] == variable) {
            problem(&format!("the variable {variable} is missing"));
        }
    }
}

fn check_panels(dashboard: &Dashboard, problem: &mut impl FnMut(&str)) {
    if dashboard.panels().next().is_none() {
        problem("the dashboard has no panels");
    }
    for (index, panel) in dashboard.panels().enumerate() {
        let title = panel["title"].as_str().unwrap_or_default();
        if title.is_empty() {
            problem(&format!("panel {} has no title", index + 1));
        }
        if panel["id"] != index + 1 {
            problem(&format!("{title}: the id must be {}; ids are consecutive", index + 1));
        }
        let unit = panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap_or_default();
        let kind = panel["type"].as_str().unwrap_or_default();
        if NEEDS_A_UNIT.contains(&kind) && unit.is_empty() {
            problem(&format!("{title}: the unit is missing"));
        }
    }
}

/// Converts `label_values(series, label)` to the equivalent `group by (label) (series)`.
fn as_grouping(query: &str) -> Option<String> {
    let (series, label) =
        query.strip_prefix("label_values(")?.strip_suffix(')')?.rsplit_once(", ")?;
    Some(format!("group by ({label}) ({series})"))
}

/// Writes the queries of each dashboard as a rule file, which promtool can check.
pub(crate) fn write_as_rules(dashboards: &[Dashboard], folder: &Path) -> Result<Vec<PathBuf>> {
    let write = |dashboard: &Dashboard| {
        let rules: Vec<Value> = dashboard.queries().map(|query| as_rule(&query)).collect();
        let name = dashboard.path.file_name().unwrap_or_default();
        let file = folder.join(name);
        // JSON is valid YAML.
        let groups = json!({ "groups": [{ "name": name.to_string_lossy(), "rules": rules }] });
        fs::write(&file, groups.to_string())
            .with_context(|| format!("cannot write {}", file.display()))?;
        Ok(file)
    };
    dashboards.iter().map(write).collect()
}

fn as_rule(query: &Query<'_>) -> Value {
    let expression = VARIABLES
        .iter()
        .fold(query.expression.to_owned(), |text, (name, value)| text.replace(name, value));
    // promtool reports the name of an invalid rule.
    let panel: String = query
        .panel
        .chars()
        .map(|letter| if letter.is_ascii_alphabetic() { letter } else { '_' })
        .collect();
    json!({ "record": panel, "expr": expression })
}
