//! Details of a server in parts: those of a large server do not fit into one message.

use rockbot_contracts::mcp::{McpServerDetails, McpToolDefinition};

/// Maximum size of the definitions in a part, in bytes of JSON. A part has at least one tool.
const MAX_PART_BYTES: usize = 1024 * 1024;
/// Maximum number of parts that are requested, also if the server changes meanwhile.
const MAX_PARTS: usize = 64;

/// Reduces the details of a server to the part after the tool `after`. An empty name, and one that the
/// server does not have any more, begins with the first tool.
pub(super) fn part_after(mut details: McpServerDetails, after: &str) -> McpServerDetails {
    let position = details.tools.iter().position(|tool| tool.name == after);
    let mut tools = details.tools.split_off(position.map_or(0, |position| position + 1));
    let size = |tool: &McpToolDefinition| {
        serde_json::to_vec(tool).map_or(MAX_PART_BYTES, |json| json.len())
    };
    let mut bytes = 0;
    let excess = tools.iter().position(|tool| {
        let is_first = bytes == 0;
        bytes += size(tool);
        bytes > MAX_PART_BYTES && !is_first
    });
    if let Some(excess) = excess {
        tools.truncate(excess);
        details.next = tools.last().map(|tool| tool.name.clone());
    }
    details.tools = tools;
    details
}

/// The parts that were received.
#[derive(Debug, Default)]
pub(super) struct DetailsParts {
    received: usize,
    details: Option<McpServerDetails>,
}

/// The continuation after a part.
#[derive(Debug, PartialEq)]
pub(super) enum NextPart {
    /// All parts were received.
    Complete(Box<McpServerDetails>),
    /// The part after this tool is missing.
    After(String),
    /// There are too many parts.
    TooMany,
}

impl DetailsParts {
    /// Adds a part. Parts of an earlier state of the server are dropped.
    pub(super) fn add(&mut self, part: McpServerDetails) -> NextPart {
        self.received += 1;
        let (details, next) = match self.details.take() {
            Some(mut known) if known.server.fingerprint == part.server.fingerprint => {
                known.tools.extend(part.tools);
                (known, part.next)
            }
            // The server has changed. The part may not be the first one.
            Some(_) => return self.unless_too_many(String::new()),
            None => {
                let next = part.next.clone();
                (McpServerDetails { next: None, ..part }, next)
            }
        };
        match next {
            None => NextPart::Complete(Box::new(details)),
            Some(after) => {
                self.details = Some(details);
                self.unless_too_many(after)
            }
        }
    }

    fn unless_too_many(&self, after: String) -> NextPart {
        if self.received < MAX_PARTS { NextPart::After(after) } else { NextPart::TooMany }
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::mcp::McpServerSummary;
    use serde_json::json;

    use super::*;

    fn details(tools: &[(&str, usize)], fingerprint: &str) -> McpServerDetails {
        let summary = json!({"name": "s", "fingerprint": fingerprint});
        let server: McpServerSummary = serde_json::from_value(summary).unwrap();
        let tool = |(name, bytes): &(&str, usize)| {
            let description = "x".repeat(*bytes);
            let tool = json!({"name": name, "modelName": name, "parameters": {},
                "description": description});
            serde_json::from_value(tool).unwrap()
        };
        let tools = tools.iter().map(tool).collect();
        McpServerDetails { server, instructions: None, protocol_version: None, tools, next: None }
    }

    #[test]
    fn parts_make_up_all_details() {
        let third = MAX_PART_BYTES / 3;
        let sizes = [third, third, third, 2 * MAX_PART_BYTES, 1];
        let named: Vec<_> = ["e", "d", "c", "b", "a"].into_iter().zip(sizes).collect();
        let all = details(&named, "f");
        let mut parts = DetailsParts::default();
        let mut after = String::new();
        let mut requested = Vec::new();
        loop {
            requested.push(after.clone());
            match parts.add(part_after(all.clone(), &after)) {
                NextPart::After(next) => after = next,
                end => {
                    assert_eq!(end, NextPart::Complete(Box::new(all)));
                    break;
                }
            }
        }
        assert_eq!(requested, ["", "d", "c", "b"]);
    }

    #[test]
    fn changed_server_is_read_from_the_start() {
        let old = details(&[("a", MAX_PART_BYTES), ("b", 1)], "old");
        let new = details(&[("c", 1)], "new");
        let mut parts = DetailsParts::default();
        assert_eq!(parts.add(part_after(old, "")), NextPart::After("a".to_owned()));
        assert_eq!(parts.add(part_after(new.clone(), "a")), NextPart::After(String::new()));
        assert_eq!(parts.add(part_after(new.clone(), "")), NextPart::Complete(Box::new(new)));
    }

    #[test]
    fn endless_parts_are_refused() {
        let mut parts = DetailsParts::default();
        let mut part = details(&[("a", 1)], "f");
        part.next = Some("a".to_owned());
        let mut received = 1;
        while parts.add(part.clone()) != NextPart::TooMany {
            received += 1;
        }
        assert_eq!(received, MAX_PARTS);
    }
}
