//! Styles of parameters, by the tables of the specification: style × explode × type.

use serde_json::{Value, json};

use super::{document, object, only, request};

fn empty() -> Value {
    json!("")
}

fn text() -> Value {
    json!("blue")
}

fn list() -> Value {
    json!(["blue", "black", "brown"])
}

/// Keys in alphabetical order, which is the order of requests.
fn pairs() -> Value {
    json!({"B": 150, "G": 200, "R": 100})
}

/// Sends `color` and compares the part of the request that it becomes.
#[track_caller]
fn check(place: &str, style: &str, explode: bool, value: &Value, expected: &str) {
    let declared = json!({"name": "color", "in": place, "style": style, "explode": explode,
        "required": place == "path", "schema": {}});
    let path = if place == "path" { "/x{color}" } else { "/x" };
    let operation = only(&document("get", path, json!({"parameters": [declared]})));
    let request = request(&operation, object(&[("color", value.clone())]));
    let header = |name: &str| request.headers.get(name).map_or("", |v| v.to_str().expect("text"));
    let found = match place {
        "path" => request.url.path().strip_prefix("/v1/x").expect("the prefix"),
        "query" => request.url.query().unwrap_or_default(),
        "header" => header("color"),
        _ => header("cookie"),
    };
    assert_eq!(found, expected, "{place} {style} explode={explode} {value}");
}

#[test]
fn matrix_style_in_path() {
    check("path", "matrix", false, &empty(), ";color");
    check("path", "matrix", true, &empty(), ";color");
    check("path", "matrix", false, &text(), ";color=blue");
    check("path", "matrix", true, &text(), ";color=blue");
    check("path", "matrix", false, &list(), ";color=blue,black,brown");
    check("path", "matrix", true, &list(), ";color=blue;color=black;color=brown");
    check("path", "matrix", false, &pairs(), ";color=B,150,G,200,R,100");
    check("path", "matrix", true, &pairs(), ";B=150;G=200;R=100");
}

#[test]
fn label_style_in_path() {
    check("path", "label", false, &empty(), ".");
    check("path", "label", true, &empty(), ".");
    check("path", "label", false, &text(), ".blue");
    check("path", "label", true, &text(), ".blue");
    check("path", "label", false, &list(), ".blue,black,brown");
    check("path", "label", true, &list(), ".blue.black.brown");
    check("path", "label", false, &pairs(), ".B,150,G,200,R,100");
    check("path", "label", true, &pairs(), ".B=150.G=200.R=100");
}

#[test]
fn simple_style_in_path_and_header() {
    for place in ["path", "header"] {
        check(place, "simple", false, &empty(), "");
        check(place, "simple", true, &empty(), "");
        check(place, "simple", false, &text(), "blue");
        check(place, "simple", true, &text(), "blue");
        check(place, "simple", false, &list(), "blue,black,brown");
        check(place, "simple", true, &list(), "blue,black,brown");
        check(place, "simple", false, &pairs(), "B,150,G,200,R,100");
        check(place, "simple", true, &pairs(), "B=150,G=200,R=100");
    }
}

#[test]
fn form_style_in_query_and_cookie() {
    for (place, and) in [("query", "&"), ("cookie", "; ")] {
        check(place, "form", false, &empty(), "color=");
        check(place, "form", true, &empty(), "color=");
        check(place, "form", false, &text(), "color=blue");
        check(place, "form", true, &text(), "color=blue");
        check(place, "form", false, &list(), "color=blue,black,brown");
        let each = ["color=blue", "color=black", "color=brown"].join(and);
        check(place, "form", true, &list(), &each);
        check(place, "form", false, &pairs(), "color=B,150,G,200,R,100");
        check(place, "form", true, &pairs(), &["B=150", "G=200", "R=100"].join(and));
    }
}

#[test]
fn delimited_styles_in_query() {
    let space = "color=blue%20black%20brown";
    check("query", "spaceDelimited", false, &list(), space);
    check("query", "spaceDelimited", false, &pairs(), "color=B%20150%20G%20200%20R%20100");
    check("query", "pipeDelimited", false, &list(), "color=blue%7Cblack%7Cbrown");
    check("query", "pipeDelimited", false, &pairs(), "color=B%7C150%7CG%7C200%7CR%7C100");
    for style in ["spaceDelimited", "pipeDelimited"] {
        check("query", style, true, &list(), "color=blue&color=black&color=brown");
        check("query", style, false, &text(), "color=blue");
    }
}

#[test]
fn deep_object_style_in_query() {
    let expected = "color%5BB%5D=150&color%5BG%5D=200&color%5BR%5D=100";
    check("query", "deepObject", true, &pairs(), expected);
    check("query", "deepObject", false, &pairs(), expected);
    let deeper = json!({"a": {"b": "c"}, "d": [1, 2]});
    let expected = "color%5Ba%5D%5Bb%5D=c&color%5Bd%5D=1&color%5Bd%5D=2";
    check("query", "deepObject", true, &deeper, expected);
}

#[test]
fn cookie_style_keeps_text() {
    check("cookie", "cookie", true, &json!("a/b:c"), "color=a/b:c");
    check("cookie", "form", true, &json!("a/b:c"), "color=a%2Fb%3Ac");
}

#[test]
fn defaults_follow_the_location() {
    let check = |place: &str, value: Value, expected: &str| {
        let declared = json!({"name": "q", "in": place, "schema": {}});
        let path = if place == "path" { "/{q}" } else { "/" };
        let operation = only(&document("get", path, json!({"parameters": [declared]})));
        let url = request(&operation, object(&[("q", value)])).url.to_string();
        assert_eq!(url, format!("https://api.test/v1/{expected}"));
    };
    check("path", list(), "blue,black,brown");
    check("query", json!([1, true, null, {"a": 1}]), "?q=1&q=true&q=%7B%22a%22%3A1%7D");
    check("query", Value::Null, "");
    check("query", json!([]), "");
}

#[test]
fn reserved_characters_are_kept_where_allowed() {
    let declared = json!([
        {"name": "a", "in": "query", "allowReserved": true, "schema": {"type": "string"}},
        {"name": "b", "in": "query", "schema": {"type": "string"}},
    ]);
    let operation = only(&document("get", "/x", json!({"parameters": declared})));
    let request = request(&operation, json!({"a": "/a:b?c#d&e=%20", "b": "/a:b"}));
    assert_eq!(request.url.query(), Some("a=/a:b?c%23d%26e=%20&b=%2Fa%3Ab"));
}

#[test]
fn content_parameters_are_json() {
    let declared = json!([
        {"name": "a", "in": "query", "content": {"application/json": {"schema": {}}}},
        {"name": "b", "in": "header", "content": {"application/json": {}}},
        {"name": "c", "in": "query", "content": {"text/plain": {}}},
    ]);
    let operation = only(&document("get", "/x", json!({"parameters": declared})));
    let request = request(&operation, json!({"a": {"k": [1]}, "b": "x", "c": "y z"}));
    assert_eq!(request.url.query(), Some("a=%7B%22k%22%3A%5B1%5D%7D&c=y%20z"));
    assert_eq!(request.headers["b"], "\"x\"");
}

#[test]
fn query_string_parameter_is_the_whole_query() {
    let mut document = document(
        "get",
        "/x",
        json!({"parameters": [{"name": "q", "in": "querystring", "content": {
            "application/x-www-form-urlencoded": {"schema": {"type": "object"}}}}]}),
    );
    document["openapi"] = json!("3.2.0");
    let request = request(&only(&document), json!({"q": {"a": "1 2", "b": ["x", "y"]}}));
    assert_eq!(request.url.query(), Some("a=1%202&b=x&b=y"));
}
