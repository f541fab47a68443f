//! Images and recordings in messages of users.

use rockbot_contracts::{ContentBlock, UserMessage};
use rockbot_llm::{ChatMessage, Media};
use rockbot_store::MAX_LOG_ENTRY_BYTES;

/// Size of an entry that is left for addresses, traces and the context of a turn, in bytes.
const RESERVED_BYTES: usize = 128 * 1024;

/// Checks the images and recordings of a message. Returns the problem, for the user.
pub(crate) fn check_media(media: &[ContentBlock]) -> Result<(), String> {
    if media.len() > UserMessage::MAX_MEDIA {
        let (number, limit) = (media.len(), UserMessage::MAX_MEDIA);
        return Err(format!(
            "The message has {number} images and recordings, over the limit of {limit}."
        ));
    }
    let mut bytes = 0_usize;
    for (number, block) in (1..).zip(media) {
        let (ContentBlock::Image { data, .. } | ContentBlock::Audio { data, .. }) = block else {
            return Err(format!("Attachment {number} is no image and no recording."));
        };
        bytes = bytes.saturating_add(data.len());
        if bytes > UserMessage::MAX_MEDIA_BYTES {
            let limit = UserMessage::MAX_MEDIA_BYTES;
            return Err(format!(
                "The images and recordings exceed {limit} bytes of base64. Send smaller ones."
            ));
        }
        if let Err(error) = Media::from_base64(data) {
            return Err(format!("Attachment {number} is not valid: {error}."));
        }
    }
    Ok(())
}

/// Checks that a message fits into an entry of the log. Returns the problem, for the user.
pub(crate) fn check_recorded_size(message: &UserMessage) -> Result<(), String> {
    let media: usize = message.media.iter().map(media_bytes).sum();
    let bytes = media.saturating_add(escaped_bytes(&message.text));
    let limit = MAX_LOG_ENTRY_BYTES - RESERVED_BYTES;
    if bytes > limit {
        return Err(format!(
            "The message has {bytes} bytes as JSON, over the limit of {limit} with its images and \
             recordings. Send less at once."
        ));
    }
    Ok(())
}

fn media_bytes(block: &ContentBlock) -> usize {
    match block {
        ContentBlock::Image { data, .. } | ContentBlock::Audio { data, .. } => data.len(),
        ContentBlock::Text { .. } | ContentBlock::Resource { .. } => 0,
    }
}

/// Returns the length of a text in JSON, in bytes.
fn escaped_bytes(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(escaped).sum()
}

/// Returns the data of an image or a recording, in base64.
pub(crate) fn media_data(block: ContentBlock) -> Option<String> {
    match block {
        ContentBlock::Image { data, .. } | ContentBlock::Audio { data, .. } => Some(data),
        ContentBlock::Text { .. } | ContentBlock::Resource { .. } => None,
    }
}

/// Returns the images and recordings of a recorded message for the model, if it has any.
pub(crate) fn media_message(media: &[String]) -> Option<ChatMessage> {
    let media: Vec<_> = media.iter().filter_map(|data| Media::from_base64(data).ok()).collect();
    (!media.is_empty()).then_some(ChatMessage::Media(media))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(data: &str) -> ContentBlock {
        ContentBlock::Image { data: data.to_owned(), mime_type: "image/png".to_owned() }
    }

    #[test]
    fn message_that_exceeds_an_entry_is_refused() {
        let message = |text: String, images: Vec<String>| UserMessage {
            media: images.iter().map(|data| image(data)).collect(),
            ..UserMessage::new(rockbot_contracts::SessionId::generate(), text)
        };
        for text in ["\u{1}\"\\\n\u{7f}ü", "\u{8}\u{c}\t\r"] {
            let encoded = serde_json::to_string(text).unwrap();
            assert_eq!(escaped_bytes(text), encoded.len() - 2, "{text:?}");
        }
        let data = "A".repeat(UserMessage::MAX_MEDIA_BYTES);
        let plain = message("x".repeat(100 * 1024), vec![data.clone()]);
        assert_eq!(check_recorded_size(&plain), Ok(()));
        let escaped = message("\u{1}".repeat(100 * 1024), vec![data]);
        let problem = check_recorded_size(&escaped).unwrap_err();
        assert!(problem.contains("as JSON"), "{problem}");
    }

    #[test]
    fn invalid_media_is_refused() {
        const GIF: &str = "R0lGODlhAQABAAAA";
        assert_eq!(check_media(&[image(GIF)]), Ok(()));
        let text = ContentBlock::Text { text: "hi".to_owned() };
        let large = "A".repeat(UserMessage::MAX_MEDIA_BYTES + 4);
        for (media, expected) in [
            (vec![image(GIF); 9], "over the limit of 8"),
            (vec![image(GIF), text], "Attachment 2 is no image"),
            (vec![image("not base64")], "Attachment 1 is not valid"),
            (vec![image("PHN2Zy8+")], "its format is unknown"),
            (vec![image(&large)], "exceed"),
        ] {
            let problem = check_media(&media).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
