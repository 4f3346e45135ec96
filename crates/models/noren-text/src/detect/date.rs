//! Dates of birth: a date after words that announce it (`born on 12 March 1985`, `DOB: 1985-03-12`, `geboren am
//! 12.3.85`).

use super::around::{goes_on, pattern};
use crate::fold::Folded;
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

static FORMS: LazyLock<Regex> = LazyLock::new(|| {
    let said = [
        r"(?-u:\b)(?:date\s+of\s+birth|birth\s?-?date|birthday|born|d\.?\s?o\.?\s?b|geboren|geburtsdatum|geburtstag|geb\.)",
        r"(?-u:\b)(?:née?\s+le|date\s+de\s+naissance|nació|nacid[oa]|fecha\s+de\s+nacimiento|nat[oa]\s+il|data\s+di\s+nascita)",
        r"(?-u:\b)(?:data\s+de\s+nascimento|nascid[oa]|geboortedatum|födelsedatum|fødselsdato|data\s+urodzenia|urodzon[ya])",
        r"дата\s+рождения|родил(?:ся|ась)|出生日期|出生|生年月日|생년월일",
    ];
    let separator = r"\s?[-./]\s?";
    let [day, month, year] = ["(?:3[01]|[0-2]?[0-9])", "(?:1[0-2]|0?[1-9])", "(?:(?:1[89]|20)[0-9]{2})"];
    let short = format!("(?:{year}|[0-9]{{2}})");
    let name = r"[\p{L}\p{M}]+\.?";
    let dates = [
        format!("{year}{separator}{month}{separator}{day}"),
        format!("{day}{separator}{month}{separator}{short}"),
        format!("{month}{separator}{day}{separator}{short}"),
        format!(r"{day}(?:st|nd|rd|th|\.|er|o)?,?[\s-](?:of\s|de\s)?{name},?[\s-](?:de\s)?{year}"),
        format!(r"{name}\s{day}(?:st|nd|rd|th)?,?\s{year}"),
        format!(r"{year}\s?(?:年|년)\s?{month}\s?(?:月|월)\s?{day}\s?(?:日|일)?"),
        format!("{year}{month_2}{day_2}", month_2 = "(?:0[1-9]|1[0-2])", day_2 = "(?:[0-2][0-9]|3[01])"),
    ];
    pattern(&format!(r"(?i)(?:{})[^0-9\u{{2029}}]{{0,24}}?(?P<date>{})", said.join("|"), dates.join("|")))
});

pub(super) fn find(folded: &Folded) -> Vec<Range<usize>> {
    let found = FORMS.captures_iter(&folded.text).filter_map(|caught| Some(caught.name("date")?.range()));
    found.filter(|range| !goes_on(folded, range)).collect()
}
