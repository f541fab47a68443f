//! Which series an expression of PromQL reads. Whether it is one at all is promtool's to say.

use std::iter::Peekable;
use std::str::CharIndices;

/// What an expression reads.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The series, each with the labels it is chosen by; the name is empty where there is none.
    pub(crate) selectors: Vec<Selector>,
    /// The labels in `by (…)`, `on (…)` and their like.
    pub(crate) groupings: Vec<String>,
}

/// The name of a metric, and the labels in the braces behind it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) name: String,
    pub(crate) labels: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Mark(char),
}

/// Words that have a list of labels behind them, or may have one.
const LISTS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const OPERATORS: [&str; 9] =
    ["and", "or", "unless", "bool", "offset", "atan2", "inf", "nan", "default"];

/// Reads an expression.
pub(crate) fn read(expression: &str) -> Reading {
    let tokens = tokens(expression);
    let mut reading = Reading::default();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        let next = tokens.get(at);
        match *token {
            Token::Word(word) if LISTS.contains(&word.to_lowercase().as_str()) => {
                if next == Some(&Token::Mark('(')) {
                    let labels = until(&tokens[at + 1..], ')');
                    at += labels.len() + 2;
                    reading.groupings.extend(words(labels));
                }
            }
            Token::Word(word) if OPERATORS.contains(&word.to_lowercase().as_str()) => {}
            // A function, or an operator such as `sum` with `by (…)` before its argument.
            Token::Word(_) if next == Some(&Token::Mark('(')) || is_list(next) => {}
            Token::Word(word) => {
                let labels = if next == Some(&Token::Mark('{')) {
                    let inside = until(&tokens[at + 1..], '}');
                    at += inside.len() + 2;
                    words(inside)
                } else {
                    Vec::new()
                };
                reading.selectors.push(Selector { name: word.to_owned(), labels });
            }
            Token::Mark('{') => {
                let inside = until(&tokens[at..], '}');
                at += inside.len() + 1;
                reading.selectors.push(Selector { name: String::new(), labels: words(inside) });
            }
            Token::Mark(_) => {}
        }
    }
    reading
}

fn is_list(token: Option<&Token<'_>>) -> bool {
    matches!(token, Some(Token::Word(word)) if *word == "by" || *word == "without")
}

fn until<'a, 'b>(tokens: &'a [Token<'b>], end: char) -> &'a [Token<'b>] {
    let length = tokens.iter().position(|token| *token == Token::Mark(end));
    &tokens[..length.unwrap_or(tokens.len())]
}

fn words(tokens: &[Token<'_>]) -> Vec<String> {
    let words = tokens.iter().filter_map(|token| match token {
        Token::Word(word) => Some((*word).to_owned()),
        Token::Mark(_) => None,
    });
    words.collect()
}

/// Names and marks. Texts, numbers, ranges, comments and the variables of dashboards are left out.
fn tokens(expression: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut letters = expression.char_indices().peekable();
    while let Some((start, letter)) = letters.next() {
        match letter {
            '"' | '\'' | '`' => skip_text(&mut letters, letter),
            '[' => while letters.next_if(|(_, letter)| *letter != ']').is_some() {},
            '#' => while letters.next_if(|(_, letter)| *letter != '\n').is_some() {},
            '$' | '0'..='9' => {
                take_word(&mut letters, start);
            }
            _ if is_of_a_name(letter) => {
                let end = take_word(&mut letters, start);
                found.push(Token::Word(&expression[start..=end]));
            }
            _ if letter.is_whitespace() => {}
            _ => found.push(Token::Mark(letter)),
        }
    }
    found
}

fn skip_text(letters: &mut Peekable<CharIndices<'_>>, quote: char) {
    while let Some((_, letter)) = letters.next() {
        if letter == quote {
            return;
        }
        if letter == '\\' && quote != '`' {
            letters.next();
        }
    }
}

/// Takes what is left of a word or a number; where it ends.
fn take_word(letters: &mut Peekable<CharIndices<'_>>, start: usize) -> usize {
    let mut end = start;
    while let Some((at, _)) = letters.next_if(|(_, letter)| is_of_a_name(*letter)) {
        end = at;
    }
    end
}

fn is_of_a_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || letter == ':'
}

#[cfg(test)]
mod tests {
    use super::{Reading, Selector, read};

    fn selector(name: &str, labels: &[&str]) -> Selector {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        Selector { name: name.to_owned(), labels }
    }

    #[test]
    fn a_metric_is_told_from_functions_operators_texts_and_ranges() {
        let expression = r#"histogram_quantile(0.95, sum by (job, le) (rate(a_bucket{x="b_total{",y=~"$z"}[$__rate_interval])))
            > on (job) group_left max without (pod) (c) or d:e:f offset 10m unless -1e3 * g # not h"#;
        let expected = Reading {
            selectors: vec![
                selector("a_bucket", &["x", "y"]),
                selector("c", &[]),
                selector("d:e:f", &[]),
                selector("g", &[]),
            ],
            groupings: ["job", "le", "job", "pod"].map(str::to_owned).to_vec(),
        };
        assert_eq!(read(expression), expected);
    }

    #[test]
    fn braces_without_a_name_are_a_selector_without_a_name() {
        let expected =
            Reading { selectors: vec![selector("", &["__name__"])], groupings: Vec::new() };
        assert_eq!(read(r#"count({__name__=~"a.+"})"#), expected);
    }
}
