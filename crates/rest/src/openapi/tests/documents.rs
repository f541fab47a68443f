//! Documents of each version, and what an import makes of them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    super::{Document, DocumentError, ImportOptions, OperationFilter, OperationOverride, Version},
    argument, document, imported, only, reason, request, try_request,
};
use crate::request::{Part, RequestBody};

const SWAGGER: &str = r##"
swagger: "2.0"
info: {title: Pets, version: 1.0}
host: pets.test
basePath: /api
schemes: [http, https]
consumes: [application/json]
produces: [application/xml, application/json]
parameters:
  limit: {name: limit, in: query, type: integer, maximum: 10, exclusiveMaximum: true}
definitions:
  Pet:
    type: object
    required: [name, id]
    properties:
      id: {type: integer, readOnly: true}
      name: {type: string, x-nullable: true}
      friend: {$ref: "#/definitions/Pet"}
paths:
  /pets/{id}:
    parameters:
      - {name: id, in: path, required: true, type: string}
    get:
      operationId: getPet
      parameters:
        - $ref: "#/parameters/limit"
        - {name: tags, in: query, type: array, items: {type: string}, collectionFormat: tsv}
        - {name: kinds, in: query, type: array, items: {type: string}, collectionFormat: multi}
        - {name: ids, in: query, type: array, items: {type: integer}}
    put:
      operationId: putPet
      parameters:
        - {name: pet, in: body, required: true, schema: {$ref: "#/definitions/Pet"}}
    post:
      operationId: uploadPhoto
      consumes: [multipart/form-data]
      parameters:
        - {name: photo, in: formData, type: file, required: true}
        - {name: note, in: formData, type: string}
"##;

fn find<'o>(imported: &'o super::Imported, id: &str) -> &'o super::Operation {
    imported.operations.iter().find(|operation| operation.id() == id).expect("the operation")
}

#[test]
fn swagger_document_is_converted() {
    let document: Document = SWAGGER.parse().expect("a document");
    assert_eq!(document.version(), Version::V2);
    assert_eq!((document.title().as_str(), document.api_version().as_str()), ("Pets", "1.0"));
    assert_eq!(document.servers(), ["https://pets.test/api", "http://pets.test/api"]);
    let imported = super::import(&document, &ImportOptions::default());
    assert!(imported.skipped.is_empty(), "{:?}", imported.skipped);

    let get = find(&imported, "getPet");
    assert_eq!(argument(get, "limit"), json!({"type": "integer", "exclusiveMaximum": 10}));
    let arguments = json!({"id": "7", "limit": 3, "tags": ["a", "b"], "kinds": ["c", "d"],
        "ids": [1, 2]});
    let sent = request(get, arguments);
    let expected = "https://pets.test/api/pets/7?limit=3&tags=a%09b&kinds=c&kinds=d&ids=1,2";
    assert_eq!(sent.url.as_str(), expected);
    assert_eq!(sent.headers["accept"], "application/json, */*;q=0.1");

    let put = find(&imported, "putPet").registration(None).parameters;
    let pet = &put["$defs"]["Pet"];
    assert_eq!(put["properties"]["body"], json!({"$ref": "#/$defs/Pet"}));
    assert_eq!(pet["properties"]["name"], json!({"type": ["string", "null"]}));
    assert_eq!((&pet["required"], pet["properties"].get("id")), (&json!(["name"]), None));

    let photo = json!({"base64": "aGk=", "filename": "a.png", "contentType": "image/png"});
    let upload = json!({"id": "7", "body": {"photo": photo, "note": "x"}});
    let sent = request(find(&imported, "uploadPhoto"), upload);
    let note =
        Part { name: "note".to_owned(), file_name: None, content_type: None, bytes: b"x".to_vec() };
    let photo = Part {
        name: "photo".to_owned(),
        file_name: Some("a.png".to_owned()),
        content_type: Some("image/png".to_owned()),
        bytes: b"hi".to_vec(),
    };
    assert!(sent.body == RequestBody::Multipart(vec![note, photo]), "{:?}", sent.body);
}

#[test]
fn versions_are_recognized() {
    let version = |text: &str| text.parse::<Document>().map(|document| document.version());
    assert_eq!(version("openapi: 3.0.4\npaths: {}"), Ok(Version::V30));
    assert_eq!(version(r#"{"openapi": "3.1.1", "paths": {}}"#), Ok(Version::V31));
    assert_eq!(version("openapi: '3.2.0'"), Ok(Version::V32));
    assert_eq!(version("swagger: 2.0"), Ok(Version::V2));
    assert!(matches!(version("swagger: '1.2'"), Err(DocumentError::Version { .. })));
    assert!(matches!(version("openapi: 4.0.0"), Err(DocumentError::Version { .. })));
    assert_eq!(version("a: 1"), Err(DocumentError::NotOpenApi));
    assert!(matches!(version("{"), Err(DocumentError::Syntax { format: "JSON", .. })));
    assert!(matches!(version("a: [\n- b: c"), Err(DocumentError::Syntax { format: "YAML", .. })));
}

#[test]
fn dialect_of_3_0_becomes_json_schema() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "integer", "nullable": true, "minimum": 1, "exclusiveMinimum": true},
        "b": {"nullable": true, "allOf": [{"$ref": "#/components/schemas/B"}], "description": "B"},
        "c": {"type": "string", "enum": ["x", 1, true], "nullable": true, "example": "x"},
        "d": {"type": "any", "xml": {}, "pattern": "^a(?=b)"},
        "e": {"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 3}]},
        "f": {"$ref": "#/components/schemas/B", "description": "other", "type": "array"},
    }});
    let body = json!({"required": true, "content": {"application/json": {"schema": schema}}});
    let mut document = document("post", "/x", json!({"requestBody": body}));
    document["openapi"] = json!("3.0.3");
    document["components"] = json!({"schemas": {"B": {"type": "string", "maxLength": 9}}});
    assert_eq!(
        argument(&only(&document), "body")["properties"],
        json!({
            "a": {"type": ["integer", "null"], "exclusiveMinimum": 1},
            "b": {"anyOf": [{"allOf": [{"type": "string", "maxLength": 9}]}, {"type": "null"}],
                "description": "B"},
            "c": {"type": ["string", "null"], "enum": ["x", "1", "true", null]},
            "d": {"pattern": "^a(?=b)"},
            "e": {"anyOf": [{"type": "string"}, {"type": "string", "maxLength": 3}]},
            "f": {"type": "string", "maxLength": 9, "description": "other"},
        })
    );
}

#[test]
fn discriminator_states_the_value_of_each_branch() {
    let schema = json!({
        "oneOf": [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}],
        "discriminator": {"propertyName": "kind", "mapping": {"meow": "#/components/schemas/Cat"}},
    });
    let body = json!({"content": {"application/json": {"schema": schema}}});
    let mut document = document("post", "/x", json!({"requestBody": body}));
    let animal = json!({"type": "object", "properties": {"kind": {"type": "string"}}});
    document["components"] = json!({"schemas": {"Cat": animal, "Dog": animal}});
    let branches = argument(&only(&document), "body")["anyOf"].clone();
    let value = |index: usize| branches[index]["properties"]["kind"]["const"].clone();
    assert_eq!((value(0), value(1)), (json!("meow"), json!("Dog")), "{branches}");
    assert_eq!(branches[0]["allOf"], json!([animal]));
}

#[test]
fn arguments_with_one_name_get_their_location() {
    let place = |place: &str| json!({"name": "id", "in": place, "schema": {"type": "string"}});
    let parameters = [
        place("header"),
        place("path"),
        place("query"),
        json!({"name": "body", "in": "query", "schema": {"type": "integer"}}),
        json!({"name": "filter[x]", "in": "query", "schema": {"type": "string"}}),
        json!({"name": "Accept", "in": "header", "required": true, "schema": {}}),
    ];
    let body = json!({"content": {"application/json": {"schema": {"type": "object"}}}});
    let operation = json!({"parameters": parameters, "requestBody": body});
    let operation = only(&document("post", "/x/{id}/{undeclared}", operation));
    let schema = operation.registration(None).parameters;
    let names: Vec<_> = schema["properties"].as_object().expect("properties").keys().collect();
    let expected =
        ["body", "body_in_query", "filter_x_", "id", "id_in_header", "id_in_query", "undeclared"];
    assert_eq!(names, expected);
    assert_eq!(schema["required"], json!(["id", "undeclared"]));
    let arguments = json!({"id": "a/b", "id_in_query": "q", "id_in_header": "h", "filter_x_": "f",
        "undeclared": "u", "body": {"k": 1}, "body_in_query": 5});
    let sent = request(&operation, arguments);
    let expected = "https://api.test/v1/x/a%2Fb/u?id=q&body=5&filter%5Bx%5D=f";
    assert_eq!((sent.url.as_str(), &sent.headers["id"]), (expected, &"h".parse().expect("value")));
    assert!(try_request(&operation, json!({"id": "..", "undeclared": "u"})).is_err());
}

#[track_caller]
fn check_body(content: Value, body: Value, content_type: &str, expected: &str) {
    let operation = json!({"requestBody": {"content": content, "required": true}});
    let operation = only(&document("post", "/x", operation));
    match request(&operation, json!({"body": body})).body {
        RequestBody::Bytes { content_type: found, bytes } => {
            assert_eq!(found, content_type);
            assert_eq!(String::from_utf8_lossy(&bytes), expected);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn bodies_are_encoded_by_their_media_type() {
    let json = "application/json";
    check_body(
        json!({"text/xml": {}, "application/json": {}}),
        json!({"a": 1}),
        json,
        r#"{"a":1}"#,
    );
    check_body(json!({"*/*": {}}), json!([1]), json, "[1]");
    let patch = "application/merge-patch+json";
    check_body(json!({patch: {}}), json!({"a": null}), patch, r#"{"a":null}"#);
    check_body(json!({"text/csv": {}}), json!("a,b"), "text/csv", "a,b");
    check_body(json!({"application/xml": {}}), json!("<a/>"), "application/xml", "<a/>");
    check_body(json!({"image/*": {}}), json!("aGk"), "application/octet-stream", "hi");
    check_body(json!({"application/pdf": {}}), json!("aGk="), "application/pdf", "hi");
    let form = "application/x-www-form-urlencoded";
    let encoding = json!({"d": {"style": "deepObject", "explode": true}, "l": {"explode": false}});
    check_body(
        json!({form: {"schema": {"type": "object"}, "encoding": encoding}}),
        json!({"a": "x y&", "b": ["1", "2"], "d": {"k": "v"}, "l": [1, 2], "o": {"k": 1}}),
        form,
        "a=x%20y%26&b=1&b=2&d%5Bk%5D=v&l=1,2&o=%7B%22k%22%3A1%7D",
    );
}

#[test]
fn malformed_bytes_are_refused() {
    let content = json!({"application/octet-stream": {}});
    let operation = only(&document("post", "/x", json!({"requestBody": {"content": content}})));
    let error = try_request(&operation, json!({"body": "***"})).expect_err("no base64");
    assert_eq!(error.to_string(), "body must be base64");
}

#[test]
fn servers_are_chosen_and_checked() {
    let url = |document: &Value, options: &ImportOptions| {
        let imported = imported(document, options);
        let operation = imported.operations.first().expect("an operation");
        request(operation, json!({})).url.to_string()
    };
    let mut document = document("get", "/x", json!({}));
    let variables = json!({"region": {"default": "eu", "enum": ["eu", "us"]}});
    document["servers"] = json!([{"url": "http://a.test"}, {"url": "https://{region}.test/", "variables": variables}]);
    let region = |value: &str| ImportOptions {
        server_variables: BTreeMap::from([("region".to_owned(), value.to_owned())]),
        ..ImportOptions::default()
    };
    assert_eq!(url(&document, &ImportOptions::default()), "https://eu.test/x");
    assert_eq!(url(&document, &region("us")), "https://us.test/x");
    let plain = ImportOptions { allow_plain_http: true, ..ImportOptions::default() };
    assert_eq!(url(&document, &plain), "http://a.test/x");
    document["servers"] = json!([{"url": "https://{region}.test", "variables": variables}]);
    assert!(reason(&document, &region("cn")).contains("does not permit this value"));
    document["servers"] = json!([{"url": "../api"}]);
    assert!(reason(&document, &ImportOptions::default()).contains("is relative; set baseUrl"));
    let from = ImportOptions {
        document_url: "https://d.test/a/b/openapi.json".parse().ok(),
        ..ImportOptions::default()
    };
    assert_eq!(url(&document, &from), "https://d.test/a/api/x");
    document["servers"] = json!([{"url": ""}]);
    assert_eq!(url(&document, &from), "https://d.test/x");
    document["paths"]["/x"]["servers"] = json!([{"url": "https://p.test"}]);
    assert_eq!(url(&document, &ImportOptions::default()), "https://p.test/x");
    let base_url = Some("https://b.test/base/".to_owned());
    let base = ImportOptions { base_url, ..ImportOptions::default() };
    assert_eq!(url(&document, &base), "https://b.test/base/x");
}

#[test]
fn filters_and_overrides_select_and_change_operations() {
    let operation = |id: &str, tag: &str| {
        json!({"operationId": id, "tags": [tag],
        "summary": "Sum", "description": "Details", "responses": {}})
    };
    let mut document = document("get", "/a", operation("a/get", "x"));
    document["paths"]["/a"]["post"] = operation("a/post", "x");
    document["paths"]["/b"] = json!({"delete": operation("b/delete", "y"),
        "get": {"deprecated": true}, "x-note": {}});
    let ids = |options: &ImportOptions| -> Vec<String> {
        let imported = imported(&document, options);
        imported.operations.iter().map(|operation| operation.id().to_owned()).collect()
    };
    assert_eq!(ids(&ImportOptions::default()), ["a/get", "a/post", "b/delete"]);
    let all = ImportOptions { deprecated: true, ..ImportOptions::default() };
    assert_eq!(ids(&all), ["a/get", "a/post", "get_b", "b/delete"]);
    let exclude = OperationFilter { methods: vec!["post".to_owned()], ..Default::default() };
    let include = OperationFilter { tags: vec!["x".to_owned()], ..Default::default() };
    let filtered = ImportOptions { include, exclude, ..ImportOptions::default() };
    assert_eq!(ids(&filtered), ["a/get"]);
    let change = OperationOverride {
        name: Some("fetch".to_owned()),
        description: Some("Own".to_owned()),
        ..Default::default()
    };
    let hide = OperationOverride { hide: true, ..Default::default() };
    let overrides = BTreeMap::from([
        ("a/get".to_owned(), change),
        ("b/delete".to_owned(), hide),
        ("gone".to_owned(), OperationOverride::default()),
    ]);
    let options = ImportOptions {
        overrides,
        tool_name_prefix: Some("p".to_owned()),
        read_only: vec!["a/p*".to_owned()],
        ..ImportOptions::default()
    };
    let imported = imported(&document, &options);
    let names: Vec<_> = imported.operations.iter().map(super::Operation::name).collect();
    assert_eq!(names, ["rest__p_fetch", "rest__p_a_post"]);
    assert_eq!(imported.notes, ["overrides.gone: the document has no such operation"]);
    let tools: Vec<_> =
        imported.operations.iter().map(|operation| operation.registration(Some(5))).collect();
    assert_eq!((tools[0].description.as_str(), tools[0].timeout_ms), ("Own", Some(5)));
    assert_eq!(tools[1].description, "Sum\n\nDetails");
    assert!(tools[1].hints.read_only && tools[1].hints.idempotent && tools[1].hints.open_world);
}

#[test]
fn hints_follow_the_method() {
    for (method, read_only, idempotent) in
        [("get", true, true), ("put", false, true), ("delete", false, true), ("post", false, false)]
    {
        let hints = only(&document(method, "/x", json!({}))).registration(None).hints;
        assert_eq!((hints.read_only, hints.idempotent), (read_only, idempotent), "{method}");
        assert_eq!(hints.destructive, !read_only, "{method}");
    }
}

#[test]
fn methods_of_3_2_are_read() {
    let mut document = document("query", "/x", json!({"operationId": "q"}));
    document["paths"]["/x"]["additionalOperations"] = json!({"COPY": {"operationId": "c"}});
    document["openapi"] = json!("3.2.0");
    let both = imported(&document, &ImportOptions::default());
    let methods: Vec<_> = both.operations.iter().map(|one| one.method().to_string()).collect();
    assert_eq!(methods, ["QUERY", "COPY"]);
    assert!(both.operations[0].registration(None).hints.read_only);
    document["openapi"] = json!("3.1.0");
    assert!(imported(&document, &ImportOptions::default()).operations.is_empty());
}

#[test]
fn paths_of_one_url_keep_their_fixed_query() {
    let parameters = json!([{"name": "Action", "in": "query", "schema": {"type": "string"}}]);
    let operation = only(&document("get", "/?v=1#Action=List", json!({"parameters": parameters})));
    let sent = request(&operation, json!({"Action": "List"}));
    assert_eq!(sent.url.as_str(), "https://api.test/v1/?v=1&Action=List");
}
