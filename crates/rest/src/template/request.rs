//! The request of a configured tool.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Map, Value};
use url::Url;

use super::{
    body::{BodyKind, BodyTemplate},
    environment::Environment,
    error::TemplateError,
    header::HeaderTemplates,
    query::QueryTemplate,
    text::{ParameterPath, Template},
    url::UrlTemplate,
};
use crate::request::{BuildRequest, InvalidArguments, RequestBody, RequestParts};

/// A request as it is configured.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestTemplateParts<'a> {
    /// Method. Default: GET.
    pub(crate) method: Option<&'a str>,
    /// URL with placeholders.
    pub(crate) url: &'a str,
    /// Query, in addition to that of the URL.
    pub(crate) query: Option<&'a Map<String, Value>>,
    /// Headers.
    pub(crate) headers: Option<&'a BTreeMap<String, String>>,
    /// Body. Default: none.
    pub(crate) body: Option<&'a Value>,
    /// Encoding of the body. Default: JSON.
    pub(crate) body_kind: BodyKind,
}

/// A request whose parameters are filled in for each call.
#[derive(Debug, Clone)]
pub(crate) struct RequestTemplate {
    method: Method,
    url: UrlTemplate,
    query: QueryTemplate,
    headers: HeaderTemplates,
    body: Option<BodyTemplate>,
}

impl RequestTemplate {
    /// Creates the template and expands its variables.
    ///
    /// # Errors
    /// When a part is not valid, or has a placeholder where none may stand.
    pub(crate) fn new(
        parts: &RequestTemplateParts<'_>,
        environment: &mut Environment<'_>,
    ) -> Result<Self, TemplateError> {
        let method = method(parts.method.unwrap_or("GET"))?;
        let url = UrlTemplate::new(&Template::parse(parts.url, environment)?)?;
        let query = match parts.query {
            Some(query) => QueryTemplate::new(query, environment)?,
            None => QueryTemplate::default(),
        };
        let query = query.after(url.query.clone());
        let mut headers = HeaderTemplates::new(parts.headers.into_iter().flatten(), environment)?;
        let content_type = headers.take_content_type();
        let body = match parts.body {
            Some(body) => {
                Some(BodyTemplate::new(parts.body_kind, content_type, body, environment)?)
            }
            None => None,
        };
        Ok(Self { method, url, query, headers, body })
    }

    /// Returns the method.
    pub(crate) fn method(&self) -> &Method {
        &self.method
    }

    /// Returns scheme, host and port.
    pub(crate) fn origin(&self) -> &Url {
        self.url.origin()
    }

    /// Returns the parameters that must not be absent, because the path contains them.
    pub(crate) fn path_parameters(&self) -> impl Iterator<Item = &ParameterPath> {
        self.url.path_parameters()
    }

    /// Returns all parameters.
    pub(crate) fn parameters(&self) -> Vec<&ParameterPath> {
        let templates = self.query.templates().chain(self.headers.templates());
        let body = self.body.iter().flat_map(BodyTemplate::templates);
        let parameters = templates.chain(body).flat_map(Template::parameters);
        self.url.path_parameters().chain(parameters).collect()
    }
}

impl BuildRequest for RequestTemplate {
    fn request(&self, arguments: &Map<String, Value>) -> Result<RequestParts, InvalidArguments> {
        let mut url = self.url.fill(arguments)?;
        self.query.fill(&mut url, arguments)?;
        Ok(RequestParts {
            method: self.method.clone(),
            url,
            headers: self.headers.fill(arguments)?,
            body: match &self.body {
                Some(body) => body.fill(arguments)?,
                None => RequestBody::Empty,
            },
            credentials: None,
        })
    }
}

/// Parses a method; lower case is accepted.
fn method(name: &str) -> Result<Method, TemplateError> {
    const KNOWN: [&str; 8] = ["GET", "HEAD", "OPTIONS", "QUERY", "POST", "PUT", "PATCH", "DELETE"];
    let upper = name.to_ascii_uppercase();
    let known = KNOWN.contains(&upper.as_str()).then(|| Method::from_bytes(upper.as_bytes()).ok());
    known
        .flatten()
        .ok_or_else(|| TemplateError(format!("method: it must be one of {}", KNOWN.join(", "))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn template() -> RequestTemplate {
        let query: Value = json!({"q": "${parameters.a}", "f": {"x": "${parameters.b}"}});
        let headers = [
            ("X-Name".to_owned(), "n ${parameters.a}".to_owned()),
            ("Authorization".to_owned(), "Bearer ${TOKEN}".to_owned()),
        ];
        let headers = BTreeMap::from(headers);
        let body = json!({"a": "${parameters.a}", "b": ["${parameters.b}"]});
        let parts = RequestTemplateParts {
            method: Some("post"),
            url: "https://api.example.com/v1/${parameters.a}/x${parameters.b}?k=${parameters.b}",
            query: query.as_object(),
            headers: Some(&headers),
            body: Some(&body),
            body_kind: BodyKind::Json,
        };
        let lookup = |_: &str| Some("secret-token".to_owned());
        RequestTemplate::new(&parts, &mut Environment::new(&lookup)).unwrap()
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let text = prop_oneof![
            any::<String>(),
            "[./\\\\%2eEfF@:?#&=\r\n\t\u{0}a]{0,12}",
            "(\\.\\.?/){0,3}",
            "https?://[a-z.]{1,8}/",
        ];
        let scalar = prop_oneof![
            4 => text.prop_map(Value::from),
            1 => any::<i64>().prop_map(Value::from),
            1 => any::<bool>().prop_map(Value::from),
            1 => Just(Value::Null),
        ];
        prop_oneof![
            6 => scalar.clone(),
            1 => proptest::collection::vec(scalar.clone(), 0..3).prop_map(Value::from),
            1 => proptest::collection::btree_map(".{0,6}", scalar, 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]
        #[test]
        fn arguments_change_neither_origin_nor_path_nor_header_names(
            a in any_value(), b in any_value(),
        ) {
            let template = template();
            let Value::Object(arguments) = json!({"a": a, "b": b}) else { unreachable!() };
            if let Ok(request) = template.request(&arguments) {
                let sent: Url = request.url.as_str().parse().unwrap();
                prop_assert_eq!(sent.origin(), template.origin().origin());
                prop_assert_eq!(sent.path_segments().unwrap().count(), 3);
                prop_assert!(sent.username().is_empty() && sent.fragment().is_none());
                prop_assert!(sent.path().starts_with("/v1/"));
                for name in request.headers.keys() {
                    prop_assert!(["authorization", "x-name"].contains(&name.as_str()), "{}", name);
                }
                for name in sent.query_pairs().map(|(name, _)| name.into_owned()) {
                    prop_assert!(["k", "q", "f[x]"].contains(&name.as_str()), "{}", name);
                }
                for value in request.headers.values() {
                    prop_assert!(value.as_bytes().iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~')));
                }
                let shown = format!("{request:?}");
                prop_assert!(!shown.contains("secret-token"));
            }
        }
    }

    /// Returns the number of cases: fewer by default, because every test run pays for them.
    fn cases() -> u32 {
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(5_000)
    }

    #[test]
    fn methods_are_known_and_in_upper_case() {
        assert_eq!(method("query").unwrap().as_str(), "QUERY");
        assert!(method("CONNECT").is_err() && method("x y").is_err());
        assert_eq!(template().method(), Method::POST);
        assert_eq!(template().parameters().len(), 8);
    }
}
