//! Comparison with cron libraries of PyPI: `cargo xtask test` installs them.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    thread,
};

use serde_json::{Value, json};

use super::*;

/// Fires that are compared of each expression.
const FIRES: usize = 12;
/// Zones whose clock changes by whole hours.
const ZONES: [&str; 4] = ["UTC", "Europe/Berlin", "America/New_York", "Africa/Casablanca"];
const LORD_HOWE: &str = "Australia/Lord_Howe";
/// Variable with the number of expressions. Default 1,000.
const NUMBER: &str = "ROCKBOT_TEST_CRON_EXPRESSIONS";

/// An expression to compare.
#[derive(Debug, Clone)]
struct Case {
    library: &'static str,
    cron: String,
    zone: &'static str,
    start: i64,
}

/// A generator of random numbers that repeats them in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns a field. Ranges have two different ends.
    fn field(&mut self, low: u64, high: u64) -> String {
        let (from, step) = (self.between(low, high - 1), self.between(2, 7));
        let to = self.between(from + 1, high);
        match self.below(8) {
            0..=2 => "*".to_owned(),
            3 => format!("*/{step}"),
            4 => format!("{from}-{to}"),
            5 => format!("{from}-{to}/{step}"),
            6 => format!("{from},{to}"),
            _ => from.to_string(),
        }
    }

    /// Returns five fields. Only one of the fields for days is restricted, or none of them begins with `*`:
    /// the libraries differ otherwise.
    fn expression(&mut self) -> String {
        loop {
            let (minute, hour) = (self.field(0, 59), self.field(0, 23));
            let (day, month, weekday) = (self.field(1, 31), self.field(1, 12), self.field(0, 6));
            let is_either = day != "*" && weekday != "*";
            if !is_either || !day.starts_with('*') && !weekday.starts_with('*') {
                return format!("{minute} {hour} {day} {month} {weekday}");
            }
        }
    }

    /// Returns a time from 2024 to 2030.
    fn start(&mut self) -> i64 {
        i64::try_from(1_704_067_200 + self.below(6 * 365 * 86_400)).unwrap()
    }
}

/// Returns the fires that the libraries compute; `None` for a rejected expression.
fn ask(cases: &[Case]) -> Vec<Option<Vec<i64>>> {
    let program = std::env::var_os("ROCKBOT_TEST_CRON_PEERS").expect(
        "this test needs cron libraries: run `cargo xtask test`, or set ROCKBOT_TEST_CRON_PEERS to a program \
         as in xtask/src/cron_peers.rs",
    );
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let requests = cases.to_vec();
    let writer = thread::spawn(move || {
        for Case { library, cron, zone, start } in requests {
            let request = json!({"library": library, "cron": cron, "zone": zone, "start": start,
                "count": FIRES});
            writeln!(input, "{request}").expect("the program reads");
        }
    });
    let answers = BufReader::new(output).lines().map(|line| {
        let answer: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        serde_json::from_value(answer).expect("a list, or null")
    });
    let answers: Vec<_> = answers.collect();
    writer.join().expect("all requests are written");
    assert!(child.wait().expect("the program ends").success());
    assert_eq!(answers.len(), cases.len());
    answers
}

fn own_fires(case: &Case) -> Vec<i64> {
    let (cron, zone) =
        (CronExpression::parse(&case.cron).unwrap(), TimeZone::get(case.zone).unwrap());
    let (mut fires, mut at) = (Vec::new(), Timestamp::from_millis(case.start * 1000));
    while fires.len() < FIRES
        && let Some(next) = cron.next_after(at, &zone)
    {
        fires.push(next.as_millis() / 1000);
        at = next;
    }
    fires
}

/// Returns the number of expressions that a variable or the default says.
fn number() -> usize {
    std::env::var(NUMBER).map_or(1000, |number| number.parse().expect("a number"))
}

#[track_caller]
fn assert_equal(cases: &[Case], normalize: impl Fn(&Case, Vec<i64>) -> Vec<i64>) {
    let (mut differences, mut compared) = (Vec::new(), 0);
    for (case, theirs) in cases.iter().zip(ask(cases)) {
        let theirs = theirs.unwrap_or_else(|| panic!("{case:?} is rejected"));
        let (own, theirs) = (normalize(case, own_fires(case)), normalize(case, theirs));
        let common = own.len().min(theirs.len());
        compared += common;
        let is_equal = if own.len().abs_diff(theirs.len()) == 0 {
            own == theirs
        } else {
            // Fires near a clock change were removed of one more than of the other.
            common > 0 && own[..common] == theirs[..common]
        };
        if !is_equal {
            differences.push(format!("{case:?}\n  own    {own:?}\n  theirs {theirs:?}"));
        }
    }
    let (count, all) = (differences.len(), cases.len());
    differences.truncate(10);
    assert!(count == 0, "{count} of {all} differ:\n{}", differences.join("\n"));
    assert!(compared > cases.len() * FIRES / 2, "{compared} fires compared");
}

#[test]
fn random_expressions_fire_as_in_cronsim() {
    let mut random = Random(25);
    let cases: Vec<_> = (0..number())
        .flat_map(|_| {
            let (cron, start) = (random.expression(), random.start());
            ZONES.map(|zone| Case { library: "cronsim", cron: cron.clone(), zone, start })
        })
        .collect();
    assert_equal(&cases, |_, fires| fires);
}

#[test]
fn random_expressions_with_seconds_fire_as_in_croniter() {
    let mut random = Random(26);
    let cases: Vec<_> = (0..number() / 4)
        .map(|_| {
            let cron = format!("{} {}", random.field(0, 59), random.expression());
            Case { library: "croniter", cron, zone: "UTC", start: random.start() }
        })
        .collect();
    assert_equal(&cases, |_, fires| fires);
}

#[test]
fn half_hour_change_differs_from_croniter_only_within_it() {
    let mut random = Random(27);
    let cases: Vec<_> = (0..number() / 4)
        .map(|_| {
            let (cron, start) = (random.expression(), random.start());
            Case { library: "croniter", cron, zone: LORD_HOWE, start }
        })
        .collect();
    let zone = TimeZone::get(LORD_HOWE).unwrap();
    assert_equal(&cases, |_, mut fires| {
        fires.retain(|fire| {
            let hour = jiff::SignedDuration::from_hours(1);
            let from = jiff::Timestamp::from_second(*fire).unwrap() - hour;
            let change = zone.following(from).next().unwrap().timestamp();
            change > from + hour + hour
        });
        fires
    });
}
