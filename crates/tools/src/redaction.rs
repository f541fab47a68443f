//! Redaction of secrets in text.

use std::{
    borrow::Cow,
    sync::{Arc, LazyLock},
};

use aho_corasick::{AhoCorasick, MatchKind};
use regex::Regex;

/// Replacement of a secret.
pub const REDACTED: &str = "[secret]";

/// Maximum length of the text that is searched, in bytes. The rest is omitted.
pub const MAX_SEARCHED_BYTES: usize = 2 * 1024 * 1024;

/// Minimum length of a known secret, in bytes. A shorter one could be an ordinary word.
const MIN_SECRET_BYTES: usize = 8;
/// Maximum number of known secrets.
const MAX_SECRETS: usize = 1024;
/// Maximum length of a known secret, in bytes.
const MAX_SECRET_BYTES: usize = 16 * 1024;

/// Removes secrets from text: known secrets of this process, and text in the format of a secret.
///
/// The running time is linear in the length of the text.
#[derive(Clone)]
pub struct Redactor {
    /// Matcher of known secrets. `None` without any.
    known: Option<AhoCorasick>,
}

/// Format of a kind of secret, and its replacement.
type Pattern = (Regex, &'static str);

static PATTERNS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    let patterns = [
        // PEM, even if its end was cut off.
        (
            r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)",
            REDACTED,
        ),
        // User and password in a URL.
        (r"(?i)\b([a-z][a-z0-9+.-]{1,31}://)[^\s/?#]+@", "${1}[secret]@"),
        // In a header any credentials; elsewhere only those that cannot be words.
        (r"(?i)\b(authorization\W{1,4}(?:bearer|basic|token)\s+)[^\s\x22',;]+", "${1}[secret]"),
        (r"(?i)\b(bearer|basic)\s+[a-z0-9._~+/-]{20,}=*", "${1} [secret]"),
        // OpenAI, OpenRouter, Anthropic and compatible providers.
        (r"\bsk-[A-Za-z0-9_-]{16,}", REDACTED),
        (r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})", REDACTED),
        (r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", REDACTED),
        (
            r"(?i)\b(aws_?secret_?access_?key[\x22']?\s*[:=]\s*[\x22']?)[a-z0-9/+]{40}",
            "${1}[secret]",
        ),
    ];
    let compiled = patterns.map(|(pattern, with)| (Regex::new(pattern).ok(), with));
    compiled.into_iter().filter_map(|(pattern, with)| Some((pattern?, with))).collect()
});

impl Redactor {
    /// Creates a redactor that removes text in the format of a secret.
    #[must_use]
    pub fn from_patterns() -> Arc<Self> {
        static PATTERNS_ONLY: LazyLock<Arc<Redactor>> =
            LazyLock::new(|| Arc::new(Redactor { known: None }));
        PATTERNS_ONLY.clone()
    }

    /// Creates a redactor that also removes these secrets, and each of them in its URL-encoded form.
    /// Secrets shorter than 8 bytes are ignored, because they could be ordinary words.
    #[must_use]
    pub fn with_secrets(secrets: impl IntoIterator<Item = String>) -> Arc<Self> {
        let usable =
            |secret: &String| (MIN_SECRET_BYTES..=MAX_SECRET_BYTES).contains(&secret.len());
        let secrets = secrets.into_iter().filter(usable).take(MAX_SECRETS);
        let forms: Vec<_> = secrets.flat_map(|secret| [url_encoded(&secret), secret]).collect();
        if forms.is_empty() {
            return Self::from_patterns();
        }
        let known = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(forms);
        // Building fails only when the patterns do not fit into memory, which the limits prevent.
        Arc::new(Self { known: known.ok() })
    }

    /// Creates a redactor that also removes the values of secret environment variables, recognized by
    /// their names, and the configured secrets: keys, and addresses, whose password is the secret.
    #[must_use]
    pub fn from_environment(configured: impl IntoIterator<Item = String>) -> Arc<Self> {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let secrets = secret_values(variables);
        Self::with_secrets(secrets.chain(configured.into_iter().map(secret_part)))
    }

    /// Returns the text without secrets.
    #[must_use]
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = bounded(text);
        if let Some(known) = &self.known
            && known.is_match(&*text)
        {
            let mut clean = String::with_capacity(text.len());
            known.replace_all_with(&text, &mut clean, |_, _, clean| {
                clean.push_str(REDACTED);
                true
            });
            text = Cow::Owned(clean);
        }
        for (pattern, with) in PATTERNS.iter() {
            if let Cow::Owned(clean) = pattern.replace_all(&text, *with) {
                text = Cow::Owned(clean);
            }
        }
        text
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = self.known.as_ref().map_or(0, AhoCorasick::patterns_len);
        f.debug_struct("Redactor").field("known", &known).finish()
    }
}

/// Truncates the text to the length that is searched. A word at the cut is omitted entirely, because
/// half of a secret has no recognizable format.
fn bounded(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_SEARCHED_BYTES {
        return Cow::Borrowed(text);
    }
    let searched = &text[..text.floor_char_boundary(MAX_SEARCHED_BYTES)];
    let whole_words = searched.rfind(char::is_whitespace).unwrap_or(0);
    let searched = &searched[..whole_words];
    let omitted = text.len() - searched.len();
    Cow::Owned(format!("{searched}\n[text left out — {omitted} bytes]"))
}

/// Returns the password of an address that has one, otherwise the whole text.
fn secret_part(text: String) -> String {
    let authority = text.split_once("://").map(|(_, rest)| rest.split('/').next().unwrap_or(rest));
    let user = authority.and_then(|authority| Some(authority.rsplit_once('@')?.0));
    match user.and_then(|user| Some(user.split_once(':')?.1)) {
        Some(password) => password.to_owned(),
        None => text,
    }
}

/// Returns the values of variables whose names mark them as secret.
fn secret_values(
    variables: impl Iterator<Item = (String, String)>,
) -> impl Iterator<Item = String> {
    variables.filter(|(name, _)| is_secret(name)).map(|(_, value)| value)
}

/// Returns `true` if a variable of this name holds a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let ends = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIALS"];
    ends.iter().any(|end| name.ends_with(end))
}

/// Returns the URL-encoded form of a secret.
fn url_encoded(secret: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let written = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    secret.bytes().map(written).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_formats_are_redacted() {
        let aws = format!("AKIA{}", "ABCDEFGH12345678");
        let cases = [
            ("Authorization: Bearer abc.def-ghi_123==", "Authorization: Bearer [secret]"),
            ("{\"authorization\": \"Basic dTpw\"}", "{\"authorization\": \"Basic [secret]\"}"),
            ("with bearer abcdefghij0123456789", "with bearer [secret]"),
            ("key sk-proj-abcdefghijklmnop1234 is bad", "key [secret] is bad"),
            ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "[secret]"),
            ("github_pat_abcdefghijklmnopqrstuvw", "[secret]"),
            (&aws, "[secret]"),
            (
                "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzzzz",
                "aws_secret_access_key = [secret]",
            ),
            ("at amqp://user:p@ss@broker:5672/x", "at amqp://[secret]@broker:5672/x"),
            (
                "postgres://u:p%40w@db/x and http://host/a@b",
                "postgres://[secret]@db/x and http://host/a@b",
            ),
            (
                "a -----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY----- b",
                "a [secret] b",
            ),
            ("cut -----BEGIN PRIVATE KEY-----\nMIIE", "cut [secret]"),
        ];
        for (text, clean) in cases {
            assert_eq!(Redactor::from_patterns().redact(text), clean);
        }
    }

    #[test]
    fn ordinary_text_is_unchanged() {
        let plain = [
            "a bearer of bad news, basic arithmetic",
            "authorization: denied",
            "sk-short",
            "mail me at user@example.com",
            "https://example.com/path?q=a@b",
            "ghp_ is the prefix of tokens",
            "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----",
        ];
        for text in plain {
            assert!(
                matches!(Redactor::from_patterns().redact(text), Cow::Borrowed(same) if same == text)
            );
        }
    }

    #[test]
    fn known_secrets_are_redacted_plain_and_url_encoded() {
        let secrets = ["p@ss word/1", "hunter2hunter2", "short"].map(str::to_owned);
        let redactor = Redactor::with_secrets(secrets);
        assert_eq!(redactor.redact("x=hunter2hunter2hunter2hunter2."), "x=[secret][secret].");
        assert_eq!(redactor.redact("p@ss word/1 p%40ss%20word%2F1"), "[secret] [secret]");
        assert_eq!(redactor.redact("short"), "short");
        assert!(!format!("{redactor:?}").contains("hunter"));
    }

    #[test]
    fn secret_variables_are_redacted() {
        let variables = [
            ("OPENAI_API_KEY", "value-one"),
            ("BRAVE_TOKEN", "value-two"),
            ("DB_PASSWORD", "value-three"),
            ("HOME", "/home/value-four"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let redactor = Redactor::with_secrets(secret_values(variables.into_iter()));
        assert_eq!(
            redactor.redact("value-one value-two value-three /home/value-four"),
            "[secret] [secret] [secret] /home/value-four"
        );
    }

    #[test]
    fn password_of_address_is_redacted() {
        let address = "amqp://user:hunter2hunter2@broker:5672/%2f".to_owned();
        let redactor = Redactor::from_environment([address, "a-key-of-a-model".to_owned()]);
        assert_eq!(redactor.redact("hunter2hunter2 a-key-of-a-model"), "[secret] [secret]");
        assert_eq!(redactor.redact("amqp://broker:5672/%2f"), "amqp://broker:5672/%2f");
    }

    #[test]
    fn secret_at_search_limit_is_omitted() {
        let secret = "hunter2hunter2";
        let redactor = Redactor::with_secrets([secret.to_owned()]);
        for before in [secret.len(), 7, 1, 0].map(|inside| MAX_SEARCHED_BYTES - inside) {
            let text = format!("{} {secret}", "x".repeat(before - 1));
            let clean = redactor.redact(&text);
            assert!(!clean.contains("hunter"), "{before} bytes before it");
        }
    }
}
