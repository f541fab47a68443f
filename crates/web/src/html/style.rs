//! Inline styles that make an element invisible.

/// Offsets further out than this are off the screen, in pixels.
const FAR: f64 = -500.0;

/// Returns whether an inline style hides its element's text from readers.
pub(super) fn hides(style: &str) -> bool {
    let style = unescaped(style).to_lowercase();
    let declarations: Vec<_> = style.split(';').filter_map(declaration).collect();
    declarations.iter().any(|(name, value)| hides_alone(name, value))
        || is_collapsed(&declarations)
        || has_color_of_background(&declarations)
}

fn declaration(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once(':')?;
    let value = value.trim();
    let value = value
        .strip_suffix("important")
        .map_or(value, |value| value.trim_end().trim_end_matches('!'));
    Some((name.trim(), value.trim()))
}

fn hides_alone(name: &str, value: &str) -> bool {
    match name {
        "display" => value == "none",
        "visibility" => matches!(value, "hidden" | "collapse"),
        "content-visibility" => value == "hidden",
        "opacity" => number(value).is_some_and(|opacity| opacity < 0.05),
        "font-size" => number(value).is_some_and(|size| size < 1.0 && !is_relative(value)),
        "font" => {
            value.split([' ', '/']).any(|part| part.starts_with('0') && number(part) == Some(0.0))
        }
        "color" | "-webkit-text-fill-color" => is_transparent(value),
        "text-indent" | "left" | "right" | "top" | "bottom" | "margin" | "margin-left"
        | "margin-top" => number(value).is_some_and(|offset| offset <= FAR),
        "clip" => value.strip_prefix("rect").is_some_and(encloses_nothing),
        "clip-path" => {
            value.starts_with("inset(50%")
                || value.starts_with("inset(100%")
                || value.starts_with("circle(0")
        }
        "transform" => value.contains("scale(0)") || value.contains("scale(0,"),
        "scale" => number(value) == Some(0.0),
        _ => false,
    }
}

/// A box without a size shows nothing when what overflows is hidden.
fn is_collapsed(declarations: &[(&str, &str)]) -> bool {
    let is_clipped = declarations
        .iter()
        .any(|(name, value)| name.starts_with("overflow") && matches!(*value, "hidden" | "clip"));
    is_clipped
        && declarations.iter().any(|(name, value)| {
            matches!(*name, "width" | "height" | "max-width" | "max-height")
                && number(value).is_some_and(|size| size <= 1.0 && !is_relative(value))
        })
}

fn has_color_of_background(declarations: &[(&str, &str)]) -> bool {
    let value = |wanted: &[&str]| {
        declarations.iter().rev().find(|(name, _)| wanted.contains(name)).map(|(_, value)| *value)
    };
    let color = value(&["color"]);
    color.is_some() && color == value(&["background", "background-color"])
}

fn is_transparent(color: &str) -> bool {
    let compact: String = color.chars().filter(|c| !c.is_whitespace()).collect();
    compact == "transparent" || compact.starts_with("rgba(") && compact.ends_with(",0)")
}

/// Returns whether all four sides of a rectangle are at most a pixel.
fn encloses_nothing(rectangle: &str) -> bool {
    let sides = rectangle.trim_matches(['(', ')', ' ']).split([',', ' ']);
    let mut sides = sides.filter(|side| !side.is_empty());
    sides.all(|side| number(side).is_some_and(|side| side.abs() <= 1.0))
}

/// Sizes in other units than pixels, of which a fraction is visible.
fn is_relative(value: &str) -> bool {
    number(value) != Some(0.0) && !value.ends_with("px")
}

/// Returns the number at the beginning of a value.
fn number(value: &str) -> Option<f64> {
    let end =
        value.find(|c: char| !matches!(c, '0'..='9' | '.' | '-' | '+')).unwrap_or(value.len());
    value[..end].parse().ok()
}

/// Removes comments and decodes escapes, both of which browsers accept inside of names.
fn unescaped(style: &str) -> String {
    let mut text = String::with_capacity(style.len());
    let mut rest = style;
    while let Some(at) = rest.find(['\\', '/']) {
        text.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(comment) = after.strip_prefix('*').filter(|_| rest[at..].starts_with('/')) {
            rest = comment.split_once("*/").map_or("", |(_, after)| after);
        } else if rest[at..].starts_with('\\') {
            let digits = after.bytes().take(6).take_while(u8::is_ascii_hexdigit).count();
            let code = u32::from_str_radix(&after[..digits], 16).ok();
            text.extend(code.and_then(char::from_u32));
            rest = &after[digits..];
            if digits > 0 {
                rest = rest.strip_prefix([' ', '\n', '\t']).unwrap_or(rest);
            }
        } else {
            text.push('/');
            rest = after;
        }
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hiding_styles_are_recognized() {
        for style in [
            "display:none",
            "color:red; DISPLAY : None !important",
            "dis/* x */play:none",
            "d\\69 splay:none",
            "visibility:hidden",
            "visibility: collapse",
            "content-visibility:hidden",
            "opacity:0",
            "opacity: .0",
            "font-size:0",
            "font-size:0px",
            "font: 0/0 a",
            "text-indent:-9999px",
            "position:absolute;left:-10000px",
            "clip: rect(0, 0, 0, 0)",
            "clip:rect(1px 1px 1px 1px)",
            "clip-path:inset(50%)",
            "transform: scale(0)",
            "height:0;overflow:hidden",
            "max-height:1px; overflow-y: hidden",
            "color:transparent",
            "color: rgba(0, 0, 0, 0)",
            "color:#fff;background-color:#fff",
        ] {
            assert!(hides(style), "{style}");
        }
    }

    #[test]
    fn visible_styles_are_kept() {
        for style in [
            "",
            "display:block",
            "opacity:0.5",
            "opacity:1",
            "font-size:0.9em",
            "font:12px/1 serif",
            "left:-20px",
            "height:0",
            "color:#fff;background:#000",
            "overflow:hidden;width:100%",
            "background:url(a/b.png)",
            "color:rgba(0,0,0,0.9)",
            "clip:rect(0,200px,200px,0)",
            "margin:0 auto",
        ] {
            assert!(!hides(style), "{style}");
        }
    }
}
