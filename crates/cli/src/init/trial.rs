//! A first request to a model.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use rockbot_llm::{Assembler, ChatMessage, ChatModel, ChatRequest};
use rockbot_service::exit;
use tokio::time::timeout;

use crate::{
    failure::{Failure, OrExit},
    render,
};

/// Time limit of the request. A local server may have to load the model first.
const TRIAL_TIME: Duration = Duration::from_secs(120);
/// Longest shown answer, in characters.
const MAX_ANSWER_CHARS: usize = 80;

/// The result of the request.
pub(super) struct Trial {
    pub(super) elapsed: Duration,
    /// One line for people.
    pub(super) answer: String,
}

/// Sends a short message to a model.
///
/// # Errors
/// When it does not answer within 120 s.
pub(super) async fn run(model: &dyn ChatModel) -> Result<Trial, Failure> {
    let request = ChatRequest {
        messages: vec![ChatMessage::User("Reply with the single word: ready".to_owned())],
        session: "init".to_owned(),
        ..ChatRequest::default()
    };
    let started = Instant::now();
    let answer = timeout(TRIAL_TIME, async {
        let mut events = model.stream(request).await?;
        let mut assembler = Assembler::new();
        while let Some(event) = events.next().await {
            assembler.push(event?)?;
        }
        Ok::<_, rockbot_llm::ChatError>(assembler.text().to_owned())
    });
    let answer = answer.await.map_err(|_| {
        Failure::unavailable(format!(
            "the model did not answer within {} s; nothing was written",
            TRIAL_TIME.as_secs()
        ))
    })?;
    let answer = render::short_line(&answer.or_exit(exit::UNAVAILABLE)?, MAX_ANSWER_CHARS);
    Ok(Trial { elapsed: started.elapsed(), answer })
}
