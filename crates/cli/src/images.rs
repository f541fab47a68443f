//! Images that a user sends with a message.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use rockbot_contracts::{ContentBlock, UserMessage};
use rockbot_tools::images::{image_block, max_image_bytes};

/// Images for one message, within its limits.
#[derive(Debug, Default)]
pub(crate) struct Images {
    blocks: Vec<ContentBlock>,
    /// Size of all images, in bytes.
    bytes: usize,
}

impl Images {
    /// Reads image files. Returns the problem with the first one that cannot be sent.
    pub(crate) fn read(paths: &[PathBuf]) -> Result<Self, String> {
        let mut images = Self::default();
        for path in paths {
            images.add(path)?;
        }
        Ok(images)
    }

    /// Adds an image file. Returns the problem if it cannot be sent; nothing is added then.
    pub(crate) fn add(&mut self, path: &Path) -> Result<(), String> {
        const LIMIT: usize = max_image_bytes(UserMessage::MAX_MEDIA_BYTES);
        let shown = path.display();
        if self.blocks.len() == UserMessage::MAX_MEDIA {
            return Err(format!("a message has at most {} images", UserMessage::MAX_MEDIA));
        }
        // Base64 fills each image up to a multiple of three bytes.
        let remaining = LIMIT.saturating_sub(self.bytes + 2 * self.blocks.len());
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(remaining as u64 + 1).read_to_end(&mut bytes))
            .map_err(|error| format!("cannot read the image {shown}: {error}"))?;
        if bytes.len() > remaining {
            return Err(format!(
                "the images of a message may have {LIMIT} bytes together, and {shown} exceeds that; send a \
                 smaller copy"
            ));
        }
        let block = image_block(&bytes)
            .ok_or_else(|| format!("{shown} is no image; use PNG, JPEG, GIF or WebP"))?;
        self.blocks.push(block);
        self.bytes += bytes.len();
        Ok(())
    }

    /// Returns the images as blocks of a message.
    pub(crate) fn into_blocks(self) -> Vec<ContentBlock> {
        self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_read_within_the_limits_of_a_message() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: usize| {
            let mut image = b"GIF89a".to_vec();
            image.resize(bytes, 0);
            let path = folder.path().join(name);
            std::fs::write(&path, image).unwrap();
            path
        };
        let third = max_image_bytes(UserMessage::MAX_MEDIA_BYTES) / 3 - 2;
        let (image, small) = (file("a.gif", third), file("b.gif", 10));
        let mut images = Images::read(&[image.clone(), image.clone()]).unwrap();
        images.add(&image).unwrap();
        let problem = images.add(&image).unwrap_err();
        assert!(problem.contains("send a smaller copy"), "{problem}");
        let blocks = images.into_blocks();
        let encoded = blocks.iter().map(|block| match block {
            ContentBlock::Image { data, .. } => data.len(),
            other => panic!("{other:?}"),
        });
        assert!(encoded.sum::<usize>() <= UserMessage::MAX_MEDIA_BYTES);
        let problem = Images::read(&vec![small; 9]).unwrap_err();
        assert!(problem.contains("at most 8"), "{problem}");
        let text = folder.path().join("a.txt");
        std::fs::write(&text, "text").unwrap();
        assert!(Images::read(&[text]).unwrap_err().contains("is no image"));
        assert!(Images::read(&[folder.path().join("none")]).unwrap_err().contains("cannot read"));
    }
}
