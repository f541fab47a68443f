//! Multipart bodies.

use reqwest::multipart;
use rockbot_egress::EgressError;

use crate::request::Part;

/// Creates the body of one attempt; a body cannot be sent twice.
pub(super) fn form(parts: &[Part]) -> Result<multipart::Form, EgressError> {
    let mut form = multipart::Form::new();
    for Part { name, file_name, content_type, bytes } in parts {
        let mut part = multipart::Part::bytes(bytes.clone());
        if let Some(file_name) = file_name {
            part = part.file_name(file_name.clone());
        }
        if let Some(content_type) = content_type {
            part = part.mime_str(content_type)?;
        }
        form = form.part(name.clone(), part);
    }
    Ok(form)
}
