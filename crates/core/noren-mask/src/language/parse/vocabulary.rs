//! The score modifiers of the text form, such as `softcap(5)`: their names and parameters, and the function that reads
//! them.

use crate::mask::score::Score;
use crate::sets::scalar::Real;
use crate::syntax::{Arguments, Entry, Parsed, may, need};

/// All score modifiers with their parameters.
pub(crate) const SCORES: &[Entry] = &[
    Entry::new("bias", "bias(name)", &[may("name", "name of the array of values to add to the scores")]),
    Entry::new("relative", "relative(name)", &[may("name", "name of the table with one value for each distance")]),
    Entry::new("alibi", "alibi(slopes=[0.5, 0.25])", &[may("slopes", "slope of each head")]),
    Entry::new("softcap", "softcap(5)", &[need("cap", "largest absolute score")]),
    Entry::new("soft", "soft(name)", &[may("name", "name of the array of weights from 0 to 1")]),
    Entry::new("sinks", "sinks(name)", &[may("name", "name of the array with one sink logit for each query head")]),
];

/// Returns the name and the parameters of the score modifier `name`, or `None` if there is no such score modifier.
pub(crate) fn score(name: &str) -> Option<&'static Entry> {
    SCORES.iter().find(|entry| entry.name == name)
}

/// Returns the score modifier for `arguments`. Its name is in `arguments.entry`.
pub(crate) fn read(arguments: &Arguments) -> Parsed<Score> {
    let a = arguments;
    let name = || a.get(0).map_or_else(|| Ok(a.entry.name.to_string()), |given| given.name());
    Ok(match a.entry.name {
        "bias" => Score::Bias { name: name()? },
        "relative" => Score::Relative { name: name()? },
        "soft" => Score::Soft { name: name()? },
        "sinks" => Score::Sinks { name: name()? },
        "softcap" => Score::Softcap { cap: Real::new(a.need(0)?.real()?) },
        _ => Score::Alibi {
            slopes: match a.get(0) {
                Some(given) => Some(given.reals()?.into_iter().map(Real::new).collect()),
                None => None,
            },
        },
    })
}
