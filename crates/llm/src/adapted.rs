//! A model behind which requests fit its capabilities.

use std::{
    collections::HashSet,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use futures_util::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use tracing::info;

use crate::{
    capabilities::{ModelCapabilities, ToolCallMode},
    chat::{ChatMessage, ChatModel, ChatRequest, ChatStream, ToolChoice},
    error::ChatError,
    media_messages::{arrange_media, leave_out_media, media_in},
    text_calls::{TextCallFormat, ToolSet, describe_tools, read_calls},
};

/// Maximum number of rejected sets of images and recordings that are remembered.
const MAX_REJECTED: usize = 256;

/// Adapts requests to what a model can do, and its answers to the port:
///
/// - images and recordings that the model does not read become text notes, and the others follow the results
///   of an answer. A request has at most 16 of them, and 16 MiB of base64; older ones become notes.
///   If the server rejects a request with them, it is repeated with notes instead: a damaged image, or one
///   of a size that the model does not accept, must not end the conversation that it is part of;
/// - with [`ToolCallMode::Text`], tools, calls and results become text, and calls are found in the answer.
pub struct AdaptedModel {
    model: Arc<dyn ChatModel>,
    capabilities: ModelCapabilities,
    format: TextCallFormat,
    /// Hashes of the images and recordings of requests that were accepted only without them.
    rejected: Mutex<HashSet<u64>>,
}

impl AdaptedModel {
    /// Adapts requests for the model with this name, which decides the format of calls in texts.
    #[must_use]
    pub fn new(model: Arc<dyn ChatModel>, name: &str, capabilities: ModelCapabilities) -> Self {
        let format = TextCallFormat::for_model(name);
        Self { model, capabilities, format, rejected: Mutex::default() }
    }

    async fn request(&self, mut request: ChatRequest) -> Result<ChatStream, ChatError> {
        request.messages = arrange_media(request.messages, &self.capabilities);
        let Some(media) = hash_of_media(&request.messages) else {
            return self.send(request).await;
        };
        let mut without = request.clone();
        without.messages = leave_out_media(without.messages);
        if self.rejected.lock().contains(&media) {
            return self.send(without).await;
        }
        match self.send(request).await {
            Err(error) if may_be_about_media(&error) => {
                // The first error, if the request was rejected for another reason.
                let answer = self.send(without).await.map_err(|_| error)?;
                info!("images or recordings were left out, because the model server rejected them");
                let mut rejected = self.rejected.lock();
                if rejected.len() == MAX_REJECTED {
                    rejected.clear();
                }
                rejected.insert(media);
                drop(rejected);
                Ok(answer)
            }
            outcome => outcome,
        }
    }

    async fn send(&self, request: ChatRequest) -> Result<ChatStream, ChatError> {
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

/// Returns a hash of the images and recordings, if there are any.
fn hash_of_media(messages: &[ChatMessage]) -> Option<u64> {
    let mut media = media_in(messages).peekable();
    media.peek()?;
    let mut hasher = DefaultHasher::new();
    media.for_each(|media| media.base64().hash(&mut hasher));
    Some(hasher.finish())
}

/// Returns whether a server may have rejected a request for one of its images or recordings.
fn may_be_about_media(error: &ChatError) -> bool {
    matches!(error, ChatError::Rejected { status: Some(400 | 413 | 415 | 422), .. })
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
