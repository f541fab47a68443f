//! Images and audio of a conversation.

use std::{fmt, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};

/// The largest image or recording, in bytes before base64. Anthropic accepts 5 MB, most others more.
pub const MAX_MEDIA_BYTES: usize = 5 * 1024 * 1024;

/// Tokens of an image: about what providers charge for one that fills their resolution limit.
const IMAGE_TOKENS: usize = 1600;
/// Bytes of a recording per token, at 10 tokens per second of telephone-quality audio.
const AUDIO_BYTES_PER_TOKEN: usize = 800;

/// An image or a recording, validated by its first bytes. Clones share the data; `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Media {
    format: MediaFormat,
    /// In base64, the form in which tools send it and servers receive it.
    data: Arc<str>,
    bytes: usize,
}

/// The kinds of media that a model may be able to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaKind {
    /// An image.
    Image,
    /// A recording.
    Audio,
}

/// The formats that model servers accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MediaFormat {
    Png,
    Jpeg,
    Gif,
    Webp,
    Wav,
    Mp3,
}

/// Why an image or a recording cannot be sent to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MediaError {
    /// The data is not standard base64.
    #[error("its data is not base64")]
    NotBase64,
    /// The data exceeds [`MAX_MEDIA_BYTES`].
    #[error("it is larger than {MAX_MEDIA_BYTES} bytes")]
    TooLarge,
    /// The first bytes are those of no accepted format.
    #[error("its format is unknown; use PNG, JPEG, GIF, WebP, WAV or MP3")]
    UnknownFormat,
}

impl MediaFormat {
    fn detect(bytes: &[u8]) -> Option<Self> {
        let is_mp3_frame =
            |bytes: &[u8]| matches!(bytes, [0xFF, second, ..] if second & 0xE6 == 0xE2);
        match bytes {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => Some(Self::Png),
            [0xFF, 0xD8, 0xFF, ..] => Some(Self::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::Webp),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => Some(Self::Wav),
            [b'I', b'D', b'3', ..] => Some(Self::Mp3),
            _ if is_mp3_frame(bytes) => Some(Self::Mp3),
            _ => None,
        }
    }

    fn mime_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
            Self::Wav => "audio/wav",
            Self::Mp3 => "audio/mpeg",
        }
    }

    fn kind(self) -> MediaKind {
        match self {
            Self::Png | Self::Jpeg | Self::Gif | Self::Webp => MediaKind::Image,
            Self::Wav | Self::Mp3 => MediaKind::Audio,
        }
    }
}

impl Media {
    /// Reads base64. The format is detected in the data: a declared type is not trusted.
    ///
    /// # Errors
    /// When it is not standard base64, is too large, or has an unknown format.
    pub fn from_base64(data: &str) -> Result<Self, MediaError> {
        if data.len() > MAX_MEDIA_BYTES.div_ceil(3) * 4 {
            return Err(MediaError::TooLarge);
        }
        let bytes = STANDARD.decode(data).map_err(|_| MediaError::NotBase64)?;
        if bytes.len() > MAX_MEDIA_BYTES {
            return Err(MediaError::TooLarge);
        }
        let format = MediaFormat::detect(&bytes).ok_or(MediaError::UnknownFormat)?;
        Ok(Self { format, data: data.into(), bytes: bytes.len() })
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> MediaKind {
        self.format.kind()
    }

    /// Returns the detected media type, such as `image/png`.
    #[must_use]
    pub fn mime_type(&self) -> &'static str {
        self.format.mime_type()
    }

    /// Returns the data in base64.
    #[must_use]
    pub fn base64(&self) -> &str {
        &self.data
    }

    /// Estimates the tokens that a provider counts.
    #[must_use]
    pub fn estimated_tokens(&self) -> usize {
        match self.kind() {
            MediaKind::Image => IMAGE_TOKENS,
            MediaKind::Audio => self.bytes.div_ceil(AUDIO_BYTES_PER_TOKEN),
        }
    }

    /// Returns the name of the format of a recording in OpenAI's requests.
    pub(crate) fn audio_format(&self) -> Option<&'static str> {
        match self.format {
            MediaFormat::Wav => Some("wav"),
            MediaFormat::Mp3 => Some("mp3"),
            MediaFormat::Png | MediaFormat::Jpeg | MediaFormat::Gif | MediaFormat::Webp => None,
        }
    }

    /// Returns a note for the model that this is left out of a request, and why.
    pub(crate) fn left_out_note(&self, reason: &str) -> String {
        format!("[left out: {} of {} bytes; {reason}]", self.mime_type(), self.bytes)
    }
}

impl fmt::Debug for Media {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Media")
            .field("type", &self.mime_type())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn media(bytes: &[u8]) -> Result<Media, MediaError> {
        Media::from_base64(&STANDARD.encode(bytes))
    }

    #[test]
    fn format_is_detected_in_the_data() {
        for (bytes, expected) in [
            (&b"\x89PNG\r\n\x1a\n...."[..], "image/png"),
            (b"\xFF\xD8\xFF\xE0", "image/jpeg"),
            (b"GIF89a..", "image/gif"),
            (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
            (b"RIFF\0\0\0\0WAVEfmt ", "audio/wav"),
            (b"ID3\x04", "audio/mpeg"),
            (b"\xFF\xFB\x90\x00", "audio/mpeg"),
        ] {
            assert_eq!(media(bytes).unwrap().mime_type(), expected);
        }
        assert_eq!(media(b"<svg/>"), Err(MediaError::UnknownFormat));
        assert_eq!(media(b""), Err(MediaError::UnknownFormat));
    }

    #[test]
    fn invalid_data_is_rejected() {
        assert_eq!(Media::from_base64("not base64"), Err(MediaError::NotBase64));
        let mut image = b"\x89PNG\r\n\x1a\n".to_vec();
        image.resize(MAX_MEDIA_BYTES, 0);
        assert!(media(&image).is_ok());
        image.push(0);
        assert_eq!(media(&image), Err(MediaError::TooLarge));
        assert_eq!(Media::from_base64(&"A".repeat(2 * MAX_MEDIA_BYTES)), Err(MediaError::TooLarge));
    }

    #[test]
    fn debug_output_has_no_data() {
        let media = media(b"GIF89a..").unwrap();
        let shown = format!("{media:?}");
        assert!(shown.contains("image/gif") && !shown.contains(media.base64()), "{shown}");
    }
}
