//! The configuration section `[web.github]`.

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::{
    api::base_url,
    secret::{header, key},
};

/// The section `[web.github]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GithubSection {
    /// A token, sent to the API only. A model can read what the token can read, so use one without
    /// access to private repositories. Default: the variable `token_env`.
    pub token: Option<SecretString>,
    /// Name of the environment variable with the token. Default: none.
    pub token_env: Option<String>,
    /// The base URL of the API. Default `https://api.github.com`.
    pub api_url: String,
}

impl Default for GithubSection {
    fn default() -> Self {
        Self { token: None, token_env: None, api_url: "https://api.github.com".to_owned() }
    }
}

impl GithubSection {
    /// Returns all invalid values, each with its key. `environment` returns the value of a variable.
    /// No message contains a secret.
    #[must_use]
    pub fn validate(&self, environment: impl Fn(&str) -> Option<String>) -> Vec<String> {
        let mut problems = Vec::new();
        if let Err(what) = base_url(&self.api_url, true) {
            problems.push(format!("web.github.api_url: {what}"));
        }
        let token = self.token(&environment);
        if token.is_some_and(|token| header(token.expose_secret()).is_none()) {
            let what = "has invalid characters; check for stray line breaks";
            problems.push(format!("web.github.token: {what}"));
        }
        if let Some(name) = self.token_env.as_deref()
            && self.token.is_none()
            && self.token(&environment).is_none()
        {
            problems.push(format!("web.github.token_env: the variable {name} is not set"));
        }
        problems
    }

    /// Returns the token, if one is set.
    pub(super) fn token(
        &self,
        environment: &impl Fn(&str) -> Option<String>,
    ) -> Option<SecretString> {
        key(self.token.as_ref(), self.token_env.as_deref().unwrap_or_default(), environment)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_problems_are_reported_without_the_token() {
        let section: GithubSection = serde_json::from_value(json!({
            "token": "ghp_\u{7}secret", "api_url": "http://github.example.com"
        }))
        .expect("a section");
        let problems = section.validate(|_| None);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(!problems.join(" ").contains("secret"));
        assert!(!format!("{section:?}").contains("secret"));
    }

    #[test]
    fn missing_variable_is_reported() {
        let section: GithubSection =
            serde_json::from_value(json!({"token_env": "MY_TOKEN"})).expect("a section");
        assert_eq!(section.validate(|_| None).len(), 1);
        let environment = |name: &str| (name == "MY_TOKEN").then(|| "ghp_1\n".to_owned());
        assert_eq!(section.validate(environment), [""; 0]);
        let token = section.token(&environment).map(|token| token.expose_secret().to_owned());
        assert_eq!(token.as_deref(), Some("ghp_1"));
    }
}
