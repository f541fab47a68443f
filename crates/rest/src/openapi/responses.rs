//! Media types of responses.

use http::HeaderValue;
use serde_json::Value;

use super::{
    body_content::{MAX_MEDIA_TYPE_BYTES, MediaKind},
    references::Resolver,
};

/// Maximum number of successful responses, and of their media types, that are looked at.
const MAX_RESPONSES: usize = 10;
const MAX_MEDIA_TYPES: usize = 100;

/// Returns the content type of successful responses, JSON if there is one. Others are accepted as well.
pub(super) fn accept(resolver: &Resolver<'_>, operation: &Value) -> Option<HeaderValue> {
    let responses = operation["responses"].as_object().into_iter().flatten();
    let successful = responses.filter(|(status, _)| status.starts_with('2'));
    let mut best: Option<&str> = None;
    for (_, response) in successful.take(MAX_RESPONSES) {
        let response = resolver.follow(response).ok()?;
        let offered = response["content"].as_object().into_iter().flatten();
        for (media_type, _) in offered.take(MAX_MEDIA_TYPES) {
            let is_json = MediaKind::new(media_type) == MediaKind::Json;
            if best.is_none() || (is_json && best.map(MediaKind::new) != Some(MediaKind::Json)) {
                best = Some(media_type);
            }
        }
    }
    let best = best.filter(|best| !best.contains('*') && best.len() <= MAX_MEDIA_TYPE_BYTES)?;
    HeaderValue::from_str(&format!("{best}, */*;q=0.1")).ok()
}
