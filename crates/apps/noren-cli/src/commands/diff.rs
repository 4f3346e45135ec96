//! `noren diff`: lists the cells in which two masks differ.

use crate::args::{FactArgs, ShapeArgs, bind, parse};
use crate::commands::show::LookArgs;
use crate::failure::{Failure, Result};
use crate::output::{BAD, DIM, GOOD, STRONG, Screen, paint, with_note};
use crate::verdict::Verdict;
use clap::Args;
use noren_mask::{BoundMask, CellIndex, Equivalence, Score, short_count};
use noren_picture::Draw;
use serde_json::json;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DiffArgs {
    /// The first mask
    first: String,
    /// The second mask
    second: String,
    /// Maximum number of differing cells to list
    #[arg(long, value_name = "N", default_value_t = 6)]
    cells: usize,
    /// Prove equality at every length, or find the shortest length at which the masks differ
    #[arg(long, conflicts_with_all = ["len", "q", "kv", "past", "new", "query_offset", "batch", "heads", "kv_heads", "lengths", "side", "facts"])]
    all_lengths: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
    /// Print nothing; the exit code shows whether the masks differ
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    shape: ShapeArgs,
    #[command(flatten)]
    facts: FactArgs,
    #[command(flatten)]
    look: LookArgs,
}

const EXAMPLES: &str = "\
The exit code is 0 when both masks allow the same cells and have the same scores, 1 when they differ, 2 when an argument or a file is wrong. With -q, the search ends at the first difference. With --all-lengths, the exit code is also 2 when neither equality nor a difference was found.

Examples:
  noren diff 'causal & window(left=3)' 'sliding(4)'
  noren diff causal 'causal & documents' --facts facts.json
  noren diff 'sliding(4096)' 'causal & window(left=4096)' --len 1M
  noren diff --all-lengths 'causal & window(left=3)' 'sliding(4)'
  noren diff -q 'padding & causal' 'causal & padding' --lengths 5,3 && echo equal";

pub(crate) fn run(args: &DiffArgs, screen: &mut Screen) -> Result<Verdict> {
    if args.all_lengths {
        return all_lengths(args, screen);
    }
    let bound = bind(&[args.first.clone(), args.second.clone()], &args.shape, &args.facts, &args.look.sizes())?;
    let (first, second) = (&bound.masks[0], &bound.masks[1]);
    let scores = score_differences(&bound.specs[0].scores, &bound.specs[1].scores);
    if args.quiet {
        let equal = scores.is_empty() && first.first_difference(second)?.is_none();
        return Ok(if equal { Verdict::Yes } else { Verdict::No });
    }
    let note = "counting the cells that differ ...";
    let only_first = with_note(note, || first.count_outside(second))?;
    let only_second = with_note(note, || second.count_outside(first))?;
    let equal = only_first + only_second == 0;
    let verdict = if equal && scores.is_empty() { Verdict::Yes } else { Verdict::No };
    if args.json {
        let cells = with_note("searching the cells that differ ...", || first.differences(second, args.cells))?;
        let cells_and_counts = Found {
            equal: equal && scores.is_empty(),
            cells: first.shape().cells(),
            only_first,
            only_second,
            first_cells: cells,
            scores: scores_as_json(&scores),
        };
        screen.json(&cells_and_counts)?;
        return Ok(verdict);
    }
    if equal {
        let cells = short_count(first.shape().cells());
        screen.line(match verdict {
            Verdict::Yes => format!("{}: both masks agree in all {cells} cells", paint(GOOD, "equal")),
            _ => format!("{}: both masks agree in all {cells} cells, but the scores differ", paint(BAD, "differ")),
        })?;
    } else {
        let facts = [only_first, only_second, first.shape().cells()];
        screen.line(format!("{}: {}", paint(BAD, "differ"), summary(facts)))?;
        list_cells(args, first, second, screen)?;
        screen.line("")?;
        let picture = args.look.apply(first.picture_of_difference(second), first);
        let options = args.look.terminal(screen);
        screen.text(with_note("drawing the difference ...", || picture.to_terminal(&options))?)?;
    }
    for (score, side) in scores {
        screen.line(format!("{}: only the {side} has the score `{score}`", paint(BAD, "scores differ")))?;
    }
    screen.remark(&bound)?;
    Ok(verdict)
}

/// The result of a comparison at one shape, as JSON.
#[derive(serde::Serialize)]
struct Found {
    equal: bool,
    cells: u128,
    only_first: u128,
    only_second: u128,
    /// The first cells in which the masks differ.
    first_cells: Vec<CellIndex>,
    scores: Vec<serde_json::Value>,
}

fn scores_as_json(scores: &[(&Score, &str)]) -> Vec<serde_json::Value> {
    scores.iter().map(|(score, side)| json!({ "score": score.to_string(), "only": side })).collect()
}

/// Compares two masks for all sequence lengths, and for all layers unless `--layer` selects one layer. Returns an error
/// if the comparison has no definite result.
fn all_lengths(args: &DiffArgs, screen: &mut Screen) -> Result<Verdict> {
    let [first, second] = [&args.first, &args.second].map(|text| parse(text, args.facts.layer));
    let (first, second) = (first?, second?);
    let scores = score_differences(&first.scores, &second.scores);
    let answer = first.mask.equivalent(&second.mask)?;
    let verdict = match &answer {
        Equivalence::Equal { .. } if scores.is_empty() => Verdict::Yes,
        Equivalence::Equal { .. } | Equivalence::Differ { .. } => Verdict::No,
        _ => return Err(Failure::new(answer.to_string())),
    };
    if args.quiet {
        return Ok(verdict);
    }
    if args.json {
        screen.json(&json!({
            "equal": verdict == Verdict::Yes,
            "masks_equal": matches!(answer, Equivalence::Equal { .. }),
            "text": answer.to_string(),
            "scores": scores_as_json(&scores),
        }))?;
        return Ok(verdict);
    }
    let style = if matches!(answer, Equivalence::Equal { .. }) { GOOD } else { BAD };
    let text = answer.to_string();
    let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
    screen.line(format!("{} {rest}", paint(style, word)))?;
    for (score, side) in scores {
        screen.line(format!("{}: only the {side} has the score `{score}`", paint(BAD, "scores differ")))?;
    }
    Ok(verdict)
}

/// Formats the number of different cells. If one mask allows all cells of the other mask, this is added. `only_first`
/// is the number of cells that only the first mask allows, `only_second` the number that only the second mask allows,
/// and `all` the number of all cells.
fn summary([only_first, only_second, all]: [u128; 3]) -> String {
    let count = only_first + only_second;
    let relation = match (only_first, only_second) {
        (0, _) => "; the second mask allows all cells that the first mask allows",
        (_, 0) => "; the first mask allows all cells that the second mask allows",
        _ => "",
    };
    format!(
        "{} of {} cells differ ({}): {} are allowed only in the first mask, {} only in the second mask{relation}",
        short_count(count),
        short_count(all),
        percent(100.0 * count as f64 / all as f64),
        short_count(only_first),
        short_count(only_second)
    )
}

/// Formats a share above 0 with as many digits as it needs.
fn percent(share: f64) -> String {
    if share < 0.001 { "less than 0.001 %".to_owned() } else { format!("{share:.3} %") }
}

fn list_cells(args: &DiffArgs, first: &BoundMask, second: &BoundMask, screen: &mut Screen) -> Result<()> {
    let found =
        with_note("searching the cells that differ ...", || first.differences(second, args.cells.saturating_add(1)))?;
    for cell in found.iter().take(args.cells) {
        let side = if first.allowed(cell.batch, cell.head, cell.q, cell.k) { "first" } else { "second" };
        screen.line(format!(
            "  {}  query {} -> key {}, allowed only in the {side} mask",
            paint(STRONG, cell),
            cell.q,
            cell.k
        ))?;
    }
    if found.len() > args.cells && args.cells > 0 {
        screen.line(paint(DIM, "  ..."))?;
    }
    Ok(())
}

/// Returns the score modifiers that only one of the lists `a` and `b` contains, each with `first mask` (for `a`) or
/// `second mask` (for `b`). The order of the score modifiers does not matter.
fn score_differences<'a>(a: &'a [Score], b: &'a [Score]) -> Vec<(&'a Score, &'static str)> {
    let mut rest: Vec<&Score> = b.iter().collect();
    let mut found = Vec::new();
    for score in a {
        match rest.iter().position(|other| *other == score) {
            Some(at) => {
                rest.swap_remove(at);
            }
            None => found.push((score, "first mask")),
        }
    }
    found.extend(rest.into_iter().map(|score| (score, "second mask")));
    found
}
