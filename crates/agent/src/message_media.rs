//! Images and recordings in messages of users.

use rockbot_contracts::{ContentBlock, UserMessage};
use rockbot_llm::{ChatMessage, Media};

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
