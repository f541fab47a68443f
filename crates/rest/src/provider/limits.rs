//! Limits of what a process offers: agents receive all definitions every few seconds.

use std::collections::BTreeSet;

use rockbot_tools::ToolRegistration;

/// Maximum size of all definitions, in bytes.
const MAX_DEFINITION_BYTES: usize = 512 * 1024;

/// Tools of the entries that were added.
#[derive(Debug)]
pub(super) struct Offered {
    max_tools: usize,
    names: BTreeSet<String>,
    bytes: usize,
}

impl Offered {
    pub(super) fn new(max_tools: usize) -> Self {
        Self { max_tools, names: BTreeSet::new(), bytes: 0 }
    }

    /// Adds the tools of an entry, all of them or none.
    ///
    /// # Errors
    /// The limit that they would exceed, or the name that is taken, for the operator.
    pub(super) fn add<'a>(
        &mut self,
        tools: impl Iterator<Item = &'a ToolRegistration> + Clone,
    ) -> Result<(), String> {
        let count = tools.clone().count();
        let total = self.names.len() + count;
        if total > self.max_tools {
            return Err(format!(
                "its {count} tools make {total}; rest.max_tools is {}; select operations with \
                 include and exclude",
                self.max_tools
            ));
        }
        let size = |tool: &ToolRegistration| {
            tool.parameters.to_string().len() + tool.model_description().len() + tool.name.len()
        };
        let bytes = self.bytes + tools.clone().map(size).sum::<usize>();
        if bytes > MAX_DEFINITION_BYTES {
            return Err(format!(
                "its definitions make {bytes} bytes; at most {MAX_DEFINITION_BYTES} are offered; \
                 select operations with include and exclude"
            ));
        }
        let names: BTreeSet<_> = tools.map(|tool| tool.name.clone()).collect();
        if let Some(taken) = names.iter().find(|name| self.names.contains(*name)) {
            return Err(format!("another entry has a tool called {taken}; rename one of them"));
        }
        self.names.extend(names);
        self.bytes = bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rockbot_tools::{ToolHints, ToolSource};
    use serde_json::json;

    use super::*;

    fn tools(names: &[&str], description: &str) -> Vec<ToolRegistration> {
        let tool = |name: &&str| ToolRegistration {
            name: (*name).to_owned(),
            label: None,
            description: description.to_owned(),
            tool_description: None,
            parameters: json!({}),
            source: ToolSource::Rest,
            hints: ToolHints::default(),
            timeout_ms: None,
        };
        names.iter().map(tool).collect()
    }

    #[test]
    fn entry_over_a_limit_is_left_out_whole() {
        let mut offered = Offered::new(3);
        assert!(offered.add(tools(&["a", "b"], "").iter()).is_ok());
        let error = offered.add(tools(&["c", "d"], "").iter()).unwrap_err();
        assert!(error.contains("rest.max_tools is 3") && error.contains("include"), "{error}");
        assert!(offered.add(tools(&["a"], "").iter()).unwrap_err().contains("called a"));
        let large = "x".repeat(MAX_DEFINITION_BYTES);
        assert!(offered.add(tools(&["c"], &large).iter()).unwrap_err().contains("bytes"));
        assert!(offered.add(tools(&["c"], "").iter()).is_ok());
    }
}
