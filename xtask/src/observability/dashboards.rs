//! The dashboards of Grafana.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::metrics::Metrics;
use super::{files, name, read as read_file};

/// Of Grafana 11, which newer ones read.
const OLDEST_SCHEMA: u64 = 39;
/// What Grafana puts into a dashboard that it saves, and that says nothing.
const NOISE: [&str; 3] = ["id", "version", "iteration"];
/// Panels that show numbers, which mean nothing without a unit.
const NEEDS_A_UNIT: [&str; 2] = ["timeseries", "stat"];
/// What Grafana puts in place of its variables; those of the dashboards are in texts only.
const VARIABLES: [(&str, &str); 2] = [("$__rate_interval", "5m"), ("$__range", "1h")];

/// A dashboard, as it is in its file.
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
    /// What its panels ask Prometheus.
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
            .with_context(|| format!("in {}", name(&path)))?;
        Ok(Dashboard { path, content })
    };
    files(folder, "json")?.into_iter().map(read).collect()
}

/// Checks what dashboards are called, that they hold no noise, and the metrics they show.
pub(crate) fn check(dashboards: &[Dashboard], metrics: &Metrics, problems: &mut Vec<String>) {
    for dashboard in dashboards {
        let mut problem = |what: &str| problems.push(format!("{}: {what}", name(&dashboard.path)));
        check_frame(dashboard, &mut problem);
        check_panels(dashboard, &mut problem);
        for query in dashboard.queries() {
            for what in metrics.check(query.expression) {
                problem(&format!("{}: {what}", query.panel));
            }
        }
        for variable in dashboard.variables().filter(|variable| variable["type"] == "query") {
            let query = variable["query"]["query"].as_str().unwrap_or_default();
            match as_grouping(query) {
                Some(expression) => {
                    metrics.check(&expression).iter().for_each(|what| problem(what));
                }
                None => problem(&format!("a variable is asked for by label_values, not {query}")),
            }
        }
    }
}

fn check_frame(dashboard: &Dashboard, problem: &mut impl FnMut(&str)) {
    let content = &dashboard.content;
    let stem = dashboard.path.file_stem().unwrap_or_default().to_string_lossy();
    if content["uid"] != format!("rockbot-{stem}") {
        problem(&format!("its uid is rockbot-{stem}"));
    }
    if content["title"].as_str().unwrap_or_default().is_empty() {
        problem("it has no title");
    }
    if content["schemaVersion"].as_u64() < Some(OLDEST_SCHEMA) {
        problem(&format!("its schemaVersion is {OLDEST_SCHEMA} or later"));
    }
    for key in NOISE {
        if !content[key].is_null() {
            problem(&format!("take out {key}, which Grafana counts for itself"));
        }
    }
    for variable in ["job", "instance"] {
        if !dashboard.variables().any(|its| its["name"] == variable) {
            problem(&format!("it has no variable {variable}"));
        }
    }
}

fn check_panels(dashboard: &Dashboard, problem: &mut impl FnMut(&str)) {
    if dashboard.panels().next().is_none() {
        problem("it has no panels");
    }
    for (index, panel) in dashboard.panels().enumerate() {
        let title = panel["title"].as_str().unwrap_or_default();
        if title.is_empty() {
            problem(&format!("panel {} has no title", index + 1));
        }
        if panel["id"] != index + 1 {
            problem(&format!("{title}: its id is {}: they follow each other", index + 1));
        }
        let unit = panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap_or_default();
        let kind = panel["type"].as_str().unwrap_or_default();
        if NEEDS_A_UNIT.contains(&kind) && unit.is_empty() {
            problem(&format!("{title}: it has no unit"));
        }
    }
}

/// `label_values(series, label)` asks for what `group by (label) (series)` does.
fn as_grouping(query: &str) -> Option<String> {
    let (series, label) =
        query.strip_prefix("label_values(")?.strip_suffix(')')?.rsplit_once(", ")?;
    Some(format!("group by ({label}) ({series})"))
}

/// Writes the queries as rules, which promtool can check: a file for each dashboard.
pub(crate) fn write_as_rules(dashboards: &[Dashboard], folder: &Path) -> Result<Vec<PathBuf>> {
    let write = |dashboard: &Dashboard| {
        let rules: Vec<Value> = dashboard.queries().map(|query| as_rule(&query)).collect();
        let name = dashboard.path.file_name().unwrap_or_default();
        let file = folder.join(name);
        // What is JSON is YAML too.
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
    // promtool tells the name of a rule that it cannot read.
    let panel: String = query
        .panel
        .chars()
        .map(|letter| if letter.is_ascii_alphabetic() { letter } else { '_' })
        .collect();
    json!({ "record": panel, "expr": expression })
}
