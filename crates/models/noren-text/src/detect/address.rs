//! Street addresses in forms that a pattern can find. An English address has a number, then a name that ends in a word
//! such as `Street`. In a German or Dutch address, a similar name (ending in a word such as `Straße`) is before the
//! number. A French, Spanish, Italian or Portuguese address has a name that begins with a word such as `Rue` or
//! `Calle`. Post boxes are addresses too. A unit, a place and a postal code that follow are parts of the address.

use super::around::{goes_on, pattern};
use crate::fold::Folded;
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

static FORMS: LazyLock<Regex> = LazyLock::new(|| {
    let word = r"[\p{Lu}][\p{L}\p{M}'’.\-]*";
    let number = r"[0-9]{1,5}(?:\s?[-/]\s?[0-9]{1,5})?\s?[A-Za-z]?";
    let street = r"(?:Street|St\.?|Avenue|Ave\.?|Road|Rd\.?|Boulevard|Blvd\.?|Lane|Ln\.?|Drive|Dr\.?|Court|Ct\.?|Terrace|Parkway|Pkwy\.?|Highway|Hwy\.?|Place|Pl\.?|Square|Sq\.?|Crescent|Gardens|Grove|Mews|Close|Way|Row|Circle|Cir\.?|Trail|Walk|Quay)";
    let side = r"(?:\s(?:NE|NW|SE|SW|North|South|East|West|N|S|E|W)(?-u:\b)\.?)?";
    let unit = r"(?:,?\s(?:Apt|Apartment|Unit|Suite|Ste|Floor|Flat|Room|Rm|#)\.?\s?#?[A-Za-z0-9\-]{1,6})?";
    let zip = r"[A-Z]{2},?\s[0-9]{5}(?:-[0-9]{4})?|[A-Z]{1,2}[0-9][A-Z0-9]?\s?[0-9][A-Z]{2}|[A-Z]{2},?\s[A-Z][0-9][A-Z]\s?[0-9][A-Z][0-9]";
    let place = format!(r"(?:,?\s{word}(?:\s{word}){{0,2}},?\s(?:{zip})|,?\s(?:{zip}))?");
    let code = format!(r"(?:,?\s(?:[A-Z]{{1,2}}-)?[0-9]{{4,5}}(?:\s[A-Z]{{2}})?\s{word}(?:[\s-]{word}){{0,2}})?");
    let ending =
        r"(?:straße|strasse|str\.|weg|platz|allee|gasse|ring|damm|ufer|chaussee|steig|straat|laan|plein|gracht|kade)";
    let leading = r"(?:rue|avenue|av\.|boulevard|bd\.?|place|chemin|impasse|allée|quai|route|cours|Rue|Avenue|Boulevard|Place|Chemin|Impasse|Allée|Quai|Route|Cours)";
    let southern =
        r"(?:Calle|C/|Avenida|Avda\.|Paseo|Plaza|Via|Viale|Piazza|Corso|Vicolo|Rua|Travessa|Praça|Largo|Carrer|Camino)";
    let link = r"(?:de\sla|de\sl'|del|della|dello|delle|dei|degli|des|du|de|da|do|dos|das|d'|di|la|le|les|los|las)";
    let named = format!(r"(?:(?:{link})\s?)?{word}(?:[\s-](?:(?:{link})\s?)?{word}){{0,4}}");
    let forms = [
        format!(
            r"{number}\s(?:(?:N|S|E|W|North|South|East|West)\.?\s)?(?:{word}|[0-9]{{1,3}}(?:st|nd|rd|th))(?:\s{word}){{0,3}}\s{street}{side}{unit}{place}"
        ),
        format!(r"(?:{word}\s){{0,2}}{word}{ending}\s{number}{code}"),
        format!(
            r"(?:{word}\s){{1,2}}(?:Straße|Strasse|Str\.|Weg|Platz|Allee|Gasse|Ring|Damm|Ufer|Chaussee)\s{number}{code}"
        ),
        format!(r"{number}(?:\s?(?:bis|ter))?,?\s{leading}\s{named}{code}"),
        format!(r"{southern}\s{named},?\s(?:n\.?\s?[ºo°]?\s?|nº\s?)?{number}{code}"),
        r"(?i:p\.?\s?o\.?\s?box|postfach|(?:boîte|boite)\spostale|apartado)\s#?[0-9]{1,6}(?-u:\b)".to_owned(),
    ];
    pattern(&forms.join("|"))
});

pub(super) fn find(folded: &Folded) -> Vec<Range<usize>> {
    let found = FORMS.find_iter(&folded.text).map(|form| form.range());
    found.filter(|range| !goes_on(folded, range)).collect()
}
