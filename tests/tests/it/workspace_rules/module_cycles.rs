//! Sibling modules of a crate must not form an import cycle.
//!
//! Siblings are children of the same module. A reference from inside `a` to an item inside its sibling `b`
//! is an import of `b` by `a`. A reference through a re-export counts for the module that defines the
//! item. A `mod` declaration, a re-export and a reference to an item of the parent are not imports.
//! Modules with `#[cfg(test)]` are ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree, Visibility};

use super::{assert_no_violations, entries, root};

/// A path from the root of a crate: `["layers", "cache"]`.
type ModulePath = Vec<String>;

#[test]
fn sibling_modules_form_no_cycle() {
    let mut violations = Vec::new();
    for (package, source) in packages() {
        for cycle in Crate::read(&source).cycles() {
            violations.push(format!(
                "{package}: {} form an import cycle; move shared items to a separate module",
                cycle.join(", ")
            ));
        }
    }
    assert_no_violations(&violations);
}

/// Returns folder name and root file of every crate.
fn packages() -> Vec<(String, PathBuf)> {
    let mut packages = Vec::new();
    for folder in entries(&root().join("crates")) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let roots = ["src/lib.rs", "src/main.rs"].map(|file| folder.join(file));
        if let Some(source) = roots.into_iter().find(|file| file.is_file()) {
            packages.push((name, source));
        }
    }
    packages.sort();
    packages
}

/// The modules of a crate and their references.
#[derive(Default)]
struct Crate {
    modules: BTreeMap<ModulePath, Module>,
}

#[derive(Default)]
struct Module {
    /// Absolute paths, with `crate`, `super` and `self` resolved.
    references: BTreeSet<Vec<String>>,
    /// Re-exported names with their absolute paths.
    reexports: BTreeMap<String, Vec<String>>,
    /// Modules re-exported by a glob.
    globs: Vec<Vec<String>>,
}

impl Crate {
    fn read(source: &Path) -> Self {
        let mut modules = Self::default();
        let folder = source.parent().expect("a file is in a folder");
        modules.read_file(source, folder, &[]);
        modules
    }

    fn read_file(&mut self, file: &Path, folder: &Path, path: &[String]) {
        let text = fs::read_to_string(file)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()));
        let parsed = syn::parse_file(&text)
            .unwrap_or_else(|error| panic!("cannot parse {}: {error}", file.display()));
        self.read_items(&parsed.items, folder, path);
    }

    /// Reads the items of a module. The files of its children are in `folder`.
    fn read_items(&mut self, items: &[Item], folder: &Path, path: &[String]) {
        let children: BTreeSet<String> = items
            .iter()
            .filter_map(|item| match item {
                Item::Mod(module) if !is_test(&module.attrs) => Some(module.ident.to_string()),
                _ => None,
            })
            .collect();
        let mut reader = Reader { path, children: &children, module: Module::default() };
        items.iter().for_each(|item| reader.visit_item(item));
        let module = reader.module;
        self.modules.insert(path.to_vec(), module);
        for item in items {
            let Item::Mod(ItemMod { attrs, ident, content, .. }) = item else { continue };
            if is_test(attrs) {
                continue;
            }
            let name = ident.to_string();
            let (mut path, below) = (path.to_vec(), folder.join(&name));
            path.push(name.clone());
            if let Some((_, items)) = content {
                self.read_items(items, &below, &path);
                continue;
            }
            let files = [folder.join(format!("{name}.rs")), below.join("mod.rs")];
            let file = files.iter().find(|file| file.is_file());
            // A platform-specific module may have a `path` attribute.
            if let Some(file) = file {
                self.read_file(file, &below, &path);
            }
        }
    }

    /// Returns the module that defines the item of a path.
    fn definition(&self, path: &[String]) -> ModulePath {
        let mut path = path.to_vec();
        // A chain of re-exports without a loop is at most as long as the number of modules.
        for _ in 0..self.modules.len() {
            let known =
                (0..=path.len()).rev().find(|length| self.modules.contains_key(&path[..*length]));
            let at = path[..known.unwrap_or(0)].to_vec();
            let Some(name) = path.get(at.len()) else { return at };
            let module = &self.modules[&at];
            let followed = module.reexports.get(name).cloned().or_else(|| {
                let globs = module
                    .globs
                    .iter()
                    .map(|glob| [&glob[..], std::slice::from_ref(name)].concat());
                globs.into_iter().find(|path| self.definition(path) != at)
            });
            match followed {
                Some(target) => path = [&target[..], &path[at.len() + 1..]].concat(),
                None => return at,
            }
        }
        path
    }

    /// Returns the cycles of siblings, each in alphabetical order.
    fn cycles(&self) -> Vec<Vec<String>> {
        let mut edges: BTreeMap<ModulePath, BTreeSet<ModulePath>> = BTreeMap::new();
        for (from, module) in &self.modules {
            for reference in &module.references {
                let to = self.definition(reference);
                let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
                if shared < from.len() && shared < to.len() {
                    let sibling = |path: &ModulePath| path[..=shared].to_vec();
                    edges.entry(sibling(from)).or_default().insert(sibling(&to));
                }
            }
        }
        let reach: BTreeMap<_, _> =
            edges.keys().map(|from| (from, reached(&edges, from))).collect();
        let mut cycles = BTreeSet::new();
        for (from, reached) in &reach {
            if reached.contains(*from) {
                let back =
                    |to: &&ModulePath| reach.get(*to).is_some_and(|back| back.contains(*from));
                let cycle = reached.iter().filter(back).map(|path| path.join("::"));
                cycles.insert(cycle.collect::<Vec<_>>());
            }
        }
        cycles.into_iter().collect()
    }
}

fn reached(
    edges: &BTreeMap<ModulePath, BTreeSet<ModulePath>>,
    from: &ModulePath,
) -> BTreeSet<ModulePath> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<_> = edges[from].iter().collect();
    while let Some(next) = open.pop() {
        if reached.insert(next.clone()) {
            open.extend(edges.get(next).into_iter().flatten());
        }
    }
    reached
}

/// Collects the references of one module.
struct Reader<'a> {
    path: &'a [String],
    children: &'a BTreeSet<String>,
    module: Module,
}

impl Reader<'_> {
    /// Resolves paths that begin with `crate`, `self`, `super` or the name of a child. Other paths return
    /// `None`.
    fn resolve(&self, segments: &[String]) -> Option<Vec<String>> {
        let (first, rest) = segments.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([self.path, rest].concat()),
            "super" => {
                let above = segments.iter().take_while(|segment| *segment == "super").count();
                let base = self.path.get(..self.path.len().checked_sub(above)?)?;
                Some([base, &segments[above..]].concat())
            }
            child if self.children.contains(child) => Some([self.path, segments].concat()),
            _ => None,
        }
    }

    fn read_use(&mut self, tree: &UseTree, prefix: &[String], is_reexport: bool) {
        let with = |name: String| {
            if name == "self" { prefix.to_vec() } else { [prefix, &[name]].concat() }
        };
        let (path, name) = match tree {
            UseTree::Path(path) => {
                let prefix = [prefix, &[path.ident.to_string()]].concat();
                return self.read_use(&path.tree, &prefix, is_reexport);
            }
            UseTree::Group(group) => {
                return group
                    .items
                    .iter()
                    .for_each(|tree| self.read_use(tree, prefix, is_reexport));
            }
            UseTree::Glob(_) => (prefix.to_vec(), None),
            UseTree::Name(name) => {
                let path = with(name.ident.to_string());
                let last = path.last().cloned();
                (path, last)
            }
            UseTree::Rename(rename) => {
                (with(rename.ident.to_string()), Some(rename.rename.to_string()))
            }
        };
        let Some(path) = self.resolve(&path) else { return };
        match name {
            Some(name) if is_reexport => drop(self.module.reexports.insert(name, path)),
            None if is_reexport => self.module.globs.push(path),
            _ => drop(self.module.references.insert(path)),
        }
    }

    fn read_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(ident) if colons == 2 && !path.is_empty() => {
                    path.push(ident.to_string());
                    colons = 0;
                }
                other => {
                    self.add_reference(&path);
                    path.clear();
                    colons = 0;
                    match other {
                        TokenTree::Ident(ident) => path.push(ident.to_string()),
                        TokenTree::Group(group) => self.read_tokens(group.stream()),
                        _ => {}
                    }
                }
            }
        }
        self.add_reference(&path);
    }

    fn add_reference(&mut self, segments: &[String]) {
        if segments.len() > 1 {
            self.module.references.extend(self.resolve(segments));
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, _: &'ast ItemMod) {}

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !is_test(&item.attrs) {
            let is_reexport = !matches!(item.vis, Visibility::Inherited);
            self.read_use(&item.tree, &[], is_reexport);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<_> = path.segments.iter().map(|one| one.ident.to_string()).collect();
        self.add_reference(&segments);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.read_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

#[test]
fn rule_finds_cycles_through_groups_reexports_and_macros() {
    let folder = tempfile::tempdir().expect("a folder");
    let write =
        |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
    write("lib.rs", "mod a; mod b; mod c; mod d; pub use c::C;");
    write("a.rs", "use crate::{b::{self, B}, d}; pub fn f(_: B) { b::g() }");
    write("b.rs", "pub struct B; pub fn g() { println!(\"{}\", crate::C::N) }");
    write("c.rs", "pub struct C; impl C { pub const N: u8 = super::a::F; }");
    write("d.rs", "#[cfg(test)] mod tests { use crate::a::f; }");
    let cycles = Crate::read(&folder.path().join("lib.rs")).cycles();
    assert_eq!(cycles, [["a", "b", "c"]]);
}
