//! Texts with and without findings, one text in each line. Findings are between ⟦ and ⟧.

use noren_text::{BUILT_IN, Detector, Detectors, Error, outermost};
use proptest::prelude::*;
use std::ops::Range;

/// Searches the text without its brackets, and compares the findings with the positions of the brackets.
fn check(names: &str, marked: &str) {
    let text: String = marked.chars().filter(|c| !"⟦⟧".contains(*c)).collect();
    let found = names.parse::<Detectors>().unwrap().find(&text).unwrap();
    let mut shown = text.clone();
    for finding in outermost(&found).iter().rev() {
        shown.insert(finding.range.end, '⟧');
        shown.insert(finding.range.start, '⟦');
    }
    assert_eq!(shown, marked, "{names}");
}

#[test]
fn emails() {
    for text in [
        "write to ⟦jane.doe+news@mail.example.co.uk⟧.",
        "<⟦a@b.io⟧>, (⟦x_y@z-1.org⟧); mailto:⟦q@r.de⟧?subject=no",
        "⟦jane@example.com⟧,⟦joe@example.com⟧",
        "'⟦o'brien@example.ie⟧'",
        "⟦żółw@jeż.pl⟧ ⟦用户@例子.广告⟧ ⟦jose\u{301}@example.org⟧",
        "⟦ｊａｎｅ＠ｅｘａｍｐｌｅ．ｏｒｇ⟧ ⟦ja\u{200b}ne@exa\u{ad}mple.org⟧",
        "⟦\"jane doe\"@example.org⟧ ⟦root@[192.168.0.1]⟧",
        "⟦a@b.com⟧.-x ⟦a@b.co⟧..c ⟦a@b.co⟧-",
        "nothing: @jane, jane@, jane@localhost, a@b.c, foo@@bar, icon@2x.png, 3@4.5, a@.com, user@10.0.0",
        "⟦ann@2x.de⟧ ⟦ann@2x.example⟧ ⟦user@10.0.0.1⟧ ⟦ann@192.168.0.1⟧. logo@3x.JPEG",
        "@",
        "",
    ] {
        check("email", text);
    }
}

#[test]
fn phones() {
    for text in [
        "call ⟦+44 20 7946 0958⟧ or ⟦+1 (415) 555-2671⟧ or ⟦+4917012345678⟧!",
        "⟦+49 (0)30 1234567⟧ ⟦0049 30 1234567⟧",
        "⟦(555) 123-4567⟧, ⟦555-123-4567⟧, ⟦555.123.4567⟧, ⟦1-800-555-0199⟧, ⟦2025550123⟧",
        "⟦555-123-4567⟧ ⟦555-987-6543⟧, in 2024 ⟦555-123-4567⟧",
        "⟦01 42 68 53 00⟧ ⟦030/1234567⟧ ⟦(030) 1234567⟧ ⟦07911 123456⟧ ⟦07700900123⟧",
        "⟦٠٣٠ ١٢٣٤٥٦٧⟧ ⟦５５５－１２３－４５６７⟧ ⟦555\u{2011}123\u{2011}4567⟧ ⟦+44\u{a0}20\u{a0}7946\u{a0}0958⟧",
        "tel⟦+44 20 7946 0958⟧ ⟦+44\t20\t7946\t0958⟧ ⟦030  1234567⟧ ⟦+44 20\n7946 0958⟧ ⟦(555)\u{2066}123\u{2069}-4567⟧call",
        "⟦030\n1234567⟧, 555\n123\n4567\n8901, ⟦03ー1234ー5678⟧, 00 00 00 00 00 00, 0001020304050607, 0123456789, 2147483647, MA 02110-1301",
        "⟦555-123-4567x89⟧ ⟦555-123-4567 ext. 3⟧ ⟦+44 20 7946 0958, extension 1204⟧ ⟦(555) 123-4567 #12⟧; x1",
        "2024-01-15 10:30, 15.01.2024, 01.02.2024 12:30, 0.123456789, 3.0301234567, 12,345,678,901",
        "1700000000 seconds, order 123456789, 192.168.100.200, id a2025550123, x_2025550123",
        "550e8400-e29b-41d4-a716-046655440000, C++11, 2+41, 4155552671234567890",
        "DE89 3704 0044 0532 0130 00, 4111 1111 1111 1111, 978-3-16-148410-0, 123-45-6789",
        "1. ⟦030 1234567⟧, Hauptstr. 5\n⟦030 1234567⟧, Raum 12 ⟦030 1234567⟧, 2024-05-01 ⟦030 1234567⟧, 7 ⟦0171 2345678⟧",
        "10 01 02 03 04 05 06 07, 12 03 2024 10 00 00, 2024-01-15 08.30.00, DE89 0704 0044 0532 0130 00, 107 012 015 123 018",
        "12\n030\n1234567",
        "phone ⟦1234567⟧, call ⟦555-2671⟧; Tel.: ⟦555-2671⟧, telephone number ⟦1234567⟧, call me at ⟦555 2671⟧, mobile no ⟦4155552⟧",
        "call 1234567 times, phone 12345678, iphone 1234567, recall 555-2671, call 555-26712, call 555-2671-33, phone model 1234567",
    ] {
        check("phone", text);
    }
}

#[test]
fn cards() {
    for text in [
        "⟦4111 1111 1111 1111⟧, ⟦4111-1111-1111-1111⟧, ⟦4111111111111111⟧ 12/25 123",
        "⟦378282246310005⟧ ⟦3782 822463 10005⟧ ⟦5555555555554444⟧ ⟦2223003122003222⟧ ⟦6011111111111117⟧",
        "⟦30569309025904⟧ ⟦3530111333300000⟧ ⟦6212345678901232⟧ ⟦4222222222222⟧",
        "order 12 ⟦4111 1111 1111 1111⟧ 2024",
        "⟦４１１１ １１１１ １１１１ １１１１⟧ ⟦٤١١١١١١١١١١١١١١١⟧ ⟦4111\u{200b}1111\u{2011}1111\u{a0}1111⟧",
        "4111 1111 1111 1112, 0000 0000 0000 0000, 1234 5678 9012 3452, 41111111111111110000000",
        "a1b4111111111111111, 4111111111111111b2, 44111111111111111, 0x4111111111111111, 0.4111111111111111, 54.38420459504685",
        "⟦4111111111111111⟧USD, USD⟦4111111111111111⟧, Karte⟦4111111111111111⟧gilt, карта⟦4111111111111111⟧",
        "⟦4111  1111 1111 1111⟧, ⟦4111\t1111\t1111\t1111⟧, ⟦4111 1111\r\n1111 1111⟧, ⟦4111 - 1111 - 1111 - 1111⟧",
        "⟦4111\n1111\n1111\n1111⟧ a 4111\n1111\n1111\n1111\n1111 a 4111 1111\n\n1111 1111, 4111,1111,1111,1111",
        "⟦4111\u{2066}1111\u{2069}1111\u{61c}1111⟧ ⟦4111\u{180e}1111\u{34f}1111\u{fe0f}1111⟧ ⟦4111_1111_1111_1111⟧",
        "⟦4️⃣1️⃣1️⃣1️⃣1111 1111 1111⟧ ⟦𝟜𝟙𝟙𝟙𝟙𝟙𝟙𝟙𝟙𝟙𝟙𝟙𝟙𝟙𝟙𝟙⟧ ⟦᠔᠑᠑᠑᠑᠑᠑᠑᠑᠑᠑᠑᠑᠑᠑᠑⟧ 12\u{200b}⟦4111111111111111⟧\u{200b}7",
        "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 2, 41 11 11 11 11 11 11 11 7",
        "⟦4111111111111111⟧,⟦5555555555554444⟧ 7,⟦4111111111111111⟧,Ann; 12,Ann,0,⟦4111111111111111⟧,1",
        "0,⟦4111111111111111⟧,Ann; 0,4111111111111111, 1.4111111111111111 (0,4111111111111111)",
    ] {
        check("card", text);
    }
}

#[test]
fn ibans() {
    for text in [
        "⟦DE89 3704 0044 0532 0130 00⟧, ⟦GB29NWBK60161331926819⟧. ⟦NO9386011117947⟧",
        "⟦de89370400440532013000⟧ and ⟦FR14 2004 1010 0505 0001 3M02 606⟧ too",
        "⟦MT84MALT011000012345MTLCAST001S⟧ ⟦ＤＥ89 3704 0044 0532 0130 00⟧ ⟦DE89-3704-0044-0532-0130-00⟧",
        "DE89 3704 0044 0532 0130 01, XX89370400440532013000, DE893704004405320130, DE893704004405320130001",
        "IBAN⟦DE89370400440532013000⟧ ⟦DE89370400440532013000⟧EUR ⟦DE89  3704 0044 0532 0130 00⟧ ⟦DE89\t3704\n0044 0532 0130 00⟧",
        "⟦DE\u{2067}89\u{2069}370400440532013000⟧ iban:⟦DE 89 3704 0044 0532 0130 00⟧, ⟦D E 8 9 3 7 0 4 0 0 4 4 0 5 3 2 0 1 3 0 0 0⟧",
    ] {
        check("iban", text);
    }
}

#[test]
fn addresses() {
    for text in [
        "ip⟦192.168.0.1⟧ ⟦192.168.0.1⟧is ⟦192\u{2066}.168.\u{fe0f}0.1⟧ ver1.2.3.4 1.2.3.4rc",
        "⟦192.168.0.1⟧:8080, ⟦10.0.0.0⟧/8, http://⟦127.0.0.1⟧/x, ⟦255.255.255.255⟧.",
        "⟦2001:db8::8a2e:370:7334⟧, [⟦::1⟧]:80, ⟦fe80::1⟧%eth0, ⟦::ffff:192.0.2.1⟧. At ⟦fe80::1⟧: no",
        "⟦１９２．１６８．０．１⟧, [IPv6:⟦2001:db8::1⟧] ip6:⟦2001:db8::1⟧ ip:⟦2001:db8::1⟧ ip6:⟦1:2:3:4:5:6:7:8⟧",
        "256.1.1.1, 1.2.3, 1.2.3.4.5, 01.02.03.04, v1.2.3.4, 1.2.3.4a, 12:34:56, 00:1A:2B:3C:4D:5E, std::fmt, a::b, ::",
        "1:2:3:4:5:6:7:8:9, 12345::1",
    ] {
        // A leading zero means octal in some programs and decimal in others, and is not usual in addresses.
        check("ip", text);
    }
}

#[test]
fn social_security_numbers() {
    for text in [
        "⟦123-45-6789⟧, ⟦123 45 6789⟧, SSN: ⟦123456789⟧, social security number ⟦123456789⟧",
        "⟦１２３－４５－６７８９⟧ ⟦123\u{2013}45\u{2013}6789⟧",
        "000-45-6789, 666-45-6789, 900-45-6789, 999-45-6789, 123-00-6789, 123-45-0000",
        "123-45 6789, 123456789, 1123-45-6789, 123-45-67890, 12-123-45-6789, 123-45-6789-1, a1b123-45-6789",
        "SSN⟦123-45-6789⟧, ⟦123\t45\n6789⟧, ⟦123  45  6789⟧, ⟦123.45.6789⟧, ⟦123 - 45 - 6789⟧, ⟦123\u{2066}-45-\u{2069}6789⟧",
        "SSN 000456789, classn 123456789",
    ] {
        check("ssn", text);
    }
}

/// Characters with several bytes, several code points or no width do not change the ranges of findings.
#[test]
fn emoji_and_marks_around_a_secret() {
    check("all", "👩\u{200d}👩\u{200d}👧 ⟦a@b.io⟧👋🏽 ⟦+44 20 7946 0958⟧🏴\u{e0067}\u{e007f} ⟦192.168.0.1⟧ e\u{301}");
    check("all", "📧⟦jane@example.org⟧📧 💳⟦4111 1111 1111 1111⟧\u{fe0f} ⟦DE89 3704 0044 0532 0130 00⟧🙂⟦2001:db8::1⟧");
    check("email,phone", "⟦jane@example.org⟧ \u{200f}⟦030 1234567⟧ \u{202e}⟦030 1234567⟧\u{202c}");
}

/// In scripts without spaces between words, letters touch a number on both sides.
#[test]
fn scripts_without_spaces_around_a_secret() {
    check(
        "all",
        "卡号⟦4111111111111111⟧，电话⟦03-1234-5678⟧です。地址⟦192.168.0.1⟧是、帐户⟦DE89370400440532013000⟧ไทย⟦+44 20 7946 0958⟧로",
    );
    check("ssn,phone", "番号⟦123-45-6789⟧の、番号SSN ⟦123456789⟧です 전화⟦010-1234-5678⟧로 ⟦555-123-4567 ext 89⟧です");
}

#[test]
fn own_words_patterns_and_spans() {
    let words = Detector::words("name", ["Ann", "Ann Lee", "José", "张伟", "Straße"]).unwrap();
    let text = "ANN\n Lee, Anna, ann. JOSE\u{301} josé joses 我叫张伟。 STRAßE Ann_x";
    let found = Detectors::from(words).find(text).unwrap();
    let found: Vec<_> = found.iter().map(|f| &text[f.range.clone()]).collect();
    assert_eq!(found, ["ANN\n Lee", "ann", "JOSE\u{301}", "josé", "张伟", "STRAßE"]);

    let pattern = Detector::pattern("case", r"CASE-\d+|x*").unwrap();
    let found = Detectors::from(pattern).find("see CASE-17, xx").unwrap();
    assert_eq!(found.iter().map(|f| f.range.clone()).collect::<Vec<_>>(), [4..11, 13..15]);

    let spans = Detectors::from(Detector::spans("mine", [3..4, 0..2]).unwrap());
    let text = "żółw";
    let found = spans.find(text).unwrap();
    assert_eq!(
        found.iter().map(|f| (f.range.clone(), f.chars(text))).collect::<Vec<_>>(),
        [(0..4, 0..2), (6..7, 3..4)]
    );
    let error = spans.find("abc").unwrap_err().to_string();
    assert_eq!(
        error,
        "span 3..4 of `mine`: the text has 3 characters: give a span as (start, end), counted in characters from 0, with an end of at most 3"
    );
}

#[test]
fn findings_of_all_kinds_stay_and_the_outermost_are_returned() {
    let detectors = "all".parse::<Detectors>().unwrap().with(Detector::words("bank", ["3704 0044"]).unwrap());
    let text = "DE89 3704 0044 0532 0130 00; 4111111111111111; jane@192.168.0.1.example.org";
    let found = detectors.find(text).unwrap();
    let kinds: Vec<_> = found.iter().map(|f| f.kind.as_str()).collect();
    assert_eq!(kinds, ["iban", "bank", "card", "email", "ip"]);
    let shown: Vec<_> = outermost(&found).iter().map(|f| f.kind.as_str()).collect();
    assert_eq!(shown, ["iban", "card", "email"]);
    assert_eq!(detectors.kinds().len(), 14);
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let unknown = |name: &str| name.parse::<Detectors>().unwrap_err().to_string();
    assert_eq!(
        unknown("emial"),
        "there is no detector `emial` (did you mean `email`?): the detectors are email, phone, card, iban, ip, ssn, mac, url, \
         key, private_key, password, birth_date, address, all; \
         detectors of your own need other names"
    );
    for (name, meant) in
        [("creditcard", "`card`"), ("IBAN", "`iban`"), ("phones", "`phone`"), ("email, telephone", "`phone`")]
    {
        assert!(unknown(name).contains(&format!("did you mean {meant}?")), "{name}: {}", unknown(name));
    }
    assert!(!unknown("banana").contains("did you mean") && unknown("").starts_with("there is no detector ``"));
    assert!(unknown(&"x".repeat(1 << 20)).len() < 300);

    let problem = |made: Result<Detector, Error>| made.unwrap_err().to_string();
    for (made, shown) in [
        (Detector::words("name", Vec::<String>::new()), "no words"),
        (Detector::words("name", ["a", " \u{200b}"]), "is not a word"),
        (Detector::words("a b", ["a"]), "ASCII letters"),
        (Detector::words("email", ["a"]), "this name is taken"),
        (Detector::words("private", ["a"]), "this name is taken"),
        (Detector::pattern("p", "(a"), "malformed"),
        (Detector::pattern("p", "((a{1000}){1000}){1000}"), "needs more than"),
        (Detector::spans("s", [Range { start: 3, end: 3 }]), "span 3..3 of `s`: the span is empty"),
    ] {
        let text = problem(made);
        assert!(text.contains(shown), "{text}");
    }
}

/// Time is proportional to length, also for text that could slow a search. `NOREN_HOSTILE` is the number of bytes [default: a
/// quarter of a megabyte].
#[test]
fn hostile_texts_take_linear_time() {
    let hostile = [
        "@",
        "a@",
        "a.",
        "1",
        "1 ",
        "1-",
        "4111 1111 ",
        "DE89",
        "DE89 3704 0044 ",
        ":",
        "1:",
        "1.",
        "+1(",
        "0 ",
        "ssn ",
        "\"",
        "\"a\"@",
        "1\n",
        "1\u{20e3}",
        "\u{301}",
        "a\u{301}\u{323}",
        "\u{200b}1",
        "DE\u{2066}8",
        "D ",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nMIIE\n",
        "password: ",
        "password: «",
        "password: \"",
        "passphrase: a ",
        "passphrase:a",
        "passphrase: <",
        "password='",
        "token: ",
        "token=a",
        "api_key_",
        "sk-",
        "eyJ",
        "eyJaaaaaaaaa.",
        "a://",
        "a://b:c",
        "a://b@",
        "a://b'",
        "a://b?",
        "12 Main ",
        "1 A, ",
        "Aa",
        "Aa ",
        "Calle A ",
        "1 A St, A ",
        "1 rue de la ",
        "born ",
        "born 1",
        "born a 1 ",
        "00:",
        "00-",
        "0000.",
        "x",
    ];
    let length = std::env::var("NOREN_HOSTILE").ok().map_or(1 << 18, |bytes| bytes.parse().expect("bytes"));
    let detectors = "all".parse::<Detectors>().unwrap().with(Detector::words("w", ["a a a", "1 1"]).unwrap());
    let detectors = detectors.with(Detector::pattern("p", "(1+)+$").unwrap());
    let mut slowest = (std::time::Duration::ZERO, "");
    for piece in hostile {
        let text = piece.repeat(length / piece.len());
        let start = std::time::Instant::now();
        detectors.find(&text).unwrap();
        let took = start.elapsed();
        assert!(took.as_secs_f64() < 60.0 * (length as f64 / (1 << 18) as f64), "{piece:?} took {took:?}");
        slowest = slowest.max((took, piece));
    }
    println!("{length} bytes take {:?} at most, those of {:?}", slowest.0, slowest.1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// For any text: no panic, and findings begin and end between characters, are sorted and are not empty.
    #[test]
    fn findings_lie_between_characters(
        text in proptest::collection::vec(prop_oneof![
            any::<char>().prop_map(String::from),
            proptest::sample::select(vec!["password: ", "born ", "token=", "ssn ", "-----BEGIN PRIVATE KEY-----", "://", "St ", "DE89",
                "12 Main ", "sk-", "eyJ", "4111", "jane@x.org", "+44 20", "192.168", "::1", "PIN ", "00:1A:", "Straße "]).prop_map(String::from), "[0-9]{1,6}",
            proptest::sample::select("@.:+-()= \"[]\u{301}\u{200b}\u{2066}\u{fe0f}\u{20e3}\n\t\u{2029}é٤４ｗーDE89/?«".chars().map(String::from).collect::<Vec<_>>())
        ], 0..80).prop_map(|parts| parts.concat())
    ) {
        let detectors = "all".parse::<Detectors>().unwrap().with(Detector::words("w", ["é", "de", "1 2"]).unwrap());
        let found = detectors.find(&text).unwrap();
        for finding in &found {
            prop_assert!(!text[finding.range.clone()].is_empty());
        }
        prop_assert!(found.windows(2).all(|pair| pair[0].range.start <= pair[1].range.start));
    }

    /// A secret is found in any surroundings, as long as no letter or digit touches it.
    #[test]
    fn surroundings_do_not_hide_a_secret(
        before in "[^0-9A-Za-z_@.+\\-/:0-9\\p{N}\\p{L}\\p{M}]{0,12}|[\\p{Han}\\p{Hangul}\\p{Thai}&&\\p{L}]{0,12}",
        after in "[^0-9A-Za-z_@.+\\-/:\\p{N}\\p{L}\\p{M}]{0,12}|[\\p{Han}\\p{Hangul}\\p{Thai}&&\\p{L}]{0,12}",
        line in proptest::bool::ANY,
        secret in proptest::sample::select(vec![
            ("email", "jane@example.org"), ("phone", "555-123-4567"), ("card", "4111 1111 1111 1111"),
            ("iban", "DE89370400440532013000"), ("ip", "192.168.0.1"), ("ssn", "123-45-6789"),
        ])
    ) {
        // White space and characters without width are read as parts of a number.
        let line = if line || !before.chars().chain(after.chars()).all(char::is_alphabetic) { "\n" } else { "" };
        let text = format!("{before}{line}{}{line}{after}", secret.1);
        let found = secret.0.parse::<Detectors>().unwrap().find(&text).unwrap();
        let at = before.len() + line.len();
        prop_assert!(found.iter().any(|f| f.range.start <= at && f.range.end >= at + secret.1.len()), "{text:?}: {found:?}");
    }
}

#[test]
fn every_name_is_a_detector() {
    for name in BUILT_IN {
        assert_eq!(Detector::built_in(name).unwrap().kind().as_str(), name);
    }
}

#[test]
fn hardware_addresses() {
    for text in [
        "⟦00:1A:2b:3C:4D:5E⟧, ⟦00-1A-2B-3C-4D-5E⟧ ⟦001a.2b3c.4d5e⟧ ⟦００：１Ａ：２Ｂ：３Ｃ：４Ｄ：５Ｅ⟧. ⟦00\u{2011}1A\u{2011}2B\u{2011}3C\u{2011}4D\u{2011}5E⟧",
        "00:1A:2B:3C:4D:5E:6F, 00:1A:2B:3C:4D, 00:1A-2B:3C:4D:5E, x00:1A:2B:3C:4D:5E, 12:34:56, 001a.2b3c, 0.1a2b.3c4d.5e",
    ] {
        check("mac", text);
    }
}

#[test]
fn addresses_with_credentials() {
    for text in [
        "see ⟦https://ann:s3cret@db.example:5432/x?y=1⟧. (⟦postgres://u:p@h/db⟧), ⟦https://ghp0123456789abcdefgh@github.example/a⟧",
        "⟦https://x.example/f?a=1&access_token=abcdef0123⟧ ⟦http://x.example/?password=hunter2⟧ ⟦redis://:pa%24s@h:6379⟧",
        "⟦postgres://ann:p^ss@db/x⟧ '⟦postgres://ann:p'a{s|s\\`x@db/x⟧' (⟦postgres://{user}:s3cret@h⟧), ⟦https://a:p@s@h/x⟧",
        "postgres://{user}:{password}@{host}/db postgres://$U:${PASSWORD}@h 'http://h:80','ann@x.example'",
        "https://x.example/a@b https://x.example:8080/p ssh://git@host/x https://x.example/?token= mailto:ann@x.example",
    ] {
        check("url", text);
    }
}

#[test]
fn keys_and_tokens() {
    let body = "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5z";
    let forms = [
        "AKIAIOSFODNN7EXAMPLE".to_owned(),
        format!("ghp_{}", &body[..36]),
        format!("github_pat_{}", &body[..30]),
        format!("glpat-{}", &body[..20]),
        format!("xoxb-123456789012-{}", &body[..24]),
        format!("sk_live_{}", &body[..24]),
        format!("sk-proj-{body}"),
        format!("sk-{}T3BlbkFJ{}", &body[..20], &body[..20]),
        format!("sk-ant-api03-{body}"),
        format!("AIza{}", &body[..35]),
        format!("hf_{}", &body[..34]),
        format!("npm_{}", &body[..36]),
        format!("SG.{}.{}{}", &body[..22], body, &body[..6]),
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U".to_owned(),
        format!("dop_v1_{}", "0123456789abcdef".repeat(4)),
    ];
    for form in forms {
        check("key", &format!("use ⟦{form}⟧, or key=⟦{form}⟧; \"⟦{form}⟧\" (⟦{form}⟧)."));
        let parted = format!("{}\u{2066}\u{fe0f}{}", &form[..9], &form[9..]);
        check("key", &format!("密钥⟦{parted}⟧。"));
    }
    check("key", "api_key = \"⟦c0ffee1234567890deadbeef⟧\", Authorization: Bearer ⟦abc123def456ghi789jkl⟧");
    check("key", "AWS_SECRET_ACCESS_KEY=⟦wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY⟧, token = base64.decodebytes");
    check(
        "key",
        "token = tokenizer_from_file2(path3), api_key: your_api_key_goes_here, sk-learn-pipeline-step-12-of-33",
    );
}

#[test]
fn private_keys() {
    let body = "MIIEowIBAAKCAQEA0Z3\nVS5JJcds3xfn/ygWyF8\n";
    check("private_key", &format!("a\n⟦-----BEGIN RSA PRIVATE KEY-----\n{body}-----END RSA PRIVATE KEY-----⟧\nb"));
    check("private_key", &format!("⟦-----BEGIN OPENSSH PRIVATE KEY-----\n{body}⟧#cut"));
    check("private_key", &format!("⟦-----BEGIN PRIVATE KEY-----\\n{}\\n-----END PRIVATE KEY-----⟧", "MIIEow"));
    check("private_key", "{\"a\": \"⟦-----BEGIN PRIVATE KEY-----\\nMIIEow\\nIBAAK/+\\n⟧\", \"b\": 1");
    check(
        "private_key",
        &format!("-----BEGIN PUBLIC KEY-----\n{body}-----END PUBLIC KEY----- -----END PRIVATE KEY-----"),
    );
}

#[test]
fn passwords_after_words_that_say_so() {
    for text in [
        "password: ⟦hunter2⟧, Password is ⟦S3cret!⟧. \"password\": \"⟦open sesame⟧\"; pwd=⟦x7!kq⟧",
        "Das Passwort lautet ⟦Geheim123⟧. Mot de passe : ⟦azerty9⟧ contraseña: ⟦clave⟧ пароль: ⟦тайна⟧ 密码：⟦abc123⟧ パスワードは⟦hime1⟧",
        "passphrase: ⟦correct-horse-battery⟧ Password:\n⟦sw0rdfish⟧ PIN: ⟦4711⟧, PIN is ⟦0815⟧ pass\u{200b}word:\u{2066}⟦hun\u{ad}ter2⟧",
        "password is required, password: str, password = None, password=get_password(), password = user.password, the password",
        "if password:\n    return, password = key, password = user_pass",
        "password: ${SECRET}, password=<your password>, Password reset, passwords are long, spinning 4711",
        "Das Passwort lautet ⟦Sonnenschein⟧. Passwort lautet wie folgt: ⟦Sonne⟧; Password: ⟦$uperSecret⟧ password: \"⟦$uperSecret⟧\"",
        "password: ⟦<hunter⟧\npassword: ⟦(abc123⟧\npassword: \"⟦*secret⟧\" password: '⟦&mp⟧'",
        "DB_PASSWORD=⟦open_sesame⟧ DB_PASSWORD=get_it(x), f(password=open_sesame), password=$pass, $password = $_POST, password: &Secret",
        "password: \"${A1}\", password: '<yours>', password: \"{{ db }}\", PASSWORD=$DB_PASS, password: ********, password: %PASS%",
        "passphrase: ⟦correct horse battery staple⟧\npassphrase: ⟦my dog, ate it⟧. Then; passphrase: ⟦open it⟧ user: ann",
        "password once-per-day, the passphrase is required for it, passphrase: <the one you chose>, password est-ce",
    ] {
        check("password", text);
    }
}

#[test]
fn dates_of_birth() {
    for text in [
        "born on ⟦12 March 1985⟧, DOB: ⟦1985-03-12⟧; Date of birth ⟦03/12/85⟧, DOB ⟦2001-11-30⟧, DOB ⟦31.12.1999⟧, DOB ⟦12/31/99⟧, DOB ⟦20011130⟧. born ⟦March 12, 1985⟧",
        "geboren am ⟦12. März 1985⟧ in Bonn, Geburtsdatum: ⟦12.3.1985⟧, née le ⟦12 mars 1985⟧, nacido el ⟦12 de marzo de 1985⟧",
        "生年月日：⟦1985年3月12日⟧ 생년월일 ⟦1985년 3월 12일⟧ дата рождения: ⟦12.03.1985⟧ DOB ⟦١٩٨٥-٠٣-١٢⟧ birthday:\u{2067} ⟦12\u{2011}03\u{2011}1985⟧",
        "on 12 March 1985, 1985-03-12, adobe 12.03.1985, born in 1985, born in 1985-13-44",
    ] {
        check("birth_date", text);
    }
}

#[test]
fn street_addresses() {
    for text in [
        "at ⟦221B Baker Street, London NW1 6XE⟧. ⟦1600 Pennsylvania Avenue NW, Washington, DC 20500⟧; ⟦742 Evergreen Terrace⟧",
        "⟦12 Main St, Apt 4b, Springfield, IL 62704⟧ and ⟦P.O. Box 1234⟧, wohnt ⟦Lange Straße 12, 10115 Berlin⟧ und ⟦Hauptstraße 5a⟧",
        "⟦12 bis, rue de la Paix, 75002 Paris⟧; ⟦Calle de Alcalá 42, 28014 Madrid⟧; ⟦Via Roma 5⟧; ⟦Kalverstraat 92, 1012 PH Amsterdam⟧",
        "the 3 streets, Main Street, 12 apples, Baker Street is long, rue de la Paix, 5 Way",
    ] {
        check("address", text);
    }
}

#[test]
fn what_was_not_looked_for_is_said() {
    let not = |names: &str| names.parse::<Detectors>().unwrap().not_looked_for();
    assert_eq!(
        not("all"),
        "names, places, organizations and any other kind of private text were not looked for, and the text may hold them"
    );
    assert!(
        not("email,phone")
            .starts_with("card, iban, ip, ssn, mac, url, key, private_key, password, birth_date, address, names")
    );
    // A list of names does not detect other names.
    let own = "all".parse::<Detectors>().unwrap().with(Detector::words("name", ["Ann"]).unwrap());
    let own = own.with(Detector::pattern("place", "R[a-z]me").unwrap());
    assert_eq!(own.not_looked_for(), not("all"));
}
