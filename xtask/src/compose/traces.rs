//! Checks of the trace of a turn.

use std::collections::HashSet;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Spans of a turn of `model-script.toml`: service and prefix of the name.
const EXPECTED_SPANS: [(&str, &str); 7] = [
    ("rockbot-agent", "invoke_agent"),
    ("rockbot-agent", "chat"),
    ("rockbot-agent", "send "),
    ("rockbot-tool-handler", "process "),
    ("rockbot-tool-handler", "execute_tool list_files"),
    ("rockbot-mcp-bridge", "process "),
    ("rockbot-mcp-bridge", "tools/call current_time"),
];

/// Finds the complete trace of a turn in a response of Jaeger's `/api/traces`, and returns the number
/// of its spans.
///
/// # Errors
/// If no trace has all expected spans, or if it is not a single tree.
pub(super) fn complete_turn(response: &str) -> Result<usize> {
    let response: Value = serde_json::from_str(response).context("the response is not JSON")?;
    let traces = response["data"].as_array().context("the response has no `data`")?;
    let (mut missing, mut broken) = (None, None);
    for trace in traces {
        let spans = trace["spans"].as_array().into_iter().flatten();
        let spans: Vec<_> = spans.map(|span| Span::from_json(span, &trace["processes"])).collect();
        let is_present = |&(service, name): &(&str, &str)| {
            spans.iter().any(|span| span.service == service && span.name.starts_with(name))
        };
        match EXPECTED_SPANS.iter().find(|expected| !is_present(expected)) {
            None => match one_tree(&spans) {
                Ok(spans) => return Ok(spans),
                Err(error) => broken = Some(error),
            },
            absent => missing = missing.or(absent),
        }
    }
    match (broken, missing) {
        (Some(error), _) => Err(error),
        (None, Some((service, name))) => bail!("the trace has no span {name:?} of {service}"),
        (None, None) => bail!("no trace found"),
    }
}

fn one_tree(spans: &[Span<'_>]) -> Result<usize> {
    let ids: HashSet<_> = spans.iter().map(|span| span.id).collect();
    let roots = spans.iter().filter(|span| span.parent.is_none()).count();
    ensure!(roots == 1, "the trace has {roots} roots");
    let orphan = spans.iter().find(|span| span.parent.is_some_and(|parent| !ids.contains(parent)));
    if let Some(span) = orphan {
        bail!("the parent of {:?} of {} is not in the trace", span.name, span.service);
    }
    Ok(spans.len())
}

struct Span<'a> {
    id: &'a str,
    parent: Option<&'a str>,
    name: &'a str,
    service: &'a str,
}

impl<'a> Span<'a> {
    fn from_json(span: &'a Value, processes: &'a Value) -> Self {
        let text = |field: &str| span[field].as_str().unwrap_or_default();
        let service = &processes[text("processID")]["serviceName"];
        Self {
            id: text("spanID"),
            parent: span["references"][0]["spanID"].as_str(),
            name: text("operationName"),
            service: service.as_str().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns a trace of the expected spans, each the child of the previous one, without some of them.
    fn trace(without: &[usize]) -> String {
        let span = |(index, (service, name)): (usize, &(&str, &str))| {
            let parent = index.checked_sub(1).map(|parent| json!({"spanID": parent.to_string()}));
            json!({"spanID": index.to_string(), "operationName": format!("{name} x"),
                "processID": service, "references": Vec::from_iter(parent)})
        };
        let spans = EXPECTED_SPANS.iter().enumerate().filter(|(index, _)| !without.contains(index));
        let spans = spans.map(span);
        let names = EXPECTED_SPANS.iter().map(|(name, _)| (*name, json!({"serviceName": name})));
        let processes: serde_json::Map<_, _> =
            names.map(|(name, process)| (name.to_owned(), process)).collect();
        json!({"data": [{"spans": Vec::from_iter(spans), "processes": processes}]}).to_string()
    }

    #[test]
    fn turn_is_complete_with_all_expected_spans() {
        assert_eq!(complete_turn(&trace(&[])).unwrap(), EXPECTED_SPANS.len());
        for (index, (_, name)) in EXPECTED_SPANS.iter().enumerate() {
            let error = complete_turn(&trace(&[index])).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        assert!(complete_turn(r#"{"data":[]}"#).is_err() && complete_turn("oops").is_err());
    }

    #[test]
    fn disconnected_trace_is_not_complete() {
        for (from, to) in
            [("\"spanID\":\"3\"}", "\"spanID\":\"9\"}"), ("[{\"spanID\":\"3\"}]", "[]")]
        {
            let pieces = trace(&[]).replacen(from, to, 1);
            assert_ne!(pieces, trace(&[]));
            assert!(complete_turn(&pieces).is_err(), "{pieces}");
        }
    }
}
