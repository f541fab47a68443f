//! Model servers that listen at known ports of this machine.

use url::Url;

use super::{candidate::Candidate, models};

/// The servers and their base URLs.
const KNOWN: [(&str, &str); 2] =
    [("Ollama", "http://127.0.0.1:11434/v1"), ("llama.cpp", "http://127.0.0.1:8080/v1")];

/// Finds the servers that list at least one model.
pub(super) async fn find() -> Vec<Candidate> {
    let [ollama, llama] = KNOWN.map(|(name, base_url)| async move {
        let models = models::listed_at(&Url::parse(base_url).ok()?).await?;
        (!models.is_empty()).then(|| Candidate {
            label: format!("{name} at {base_url}"),
            base_url: base_url.to_owned(),
            models,
            key: None,
        })
    });
    let (ollama, llama) = tokio::join!(ollama, llama);
    ollama.into_iter().chain(llama).collect()
}
