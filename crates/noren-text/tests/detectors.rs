//! What detectors find, and what they leave alone: one line for each text, the findings between ⟦ and ⟧.

use noren_text::{BUILT_IN, Detector, Detectors, Error, outermost};
use proptest::prelude::*;
use std::ops::Range;

/// Finds in the text without brackets, and compares with where the brackets stand.
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
        "nothing: @jane, jane@, jane@localhost, a@b.c, foo@@bar, icon@2x.png, 3@4.5, a@.com, user@10.0.0.1",
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
        "⟦555-123-4567x89⟧ ⟦555-123-4567 ext. 3⟧ ⟦+44 20 7946 0958, extension 1204⟧ ⟦(555) 123-4567 #12⟧; x1",
        "2024-01-15 10:30, 15.01.2024, 01.02.2024 12:30, 0.123456789, 3.0301234567, 12,345,678,901",
        "1700000000 seconds, order 123456789, 192.168.100.200, id a2025550123, x_2025550123",
        "550e8400-e29b-41d4-a716-046655440000, C++11, 2+41, 4155552671234567890",
        "DE89 3704 0044 0532 0130 00, 4111 1111 1111 1111, 978-3-16-148410-0, 123-45-6789",
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
        "a4111111111111111, 4111111111111111b, 44111111111111111, _4111111111111111",
        "4111  1111 1111 1111, 4111,1111,1111,1111",
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
        "DE89 3704 0044 0532 0130 01, XX89370400440532013000, DE893704004405320130, xDE89370400440532013000",
        "DE89370400440532013000x DE89  3704 0044 0532 0130 00",
    ] {
        check("iban", text);
    }
}

#[test]
fn addresses() {
    for text in [
        "⟦192.168.0.1⟧:8080, ⟦10.0.0.0⟧/8, http://⟦127.0.0.1⟧/x, ⟦255.255.255.255⟧.",
        "⟦2001:db8::8a2e:370:7334⟧, [⟦::1⟧]:80, ⟦fe80::1⟧%eth0, ⟦::ffff:192.0.2.1⟧. At ⟦fe80::1⟧: no",
        "⟦１９２．１６８．０．１⟧, [IPv6:⟦2001:db8::1⟧] ip6:⟦2001:db8::1⟧ ip:⟦2001:db8::1⟧ ip6:⟦1:2:3:4:5:6:7:8⟧",
        "256.1.1.1, 1.2.3, 1.2.3.4.5, 01.02.03.04, v1.2.3.4, 1.2.3.4a, 12:34:56, 00:1A:2B:3C:4D:5E, std::fmt, a::b, ::",
        "1:2:3:4:5:6:7:8:9, 12345::1",
    ] {
        // A leading zero means octal to some and decimal to others, and is not what people write for an address.
        check("ip", text);
    }
}

#[test]
fn social_security_numbers() {
    for text in [
        "⟦123-45-6789⟧, ⟦123 45 6789⟧, SSN: ⟦123456789⟧, social security number ⟦123456789⟧",
        "⟦１２３－４５－６７８９⟧ ⟦123\u{2013}45\u{2013}6789⟧",
        "000-45-6789, 666-45-6789, 900-45-6789, 999-45-6789, 123-00-6789, 123-45-0000",
        "123-45 6789, 123456789, 1123-45-6789, 123-45-67890, 12-123-45-6789, 123-45-6789-1, a123-45-6789",
        "SSN 000456789, classn 123456789",
    ] {
        check("ssn", text);
    }
}

/// Characters of several bytes, of several characters, and of no width do not move what is found.
#[test]
fn emoji_and_marks_around_a_secret() {
    check("all", "👩\u{200d}👩\u{200d}👧 ⟦a@b.io⟧👋🏽 ⟦+44 20 7946 0958⟧🏴\u{e0067}\u{e007f} ⟦192.168.0.1⟧ e\u{301}");
    check("all", "📧⟦jane@example.org⟧📧 💳⟦4111 1111 1111 1111⟧\u{fe0f} ⟦DE89 3704 0044 0532 0130 00⟧🙂⟦2001:db8::1⟧");
    check("email,phone", "⟦jane@example.org⟧ \u{200f}⟦030 1234567⟧ \u{202e}⟦030 1234567⟧\u{202c}");
}

/// Scripts without spaces between words touch a number on both sides, and what they add to it.
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
        "span 3..4 of `mine`: the text has 3 characters: spans count them from 0, and end after the last"
    );
}

#[test]
fn findings_of_all_kinds_stay_and_the_outermost_are_told() {
    let detectors = "all".parse::<Detectors>().unwrap().with(Detector::words("bank", ["3704 0044"]).unwrap());
    let text = "DE89 3704 0044 0532 0130 00; 4111111111111111; jane@192.168.0.1.example.org";
    let found = detectors.find(text).unwrap();
    let kinds: Vec<_> = found.iter().map(|f| f.kind.as_str()).collect();
    assert_eq!(kinds, ["iban", "bank", "card", "email", "ip"]);
    let told: Vec<_> = outermost(&found).iter().map(|f| f.kind.as_str()).collect();
    assert_eq!(told, ["iban", "card", "email"]);
    assert_eq!(detectors.kinds().len(), 7);
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let unknown = |name: &str| name.parse::<Detectors>().unwrap_err().to_string();
    assert_eq!(
        unknown("emial"),
        "there is no detector `emial` (did you mean `email`?): known are email, phone, card, iban, ip, ssn, all; \
         own words, patterns and spans get a name of their own"
    );
    for (name, meant) in
        [("creditcard", "`card`"), ("IBAN", "`iban`"), ("phones", "`phone`"), ("email, telephone", "`phone`")]
    {
        assert!(unknown(name).contains(&format!("did you mean {meant}?")), "{name}: {}", unknown(name));
    }
    assert!(!unknown("banana").contains("did you mean") && unknown("").starts_with("there is no detector ``"));
    assert!(unknown(&"x".repeat(1 << 20)).len() < 300);

    let problem = |made: Result<Detector, Error>| made.unwrap_err().to_string();
    for (made, told) in [
        (Detector::words("name", Vec::<String>::new()), "no words"),
        (Detector::words("name", ["a", " \u{200b}"]), "is no word"),
        (Detector::words("a b", ["a"]), "ASCII letters"),
        (Detector::words("email", ["a"]), "this name is taken"),
        (Detector::words("private", ["a"]), "this name is taken"),
        (Detector::pattern("p", "(a"), "malformed"),
        (Detector::pattern("p", "((a{1000}){1000}){1000}"), "needs more than"),
        (Detector::spans("s", [Range { start: 3, end: 3 }]), "span 3..3 of `s`: it holds no character"),
    ] {
        let text = problem(made);
        assert!(text.contains(told), "{text}");
    }
}

/// A quarter of a megabyte of what could make a search slow: time goes with its length.
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
    ];
    let detectors = "all".parse::<Detectors>().unwrap().with(Detector::words("w", ["a a a", "1 1"]).unwrap());
    let detectors = detectors.with(Detector::pattern("p", "(1+)+$").unwrap());
    for piece in hostile {
        let text = piece.repeat((1 << 18) / piece.len());
        let start = std::time::Instant::now();
        detectors.find(&text).unwrap();
        let took = start.elapsed();
        assert!(took.as_secs_f64() < 10.0, "{piece:?} took {took:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Whatever the text: no panic, findings at borders of characters, sorted, not empty.
    #[test]
    fn findings_lie_between_characters(
        text in proptest::collection::vec(prop_oneof![
            any::<char>(), "[0-9]{1,6}".prop_map(|s| s.chars().next().unwrap()),
            proptest::sample::select("@.:+-() \"[]\u{301}\u{200b}é٤４DE89".chars().collect::<Vec<_>>())
        ], 0..80).prop_map(String::from_iter)
    ) {
        let detectors = "all".parse::<Detectors>().unwrap().with(Detector::words("w", ["é", "de", "1 2"]).unwrap());
        let found = detectors.find(&text).unwrap();
        for finding in &found {
            prop_assert!(!text[finding.range.clone()].is_empty());
        }
        prop_assert!(found.windows(2).all(|pair| pair[0].range.start <= pair[1].range.start));
    }

    /// A secret is found whatever stands around it, as long as no letter or digit touches it.
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
        // White space and characters of no width become part of what is read around a number.
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
