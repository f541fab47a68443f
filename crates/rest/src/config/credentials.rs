//! Values of an entry that must not appear in results.

use http::header::{AUTHORIZATION, COOKIE};

/// Returns the values of variables that are secrets: not those that only name the API.
pub(super) fn secrets_in(values: Vec<String>, origin: &str) -> Vec<String> {
    let is_address = |value: &String| {
        value.starts_with("https://") || value.starts_with("http://") || origin.contains(value)
    };
    values.into_iter().filter(|value| !is_address(value)).collect()
}

/// Returns the credential of a header that is written into the file.
pub(super) fn literal_credential((name, value): (&String, &String)) -> Option<String> {
    let is_credential =
        [AUTHORIZATION, COOKIE].iter().any(|one| name.eq_ignore_ascii_case(one.as_str()));
    let credential = value.split_whitespace().last()?;
    (is_credential && !credential.contains("${")).then(|| credential.to_owned())
}
