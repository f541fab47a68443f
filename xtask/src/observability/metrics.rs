//! The metrics there are, and whether an expression uses them as they are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

use super::{name, promql, read};

/// Labels that a scrape adds, in compose or in Kubernetes.
const OF_A_SCRAPE: [&str; 4] = ["job", "instance", "namespace", "pod"];
const TYPES: [&str; 3] = ["counter", "gauge", "histogram"];

/// The metrics there are, by name.
#[derive(Debug, Default)]
pub(crate) struct Metrics(BTreeMap<String, Metric>);

#[derive(Debug)]
struct Metric {
    histogram: bool,
    /// `None` for a recorded one, which has what its expression leaves.
    labels: Option<Vec<String>>,
}

impl Metrics {
    /// Reads a list: a metric a line, with its name, its type, and its labels where it has some.
    pub(crate) fn read(file: &Path, problems: &mut Vec<String>) -> Result<Self> {
        Ok(Self::parse(&name(file), &read(file)?, problems))
    }

    fn parse(file: &str, text: &str, problems: &mut Vec<String>) -> Self {
        let mut metrics = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut problem =
                |what: &str| problems.push(format!("{file}:{}: {what}: {line}", index + 1));
            let words: Vec<&str> = line.split(' ').collect();
            let (name, kind, labels) = match words[..] {
                [name, kind] => (name, kind, Vec::new()),
                [name, kind, labels] => {
                    (name, kind, labels.split(',').map(str::to_owned).collect())
                }
                _ => {
                    problem("write `name type`, or `name type label,label`");
                    continue;
                }
            };
            if !TYPES.contains(&kind) {
                problem("the type is counter, gauge or histogram");
            }
            if (kind == "counter") != name.ends_with("_total") {
                problem("counters, and no others, end with _total");
            }
            let metric = Metric { histogram: kind == "histogram", labels: Some(labels) };
            if metrics.insert(name.to_owned(), metric).is_some() {
                problem("it is listed twice");
            }
        }
        Self(metrics)
    }

    /// A metric that a rule records.
    pub(crate) fn recorded<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let metric = || Metric { histogram: false, labels: None };
        Self(names.map(|name| (name.to_owned(), metric())).collect())
    }

    pub(crate) fn add(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// What is wrong with the metrics and labels of an expression.
    pub(crate) fn check(&self, expression: &str) -> Vec<String> {
        let reading = promql::read(expression);
        let mut problems = Vec::new();
        if reading.selectors.is_empty() {
            problems.push("it reads no metric".to_owned());
        }
        // The labels that may be there in the result, unless a recorded metric has others.
        let mut known = Some(BTreeSet::from(OF_A_SCRAPE));
        for selector in &reading.selectors {
            let Some((metric, of_series)) = self.find(&selector.name) else {
                problems.push(format!("there is no metric `{}`", selector.name));
                known = None;
                continue;
            };
            let Some(labels) = &metric.labels else {
                known = None;
                continue;
            };
            let labels: BTreeSet<&str> =
                labels.iter().map(String::as_str).chain(OF_A_SCRAPE).chain(of_series).collect();
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
            let groupings = reading.groupings.iter().map(String::as_str);
            for label in groupings.filter(|label| !known.contains(label)) {
                problems.push(format!("no metric in it has a label `{label}`"));
            }
        }
        problems
    }

    /// The metric that a series belongs to, and the label that such a series has besides.
    fn find(&self, series: &str) -> Option<(&Metric, Option<&'static str>)> {
        if let Some(metric) = self.0.get(series) {
            // A histogram has no series of its own name.
            return (!metric.histogram).then_some((metric, None));
        }
        let parts = [("_bucket", Some("le")), ("_sum", None), ("_count", None)];
        parts.into_iter().find_map(|(part, label)| {
            let metric = self.0.get(series.strip_suffix(part)?)?;
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
    fn an_expression_may_use_what_is_listed_scraped_and_recorded() {
        check(
            r#"sum by (kind, job) (rate(a_total{kind="x",instance="y"}[5m])) and on (job) b"#,
            &[],
        );
        check(r#"sum by (way, le) (c_seconds_bucket{le="1"}) / sum(c_seconds_count)"#, &[]);
        check(r#"sum by (whatever) (d:e{whatever="x"})"#, &[]);
    }

    #[test]
    fn a_metric_or_label_that_is_not_there_is_a_problem() {
        check("rate(e_total[5m])", &["there is no metric `e_total`"]);
        check("c_seconds", &["there is no metric `c_seconds`"]);
        check("a_total_bucket", &["there is no metric `a_total_bucket`"]);
        check(r#"a_total{way="x"}"#, &["`a_total` has no label `way`"]);
        check(r#"c_seconds_sum{le="1"}"#, &["`c_seconds_sum` has no label `le`"]);
        check("sum by (way) (a_total)", &["no metric in it has a label `way`"]);
        check(r#"{job="x"}"#, &["there is no metric ``"]);
        check("vector(1)", &["it reads no metric"]);
    }

    #[test]
    fn a_list_that_is_written_wrongly_is_a_problem() {
        let mut problems = Vec::new();
        let list = "a\nb metre\nc counter\nd_total gauge\ne gauge\ne gauge";
        Metrics::parse("list", list, &mut problems);
        let expected = [
            "list:1: write `name type`, or `name type label,label`: a",
            "list:2: the type is counter, gauge or histogram: b metre",
            "list:3: counters, and no others, end with _total: c counter",
            "list:4: counters, and no others, end with _total: d_total gauge",
            "list:6: it is listed twice: e gauge",
        ];
        assert_eq!(problems, expected);
    }
}
