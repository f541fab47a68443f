//! Bounded reading of response bodies.

use reqwest::Response;
use tokio::time::{Instant, timeout_at};

use crate::error::EgressError;

/// The beginning of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyPrefix {
    /// At most as many bytes as the limit.
    pub bytes: Vec<u8>,
    /// The body has no further bytes.
    pub is_complete: bool,
}

/// Reads a body of at most `max_bytes`, counted after decompression.
///
/// A body whose `Content-Length` exceeds the limit is refused before it is read. Without a deadline, only
/// the idle timeout of the client bounds the time. Dropping the future closes the connection.
///
/// # Errors
/// [`EgressError::TooLarge`], [`EgressError::TimedOut`] at the deadline or when the connection is idle for
/// too long, [`EgressError::Connection`] when the connection breaks or the compressed data is invalid.
pub async fn read_body(
    response: Response,
    max_bytes: usize,
    deadline: Option<Instant>,
) -> Result<Vec<u8>, EgressError> {
    let too_large = EgressError::TooLarge { max_bytes };
    if response.content_length().is_some_and(|length| length > max_bytes as u64) {
        return Err(too_large);
    }
    let body = read_prefix(response, max_bytes, deadline).await?;
    if body.is_complete { Ok(body.bytes) } else { Err(too_large) }
}

/// Reads the first `max_bytes` of a body, counted after decompression, and drops the rest with the
/// connection.
///
/// # Errors
/// See [`read_body`]; the size is no error.
pub async fn read_prefix(
    mut response: Response,
    max_bytes: usize,
    deadline: Option<Instant>,
) -> Result<BodyPrefix, EgressError> {
    let mut bytes = Vec::new();
    let reading = async {
        while let Some(chunk) = response.chunk().await? {
            let rest = max_bytes - bytes.len();
            bytes.extend_from_slice(chunk.get(..rest).unwrap_or(&chunk));
            if chunk.len() > rest {
                return Ok(false);
            }
        }
        Ok(true)
    };
    let is_complete: Result<bool, EgressError> = match deadline {
        Some(deadline) => timeout_at(deadline, reading).await.unwrap_or(Err(EgressError::TimedOut)),
        None => reading.await,
    };
    Ok(BodyPrefix { is_complete: is_complete?, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(body: &'static str) -> Response {
        http::Response::new(body).into()
    }

    #[tokio::test]
    async fn limit_is_inclusive() {
        let at_limit = read_body(response("four"), 4, None).await.expect("a body at the limit");
        assert_eq!(at_limit, b"four");
        let above = read_body(response("fives"), 4, None).await;
        assert!(matches!(above, Err(EgressError::TooLarge { max_bytes: 4 })), "{above:?}");
    }

    #[tokio::test]
    async fn prefix_reports_whether_body_is_complete() {
        let whole = read_prefix(response("four"), 4, None).await.expect("a body");
        assert_eq!(whole, BodyPrefix { bytes: b"four".to_vec(), is_complete: true });
        let part = read_prefix(response("fives"), 4, None).await.expect("a body");
        assert_eq!(part, BodyPrefix { bytes: b"five".to_vec(), is_complete: false });
    }
}
