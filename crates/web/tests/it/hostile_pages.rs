//! Pages that are made to exhaust a parser, also for the benchmark `hostile`.

use proptest::prelude::*;

/// Name of the page that has 100,000 attributes on a tag.
pub(crate) const MANY_ATTRIBUTES: &str = "one tag with many attributes";

/// Returns the concatenation of numbered parts.
pub(crate) fn numbered(count: usize, part: impl Fn(usize) -> String) -> String {
    (0..count).map(part).collect()
}

/// Returns the hostile pages with their names. Each ends with the word `survived`.
pub(crate) fn pages() -> Vec<(&'static str, String)> {
    let end = "<p>survived</p>";
    let attributes = numbered(100_000, |number| format!(" a{number}=1"));
    vec![
        ("nested blocks", format!("{}{end}", "<div>".repeat(10_000))),
        (
            "nested closed blocks",
            format!("{}x{}{end}", "<div>".repeat(10_000), "</div>".repeat(10_000)),
        ),
        (MANY_ATTRIBUTES, format!("<p{attributes}>x</p>{end}")),
        ("long attribute", format!("<p a=\"{attributes}\">{end}")),
        ("line breaks", format!("{}{end}", "<br>".repeat(150_000))),
        ("too many line breaks", format!("{}{end}", "<br>".repeat(300_000))),
        ("too many tags", format!("{}{end}", "<b></b>".repeat(150_000))),
        ("long table", format!("<table>{}</table>{end}", "<tr><td>a<td>b".repeat(30_000))),
        ("table of 3.5 MB", {
            let row = "<tr><td>The name of an item<td>its price and its color\n";
            format!("<table>{}</table>{end}", row.repeat(3_500_000 / row.len()))
        }),
        ("nested tables", format!("{}{end}", "<table><tr><td>".repeat(1000))),
        ("nested lists", format!("{}{end}", "<ul><li>".repeat(400))),
        (
            "formatting that is opened again",
            format!(
                "<div>{}</div>{}{end}",
                numbered(500, |number| format!("<b id=b{number}>")),
                "<p>x</p>".repeat(20_000)
            ),
        ),
        (
            "ignored end tags",
            format!(
                "{}{end}",
                format!("{}<object>{}", "<div>".repeat(300), "</div>".repeat(300)).repeat(30)
            ),
        ),
        ("misplaced table content", format!("<table>{}{end}", "<a><table>".repeat(5000))),
        ("unclosed comment", format!("{end}<!--{}", "-".repeat(1_000_000))),
        ("less-than signs", format!("{}{end}", "<".repeat(1_000_000))),
        ("entities", format!("<p>{}{end}", "&amp;".repeat(200_000))),
        (
            "picture in an attribute",
            format!(
                "<img alt=\"a\" src=\"data:image/png;base64,{}\">{end}",
                "QUJD".repeat(900_000)
            ),
        ),
        ("long word", format!("<p>{}</p>{end}", "word".repeat(1_000_000))),
        ("nested quotations with code", {
            let code = "x\n".repeat(50_000);
            format!("{}<pre>{code}</pre>{end}", "<blockquote>".repeat(400))
        }),
    ]
}

/// Pieces of markup that parsers repair.
pub(crate) fn piece() -> impl Strategy<Value = String> {
    let tag = prop::sample::select(vec![
        "a",
        "b",
        "p",
        "div",
        "table",
        "tr",
        "td",
        "ul",
        "li",
        "form",
        "button",
        "select",
        "option",
        "object",
        "svg",
        "math",
        "template",
        "pre",
        "code",
        "main",
        "article",
        "h1",
        "body",
        "html",
        "frameset",
        "script",
        "style",
        "title",
        "textarea",
        "blockquote",
        "dl",
        "dt",
        "img",
        "br",
        "hr",
    ]);
    prop_oneof![
        4 => tag.clone().prop_map(|tag| format!("<{tag}>")),
        3 => tag.clone().prop_map(|tag| format!("</{tag}>")),
        2 => (tag, "[a-z]{1,6}", "[^<>]{0,8}").prop_map(|(tag, name, value)| format!("<{tag} {name}='{value}'>")),
        3 => "[a-zü漢 &;\n]{0,12}",
        1 => prop::sample::select(vec!["<!--", "-->", "<![CDATA[", "]]>", "<!doctype html>", "<", "\0", "&#0;"])
            .prop_map(str::to_owned),
    ]
}
