//! What the trace backend tells of a turn.

use std::collections::HashSet;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// What a turn of `model-script.toml` passes: processes, with a span of each by the beginning of its
/// name.
const STATIONS: [(&str, &str); 7] = [
    ("rockbot-agent", "invoke_agent"),
    ("rockbot-agent", "chat"),
    ("rockbot-agent", "send "),
    ("rockbot-tool-handler", "process "),
    ("rockbot-tool-handler", "execute_tool list_files"),
    ("rockbot-mcp-bridge", "process "),
    ("rockbot-mcp-bridge", "tools/call current_time"),
];

/// Looks for the trace of a whole turn in an answer to Jaeger's `/api/traces`, and returns how many
/// spans it has.
///
/// # Errors
/// When there is none, and when it is not one tree.
pub(super) fn whole_turn(answer: &str) -> Result<usize> {
    let answer: Value = serde_json::from_str(answer).context("that is no JSON")?;
    let traces = answer["data"].as_array().context("that tells of no traces")?;
    let (mut missing, mut torn) = (None, None);
    for trace in traces {
        let spans = trace["spans"].as_array().into_iter().flatten();
        let spans: Vec<_> = spans.map(|span| Span::of(span, &trace["processes"])).collect();
        let passed = |&(service, name): &(&str, &str)| {
            spans.iter().any(|span| span.service == service && span.name.starts_with(name))
        };
        match STATIONS.iter().find(|station| !passed(station)) {
            None => match one_tree(&spans) {
                Ok(spans) => return Ok(spans),
                Err(error) => torn = Some(error),
            },
            absent => missing = missing.or(absent),
        }
    }
    match (torn, missing) {
        (Some(error), _) => Err(error),
        (None, Some((service, name))) => bail!("a trace has no span {name:?} of {service}"),
        (None, None) => bail!("there is no trace"),
    }
}

fn one_tree(spans: &[Span<'_>]) -> Result<usize> {
    let ids: HashSet<_> = spans.iter().map(|span| span.id).collect();
    let roots = spans.iter().filter(|span| span.parent.is_none()).count();
    ensure!(roots == 1, "the trace has {roots} roots");
    let lost = spans.iter().find(|span| span.parent.is_some_and(|parent| !ids.contains(parent)));
    if let Some(span) = lost {
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
    fn of(span: &'a Value, processes: &'a Value) -> Self {
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

    /// A trace with every station, each the child of the one before, less the spans of `without`.
    fn told(without: &[usize]) -> String {
        let span = |(at, (service, name)): (usize, &(&str, &str))| {
            let parent = at.checked_sub(1).map(|parent| json!({"spanID": parent.to_string()}));
            json!({"spanID": at.to_string(), "operationName": format!("{name} x"),
                "processID": service, "references": Vec::from_iter(parent)})
        };
        let spans = STATIONS.iter().enumerate().filter(|(at, _)| !without.contains(at)).map(span);
        let names = STATIONS.iter().map(|(name, _)| (*name, json!({"serviceName": name})));
        let processes: serde_json::Map<_, _> =
            names.map(|(name, process)| (name.to_owned(), process)).collect();
        json!({"data": [{"spans": Vec::from_iter(spans), "processes": processes}]}).to_string()
    }

    #[test]
    fn a_turn_is_whole_when_its_trace_has_every_station() {
        assert_eq!(whole_turn(&told(&[])).unwrap(), STATIONS.len());
        for (at, (_, name)) in STATIONS.iter().enumerate() {
            let error = whole_turn(&told(&[at])).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        assert!(whole_turn(r#"{"data":[]}"#).is_err() && whole_turn("oops").is_err());
    }

    #[test]
    fn a_trace_in_pieces_is_not_whole() {
        for (from, to) in
            [("\"spanID\":\"3\"}", "\"spanID\":\"9\"}"), ("[{\"spanID\":\"3\"}]", "[]")]
        {
            let pieces = told(&[]).replacen(from, to, 1);
            assert_ne!(pieces, told(&[]));
            assert!(whole_turn(&pieces).is_err(), "{pieces}");
        }
    }
}
