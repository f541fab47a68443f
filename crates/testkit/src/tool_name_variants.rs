//! Variants of a tool's name that a model may invent for a tool that it was not offered.

use std::collections::BTreeSet;

/// The number of variants of one name.
const VARIANTS: usize = 1000;

const SEPARATORS: [char; 40] = [
    ' ', '.', '/', ':', '\\', '|', '+', '=', '~', '^', '@', '#', '$', '%', '&', '*', ',', ';', '!',
    '?', '\'', '"', '`', '<', '>', '(', ')', '{', '}', '\t', '\n', '\0', '\u{a0}', '\u{ad}',
    '\u{2009}', '\u{200b}', '\u{2013}', '\u{202e}', '\u{ff3f}', '\u{feff}',
];
const NAMESPACES: [&str; 12] = [
    "functions",
    "tools",
    "mcp",
    "agent",
    "agent__batch",
    "rest",
    "router",
    "default_api",
    "multi_tool_use",
    "internal",
    "local",
    "Main",
];
const JOINTS: [&str; 6] = ["__", ".", "/", "::", ":", "-"];
const INVISIBLE: [char; 6] = ['\u{200b}', '\u{200d}', '\u{ad}', '\u{feff}', '\u{2060}', '\u{301}'];
const LOOKALIKES: [(char, &str); 14] = [
    ('a', "аɑα"),
    ('b', "ЬƄ"),
    ('c', "сϲ"),
    ('e', "еҽ"),
    ('g', "ɡց"),
    ('h', "һհ"),
    ('i', "іı1l"),
    ('m', "ｍṃ"),
    ('o', "οо0"),
    ('p', "рρ"),
    ('r', "гｒ"),
    ('s', "ѕｓ5"),
    ('t', "ｔτ"),
    ('v', "ѵν"),
];

/// Returns a thousand spellings of a tool's name: other case, other separators, look-alikes, names that
/// normalize to the same one, namespaces, white space, and wrappers that models add. The result is
/// deterministic, and the name itself comes first.
#[must_use]
pub fn variants(name: &str) -> Vec<String> {
    let mut all = vec![name.to_owned()];
    all.extend(separators(name));
    all.extend(namespaces(name));
    all.extend(wrapped(name));
    all.extend(lookalikes(name));
    all.extend(typos(name));
    all.extend(cases(name));
    // Each of them with each prefix.
    let simple = all.clone();
    all.extend(
        JOINTS.iter().flat_map(|joint| simple.iter().map(move |one| format!("{joint}{one}"))),
    );
    let mut seen = BTreeSet::new();
    all.retain(|one| seen.insert(one.clone()));
    all.truncate(VARIANTS);
    all
}

/// Names that normalize to the same one, and near misses.
fn separators(name: &str) -> Vec<String> {
    let mut all = Vec::new();
    for separator in SEPARATORS {
        all.push(name.replace('_', &separator.to_string()));
        all.push(name.replacen('_', &separator.to_string(), 1));
        all.push(format!("{name}{separator}"));
        all.push(format!("{separator}{name}"));
    }
    all.extend(["-", "", "__"].map(|other| name.replace('_', other)));
    all
}

fn namespaces(name: &str) -> Vec<String> {
    let both = NAMESPACES.iter().flat_map(|space| JOINTS.iter().map(move |joint| (space, joint)));
    both.flat_map(|(space, joint)| {
        [format!("{space}{joint}{name}"), format!("{name}{joint}{space}")]
    })
    .collect()
}

fn wrapped(name: &str) -> Vec<String> {
    let escaped: String = name.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
    let percent: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let entities: String = name.chars().map(|c| format!("&#{};", u32::from(c))).collect();
    vec![
        format!("{name}()"),
        format!("{name}({{}})"),
        format!("{{\"name\":\"{name}\"}}"),
        format!("`{name}`"),
        format!("<{name}>"),
        format!("[{name}]"),
        format!("call:{name}"),
        format!("{name}; {name}"),
        format!("{name},{name}"),
        format!("../{name}"),
        format!("{name}#1"),
        format!("{name}@latest"),
        format!("{name} --force"),
        format!("sudo {name}"),
        format!("{}{name}", "x".repeat(200)),
        format!("{name}{}", "x".repeat(200)),
        escaped,
        percent,
        entities,
        name.chars().rev().collect(),
        name.repeat(2),
        "*".to_owned(),
        format!("{}*", &name[..3]),
        "_".to_owned(),
    ]
}

fn lookalikes(name: &str) -> Vec<String> {
    let mut all = Vec::new();
    let wide = |c: char| char::from_u32(u32::from(c) + 0xfee0).unwrap_or(c);
    all.push(name.chars().map(wide).collect());
    for (at, letter) in name.char_indices() {
        let similar = LOOKALIKES.iter().find(|(plain, _)| *plain == letter);
        let similar = similar.map_or("", |(_, similar)| *similar).chars();
        all.extend(similar.map(|other| format!("{}{other}{}", &name[..at], &name[at + 1..])));
        all.extend(INVISIBLE.map(|invisible| format!("{}{invisible}{}", &name[..at], &name[at..])));
    }
    all
}

/// One letter omitted, doubled or transposed.
fn typos(name: &str) -> Vec<String> {
    let mut all = Vec::new();
    for at in 1..name.len() {
        let (before, after) = name.split_at(at);
        all.push(format!("{}{after}", &before[..at - 1]));
        all.push(format!("{before}{}{after}", &before[at - 1..]));
        all.push(format!(
            "{}{}{}{}",
            &before[..at - 1],
            &after[..1],
            &before[at - 1..],
            &after[1..]
        ));
    }
    all
}

fn cases(name: &str) -> Vec<String> {
    let mask = |mask: u32| -> String {
        let upper = |(at, c): (usize, char)| {
            if mask >> (at % 8) & 1 == 1 { c.to_ascii_uppercase() } else { c }
        };
        name.chars().enumerate().map(upper).collect()
    };
    (1..256).map(mask).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_distinct_and_complete() {
        for name in ["bash", "mcp_register_server"] {
            let all = variants(name);
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), VARIANTS, "{name}");
            assert_eq!(all[0], name);
        }
    }
}
