//! Guides on families of tools, which a model reads when it needs them.
//!
//! - [`Guide`]: a built-in guide; providers return theirs, and handlers announce them;
//! - [`GuideSource`]: guides from elsewhere, known at run time;
//! - [`Guides`]: all guides of an agent, and the two tools that list and return them.

mod source;
mod tools;

use std::collections::BTreeSet;

use rockbot_contracts::{ToolGuide, ToolRegistration, ToolSource};

pub use self::{
    source::{GuideEntry, GuideSource, Guides},
    tools::guide_tools,
};

/// A guide on a family of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guide {
    /// Name that a model requests it by.
    pub name: &'static str,
    /// Subject, on one line.
    pub summary: &'static str,
    /// Text in Markdown, less than 120 lines.
    pub markdown: &'static str,
}

/// Line limit of a guide; a guide must stay below it.
pub const MAX_GUIDE_LINES: usize = 120;

impl Guide {
    /// Returns the guide as a handler announces it for its tools of `source`.
    #[must_use]
    pub fn announced(&self, source: ToolSource) -> ToolGuide {
        ToolGuide {
            source,
            name: self.name.to_owned(),
            summary: self.summary.to_owned(),
            markdown: self.markdown.to_owned(),
        }
    }

    /// Returns the defects of the guide: excessive length, and names of tools and arguments that do not
    /// exist. A name is text in backticks with an underscore that otherwise consists of letters, digits
    /// and hyphens.
    #[must_use]
    pub fn validate<'a>(
        &self,
        tools: impl IntoIterator<Item = &'a ToolRegistration>,
    ) -> Vec<String> {
        let mut known = BTreeSet::new();
        for tool in tools {
            known.insert(tool.name.clone());
            let arguments = tool.parameters["properties"].as_object().into_iter().flatten();
            known.extend(arguments.map(|(name, _)| name.clone()));
        }
        let lines = self.markdown.lines().count();
        let long = (lines >= MAX_GUIDE_LINES)
            .then(|| format!("{} has {lines} lines; use less than {MAX_GUIDE_LINES}", self.name));
        let too_long = self.markdown.chars().count() > ToolGuide::MAX_MARKDOWN;
        let cut = too_long.then(|| {
            format!(
                "{} is longer than the {} characters that agents read",
                self.name,
                ToolGuide::MAX_MARKDOWN
            )
        });
        let in_code = self.markdown.split('`').skip(1).step_by(2);
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let is_name = |text: &&str| text.contains('_') && text.chars().all(is_part);
        let unknown = in_code.filter(is_name).filter(|name| !known.contains(*name));
        let unknown = unknown.map(|name| format!("{} mentions unknown name {name}", self.name));
        long.into_iter().chain(cut).chain(unknown).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::registration;

    #[test]
    fn long_guides_and_unknown_names_are_reported() {
        let parameters = json!({"properties": {"the_key": {}}});
        let tools = [ToolRegistration { parameters, ..registration("save_it") }];
        let markdown = "`save_it` with `the_key`, and `save_it(key)`, `plain`, `a_b c`";
        let guide = Guide { name: "a", summary: "", markdown };
        assert_eq!(guide.validate(&tools), [""; 0]);
        let long = "`lose_it`\n".repeat(120);
        let guide = Guide { markdown: Box::leak(long.into_boxed_str()), ..guide };
        assert_eq!(guide.validate(&tools).len(), 121);
        let wide = "x".repeat(ToolGuide::MAX_MARKDOWN + 1);
        let guide = Guide { markdown: Box::leak(wide.into_boxed_str()), ..guide };
        assert_eq!(guide.validate(&tools).len(), 1);
    }
}
