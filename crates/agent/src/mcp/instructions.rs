//! Instructions of the MCP servers that a conversation uses, and changes of the resources that it read, as a part
//! of the context.

use std::{collections::BTreeSet, sync::Arc};

use futures_util::future::{BoxFuture, ready};
use rockbot_contracts::{SessionId, outside_text::plain};

use super::access::McpAccess;
use crate::{
    context::{ContextPart, ContextRequest, ContextSource},
    definition::McpExposure,
    instructions::quote,
};

/// Maximum number of servers whose instructions are added.
const MAX_SERVERS: usize = 8;

/// Longest instructions of a server, in characters.
const MAX_CHARS: usize = 2_000;

/// Adds the instructions of the servers in use. Reads what the turns before have loaded, so that a slow
/// server does not delay the context.
pub(crate) struct McpInstructions(Arc<McpAccess>);

impl McpInstructions {
    pub(super) fn new(access: Arc<McpAccess>) -> Self {
        Self(access)
    }

    fn render(&self, session: &SessionId) -> Option<String> {
        let index = self.0.index();
        let in_use = self.servers_in_use(session);
        let summaries = in_use.iter().filter_map(|name| index.get(name));
        let texts = summaries.filter_map(|summary| {
            let server = self.0.loaded(summary)?;
            let text = plain(server.instructions.as_deref()?, MAX_CHARS);
            let text = text.trim();
            let tools = format!("MCP server {}", server.name);
            (!text.is_empty()).then(|| quote(&tools, "that server", text))
        });
        let texts: Vec<_> =
            texts.take(MAX_SERVERS).chain(self.changed_resources(session)).collect();
        (!texts.is_empty()).then(|| texts.join("\n\n"))
    }

    /// Names the resources that changed since the conversation read them. The model itself has named them before.
    fn changed_resources(&self, session: &SessionId) -> Option<String> {
        let changed = self.0.read.changed(session);
        let lines = changed.iter().map(|(server, uri)| format!("\n- {server}: {uri}"));
        let lines: String = lines.collect();
        let text = "These resources of MCP servers have changed since you read them. Read them again with \
                    mcp_read_resource before you rely on their content:";
        (!lines.is_empty()).then(|| format!("{text}{lines}"))
    }

    /// Returns the servers whose tools the conversation is offered or has called, in lower case.
    fn servers_in_use(&self, session: &SessionId) -> BTreeSet<String> {
        let index = self.0.index();
        let eager = index
            .servers()
            .filter(|server| self.0.rules.exposure_of(server) == McpExposure::Eager)
            .map(|server| server.name.to_lowercase());
        let state = self.0.sessions.get(session);
        let activated = state.activated.into_iter().map(|(server, _)| server);
        activated.chain(state.called).chain(eager).collect()
    }
}

impl ContextSource for McpInstructions {
    fn part(&self) -> ContextPart {
        ContextPart::Instructions
    }

    fn text<'a>(&'a self, request: ContextRequest<'a>) -> BoxFuture<'a, Option<String>> {
        Box::pin(ready(self.render(request.session)))
    }
}
