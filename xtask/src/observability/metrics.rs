//! Known metrics, and checks of the expressions that use them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

use super::{promql, read, relative_name};

/// Labels that a scrape adds, in Compose or in Kubernetes.
const SCRAPE_LABELS: [&str; 4] = ["job", "instance", "namespace", "pod"];
const TYPES: [&str; 3] = ["counter", "gauge", "histogram"];

/// Known metrics by name.
#[derive(Debug, Default)]
pub(crate) struct Metrics(BTreeMap<String, Metric>);

#[derive(Debug)]
struct Metric {
    histogram: bool,
    /// `None` for the result of a recording rule, whose labels depend on its expression.
    labels: Option<Vec<String>>,
}

impl Metrics {
    /// Reads a list with one metric per line: name, type and optional labels.
    pub(crate) fn read(file: &Path, problems: &mut Vec<String>) -> Result<Self> {
        Ok(Self::parse(&relative_name(file), &read(file)?, problems))
    }

    fn parse(file: &str, text: &str, problems: &mut Vec<String>) -> Self {
        let mut metrics = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut problem =
                |text: &str| problems.push(format!("{file}:{}: {text}: {line}", index + 1));
            let words: Vec<&str> = line.split(' ').collect();
            let (name, kind, labels) = match words[..] {
                [name, kind] => (name, kind, Vec::new()),
                [name, kind, labels] => {
                    (name, kind, labels.split(',').map(str::to_owned).collect())
                }
                _ => {
                    problem("expected `name type` or `name type label,label`");
                    continue;
                }
            };
            if !TYPES.contains(&kind) {
                problem("the type must be counter, gauge or histogram");
            }
            if (kind == "counter") != name.ends_with("_total") {
                problem("counters, and only they, must end with _total");
            }
            let metric = Metric { histogram: kind == "histogram", labels: Some(labels) };
            if metrics.insert(name.to_owned(), metric).is_some() {
                problem("duplicate metric");
            }
        }
        Self(metrics)
    }

    /// Returns the metrics of recording rules.
    pub(crate) fn recorded<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let metric = || Metric { histogram: false, labels: None };
        Self(names.map(|name| (name.to_owned(), metric())).collect())
    }

    pub(crate) fn add(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Returns the problems with metrics and labels of an expression.
    pub(crate) fn check(&self, expression: &str) -> Vec<String> {
        let references = promql::parse(expression);
        let mut problems = Vec::new();
        if references.selectors.is_empty() {
            problems.push("the expression reads no metric".to_owned());
        }
        // Possible labels of the result. `None` if a recorded metric may add others.
        let mut known = Some(BTreeSet::from(SCRAPE_LABELS));
        for selector in &references.selectors {
            let Some((metric, series_label)) = self.find(&selector.name) else {
                problems.push(format!("unknown metric `{}`", selector.name));
                known = None;
                continue;
            };
            let Some(labels) = &metric.labels else {
                known = None;
                continue;
            };
            let labels = labels.iter().map(String::as_str);
            let labels: BTreeSet<&str> = labels.chain(SCRAPE_LABELS).chain(series_label).collect();
            for label in &selector.labels {
                if !labels.contains(label.as_str()) {
                    problems.push(format!("`{}` has no label `{label}`", selector.name));
                }
            }
            if let Some(known) = &mut known {
                known.extend(labels);
            }
        }
        if let Some(known) = known {
            let groupings = references.groupings.iter().map(String::as_str);
            for label in groupings.filter(|label| !known.contains(label)) {
                problems.push(format!("no metric of the expression has a label `{label}`"));
            }
        }
        problems
    }

    /// Returns the metric of a series, and the additional label of that series.
    fn find(&self, series: &str) -> Option<(&Metric, Option<&'static str>)> {
        if let Some(metric) = self.0.get(series) {
            // A histogram has no series without a suffix.
            return (!metric.histogram).then_some((metric, None));
        }
        let suffixes = [("_bucket", Some("le")), ("_sum", None), ("_count", None)];
        suffixes.into_iter().find_map(|(suffix, label)| {
            let metric = self.0.get(series.strip_suffix(suffix)?)?;
            metric.histogram.then_some((metric, label))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    fn metrics() -> Metrics {
        let mut problems = Vec::new();
        let list = "# a list\n\na_total counter kind\nb gauge\nc_seconds histogram kind,way\n";
        let mut metrics = Metrics::parse("list", list, &mut problems);
        assert_eq!(problems, Vec::<String>::new());
        metrics.add(Metrics::recorded(["d:e"].into_iter()));
        metrics
    }

    #[track_caller]
    fn check(expression: &str, expected: &[&str]) {
        assert_eq!(metrics().check(expression), expected, "{expression}");
    }

    #[test]
    fn listed_scraped_and_recorded_metrics_are_accepted() {
        check(
            r#"sum by (kind, job) (rate(a_total{kind="x",instance="y"}[5m])) and on (job) b"#,
            &[],
        );
        check(r#"sum by (way, le) (c_seconds_bucket{le="1"}) / sum(c_seconds_count)"#, &[]);
        check(r#"sum by (whatever) (d:e{whatever="x"})"#, &[]);
    }

    #[test]
    fn unknown_metric_or_label_is_a_problem() {
        check("rate(e_total[5m])", &["unknown metric `e_total`"]);
        check("c_seconds", &["unknown metric `c_seconds`"]);
        check("a_total_bucket", &["unknown metric `a_total_bucket`"]);
        check(r#"a_total{way="x"}"#, &["`a_total` has no label `way`"]);
        check(r#"c_seconds_sum{le="1"}"#, &["`c_seconds_sum` has no label `le`"]);
        check("sum by (way) (a_total)", &["no metric of the expression has a label `way`"]);
        check(r#"{job="x"}"#, &["unknown metric ``"]);
        check("vector(1)", &["the expression reads no metric"]);
    }

    #[test]
    fn invalid_line_of_a_list_is_a_problem() {
        let mut problems = Vec::new();
        let list = "a\nb meter\nc counter\nd_total gauge\ne gauge\ne gauge";
        Metrics::parse("list", list, &mut problems);
        let expected = [
            "list:1: expected `name type` or `name type label,label`: a",
            "list:2: the type must be counter, gauge or histogram: b meter",
            "list:3: counters, and only they, must end with _total: c counter",
            "list:4: counters, and only they, must end with _total: d_total gauge",
            "list:6: duplicate metric: e gauge",
        ];
        assert_eq!(problems, expected);
    }
}
