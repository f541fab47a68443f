//! Parsing of HTML within limits.
//!
//! The algorithm of the HTML standard repairs any input, and some repairs multiply: unclosed formatting
//! elements are created again in every following paragraph. The sink counts what the parser does, so the
//! limits hold for any input.

use std::{
    borrow::Cow,
    cell::{Cell, Ref},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::{Duration, Instant},
};

use dom_query::{Document, NodeId, NodeRef};
use html5ever::{
    Attribute, ParseOpts, QualName, parse_document,
    tendril::{StrTendril, TendrilSink},
    tree_builder::{ElementFlags, NodeOrText, QuirksMode, TreeBuilderOpts, TreeSink},
};

/// Maximum number of nodes of a page.
const MAX_NODES: usize = 400_000;
/// Maximum number of steps of the tree builder.
const MAX_STEPS: u64 = 100_000_000;
/// Maximum nesting of elements.
const MAX_DEPTH: usize = 512;
/// Maximum number of repeated `html` and `body` tags whose attributes are merged.
const MAX_MERGES: u32 = 16;
/// Time limit of the tokenizer, which has no step to count. Checked after every piece of the page.
const PARSE_TIME: Duration = Duration::from_secs(5);
const PIECE_BYTES: usize = 16 * 1024;

/// A page that exceeds the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the page's markup is too complex")]
pub(crate) struct TooComplex;

/// Parses a page. The stack must have room for [`MAX_DEPTH`] levels of recursion.
pub(super) fn parse(html: &str) -> Result<Document, TooComplex> {
    let sink = BoundedSink::default();
    // As in a browser, the content of `noscript` is not part of the page.
    let tree_builder = TreeBuilderOpts { scripting_enabled: true, ..TreeBuilderOpts::default() };
    let options = ParseOpts { tree_builder, ..ParseOpts::default() };
    let started = Instant::now();
    let parsed = catch_unwind(AssertUnwindSafe(|| {
        let mut parser = parse_document(sink, options);
        for piece in pieces(html) {
            if started.elapsed() > PARSE_TIME {
                return Err(TooComplex);
            }
            parser.process(piece.into());
        }
        Ok(parser.finish())
    }));
    let document = parsed.unwrap_or(Err(TooComplex))?;
    match is_shallow(&document) {
        true => Ok(document),
        false => Err(TooComplex),
    }
}

fn pieces(html: &str) -> impl Iterator<Item = &str> {
    let mut rest = html;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
        rest = after;
        Some(piece)
    })
}

/// Returns whether no element is nested deeper than [`MAX_DEPTH`].
fn is_shallow(document: &Document) -> bool {
    let root = document.root();
    let (mut node, mut depth) = (root, 0);
    loop {
        if let Some(child) = node.first_child() {
            (node, depth) = (child, depth + 1);
            if depth > MAX_DEPTH {
                return false;
            }
            continue;
        }
        node = match next_in_order(node, root, &mut depth) {
            Some(next) => next,
            None => return true,
        };
    }
}

fn next_in_order<'a>(
    mut node: NodeRef<'a>,
    root: NodeRef<'a>,
    depth: &mut usize,
) -> Option<NodeRef<'a>> {
    while node.id != root.id {
        if let Some(sibling) = node.next_sibling() {
            return Some(sibling);
        }
        node = node.parent()?;
        *depth -= 1;
    }
    None
}

/// A document that stops its parser at the limits.
#[derive(Default)]
struct BoundedSink {
    document: Document,
    steps: Cell<u64>,
    merges: Cell<u32>,
}

impl BoundedSink {
    /// Unwinds at the limit: the parser has no other way to stop. `parse` catches it.
    fn step(&self) {
        let steps = self.steps.get() + 1;
        self.steps.set(steps);
        if steps > MAX_STEPS {
            resume_unwind(Box::new(TooComplex));
        }
    }

    fn count_node(&self) {
        self.step();
        if self.document.tree.len() >= MAX_NODES {
            resume_unwind(Box::new(TooComplex));
        }
    }
}

impl TreeSink for BoundedSink {
    type Handle = NodeId;
    type Output = Document;
    type ElemName<'a> = Ref<'a, QualName>;

    fn finish(self) -> Document {
        self.document.finish()
    }

    /// Errors are not kept: there may be several for every character.
    fn parse_error(&self, _: Cow<'static, str>) {}

    fn get_document(&self) -> NodeId {
        self.document.get_document()
    }

    fn elem_name<'a>(&'a self, target: &'a NodeId) -> Ref<'a, QualName> {
        self.step();
        self.document.elem_name(target)
    }

    fn create_element(
        &self,
        name: QualName,
        attributes: Vec<Attribute>,
        flags: ElementFlags,
    ) -> NodeId {
        self.count_node();
        self.document.create_element(name, attributes, flags)
    }

    fn create_comment(&self, text: StrTendril) -> NodeId {
        self.count_node();
        self.document.create_comment(text)
    }

    fn create_pi(&self, target: StrTendril, data: StrTendril) -> NodeId {
        self.count_node();
        self.document.create_pi(target, data)
    }

    fn append(&self, parent: &NodeId, child: NodeOrText<NodeId>) {
        self.count_node();
        self.document.append(parent, child);
    }

    fn append_based_on_parent_node(
        &self,
        element: &NodeId,
        previous: &NodeId,
        child: NodeOrText<NodeId>,
    ) {
        self.count_node();
        self.document.append_based_on_parent_node(element, previous, child);
    }

    fn append_doctype_to_document(&self, name: StrTendril, public: StrTendril, system: StrTendril) {
        self.count_node();
        self.document.append_doctype_to_document(name, public, system);
    }

    fn get_template_contents(&self, target: &NodeId) -> NodeId {
        self.document.get_template_contents(target)
    }

    fn same_node(&self, one: &NodeId, other: &NodeId) -> bool {
        self.step();
        self.document.same_node(one, other)
    }

    fn set_quirks_mode(&self, mode: QuirksMode) {
        self.document.set_quirks_mode(mode);
    }

    fn append_before_sibling(&self, sibling: &NodeId, node: NodeOrText<NodeId>) {
        self.count_node();
        self.document.append_before_sibling(sibling, node);
    }

    fn add_attrs_if_missing(&self, target: &NodeId, attributes: Vec<Attribute>) {
        self.merges.set(self.merges.get() + 1);
        if self.merges.get() <= MAX_MERGES {
            self.document.add_attrs_if_missing(target, attributes);
        }
    }

    fn remove_from_parent(&self, target: &NodeId) {
        self.step();
        self.document.remove_from_parent(target);
    }

    fn reparent_children(&self, node: &NodeId, parent: &NodeId) {
        self.step();
        self.document.reparent_children(node, parent);
    }

    fn is_mathml_annotation_xml_integration_point(&self, handle: &NodeId) -> bool {
        self.document.is_mathml_annotation_xml_integration_point(handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_parsed_in_pieces() {
        let text = "wörter ".repeat(10_000);
        let document = parse(&format!("<p>{text}<p>second")).unwrap();
        assert_eq!(document.select("p").length(), 2);
        assert_eq!(document.select("p").first().text().trim(), text.trim());
    }

    #[test]
    fn nesting_is_limited() {
        assert!(parse(&"<div>".repeat(400)).is_ok());
        assert_eq!(parse(&"<div>".repeat(600)).err(), Some(TooComplex));
        // The end tags are ignored, because an object is open.
        let nested = format!("{}<object>{}", "<div>".repeat(300), "</div>".repeat(300));
        assert_eq!(parse(&nested.repeat(2)).err(), Some(TooComplex));
    }

    #[test]
    fn repeated_formatting_is_limited() {
        let open: String = (0..500).map(|number| format!("<b id={number}>")).collect();
        let html = format!("<div>{open}</div>{}", "<p>x</p>".repeat(50_000));
        assert_eq!(parse(&html).err(), Some(TooComplex));
    }

    #[test]
    fn repeated_body_attributes_are_limited() {
        let tag = |number| format!("<body a{number}=1>");
        let html: String = (0..1000).map(tag).collect();
        let document = parse(&html).unwrap();
        assert!(document.body().unwrap().attrs().len() <= 17);
    }
}
