//! `noren explain`: shows why a query may or may not read a key.

use crate::args::{FactArgs, ShapeArgs, bind};
use crate::failure::Result;
use crate::output::{BAD, DIM, GOOD, Screen, highlight, paint};
use crate::verdict::Verdict;
use clap::Args;
use noren_input::Sizes;
use noren_mask::CellIndex;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExplainArgs {
    /// The mask, for example 'causal & padding'
    mask: String,
    /// The cells to explain: query,key or head,query,key or batch,head,query,key
    #[arg(long, value_name = "B,H,Q,K", required = true, num_args = 1.., value_parser = parse_cell)]
    at: Vec<CellIndex>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    shape: ShapeArgs,
    #[command(flatten)]
    facts: FactArgs,
}

const EXAMPLES: &str = "\
Examples:
  noren explain causal --at 3,5
  noren explain 'causal & padding' --lengths 9,5 --at 1,0,8,7
  noren explain 'sliding(4) | global(label=\"title\")' --facts facts.json --at 0,0,12,2 0,0,12,3
  noren explain 'heads(0..4: causal, 4..: full)' --heads 8 --at 0,2,5 --at 7,2,5";

pub(crate) fn run(args: &ExplainArgs, screen: &mut Screen) -> Result<Verdict> {
    let most = |of: fn(&CellIndex) -> usize| args.at.iter().map(|cell| of(cell).saturating_add(1)).max();
    let (len, batch, heads) = (most(|c| c.q.max(c.k)), most(|c| c.batch), most(|c| c.head));
    let asked = Sizes { len, batch, heads, ..Sizes::default() };
    let bound = bind(std::slice::from_ref(&args.mask), &args.shape, &args.facts, &asked)?;
    let mask = &bound.masks[0];
    let found = args.at.iter().map(|c| Ok(mask.explain(c.batch, c.head, c.q, c.k)?)).collect::<Result<Vec<_>>>()?;
    if args.json {
        screen.json(&found)?;
        return Ok(Verdict::Yes);
    }
    for (i, explanation) in found.iter().enumerate() {
        if i > 0 {
            screen.line("")?;
        }
        for line in explanation.to_string().lines() {
            screen.line(coloured(line))?;
        }
    }
    screen.remark(&bound)?;
    Ok(Verdict::Yes)
}

/// Adds colour to `allowed:` or `denied:` at the beginning of a line, and to the `+` or `-` before a part of the mask.
fn coloured(line: &str) -> String {
    let (branches, rest) = line.split_at(line.len() - line.trim_start_matches([' ', '│', '├', '└']).len());
    let styles = [("allowed:", GOOD), ("denied:", BAD), ("+ ", GOOD), ("- ", BAD)];
    format!("{}{}", paint(DIM, branches), highlight(rest, &styles))
}

/// Parses a cell: `3,5` (query, key), `1,3,5` (head, query, key) or `0,1,3,5` (batch row, head, query, key). The cell
/// may contain spaces and square brackets, as in the output of `diff`.
fn parse_cell(text: &str) -> std::result::Result<CellIndex, String> {
    let inner = text.trim().trim_start_matches('[').trim_end_matches(']');
    let numbers = inner.split(',').map(|n| n.trim().parse::<usize>()).collect::<std::result::Result<Vec<_>, _>>();
    match numbers.as_deref() {
        Ok(&[q, k]) => Ok(CellIndex { batch: 0, head: 0, q, k }),
        Ok(&[head, q, k]) => Ok(CellIndex { batch: 0, head, q, k }),
        Ok(&[batch, head, q, k]) => Ok(CellIndex { batch, head, q, k }),
        _ => Err("expected query,key or head,query,key or batch,head,query,key, each counted from 0".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_short_forms() {
        let cell = |batch, head, q, k| Ok(CellIndex { batch, head, q, k });
        assert_eq!(parse_cell("3,5"), cell(0, 0, 3, 5));
        assert_eq!(parse_cell("2,3,5"), cell(0, 2, 3, 5));
        assert_eq!(parse_cell("[1, 2, 3, 5]"), cell(1, 2, 3, 5));
        for wrong in ["", "3", "3,x", "1,2,3,4,5", "-1,2", "3;5"] {
            assert!(parse_cell(wrong).is_err(), "{wrong}");
        }
    }
}
