//! Tests of cron expressions.

use jiff::civil;

use super::*;

fn cron(text: &str) -> CronExpression {
    CronExpression::parse(text).unwrap()
}

fn zone(name: &str) -> TimeZone {
    TimeZone::get(name).unwrap()
}

/// Returns the fires between two UTC times, as local times with offsets.
fn fires(text: &str, zone_name: &str, from: &str, to: &str) -> Vec<String> {
    let (zone, cron) = (zone(zone_name), cron(text));
    let at = |text: &str| {
        let at: jiff::Timestamp = text.parse().unwrap();
        Timestamp::from_millis(at.as_millisecond())
    };
    let (mut after, to, mut found) = (at(from), at(to), Vec::new());
    while let Some(next) = cron.next_after(after, &zone).filter(|next| *next < to) {
        let local = jiff::Timestamp::from_millisecond(next.as_millis()).unwrap();
        found.push(local.to_zoned(zone.clone()).strftime("%d %H:%M%:z").to_string());
        after = next;
        assert!(found.len() < 2000, "{text} fires too often");
    }
    found
}

#[test]
fn skipped_and_repeated_hours_follow_the_rules() {
    // Berlin: 29 March 2026 has no 2 to 3 o'clock, 25 October has it twice.
    let spring =
        |text| fires(text, "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T03:00:00Z");
    let autumn =
        |text| fires(text, "Europe/Berlin", "2026-10-24T23:00:00Z", "2026-10-25T03:00:00Z");
    assert_eq!(spring("30 2 * * *"), ["29 03:00+02:00"]);
    assert_eq!(autumn("30 2 * * *"), ["25 02:30+02:00"]);
    assert_eq!(autumn("25,35 2 * * *"), ["25 02:25+02:00", "25 02:35+02:00"]);
    assert_eq!(spring("25,35 2 * * *"), ["29 03:00+02:00"]);
    assert_eq!(spring("30 2,3 * * *"), ["29 03:00+02:00", "29 03:30+02:00"]);
    assert_eq!(spring("0 * * * *"), ["29 03:00+02:00", "29 04:00+02:00"]);
    let repeated = ["25 02:00+02:00", "25 02:00+01:00", "25 03:00+01:00"];
    assert_eq!(autumn("0 * * * *"), repeated);
    assert_eq!(autumn("30 */2 * * *"), ["25 02:30+02:00", "25 02:30+01:00"]);
    assert_eq!(autumn("*/30 * * * *").len(), 7);
    assert_eq!(autumn("15 30 2 * * *"), ["25 02:30+02:00"]);
}

#[test]
fn clock_changes_of_six_zones_repeat_and_lose_no_fire() {
    let zones = [
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Africa/Casablanca",
        "America/Santiago",
        "Pacific/Auckland",
    ];
    let expressions = [
        "*/15 * * * *",
        "0 * * * *",
        "30 2 * * *",
        "15 1 * * *",
        "10,50 2 * * *",
        "0 0 * * *",
        "45 23 * * *",
        "*/20 2 * * *",
    ];
    for name in zones {
        let zone = zone(name);
        let start = civil::date(2024, 1, 1).to_zoned(zone.clone()).unwrap().timestamp();
        let end = civil::date(2031, 1, 1).to_zoned(zone.clone()).unwrap().timestamp();
        let changes = zone.following(start).take_while(|change| change.timestamp() < end);
        let changes: Vec<_> = changes.map(|change| change.timestamp()).collect();
        assert!(changes.len() >= 14, "{name}: {}", changes.len());
        for change in changes {
            for text in expressions {
                check_change(text, &zone, change);
            }
        }
    }
}

/// Compares the fires of the days around a clock change with what each minute says.
fn check_change(text: &str, zone: &TimeZone, change: jiff::Timestamp) {
    let hours = |hours| jiff::SignedDuration::from_hours(hours);
    let (from, to) = (change - hours(36), change + hours(36));
    let cron = cron(text);
    let is_wildcard = !cron.has_fixed_time;
    let mut expected = Vec::new();
    let mut at = from;
    while at < to {
        at += jiff::SignedDuration::from_mins(1);
        let local = zone.to_datetime(at);
        let matches = cron.cron.is_time_matching(&local).unwrap();
        if matches && (is_wildcard || !is_second_of_two(at, zone)) {
            expected.push(at.as_millisecond());
        }
    }
    let (mut found, mut after) = (Vec::new(), Timestamp::from_millis(from.as_millisecond()));
    while let Some(next) = cron.next_after(after, zone)
        && next.as_millis() <= to.as_millisecond()
    {
        assert!(next > after);
        found.push(next.as_millis());
        after = next;
    }
    // A fixed time in the gap fires right after it.
    let local = zone.to_datetime(change);
    let extra: Vec<_> = found.iter().filter(|fire| !expected.contains(fire)).collect();
    assert!(
        extra.is_empty() || !is_wildcard && extra == [&change.as_millisecond()],
        "{text} at {local} in {zone:?}: {extra:?}"
    );
    let missing = expected.iter().filter(|fire| !found.contains(fire)).count();
    assert_eq!(missing, 0, "{text} at {local} in {zone:?}");
}

#[test]
fn both_day_fields_meet_either_and_plus_requires_both() {
    let days = |text| fires(text, "UTC", "2026-05-31T12:00:00Z", "2026-06-10T00:00:00Z");
    let either = ["01 09:00+00:00", "05 09:00+00:00", "08 09:00+00:00"];
    assert_eq!(days("0 9 5 * MON"), either);
    assert!(cron("0 9 5 * MON").is_either_day());
    assert_eq!(days("0 9 1-7 * +FRI"), ["05 09:00+00:00"]);
    assert!(!cron("0 9 1-7 * +FRI").is_either_day());
    assert!(!cron("0 9 * * FRI").is_either_day());
}

#[test]
fn text_is_normalized_and_bounded() {
    assert_eq!(cron("  0   9 *\t* mon-fri ").to_string(), "0 9 * * mon-fri");
    assert!(cron("*/5 * * * * *").has_seconds());
    for valid in ["@daily", "0 0 L * *", "0 0 15W * *", "0 0 * * 5#2", "0 0 ? * *", "0 9 * JAN *"] {
        assert!(CronExpression::parse(valid).is_ok(), "{valid}");
    }
    let long = "1,".repeat(60) + "1 * * * *";
    for invalid in [
        "",
        "* * * *",
        "0 0 0 1 1 * 2026",
        "@reboot",
        "60 * * * *",
        "a b c d e",
        "0 9 * * ü",
        &long,
    ] {
        let error = CronExpression::parse(invalid).unwrap_err();
        assert!(error.to_string().ends_with("with seconds first"), "{invalid}: {error}");
    }
}

#[test]
fn expression_that_never_comes_true_has_no_fire() {
    for text in ["0 0 30 2 *", "0 0 31 4,6 *", "0 0 31 2 +MON"] {
        let cron = cron(text);
        assert_eq!(cron.next_after(Timestamp::from_millis(0), &zone("Europe/Berlin")), None);
        assert!(cron.never().to_string().contains("never comes true"));
    }
}

#[test]
fn parts_of_a_second_do_not_repeat_a_fire() {
    let (cron, utc) = (cron("0 9 * * *"), TimeZone::UTC);
    let nine = Timestamp::from_millis(9 * 3_600_000);
    let next = |millis| cron.next_after(Timestamp::from_millis(millis), &utc).unwrap();
    assert_eq!(next(nine.as_millis() - 1), nine);
    assert_eq!(next(nine.as_millis()).as_millis(), nine.as_millis() + 86_400_000);
    assert_eq!(next(nine.as_millis() + 1).as_millis(), nine.as_millis() + 86_400_000);
}
