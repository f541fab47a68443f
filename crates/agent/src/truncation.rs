//! Truncation of texts that a model reads.

/// Returns the first `bytes` of a text, with a note on the rest.
pub(crate) fn truncated_with_note(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(bytes);
    format!("{}\n(truncated: {} bytes omitted)", &text[..end], text.len() - end)
}
