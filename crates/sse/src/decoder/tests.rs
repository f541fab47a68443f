use std::iter;

use super::*;

const LIMIT: usize = 1024 * 1024;

fn decode_with(mut decoder: EventDecoder, chunks: &[&[u8]]) -> Vec<Event> {
    let mut events = Vec::new();
    for chunk in chunks {
        let mut chunk = Bytes::copy_from_slice(chunk);
        events.extend(iter::from_fn(|| decoder.decode(&mut chunk)));
    }
    events
}

fn decode(chunks: &[&[u8]]) -> Vec<Event> {
    decode_with(EventDecoder::new(LIMIT), chunks)
}

fn data(event: &Event) -> &str {
    match &event.data {
        EventData::Complete(data) => std::str::from_utf8(data).unwrap(),
        EventData::TooLarge(_) => panic!("{event:?}"),
    }
}

/// Decodes the body in chunks of every size, and checks name, id and data of the events.
#[track_caller]
fn check(body: &str, expected: &[(&str, &str, &str)]) {
    for size in 1..=body.len() {
        let chunks: Vec<_> = body.as_bytes().chunks(size).collect();
        let events = decode(&chunks);
        let got: Vec<_> = events
            .iter()
            .map(|event| {
                let field = |field: &'_ Option<String>| field.clone().unwrap_or_default();
                (field(&event.name), field(&event.id), data(event))
            })
            .collect();
        let got: Vec<_> = got.iter().map(|(name, id, data)| (&name[..], &id[..], *data)).collect();
        assert_eq!(got, expected, "{body:?} in chunks of {size}");
    }
}

#[test]
fn events_do_not_depend_on_chunks_or_line_ends() {
    check("data: a\n\n", &[("", "", "a")]);
    check("data:a\r\n\r\ndata: b\r\rdata:c\n\n", &[("", "", "a"), ("", "", "b"), ("", "", "c")]);
    check("data: a\rdata: b\r\ndata: c\n\r", &[("", "", "a\nb\nc")]);
    check(
        "data: grüße 🐰\r\n\r\n: PROCESSING\n\ndata: b\n\n",
        &[("", "", "grüße 🐰"), ("", "", "b")],
    );
    check("event: endpoint\nid: 7\ndata: /x\n\n", &[("endpoint", "7", "/x")]);
    check("data:\ndata: x\ndata\n\n", &[("", "", "\nx\n")]);
    check("data:  two spaces\n\n", &[("", "", " two spaces")]);
}

#[test]
fn event_without_data_keeps_its_id() {
    check("id: 1\ndata\n\n", &[("", "1", "")]);
    check("id: 2\n\n", &[("", "2", "")]);
}

#[test]
fn comments_and_unknown_fields_are_ignored() {
    check(": a comment\n\n:\n\nunknown: x\n\n", &[]);
    check("database: x\ndata: y\n\n", &[("", "", "y")]);
}

#[test]
fn event_cut_off_by_end_is_not_returned() {
    check("data: a\n\ndata: {\"half\":", &[("", "", "a")]);
    check("data: a\n\ndata: whole line\n", &[("", "", "a")]);
}

#[test]
fn byte_order_mark_is_skipped_only_at_start() {
    check("\u{feff}data: a\n\n", &[("", "", "a")]);
    check("\n\u{feff}data: a\n\n", &[]);
    check("\u{feff}\ndata: a\n\n", &[("", "", "a")]);
}

#[test]
fn retry_accepts_digits_only() {
    let retry = |text: &str| {
        let body = format!("retry: {text}\ndata: a\n\n");
        decode(&[body.as_bytes()])[0].retry
    };
    assert_eq!(retry("1500"), Some(Duration::from_millis(1500)));
    for text in ["+5", "-5", "5s", "", "99999999999999999999999"] {
        assert_eq!(retry(text), None, "{text}");
    }
}

#[test]
fn id_with_nul_and_overlong_name_are_ignored() {
    check("id: a\0b\ndata: x\n\n", &[("", "", "x")]);
    let body = format!("event: {}\ndata: x\n\n", "n".repeat(MAX_FIELD_BYTES + 1));
    assert_eq!(decode(&[body.as_bytes()])[0].name, None);
}

#[test]
fn data_alias_is_read_as_data() {
    let decoder = EventDecoder::new(LIMIT).with_data_alias("error");
    let events = decode_with(decoder, &[b"error: {\"code\":500}\n\n"]);
    assert_eq!(data(&events[0]), "{\"code\":500}");
    assert!(decode(&[b"error: {}\n\n"]).is_empty());
}

#[test]
fn data_up_to_the_limit_is_complete() {
    let decoder = || EventDecoder::new(5);
    assert_eq!(data(&decode_with(decoder(), &[b"data: 12345\n\n"])[0]), "12345");
    assert_eq!(data(&decode_with(decoder(), &[b"data: 12\ndata: 45\n\n"])[0]), "12\n45");
    let events = decode_with(decoder(), &[b"data: 123456\n\ndata: next\n\n"]);
    assert_eq!(events[0].data, EventData::TooLarge(b"123456".to_vec()));
    assert_eq!(data(&events[1]), "next");
    let events = decode_with(decoder(), &[b"data: 123", b"456"]);
    assert_eq!(events[0].data, EventData::TooLarge(b"123456".to_vec()));
}

#[test]
fn endless_data_line_is_reported_before_it_ends() {
    let piece = vec![b'x'; LIMIT];
    let mut chunks = vec![&b"id: 3\ndata: {\"id\":7,"[..]];
    chunks.extend(iter::repeat_n(&piece[..], 3));
    let mut decoder = EventDecoder::new(LIMIT);
    let mut events = Vec::new();
    let mut feed = |chunk: &[u8]| {
        let mut chunk = Bytes::copy_from_slice(chunk);
        events.extend(iter::from_fn(|| decoder.decode(&mut chunk)));
        events.len()
    };
    for chunk in chunks {
        feed(chunk);
    }
    assert_eq!(feed(b""), 1, "reported while the line continues");
    assert_eq!(feed(b"\ndata: more of it\r\n\r\ndata: next\n\n"), 2);
    let EventData::TooLarge(prefix) = &events[0].data else { panic!("{:?}", events[0].data) };
    assert_eq!((&prefix[..8], prefix.len()), (&b"{\"id\":7,"[..], PREFIX_BYTES));
    assert_eq!(events[0].id.as_deref(), Some("3"));
    assert_eq!(data(&events[1]), "next");
}

#[test]
fn endless_event_of_short_lines_is_reported() {
    let line = [b"data: ".as_slice(), &[b'x'; 60_000], b"\n"].concat();
    let mut chunks = vec![line.as_slice(); 40];
    chunks.push(b"\ndata: next\n\n");
    let events = decode(&chunks);
    assert!(matches!(events[0].data, EventData::TooLarge(_)));
    assert_eq!(data(&events[1]), "next");
    assert_eq!(events.len(), 2);
}

#[test]
fn endless_comment_is_skipped_in_bounded_memory() {
    let comment = vec![b':'; LIMIT];
    let mut decoder = EventDecoder::new(LIMIT);
    for _ in 0..10 {
        let mut chunk = Bytes::copy_from_slice(&comment);
        assert_eq!(decoder.decode(&mut chunk), None);
        assert!(decoder.line.capacity() <= 2 * (LIMIT + MAX_LINE_BYTES));
    }
    let mut chunk = Bytes::from_static(b"\ndata: next\n\n");
    assert_eq!(data(&decoder.decode(&mut chunk).unwrap()), "next");
}

#[test]
fn keep_alives_leave_nothing_behind() {
    let comment = [b": ".as_slice(), &[b'x'; 1024], b"\n"].concat();
    let mut decoder = EventDecoder::new(LIMIT);
    for _ in 0..2048 {
        let mut chunk = Bytes::copy_from_slice(&comment);
        assert_eq!(decoder.decode(&mut chunk), None);
    }
    assert!(decoder.line.is_empty() && decoder.line.capacity() < 4096);
}
