//! Extraction of series and labels from PromQL expressions. promtool checks their syntax.

use std::iter::Peekable;
use std::str::CharIndices;

/// Series and labels of an expression.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct References {
    /// Selected series. The name is empty in a selector without a name.
    pub(crate) selectors: Vec<Selector>,
    /// Labels in `by (…)`, `on (…)` and similar clauses.
    pub(crate) groupings: Vec<String>,
}

/// The name of a metric and the labels of its matchers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) name: String,
    pub(crate) labels: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Symbol(char),
}

/// Keywords that a list of labels can follow.
const CLAUSES: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const OPERATORS: [&str; 9] =
    ["and", "or", "unless", "bool", "offset", "atan2", "inf", "nan", "default"];

/// Parses an expression.
pub(crate) fn parse(expression: &str) -> References {
    let tokens = tokens(expression);
    let mut references = References::default();
    let mut position = 0;
    while let Some(token) = tokens.get(position) {
        position += 1;
        let next = tokens.get(position);
        match *token {
            Token::Word(word) if CLAUSES.contains(&word.to_lowercase().as_str()) => {
                if next == Some(&Token::Symbol('(')) {
                    let labels = until(&tokens[position + 1..], ')');
                    position += labels.len() + 2;
                    references.groupings.extend(words(labels));
                }
            }
            Token::Word(word) if OPERATORS.contains(&word.to_lowercase().as_str()) => {}
            // A function, or an aggregation such as `sum` with `by (…)` before its argument.
            Token::Word(_) if next == Some(&Token::Symbol('(')) || is_clause(next) => {}
            Token::Word(word) => {
                let labels = if next == Some(&Token::Symbol('{')) {
                    let inside = until(&tokens[position + 1..], '}');
                    position += inside.len() + 2;
                    words(inside)
                } else {
                    Vec::new()
                };
                references.selectors.push(Selector { name: word.to_owned(), labels });
            }
            Token::Symbol('{') => {
                let inside = until(&tokens[position..], '}');
                position += inside.len() + 1;
                references.selectors.push(Selector { name: String::new(), labels: words(inside) });
            }
            Token::Symbol(_) => {}
        }
    }
    references
}

fn is_clause(token: Option<&Token<'_>>) -> bool {
    matches!(token, Some(Token::Word(word)) if *word == "by" || *word == "without")
}

fn until<'a, 'b>(tokens: &'a [Token<'b>], end: char) -> &'a [Token<'b>] {
    let length = tokens.iter().position(|token| *token == Token::Symbol(end));
    &tokens[..length.unwrap_or(tokens.len())]
}

fn words(tokens: &[Token<'_>]) -> Vec<String> {
    let words = tokens.iter().filter_map(|token| match token {
        Token::Word(word) => Some((*word).to_owned()),
        Token::Symbol(_) => None,
    });
    words.collect()
}

/// Returns names and symbols, without string literals, numbers, ranges, comments and dashboard
/// variables.
fn tokens(expression: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut letters = expression.char_indices().peekable();
    while let Some((start, letter)) = letters.next() {
        match letter {
            '"' | '\'' | '`' => skip_string(&mut letters, letter),
            '[' => while letters.next_if(|(_, letter)| *letter != ']').is_some() {},
            '#' => while letters.next_if(|(_, letter)| *letter != '\n').is_some() {},
            '$' | '0'..='9' => {
                take_word(&mut letters, start);
            }
            _ if is_name_char(letter) => {
                let end = take_word(&mut letters, start);
                found.push(Token::Word(&expression[start..=end]));
            }
            _ if letter.is_whitespace() => {}
            _ => found.push(Token::Symbol(letter)),
        }
    }
    found
}

fn skip_string(letters: &mut Peekable<CharIndices<'_>>, quote: char) {
    while let Some((_, letter)) = letters.next() {
        if letter == quote {
            return;
        }
        if letter == '\\' && quote != '`' {
            letters.next();
        }
    }
}

/// Consumes the rest of a word or number and returns the position of its last character.
fn take_word(letters: &mut Peekable<CharIndices<'_>>, start: usize) -> usize {
    let mut end = start;
    while let Some((position, _)) = letters.next_if(|(_, letter)| is_name_char(*letter)) {
        end = position;
    }
    end
}

fn is_name_char(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || letter == ':'
}

#[cfg(test)]
mod tests {
    use super::{References, Selector, parse};

    fn selector(name: &str, labels: &[&str]) -> Selector {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        Selector { name: name.to_owned(), labels }
    }

    #[test]
    fn only_metrics_are_selectors() {
        let expression = r#"histogram_quantile(0.95, sum by (job, le) (rate(a_bucket{x="b_total{",y=~"$z"}[$__rate_interval])))
            > on (job) group_left max without (pod) (c) or d:e:f offset 10m unless -1e3 * g # not h"#;
        let expected = References {
            selectors: vec![
                selector("a_bucket", &["x", "y"]),
                selector("c", &[]),
                selector("d:e:f", &[]),
                selector("g", &[]),
            ],
            groupings: ["job", "le", "job", "pod"].map(str::to_owned).to_vec(),
        };
        assert_eq!(parse(expression), expected);
    }

    #[test]
    fn matchers_without_a_name_form_an_unnamed_selector() {
        let expected =
            References { selectors: vec![selector("", &["__name__"])], groupings: Vec::new() };
        assert_eq!(parse(r#"count({__name__=~"a.+"})"#), expected);
    }
}
