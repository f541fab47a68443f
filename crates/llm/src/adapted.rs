//! A model behind which requests fit its capabilities.

use std::{fmt, sync::Arc};

use futures_util::future::{BoxFuture, FutureExt};

use crate::{
    capabilities::{ModelCapabilities, ToolCallMode},
    chat::{ChatModel, ChatRequest, ChatStream, ToolChoice},
    error::ChatError,
    media_messages::arrange_media,
    text_calls::{TextCallFormat, ToolSet, describe_tools, read_calls},
};

/// Adapts requests to what a model can do, and its answers to the port:
///
/// - images and recordings that the model does not read become text notes, and the others follow the results
///   of an answer. A request has at most 16 of them, and 16 MiB of base64; older ones become notes;
/// - with [`ToolCallMode::Text`], tools, calls and results become text, and calls are found in the answer.
pub struct AdaptedModel {
    model: Arc<dyn ChatModel>,
    capabilities: ModelCapabilities,
    format: TextCallFormat,
}

impl AdaptedModel {
    /// Adapts requests for the model with this name, which decides the format of calls in texts.
    #[must_use]
    pub fn new(model: Arc<dyn ChatModel>, name: &str, capabilities: ModelCapabilities) -> Self {
        Self { model, capabilities, format: TextCallFormat::for_model(name) }
    }

    async fn request(&self, mut request: ChatRequest) -> Result<ChatStream, ChatError> {
        request.messages = arrange_media(request.messages, &self.capabilities);
        if self.capabilities.tool_calls == ToolCallMode::Native {
            return self.model.stream(request).await;
        }
        let tools = ToolSet::new(&request.tools);
        let has_tools = !request.tools.is_empty();
        let may_call = request.tool_choice != ToolChoice::None;
        let request = describe_tools(request, self.format);
        let answer = self.model.stream(request).await?;
        // Without tools, a mark of calls can only be a quotation.
        Ok(if has_tools { read_calls(answer, tools, may_call) } else { answer })
    }
}

impl ChatModel for AdaptedModel {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn stream<'a>(&'a self, request: ChatRequest) -> BoxFuture<'a, Result<ChatStream, ChatError>> {
        self.request(request).boxed()
    }
}

impl fmt::Debug for AdaptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptedModel")
            .field("model", &self.model.name())
            .field("capabilities", &self.capabilities)
            .field("format", &self.format)
            .finish()
    }
}
