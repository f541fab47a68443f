//! Contents of messages: text, images and recordings.

use rockbot_contracts::{ContentBlock, UserMessage};
use serde::Deserialize;

use super::error::ApiError;

/// The content of a message: text, or parts of several kinds.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Content {
    Text(String),
    Parts(Vec<Part>),
}

/// A part of a content.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Part {
    Text {
        text: String,
    },
    ImageUrl {
        image_url: ImageUrl,
    },
    InputAudio {
        input_audio: InputAudio,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct ImageUrl {
    pub(super) url: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct InputAudio {
    data: String,
    format: String,
}

impl Content {
    /// Returns the text, its parts joined by line breaks.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => {
                let texts = parts.iter().filter_map(|part| match part {
                    Part::Text { text } => Some(text.as_str()),
                    _ => None,
                });
                texts.collect::<Vec<_>>().join("\n")
            }
        }
    }

    /// Returns the images and recordings. `param` is the parameter with the message.
    ///
    /// # Errors
    /// When there are too many or too large ones, or one is of an unsupported kind. Images are accepted as data
    /// URLs: the gateway downloads nothing.
    pub(super) fn media(&self, param: &'static str) -> Result<Vec<ContentBlock>, ApiError> {
        let Self::Parts(parts) = self else { return Ok(Vec::new()) };
        let mut media = Vec::new();
        let mut bytes = 0;
        for part in parts {
            let block = match part {
                Part::Text { .. } => continue,
                Part::ImageUrl { image_url } => image(param, &image_url.url)?,
                Part::InputAudio { input_audio: InputAudio { data, format } } => {
                    let mime_type = audio_type(param, format)?.to_owned();
                    ContentBlock::Audio { data: data.clone(), mime_type }
                }
                Part::Other => {
                    return Err(ApiError::invalid(
                        param,
                        "unsupported part of a message; send text, an image as a data URL, or input_audio",
                    ));
                }
            };
            if let ContentBlock::Image { data, .. } | ContentBlock::Audio { data, .. } = &block {
                bytes += data.len();
            }
            media.push(block);
        }
        if media.len() > UserMessage::MAX_MEDIA || bytes > UserMessage::MAX_MEDIA_BYTES {
            let (number, bytes) = (UserMessage::MAX_MEDIA, UserMessage::MAX_MEDIA_BYTES);
            let message = format!(
                "too many or too large images and recordings; send at most {number}, and {bytes} bytes of base64"
            );
            return Err(ApiError::invalid(param, message));
        }
        Ok(media)
    }
}

fn image(param: &'static str, url: &str) -> Result<ContentBlock, ApiError> {
    let parsed = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let parsed = parsed.filter(|(kind, _)| kind.starts_with("image/") && kind.len() <= 64);
    let (kind, data) = parsed.ok_or_else(|| {
        let message = "an image must be a data URL with base64; the gateway downloads none";
        ApiError::invalid(param, message)
    })?;
    Ok(ContentBlock::Image { data: data.to_owned(), mime_type: kind.to_owned() })
}

fn audio_type(param: &'static str, format: &str) -> Result<&'static str, ApiError> {
    match format {
        "wav" => Ok("audio/wav"),
        "mp3" => Ok("audio/mpeg"),
        _ => Err(ApiError::invalid(param, "unsupported format of a recording; send wav or mp3")),
    }
}
