//! Images in results of tools.

use base64::{Engine, prelude::BASE64_STANDARD};
use rockbot_contracts::ContentBlock;

/// Returns the media type of an image that models may be able to read: PNG, JPEG, GIF or WebP, by its first 12
/// bytes.
#[must_use]
pub fn image_type(start: &[u8]) -> Option<&'static str> {
    match start {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => Some("image/png"),
        [0xFF, 0xD8, 0xFF, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// Returns the largest image, in bytes, whose block has at most `max_bytes` bytes.
#[must_use]
pub const fn max_image_bytes(max_bytes: usize) -> usize {
    max_bytes / 4 * 3
}

/// Returns an image as a content block; `None` for bytes that [`image_type`] does not know.
#[must_use]
pub fn image_block(bytes: &[u8]) -> Option<ContentBlock> {
    let mime_type = image_type(bytes)?.to_owned();
    Some(ContentBlock::Image { data: BASE64_STANDARD.encode(bytes), mime_type })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_known_by_their_first_bytes() {
        for (bytes, expected) in [
            (&b"\x89PNG\r\n\x1a\n...."[..], Some("image/png")),
            (b"\xFF\xD8\xFF\xE0", Some("image/jpeg")),
            (b"GIF89a..", Some("image/gif")),
            (b"RIFF\0\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"RIFF\0\0\0\0WAVEfmt ", None),
            (b"<svg/>", None),
            (b"", None),
        ] {
            assert_eq!(image_type(bytes), expected);
        }
    }

    #[test]
    fn block_of_largest_image_fits() {
        for max_bytes in [4, 1000, 1001, 1_000_003] {
            let mut image = b"\xFF\xD8\xFF".to_vec();
            image.resize(max_image_bytes(max_bytes).max(3), 0);
            let Some(ContentBlock::Image { data, .. }) = image_block(&image) else { panic!() };
            assert!(data.len() <= max_bytes, "{max_bytes}");
        }
    }
}
