//! Tool names, as models write them and as providers restrict them.

use std::sync::Arc;

use rockbot_tools::{
    ToolRegistry,
    names::{assign, namespaced, sanitize},
};

use crate::counting_tool::CountingTool;

/// A name to resolve or to create.
enum Input<'a> {
    /// Name by which a model calls a tool.
    Resolve(&'a str),
    /// Name to sanitize, and its maximum length.
    Sanitize(&'a str, usize),
    /// Server and tool of an MCP server.
    Namespaced(&'a str, &'a str),
    /// Names to assign; the first one is checked. The limit is 64.
    Assign(&'a [&'a str]),
}

use Input::{Assign, Namespaced, Resolve, Sanitize};

const NONE: &str = "";

/// Checks in both orders, so that no result depends on the order of registration.
fn check(input: &Input<'_>, expected: &str) {
    let tools = ["read_file", "Read_File", "a_b", "a-b", "github__create_issue", "cat", "x_y_"];
    let aliases = [
        ("open", "read_file"),
        ("cat", "read_file"),
        ("a.b", "read_file"),
        ("lies chen", "a-b"),
        ("chain", "open"),
        ("gone", "no_such_tool"),
        ("öffne", "read_file"),
    ];
    let registry = |backwards: bool| {
        let registry = ToolRegistry::new();
        let mut order: Vec<_> = tools.to_vec();
        if backwards {
            order.reverse();
        }
        aliases.iter().for_each(|(alias, name)| registry.alias(*alias, *name));
        for name in order {
            registry.register(Arc::new(CountingTool::new(name))).expect("registered");
        }
        registry
    };
    for backwards in [false, true] {
        let found = match input {
            Resolve(name) => registry(backwards)
                .get(name)
                .map_or_else(String::new, |tool| tool.registration().name.clone()),
            Sanitize(name, limit) => sanitize(name, *limit),
            Namespaced(server, tool) => namespaced(server, tool, 64),
            Assign(names) => {
                let mut order: Vec<_> = names.iter().map(ToString::to_string).collect();
                if backwards {
                    order.reverse();
                }
                assign(order, 64).remove(names[0]).expect("a name")
            }
        };
        let description = match input {
            Resolve(name) | Sanitize(name, _) | Namespaced(name, _) => (*name).to_owned(),
            Assign(names) => names.join(" | "),
        };
        assert_eq!(found, expected, "{description}");
    }
}

#[test]
fn names_resolve_exact_then_sanitized_then_alias() {
    for (name, expected) in [
        // Exact. Case is significant, so names may differ only by case.
        ("read_file", "read_file"),
        ("Read_File", "Read_File"),
        ("a_b", "a_b"),
        ("a-b", "a-b"),
        ("cat", "cat"),
        ("github__create_issue", "github__create_issue"),
        // Sanitized: each invalid character becomes `_`.
        ("read.file", "read_file"),
        ("read file", "read_file"),
        ("read/file", "read_file"),
        ("read:file", "read_file"),
        ("Read.File", "Read_File"),
        ("read\u{a0}file", "read_file"),
        ("read\u{200b}file", "read_file"),
        ("github..create_issue", "github__create_issue"),
        ("github::create_issue", "github__create_issue"),
        ("github/_create issue", "github__create_issue"),
        ("x.y.", "x_y_"),
        ("x y\n", "x_y_"),
        // A sanitized name takes precedence over an alias.
        ("a.b", "a_b"),
        // Alias.
        ("open", "read_file"),
        ("lies chen", "a-b"),
        ("öffne", "read_file"),
        // An alias of an alias, and an alias of an unknown tool, do not resolve.
        ("chain", NONE),
        ("gone", NONE),
        // Similar names do not resolve.
        ("READ_FILE", NONE),
        ("read_fil", NONE),
        ("read_files", NONE),
        (" read_file", NONE),
        ("read_file ", NONE),
        ("read__file", NONE),
        ("readfile", NONE),
        ("github_create_issue", NONE),
        ("create_issue", NONE),
        ("functions.read_file", NONE),
        ("r\u{435}ad_file", NONE),
        ("Open", NONE),
        ("", NONE),
        ("*", NONE),
    ] {
        check(&Resolve(name), expected);
    }
}

#[test]
fn names_are_sanitized_for_providers() {
    let long = "l".repeat(70);
    let truncated = format!("{}_612dae7d", "l".repeat(55));
    for (name, limit, expected) in [
        ("read_file", 64, "read_file"),
        ("Read.File (v2)", 64, "Read_File__v2_"),
        ("a b", 64, "a_b"),
        ("größe", 64, "gr__e"),
        ("日本", 64, "__"),
        ("a\u{301}", 64, "a_"),
        ("-", 64, "-"),
        ("__", 64, "__"),
        ("\t\n", 64, "__"),
        (long.as_str(), 64, truncated.as_str()),
        (long.as_str(), 70, long.as_str()),
        (long.as_str(), 128, long.as_str()),
        (long.as_str(), 1000, long.as_str()),
    ] {
        check(&Sanitize(name, limit), expected);
    }
    for (server, tool, expected) in [
        ("GitHub", "create_issue", "GitHub__create_issue"),
        ("my.server", "do it", "my_server__do_it"),
        ("a", "", "a__"),
        ("a", "b__c", "a__b__c"),
    ] {
        check(&Namespaced(server, tool), expected);
    }
}

#[test]
fn colliding_names_get_unique_hashes() {
    let (one, two) = ("x".repeat(70) + "1", "x".repeat(70) + "2");
    let cases: [(&[&str], &str); 12] = [
        (&["a_b"], "a_b"),
        (&["a.b"], "a_b"),
        (&["a_b", "a.b"], "a_b"),
        (&["a.b", "a_b"], "a_b_e61d9919"),
        (&["a.b", "a b"], "a_b_e61d9919"),
        (&["a b", "a.b"], "a_b_e63f9919"),
        (&["a.b", "a b", "a_b"], "a_b_e61d9919"),
        (&["a.b", "c"], "a_b"),
        (&["A.b", "a.b"], "A_b"),
        (&["a.b", "a_b", "a_b_e61d9919"], "a_b_6a9d4b82"),
        (&[&one, &two], &format!("{}_4d944f45", "x".repeat(55))),
        (&[&two, &one], &format!("{}_4d945245", "x".repeat(55))),
    ];
    for (names, expected) in cases {
        check(&Assign(names), expected);
    }
}
