//! The models that a server on this machine lists.

use std::{sync::Arc, time::Duration};

use rockbot_egress::{ClientOptions, DialPolicy, GuardedClient, PrivateTarget, read_body};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};
use url::Url;

/// Time limit of the request.
const LIST_TIME: Duration = Duration::from_secs(3);
/// Largest list of models, in bytes.
const MAX_LIST_BYTES: usize = 1024 * 1024;
/// Maximum number of models of a server.
const MAX_MODELS: usize = 50;
/// Longest name of a model, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// The list of models of the API.
#[derive(Deserialize)]
struct ModelList {
    data: Vec<ListedModel>,
}

#[derive(Deserialize)]
struct ListedModel {
    id: String,
}

/// Returns the models that a server on this machine lists, or `None` if it lists none in time.
pub(super) async fn listed_at(base_url: &Url) -> Option<Vec<String>> {
    let deadline = Instant::now() + LIST_TIME;
    let mut url = base_url.clone();
    url.path_segments_mut().ok()?.pop_if_empty().push("models");
    let policy = DialPolicy {
        allow_plain_http: true,
        allow_private: ["127.0.0.0/8", "::1/128", "localhost"]
            .iter()
            .filter_map(|target| target.parse::<PrivateTarget>().ok())
            .collect(),
        ..DialPolicy::default()
    };
    let client = GuardedClient::new(Arc::new(policy), ClientOptions::default()).ok()?;
    let request = client.request(reqwest::Method::GET, url).ok()?;
    let response = timeout_at(deadline, request.send()).await.ok()?.ok()?;
    if !response.status().is_success() {
        return None;
    }
    let body = read_body(response, MAX_LIST_BYTES, Some(deadline)).await.ok()?;
    let list: ModelList = serde_json::from_slice(&body).ok()?;
    let fits = |name: &String| !name.is_empty() && name.len() <= MAX_NAME_BYTES;
    Some(list.data.into_iter().map(|model| model.id).filter(fits).take(MAX_MODELS).collect())
}
