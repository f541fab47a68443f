//! Content of user messages: text, images and recordings.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::media::Media;

/// Introduces media of tool results, which can only be sent in a user message.
const RESULT_MEDIA: &str = "From the tool results above:";

/// The content of a user message.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum UserContent<'a> {
    Text(&'a str),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Part<'a> {
    Text { text: &'a str },
    ImageUrl { image_url: ImageUrl<'a> },
    InputAudio { input_audio: InputAudio<'a> },
}

#[derive(Serialize)]
pub(super) struct ImageUrl<'a> {
    url: DataUrl<'a>,
}

#[derive(Serialize)]
pub(super) struct InputAudio<'a> {
    data: &'a str,
    format: &'static str,
}

/// Serialized without a copy of the data.
struct DataUrl<'a>(&'a Media);

impl fmt::Display for DataUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "data:{};base64,{}", self.0.mime_type(), self.0.base64())
    }
}

impl Serialize for DataUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'a> From<&'a Media> for Part<'a> {
    fn from(media: &'a Media) -> Self {
        match media.audio_format() {
            Some(format) => {
                Self::InputAudio { input_audio: InputAudio { data: media.base64(), format } }
            }
            None => Self::ImageUrl { image_url: ImageUrl { url: DataUrl(media) } },
        }
    }
}

impl<'a> UserContent<'a> {
    /// Creates the content for media of tool results.
    pub(super) fn from_results(media: &'a [Media]) -> Self {
        let mut content = Self::Text(RESULT_MEDIA);
        content.add_media(media);
        content
    }

    pub(super) fn add_media(&mut self, media: &'a [Media]) {
        let parts = media.iter().map(Part::from);
        match self {
            Self::Parts(known) => known.extend(parts),
            Self::Text(text) => {
                let text = Part::Text { text };
                *self = Self::Parts(std::iter::once(text).chain(parts).collect());
            }
        }
    }
}
