//! What tools are called: by models that write names as they like, and for providers that limit
//! them.

use std::sync::Arc;

use rockbot_tools::{
    ToolRegistry,
    names::{assign, namespaced, sanitize},
};

use crate::small::Counter;

/// What a name is asked of.
enum Input<'a> {
    /// A model calls a tool so.
    Called(&'a str),
    /// A name becomes one of at most so many bytes.
    Clean(&'a str, usize),
    /// A tool of an MCP server.
    Of(&'a str, &'a str),
    /// The first of these tools, which share a list with a limit of 64.
    Among(&'a [&'a str]),
}

use Input::{Among, Called, Clean, Of};

const NOBODY: &str = "";

/// The same in both orders, so that no answer depends on who came first.
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
            registry.register(Arc::new(Counter::new(name))).expect("registered");
        }
        registry
    };
    for backwards in [false, true] {
        let found = match input {
            Called(name) => registry(backwards)
                .get(name)
                .map_or_else(String::new, |tool| tool.registration().name.clone()),
            Clean(name, limit) => sanitize(name, *limit),
            Of(server, tool) => namespaced(server, tool, 64),
            Among(names) => {
                let mut order: Vec<_> = names.iter().map(ToString::to_string).collect();
                if backwards {
                    order.reverse();
                }
                assign(order, 64).remove(names[0]).expect("a name")
            }
        };
        let what = match input {
            Called(name) | Clean(name, _) | Of(name, _) => (*name).to_owned(),
            Among(names) => names.join(" | "),
        };
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn a_name_finds_its_tool_exactly_then_cleaned_then_by_alias_and_never_another_one() {
    for (name, expected) in [
        // Exactly. Case is kept, so two tools may differ by it.
        ("read_file", "read_file"),
        ("Read_File", "Read_File"),
        ("a_b", "a_b"),
        ("a-b", "a-b"),
        ("cat", "cat"),
        ("github__create_issue", "github__create_issue"),
        // Cleaned: one bad character is one `_`.
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
        // Cleaned comes before an alias.
        ("a.b", "a_b"),
        // By alias.
        ("open", "read_file"),
        ("lies chen", "a-b"),
        ("öffne", "read_file"),
        // An alias of an alias, and one of nothing, lead nowhere.
        ("chain", NOBODY),
        ("gone", NOBODY),
        // Alike is not the same.
        ("READ_FILE", NOBODY),
        ("read_fil", NOBODY),
        ("read_files", NOBODY),
        (" read_file", NOBODY),
        ("read_file ", NOBODY),
        ("read__file", NOBODY),
        ("readfile", NOBODY),
        ("github_create_issue", NOBODY),
        ("create_issue", NOBODY),
        ("functions.read_file", NOBODY),
        ("r\u{435}ad_file", NOBODY),
        ("Open", NOBODY),
        ("", NOBODY),
        ("*", NOBODY),
    ] {
        check(&Called(name), expected);
    }
}

#[test]
fn every_name_becomes_one_that_providers_take() {
    let long = "l".repeat(70);
    let cut = format!("{}_612dae7d", "l".repeat(55));
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
        (long.as_str(), 64, cut.as_str()),
        (long.as_str(), 70, long.as_str()),
        (long.as_str(), 128, long.as_str()),
        (long.as_str(), 1000, long.as_str()),
    ] {
        check(&Clean(name, limit), expected);
    }
    for (server, tool, expected) in [
        ("GitHub", "create_issue", "GitHub__create_issue"),
        ("my.server", "do it", "my_server__do_it"),
        ("a", "", "a__"),
        ("a", "b__c", "a__b__c"),
    ] {
        check(&Of(server, tool), expected);
    }
}

#[test]
fn names_that_would_become_the_same_get_a_hash_of_their_own() {
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
        check(&Among(names), expected);
    }
}
