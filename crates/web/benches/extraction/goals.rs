//! Goals of the figures.

use std::collections::BTreeMap;

use crate::Scores;

/// Kind of the pages of Zyte's benchmark. WCXB has none of it.
const NEWS: &str = "news";

/// A figure and its bound, both of the same run.
struct Goal {
    name: String,
    measured: f64,
    /// Permitted values: at least this one, or with `is_maximum` at most.
    bound: f64,
    is_maximum: bool,
}

/// Prints the goals whose figures are known: those of the corpus, and of the other extractors that ran.
pub(crate) fn print(own: &Scores, others: &BTreeMap<String, Scores>) {
    println!("Goals:\n| figure | measured | goal | |\n|---|---|---|---|");
    for Goal { name, measured, bound, is_maximum } in goals(own, others) {
        let (sign, is_met) =
            if is_maximum { ("≤", measured <= bound) } else { ("≥", measured >= bound) };
        let verdict = if is_met { "ok" } else { "missed" };
        println!("| {name} | {measured:.3} | {sign} {bound:.3} | {verdict} |");
    }
}

fn goals(own: &Scores, others: &BTreeMap<String, Scores>) -> Vec<Goal> {
    let Some(all) = own.get("all") else { return Vec::new() };
    let other = |name: &str| others.get(name)?.get("all");
    let at_least = |name: &str, measured, bound| Goal {
        name: name.to_owned(),
        measured,
        bound,
        is_maximum: false,
    };
    let at_most =
        |name: &str, measured, bound| Goal { is_maximum: true, ..at_least(name, measured, bound) };
    let mut goals = Vec::new();
    if own.contains_key(NEWS) {
        goals.push(at_least("run F1", all.runs.f1(), 0.94));
        if let Some(other) = other("readability.js") {
            let bound = other.runs.f1() - 0.005;
            goals.push(at_least("run F1, against readability.js", all.runs.f1(), bound));
        }
    } else {
        goals.push(at_least("word F1", all.word_f1(), 0.855));
        for kind in ["documentation", "article"] {
            if let Some(score) = own.get(kind) {
                goals.push(at_least(&format!("word F1, {kind}"), score.word_f1(), 0.93));
            }
        }
        if let Some(other) = other("trafilatura") {
            let bound = other.word_f1() - 0.01;
            goals.push(at_least("word F1, against trafilatura", all.word_f1(), bound));
            let (measured, bound) = (all.time.as_secs_f64(), other.time.as_secs_f64() / 5.0);
            goals.push(at_most("CPU in s, against trafilatura", measured, bound));
        }
        if let Some(other) = other("mcp-server-fetch") {
            let bound = other.word_f1();
            goals.push(at_least("word F1, against mcp-server-fetch", all.word_f1(), bound));
        }
    }
    let empty = all.empty as f64 / all.pages as f64;
    goals.push(at_most("empty results, share", empty, 0.005));
    goals
}
