//! From sorted arguments to the node of an atom, or to a score.

use super::error::{ParseError, Parsed};
use super::values::Arguments;
use crate::mask::{Node, Padding, Real, Side};
use crate::score::Score;
use crate::set::Set;

/// The node of an atom without arms.
pub(crate) fn node(arguments: &Arguments) -> Parsed<Node> {
    let a = arguments;
    let integer = |index| a.get(index).map(|given| given.integer()).transpose();
    let wholes = |index| a.get(index).map(|given| given.wholes()).transpose();
    Ok(match a.entry.name {
        "full" => Node::Full,
        "none" => Node::None,
        "causal" => Node::Causal { offset: integer(0)?.unwrap_or(0) },
        "window" => Node::Window { left: integer(0)?, right: integer(1)? },
        "sliding" => Node::Sliding { window: a.need(0)?.whole()? },
        "chunk" => Node::Chunk { size: a.need(0)?.whole()? },
        "stride" => Node::Stride { step: a.need(0)?.whole()? },
        "prefix" => Node::Prefix { lengths: a.need(0)?.per_row()? },
        "keys" => Node::Keys(set(a)?),
        "queries" => Node::Queries(set(a)?),
        "global" => Node::Global(set(a)?),
        "padding" => Node::Padding(padding(a)?),
        "documents" => Node::Documents { lengths: wholes(0)? },
        "spans" => Node::Spans { spans: a.need(0)?.spans()? },
        "tree" => Node::Tree {
            parents: a.need(0)?.integers()?,
            start: a.get(1).map(|given| given.whole()).transpose()?.unwrap_or(0),
        },
        "clearance" => Node::Clearance,
        "neighborhood" => neighborhood(a)?,
        "random" => Node::Random { p: Real::new(a.need(0)?.real()?), seed: a.need(1)?.whole()? },
        "random_blocks" => {
            Node::RandomBlocks { block: a.need(0)?.whole()?, count: a.need(1)?.whole()?, seed: a.need(2)?.whole()? }
        }
        "dense" => Node::Dense { name: a.need(0)?.name()? },
        "closure" => Node::Closure { name: a.need(0)?.name()? },
        other => return Err(ParseError::at(a.span.clone(), format!("`{other}` takes arms"))),
    })
}

fn set(arguments: &Arguments) -> Parsed<Set> {
    match (arguments.get(0), arguments.get(1)) {
        (Some(spans), None) => Ok(Set::Spans(spans.spans()?)),
        (None, Some(label)) => Ok(Set::Label(label.name()?)),
        (None, None) => {
            let name = arguments.entry.name;
            let message = format!("`{name}` needs a set: a position, a range, a list of these, or a label");
            Err(ParseError::at(arguments.span.clone(), message)
                .mend(format!("write for example `{name}(0..4)` or `{name}(label=\"name\")`")))
        }
        (Some(_), Some(_)) => {
            let name = arguments.entry.name;
            Err(ParseError::at(arguments.span.clone(), format!("`{name}` takes positions or a label, not both"))
                .mend(format!("write `{name}(..) | {name}(label=..)`")))
        }
    }
}

fn padding(arguments: &Arguments) -> Parsed<Padding> {
    let side = match arguments.get(0) {
        Some(given) => Some([Side::Left, Side::Right][given.word(&["left", "right"])?]),
        None => None,
    };
    let lengths = arguments.get(1).map(|given| given.wholes()).transpose()?;
    let both = arguments.get(2).map(|given| given.word(&["keys", "both"])).transpose()? == Some(1);
    Ok(Padding { side, lengths, both })
}

fn neighborhood(arguments: &Arguments) -> Parsed<Node> {
    let grid = arguments.need(0)?.wholes_or_one(1)?;
    let size = arguments.need(1)?.wholes_or_one(grid.len())?;
    let dilation = match arguments.get(2) {
        Some(given) => given.wholes_or_one(grid.len())?,
        None => vec![1; grid.len()],
    };
    Ok(Node::Neighborhood { grid, size, dilation })
}

/// A score.
pub(crate) fn score(arguments: &Arguments) -> Parsed<Score> {
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
