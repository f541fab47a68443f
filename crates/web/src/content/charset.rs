//! Decoding of text.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252, X_USER_DEFINED};

use super::kind::{ZeroByte, zeros};

/// Bytes in which HTML declares its encoding.
const META_BYTES: usize = 1024;

/// Decoded text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decoded {
    pub(crate) text: String,
    /// Name of the encoding.
    pub(crate) encoding: &'static str,
    /// Some bytes are not valid and were replaced.
    pub(crate) is_lossy: bool,
}

/// Decodes text: by its byte order mark, by the charset of the HTTP header, by the declaration in HTML or
/// XML, or else by a guess, for which `top_level_domain` is a hint.
pub(crate) fn decode(
    bytes: &[u8],
    http_charset: Option<&str>,
    top_level_domain: Option<&str>,
) -> Decoded {
    let (encoding, bytes) = match Encoding::for_bom(bytes) {
        Some((encoding, length)) => (encoding, &bytes[length..]),
        None => {
            let declared = || http_charset.and_then(by_label).or_else(|| in_markup(bytes));
            (declared().unwrap_or_else(|| guess(bytes, top_level_domain)), bytes)
        }
    };
    let (text, is_lossy) = encoding.decode_without_bom_handling(bytes);
    Decoded { text: text.into_owned(), encoding: encoding.name(), is_lossy }
}

fn by_label(label: &str) -> Option<&'static Encoding> {
    Encoding::for_label_no_replacement(label.trim().as_bytes())
}

/// Returns the encoding that `<meta charset>`, `<meta http-equiv>` or `<?xml encoding?>` declares.
fn in_markup(bytes: &[u8]) -> Option<&'static Encoding> {
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(META_BYTES)]).to_ascii_lowercase();
    let encoding = in_meta(&start).or_else(|| {
        let declaration = start.strip_prefix("<?xml")?.split_once("?>")?.0;
        by_label(value_after(declaration, "encoding")?)
    })?;
    // Markup that can be read byte by byte is not UTF-16, whatever it declares.
    Some(match encoding {
        encoding if encoding == UTF_16LE || encoding == UTF_16BE => UTF_8,
        encoding if encoding == X_USER_DEFINED => WINDOWS_1252,
        encoding => encoding,
    })
}

fn in_meta(start: &str) -> Option<&'static Encoding> {
    let mut rest = start;
    while let Some((_, after)) = rest.split_once("<meta") {
        let tag = after.split('>').next().unwrap_or_default();
        if let Some(encoding) = value_after(tag, "charset").and_then(by_label) {
            return Some(encoding);
        }
        rest = after;
    }
    None
}

/// Returns the value that follows `name` and an equals sign, without quotes.
fn value_after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = text.split_once(name)?;
    let value = after.trim_start().strip_prefix('=')?.trim_start().trim_start_matches(['"', '\'']);
    value.split(['"', '\'', ' ', ';', '>', '/']).next().filter(|value| !value.is_empty())
}

fn guess(bytes: &[u8], top_level_domain: Option<&str>) -> &'static Encoding {
    match zeros(bytes) {
        Some(ZeroByte::First) => return UTF_16BE,
        Some(ZeroByte::Second) => return UTF_16LE,
        None => {}
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Allow);
    detector.feed(bytes, true);
    let is_label = |label: &&str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    let label = top_level_domain.filter(is_label).map(str::as_bytes);
    detector.guess(label, Utf8Detection::Allow)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WESTERN: &str = "Überall fährt man über größere Brücken, weil die Straße für Fußgänger öfter \
        gesperrt wäre. Später hörte er, daß die Mädchen schöne Äpfel für die Küche möchten.";
    const FRENCH: &str = "L'été dernier, les élèves français ont étudié à l'école où naît la rivière; \
        ça a été très agréable, même après la fête où le garçon a mangé de la crème brûlée.";
    const CZECH: &str = "Příliš žluťoučký kůň úpěl ďábelské ódy. Následující den přišel k řece, kde \
        ležely čluny, a řekl, že už nikdy nepůjde přes hory do města za svým přítelem.";
    const POLISH: &str = "Zażółć gęślą jaźń. Wczoraj książę poszedł do lasu, żeby znaleźć źródło, o \
        którym mówiła mu babcia; później wrócił przez łąkę i zjadł śniadanie.";
    const RUSSIAN: &str = "Съешь же ещё этих мягких французских булок, да выпей чаю. Вчера вечером мы \
        долго гуляли по набережной и говорили о том, что скоро наступит зима.";
    const UKRAINIAN: &str = "Щастя, здоров'я і всього найкращого бажаємо вам у новому році! Їжак їсть \
        яблука під ялинкою, а ґава сидить на гілці та дивиться, як її діти літають.";
    const GREEK: &str = "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Χθες το βράδυ περπατήσαμε στην παραλία και \
        μιλήσαμε για το ταξίδι που θα κάνουμε το καλοκαίρι στα νησιά.";
    const TURKISH: &str = "Pijamalı hasta yağız şoföre çabucak güvendi. Dün akşam arkadaşlarımla birlikte \
        İstanbul'da güzel bir yemek yedik ve şehrin ışıklarını seyrettik.";
    const HEBREW: &str = "דג סקרן שט בים מאוכזב ולפתע מצא חברה. אתמול בערב הלכנו לאורך החוף ודיברנו על \
        הטיול שנעשה בקיץ הבא אל ההרים שבצפון הארץ.";
    const ARABIC: &str = "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر. ذهبنا مساء أمس إلى الشاطئ \
        وتحدثنا عن الرحلة التي سنقوم بها في الصيف القادم.";
    const BALTIC: &str = "Įlinkdama fechtuotojo špaga sublykčiojusi pragręžė apvalų arbūzą. Vakar vakare \
        mes ilgai vaikščiojome palei jūrą ir kalbėjome apie kelionę, kurią surengsime vasarą.";
    const VIETNAMESE: &str = "Tôi là một sinh viên đang học ở trường này";
    const THAI: &str = "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน จงฝ่าฟันพัฒนาวิชาการ \
        อย่าล้างผลาญฤๅเข่นฆ่าบีฑาใคร";
    const JAPANESE: &str = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。何でも薄暗いじめじめした所で\
        ニャーニャー泣いていた事だけは記憶している。";
    const KOREAN: &str = "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 인간은 천부적으로 이성과 \
        양심을 부여받았으며 서로 형제애의 정신으로 행동하여야 한다.";
    const SIMPLIFIED: &str = "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。\
        我们昨天晚上在海边散步,谈论明年夏天的旅行。";
    const TRADITIONAL: &str = "人人生而自由,在尊嚴和權利上一律平等。他們賦有理性和良心,並應以兄弟關係的精神相對待。\
        我們昨天晚上在海邊散步,談論明年夏天的旅行。";

    /// Encodings with a text that they can hold, and the domain of a site in its language.
    const ENCODINGS: [(&str, &str, &str); 24] = [
        ("utf-8", RUSSIAN, "com"),
        ("utf-16le", WESTERN, "com"),
        ("utf-16be", WESTERN, "com"),
        ("windows-1252", FRENCH, "fr"),
        ("windows-1250", CZECH, "cz"),
        ("iso-8859-2", POLISH, "pl"),
        ("windows-1251", RUSSIAN, "ru"),
        ("koi8-r", RUSSIAN, "ru"),
        ("koi8-u", UKRAINIAN, "ua"),
        ("iso-8859-5", RUSSIAN, "ru"),
        ("ibm866", RUSSIAN, "ru"),
        ("windows-1253", GREEK, "gr"),
        ("iso-8859-7", GREEK, "gr"),
        ("windows-1254", TURKISH, "tr"),
        ("windows-1255", HEBREW, "il"),
        ("windows-1256", ARABIC, "sa"),
        ("windows-1257", BALTIC, "lt"),
        ("windows-874", THAI, "th"),
        ("shift_jis", JAPANESE, "jp"),
        ("euc-jp", JAPANESE, "jp"),
        ("iso-2022-jp", JAPANESE, "jp"),
        ("euc-kr", KOREAN, "kr"),
        ("gb18030", SIMPLIFIED, "cn"),
        ("big5", TRADITIONAL, "tw"),
    ];

    fn encoded(label: &str, text: &str) -> Vec<u8> {
        match label {
            "utf-16le" => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            "utf-16be" => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
            label => {
                let (bytes, _, is_lossy) = by_label(label).unwrap().encode(text);
                assert!(!is_lossy, "{label} cannot hold the text");
                bytes.into_owned()
            }
        }
    }

    #[test]
    fn declared_encodings_are_decoded_exactly() {
        for (label, text, domain) in ENCODINGS {
            let html = format!("<html><head><title>x</title></head><body>{text}</body>");
            let bytes = encoded(label, &html);
            let decoded = decode(&bytes, Some(label), Some(domain));
            assert_eq!((decoded.text, decoded.is_lossy), (html, false), "{label} in the header");
            // A declaration in the markup can't be read in UTF-16.
            if label.starts_with("utf-16") {
                continue;
            }
            for meta in [
                format!("<meta charset=\"{label}\">"),
                format!("<META HTTP-EQUIV=content-type content='text/html; charset={label}'>"),
            ] {
                let html = format!("<html><head>{meta}</head><body>{text}</body>");
                let decoded = decode(&encoded(label, &html), None, Some(domain));
                assert_eq!((decoded.text, decoded.is_lossy), (html, false), "{label} in {meta}");
            }
            let xml = format!("<?xml version=\"1.0\" encoding=\"{label}\"?><rss>{text}</rss>");
            assert_eq!(
                decode(&encoded(label, &xml), None, Some(domain)).text,
                xml,
                "{label} in XML"
            );
        }
    }

    #[test]
    fn byte_order_mark_overrides_declarations() {
        for (label, mark) in
            [("utf-8", &b"\xef\xbb\xbf"[..]), ("utf-16le", b"\xff\xfe"), ("utf-16be", b"\xfe\xff")]
        {
            let bytes = [mark, &encoded(label, FRENCH)].concat();
            let decoded = decode(&bytes, Some("windows-1252"), None);
            assert_eq!(decoded.text, FRENCH, "{label}");
        }
    }

    #[test]
    fn undeclared_encodings_are_mostly_guessed() {
        let wrong: Vec<_> = ENCODINGS
            .into_iter()
            .filter(|(label, text, domain)| {
                let html = format!("<html><body><p>{text}</p></body></html>");
                decode(&encoded(label, &html), None, Some(domain)).text != html
            })
            .map(|(label, ..)| label)
            .collect();
        // Of all 24 encodings with header, declaration, mark and nothing, at least 95 % are exact.
        assert!(wrong.len() <= 3, "{wrong:?}");
    }

    #[test]
    fn vietnamese_and_unknown_labels_are_decoded() {
        assert_eq!(decode(VIETNAMESE.as_bytes(), Some("no-such-charset"), None).text, VIETNAMESE);
        // Labels of encodings that browsers refuse count as absent.
        assert_eq!(decode(b"plain", Some("iso-2022-kr"), Some("UP.PER")).text, "plain");
    }

    #[test]
    fn invalid_bytes_are_reported() {
        let decoded = decode(b"a\xffb", Some("utf-8"), None);
        assert_eq!((decoded.text.as_str(), decoded.is_lossy), ("a\u{fffd}b", true));
    }
}
