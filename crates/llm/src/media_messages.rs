//! The images and recordings of a request, as its model accepts them.

use crate::{capabilities::ModelCapabilities, chat::ChatMessage, media::Media};

/// The maximum number of images and recordings in a request.
const MAX_ITEMS: usize = 16;
/// The maximum size of all images and recordings in a request, in bytes of base64.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Replaces what the model does not read by notes, and moves the rest behind the last of the tool results
/// that it belongs to: servers accept nothing between the results of one answer. The newest items are kept
/// if there are too many.
pub(crate) fn arrange_media(
    messages: Vec<ChatMessage>,
    capabilities: &ModelCapabilities,
) -> Vec<ChatMessage> {
    if !messages.iter().any(|message| matches!(message, ChatMessage::Media(_))) {
        return messages;
    }
    let mut selection = Selection { capabilities, items: 0, bytes: 0 };
    // Newest first, and then back in order.
    let mut chosen: Vec<_> = messages
        .into_iter()
        .rev()
        .map(|message| match message {
            ChatMessage::Media(media) => Step::Media(selection.choose(media)),
            other => Step::Message(other),
        })
        .collect();
    chosen.reverse();
    arranged(chosen)
}

/// Replaces all images and recordings by notes, after the server rejected a request with them.
pub(crate) fn leave_out_media(messages: Vec<ChatMessage>) -> Vec<ChatMessage> {
    let note =
        |media: &Media| Err(media.left_out_note("the model server rejected the request with it"));
    let steps = messages.into_iter().map(|message| match message {
        ChatMessage::Media(media) => Step::Media(media.iter().map(note).collect()),
        other => Step::Message(other),
    });
    arranged(steps.collect())
}

/// Returns the images and recordings in their order.
pub(crate) fn media_in(messages: &[ChatMessage]) -> impl Iterator<Item = &Media> {
    let media = messages.iter().filter_map(|message| match message {
        ChatMessage::Media(media) => Some(media),
        _ => None,
    });
    media.flatten()
}

enum Step {
    Message(ChatMessage),
    /// Each item that is kept, or the note for one that is not.
    Media(Vec<Result<Media, String>>),
}

struct Selection<'a> {
    capabilities: &'a ModelCapabilities,
    items: usize,
    bytes: usize,
}

impl Selection<'_> {
    fn choose(&mut self, media: Vec<Media>) -> Vec<Result<Media, String>> {
        let mut chosen: Vec<_> =
            media.into_iter().rev().map(|media| self.choose_one(media)).collect();
        chosen.reverse();
        chosen
    }

    fn choose_one(&mut self, media: Media) -> Result<Media, String> {
        if let Some(note) = self.capabilities.unread_note(&media) {
            return Err(note);
        }
        let bytes = self.bytes + media.base64().len();
        if self.items == MAX_ITEMS || bytes > MAX_BYTES {
            // Older ones are left out too, even if they are smaller.
            self.items = MAX_ITEMS;
            return Err(media.left_out_note("newer images and recordings fill the request"));
        }
        self.items += 1;
        self.bytes = bytes;
        Ok(media)
    }
}

fn arranged(steps: Vec<Step>) -> Vec<ChatMessage> {
    let mut messages: Vec<ChatMessage> = Vec::with_capacity(steps.len());
    let mut pending = Vec::new();
    for step in steps {
        match step {
            Step::Media(items) => {
                for item in items {
                    match item {
                        Ok(media) => pending.push(media),
                        Err(note) => add_note(&mut messages, &note),
                    }
                }
            }
            Step::Message(message) => {
                if !matches!(message, ChatMessage::Tool { .. }) {
                    flush(&mut pending, &mut messages);
                }
                messages.push(message);
            }
        }
    }
    flush(&mut pending, &mut messages);
    messages
}

fn flush(pending: &mut Vec<Media>, messages: &mut Vec<ChatMessage>) {
    if !pending.is_empty() {
        messages.push(ChatMessage::Media(std::mem::take(pending)));
    }
}

/// Adds a note to the message that the media belongs to.
fn add_note(messages: &mut Vec<ChatMessage>, note: &str) {
    match messages.last_mut() {
        Some(ChatMessage::User(text) | ChatMessage::Tool { content: text, .. }) => {
            text.push('\n');
            text.push_str(note);
        }
        _ => messages.push(ChatMessage::User(note.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::STANDARD};

    use super::*;

    fn media(bytes: &[u8], size: usize) -> Media {
        let mut bytes = bytes.to_vec();
        bytes.resize(size, 0);
        Media::from_base64(&STANDARD.encode(bytes)).unwrap()
    }

    fn image(size: usize) -> Media {
        media(b"\x89PNG\r\n\x1a\n", size)
    }

    fn recording() -> Media {
        media(b"ID3", 10)
    }

    fn result(id: &str) -> ChatMessage {
        ChatMessage::Tool { tool_call_id: id.to_owned(), content: "shown".to_owned() }
    }

    fn text(message: &ChatMessage) -> &str {
        match message {
            ChatMessage::User(text) | ChatMessage::Tool { content: text, .. } => text,
            other => panic!("{other:?}"),
        }
    }

    fn sees(images: bool, audio: bool) -> ModelCapabilities {
        ModelCapabilities { images, audio, ..ModelCapabilities::for_model("unknown") }
    }

    #[test]
    fn media_follows_the_last_result() {
        let messages = vec![
            result("1"),
            ChatMessage::Media(vec![image(10)]),
            result("2"),
            ChatMessage::Media(vec![image(20), recording()]),
            ChatMessage::User("and?".to_owned()),
        ];
        let arranged = arrange_media(messages, &sees(true, true));
        let [first, second, ChatMessage::Media(media), user] = &arranged[..] else {
            panic!("{arranged:?}")
        };
        assert_eq!((text(first), text(second), text(user)), ("shown", "shown", "and?"));
        assert_eq!(*media, [image(10), image(20), recording()]);
    }

    #[test]
    fn unreadable_media_leaves_a_note() {
        let messages = vec![result("1"), ChatMessage::Media(vec![image(10), recording()])];
        let arranged = arrange_media(messages.clone(), &sees(false, false));
        let [result] = &arranged[..] else { panic!("{arranged:?}") };
        assert_eq!(
            text(result),
            "shown\n[left out: image/png of 10 bytes; this model reads no images]\n\
             [left out: audio/mpeg of 10 bytes; this model reads no audio]"
        );
        let arranged = arrange_media(messages, &sees(true, false));
        let [result, ChatMessage::Media(media)] = &arranged[..] else { panic!("{arranged:?}") };
        assert!(text(result).contains("reads no audio") && !text(result).contains("no images"));
        assert_eq!(*media, [image(10)]);
    }

    #[test]
    fn newest_media_is_kept_within_limits() {
        let one = || [ChatMessage::User("x".to_owned()), ChatMessage::Media(vec![image(10)])];
        let messages: Vec<_> = (0..MAX_ITEMS + 1).flat_map(|_| one()).collect();
        let arranged = arrange_media(messages, &sees(true, false));
        let media = arranged.iter().filter(|message| matches!(message, ChatMessage::Media(_)));
        assert_eq!(media.count(), MAX_ITEMS);
        assert!(text(&arranged[0]).contains("fill the request"), "{:?}", arranged[0]);

        let large = || image(5 * 1024 * 1024);
        let messages = vec![ChatMessage::Media(vec![image(10), large(), large(), large()])];
        let arranged = arrange_media(messages, &sees(true, false));
        let [note, ChatMessage::Media(media)] = &arranged[..] else { panic!() };
        assert_eq!(text(note).matches("fill the request").count(), 2);
        assert_eq!(media.len(), 2);
    }
}
