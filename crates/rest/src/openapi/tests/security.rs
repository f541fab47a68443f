//! Security schemes, and what arguments cannot change.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::{
    super::{ImportOptions, SchemeCredentials},
    document, imported, object, reason, request, try_request,
};

fn secured(schemes: Value, security: Value) -> Value {
    let parameters = json!([
        {"name": "key", "in": "query", "required": true, "schema": {"type": "string"}},
        {"name": "filter", "in": "query", "schema": {"type": "object"}, "allowReserved": true},
    ]);
    let operation = json!({"operationId": "op", "parameters": parameters});
    let mut document = document("get", "/x", operation);
    document["components"] = json!({"securitySchemes": schemes});
    document["security"] = security;
    document
}

fn with(name: &str, credentials: SchemeCredentials) -> ImportOptions {
    let auth = BTreeMap::from([(name.to_owned(), credentials)]);
    let credential_origins = vec!["https://api.test".to_owned()];
    ImportOptions { auth, credential_origins, ..ImportOptions::default() }
}

fn secret(text: &str) -> Option<SecretString> {
    Some(SecretString::from(text))
}

#[test]
fn credentials_are_sent_where_the_scheme_says() {
    let check = |scheme: Value, credentials: SchemeCredentials, header: &str, expected: &str| {
        let document = secured(json!({"s": scheme}), json!([{"s": []}]));
        let imported = imported(&document, &with("s", credentials));
        let request = request(&imported.operations[0], json!({"key": "k"}));
        assert_eq!(request.headers[header], expected);
        assert!(request.headers[header].is_sensitive());
    };
    let value = SchemeCredentials { value: secret("v&1"), ..SchemeCredentials::default() };
    let token = SchemeCredentials { token: secret("t"), ..SchemeCredentials::default() };
    let user = Some("u".to_owned());
    let basic = SchemeCredentials { user, password: secret("p"), ..SchemeCredentials::default() };
    check(
        json!({"type": "apiKey", "in": "header", "name": "X-Key"}),
        value.clone(),
        "x-key",
        "v&1",
    );
    check(json!({"type": "apiKey", "in": "cookie", "name": "sid"}), value, "cookie", "sid=v%261");
    check(json!({"type": "http", "scheme": "Bearer"}), token.clone(), "authorization", "Bearer t");
    check(json!({"type": "oauth2", "flows": {}}), token, "authorization", "Bearer t");
    check(json!({"type": "http", "scheme": "basic"}), basic, "authorization", "Basic dTpw");
}

#[test]
fn supplied_key_is_no_argument_and_cannot_be_replaced() {
    let document = secured(
        json!({"s": {"type": "apiKey", "in": "query", "name": "key"}}),
        json!([{}, {"s": []}]),
    );
    let value = SchemeCredentials { value: secret("v&1"), ..SchemeCredentials::default() };
    let imported = imported(&document, &with("s", value));
    let operation = &imported.operations[0];
    assert!(operation.registration(None).parameters["properties"].get("key").is_none());
    let sent = request(operation, json!({"filter": {"a": "b"}}));
    assert_eq!(sent.url.query(), Some("a=b&key=v%261"));
    for name in ["key", "%6bey", "k%65y"] {
        let refused = try_request(operation, object(&[("filter", object(&[(name, json!("x"))]))]));
        assert!(refused.is_err(), "{name}");
    }
    let shown = format!("{operation:?} {sent:?}");
    assert!(!shown.contains("v&1") && !shown.contains("v%261"), "{shown}");
}

#[test]
fn client_credentials_are_returned_as_data() {
    let flows = json!({"clientCredentials": {"tokenUrl": "/token", "scopes": {}}});
    let document = secured(json!({"s": {"type": "oauth2", "flows": flows}}), json!([{"s": ["r"]}]));
    let credentials = SchemeCredentials {
        client_id: Some("id".to_owned()),
        client_secret: secret("hidden-secret"),
        ..SchemeCredentials::default()
    };
    let imported = imported(&document, &with("s", credentials));
    let sent = request(&imported.operations[0], json!({"key": "k"}));
    let client = sent.credentials.expect("a client");
    assert_eq!(client.token_url.as_str(), "https://api.test/token");
    assert_eq!(
        (client.client_id.as_str(), client.scopes.as_slice()),
        ("id", &["r".to_owned()][..])
    );
}

#[test]
fn first_alternative_with_all_credentials_is_used() {
    let schemes = json!({
        "a": {"type": "apiKey", "in": "header", "name": "A"},
        "b": {"type": "apiKey", "in": "header", "name": "B"},
    });
    let document = secured(schemes, json!([{"a": [], "b": []}, {"b": []}]));
    let value = SchemeCredentials { value: secret("v"), ..SchemeCredentials::default() };
    let imported = imported(&document, &with("b", value));
    let sent = request(&imported.operations[0], json!({"key": "k"}));
    assert!(sent.headers.contains_key("b") && !sent.headers.contains_key("a"));
    let missing = reason(&document, &ImportOptions::default());
    assert_eq!(missing, "it needs credentials; set value in auth.a");
    let configured_headers = BTreeSet::from(["b".to_owned()]);
    let credential_origins = vec!["https://api.test".to_owned()];
    let by_header =
        ImportOptions { configured_headers, credential_origins, ..ImportOptions::default() };
    assert_eq!(super::imported(&document, &by_header).operations.len(), 1);
}

#[test]
fn unsupported_and_unknown_schemes_are_reasons() {
    for (scheme, expected) in [
        (json!({"s": {"type": "mutualTLS"}}), "of type mutualTLS is not supported"),
        (json!({"s": {"type": "http", "scheme": "digest"}}), "neither basic nor bearer"),
        (json!({}), "which does not exist"),
    ] {
        let reason = reason(&secured(scheme, json!([{"s": []}])), &ImportOptions::default());
        assert!(reason.contains(expected), "{reason}");
    }
}

#[test]
fn document_does_not_choose_recipients_of_credentials() {
    let value = SchemeCredentials { value: secret("v"), ..SchemeCredentials::default() };
    let scheme = json!({"s": {"type": "apiKey", "in": "header", "name": "X-Key"}});
    let mut document = secured(scheme, json!([{"s": []}]));
    document["servers"] = json!([{"url": "https://evil.test/"}]);
    let refused = reason(&document, &with("s", value.clone()));
    assert!(refused.contains("https://evil.test") && refused.contains("baseUrl"), "{refused}");
    let base_url = Some("https://api.test/".to_owned());
    let fixed = ImportOptions { base_url, ..with("s", value) };
    assert_eq!(imported(&document, &fixed).operations.len(), 1);
    // An operation without credentials may be anywhere.
    document["security"] = json!([]);
    assert_eq!(imported(&document, &ImportOptions::default()).operations.len(), 1);
    let configured_headers = BTreeSet::from(["x-key".to_owned()]);
    let by_header = ImportOptions { configured_headers, ..ImportOptions::default() };
    assert!(reason(&document, &by_header).contains("credentialOrigins"));
}

#[test]
fn document_does_not_choose_recipients_of_server_variables() {
    let mut document = document("get", "/x", json!({"operationId": "op"}));
    let variables = json!({"key": {"default": "none"}});
    let server_variables = BTreeMap::from([("key".to_owned(), "tenant-secret".to_owned())]);
    let given = ImportOptions { server_variables, ..ImportOptions::default() };
    for url in ["https://evil.test/{key}", "https://{key}.evil.test/"] {
        document["servers"] = json!([{"url": url, "variables": variables}]);
        let refused = reason(&document, &given);
        assert!(refused.contains(url) && refused.contains("serverVariables.key"), "{refused}");
        assert!(refused.contains("credentialOrigins") && !refused.contains("secret"), "{refused}");
        // Without the configured value nothing is disclosed.
        assert_eq!(imported(&document, &ImportOptions::default()).operations.len(), 1);
    }
    document["servers"] = json!([{"url": "https://api.test/{key}", "variables": variables}]);
    let credential_origins = vec!["https://api.test".to_owned()];
    let listed = ImportOptions { credential_origins, ..given.clone() };
    let sent = request(&imported(&document, &listed).operations[0], json!({}));
    assert_eq!(sent.url.as_str(), "https://api.test/tenant-secret/x");
    // A value that the document lists is no secret.
    document["servers"] = json!([{"url": "https://other.test/{key}",
        "variables": {"key": {"default": "none", "enum": ["none", "tenant-secret"]}}}]);
    assert_eq!(imported(&document, &given).operations.len(), 1);
}

#[test]
fn document_does_not_choose_the_token_endpoint() {
    let flows = json!({"clientCredentials": {"tokenUrl": "https://evil.test/token", "scopes": {}}});
    let document = secured(json!({"s": {"type": "oauth2", "flows": flows}}), json!([{"s": ["r"]}]));
    let mut credentials = SchemeCredentials {
        client_id: Some("id".to_owned()),
        client_secret: secret("hidden-secret"),
        ..SchemeCredentials::default()
    };
    let refused = reason(&document, &with("s", credentials.clone()));
    assert!(
        refused.contains("https://evil.test") && refused.contains("auth.s.tokenUrl"),
        "{refused}"
    );
    credentials.token_url = Some("https://login.test/token".to_owned());
    assert_eq!(imported(&document, &with("s", credentials)).operations.len(), 1);
}

fn any_value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        Just("..".to_owned()),
        Just("%2e%2e".to_owned()),
        Just("a/../../b".to_owned()),
        Just("x\r\nHost: evil".to_owned()),
        Just("@evil.test/".to_owned()),
        Just("\\\\evil.test".to_owned()),
        ".{0,12}",
    ];
    let leaf = prop_oneof![
        text.prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(Value::Null)
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(".{0,6}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn arguments_change_neither_origin_nor_segments_nor_header_names(
        values in prop::collection::vec(any_value(), 7),
        styles in (0_usize..3, 0_usize..6, any::<bool>(), any::<bool>()),
    ) {
        let (path, query, explode, reserved) = styles;
        let in_path = ["simple", "label", "matrix"][path];
        let in_query = ["form", "spaceDelimited", "pipeDelimited", "deepObject", "form", "x"][query];
        let place = |name: &str, place: &str, style: &str| json!({"name": name, "in": place,
            "style": style, "explode": explode, "allowReserved": reserved, "schema": {}});
        let parameters = [
            place("a", "path", in_path), place("b", "path", "simple"), place("c", "query", in_query),
            place("d", "header", "simple"), place("e", "cookie", "form"), place("f", "cookie", "cookie"),
        ];
        let body = json!({"content": {"application/json": {}}});
        let operation = json!({"parameters": parameters, "requestBody": body});
        let operation = super::only(&document("post", "/p/{a}/x{b}y/q", operation));
        let names = ["a", "b", "c", "d", "e", "f", "body"];
        let pairs: Vec<_> = names.into_iter().zip(values).collect();
        if let Ok(request) = try_request(&operation, object(&pairs)) {
            prop_assert_eq!(request.url.origin().ascii_serialization(), "https://api.test");
            let segments: Vec<_> = request.url.path_segments().expect("a path").collect();
            prop_assert_eq!(segments.len(), 5, "{}", request.url);
            prop_assert!(segments[0] == "v1" && segments[1] == "p" && segments[4] == "q");
            prop_assert!(request.url.fragment().is_none());
            for name in request.headers.keys() {
                prop_assert!(["d", "cookie"].contains(&name.as_str()), "{name}");
            }
        }
    }
}

/// Returns the number of cases: fewer by default, because every test run pays for them.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(2_000)
}
