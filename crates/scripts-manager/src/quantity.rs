//! Kubernetes quantities, such as `500m` and `256Mi`.

/// Parses a quantity into thousandths; `None` if it is not valid.
///
/// Thousandths, because processors are divided into them.
pub(crate) fn thousandths(text: &str) -> Option<u128> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && part.is_empty() || text.len() > 20 || part.len() > 3 {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let part: u128 = format!("{part:0<3}").parse().ok()?;
    let scale: u128 = match unit {
        "m" if part == 0 => return Some(whole),
        "" => 1,
        "k" => 1000,
        "M" => 1000_u128.pow(2),
        "G" => 1000_u128.pow(3),
        "T" => 1000_u128.pow(4),
        "Ki" => 1024,
        "Mi" => 1024_u128.pow(2),
        "Gi" => 1024_u128.pow(3),
        "Ti" => 1024_u128.pow(4),
        _ => return None,
    };
    Some((whole * 1000 + part) * scale)
}

#[cfg(test)]
mod tests {
    use super::thousandths;

    #[test]
    fn quantities_are_parsed_as_in_kubernetes() {
        for (text, amount) in [
            ("500m", Some(500)),
            ("2", Some(2000)),
            ("0.5", Some(500)),
            (".5", Some(500)),
            ("1Ki", Some(1_024_000)),
            ("256Mi", Some(256 * 1024 * 1024 * 1000)),
            ("1.5Gi", Some(1536 * 1024 * 1024 * 1000)),
            ("10M", Some(10_000_000_000)),
            ("", None),
            (".", None),
            ("m", None),
            ("-1", None),
            ("1 Mi", None),
            ("1mi", None),
            ("one", None),
            ("1.2.3", None),
            ("99999999999999999999999", None),
        ] {
            assert_eq!(thousandths(text), amount, "{text}");
        }
    }
}
