//! `noren show`: draws a mask.

use crate::args::{FactArgs, ShapeArgs, bind};
use crate::commands::plan::BlockArgs;
use crate::failure::{Failure, Result};
use crate::output::{STRONG, Screen, paint};
use crate::target::Target;
use crate::verdict::Verdict;
use clap::Args;
use noren_input::Bound;
use noren_input::Sizes;
use noren_picture::{Draw, Picture, TerminalOptions};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// The mask, for example 'causal & documents([5, 3])'; scores such as '+ softcap(5)' are listed below the picture
    mask: String,
    /// Write the picture to a file: .svg, .png, .txt, or .html (a web page with the reason of each cell and the code)
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON: the shape, the scores, and the ranges of keys that each query row of one batch row and head may read
    #[arg(long, conflicts_with_all = ["output", "tiles"])]
    json: bool,
    #[command(flatten)]
    shape: ShapeArgs,
    #[command(flatten)]
    facts: FactArgs,
    #[command(flatten)]
    look: LookArgs,
    #[command(flatten)]
    blocks: BlockArgs,
    /// Show the tiles of the plan: full, mixed, empty
    #[arg(long, help_heading = "Tiles")]
    tiles: bool,
}

/// The part of a mask that a picture shows, and the characters of the picture.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Picture")]
pub(crate) struct LookArgs {
    /// Show only this query head
    #[arg(long, value_name = "H")]
    head: Option<usize>,
    /// Show only this batch row
    #[arg(long, value_name = "B")]
    batch_row: Option<usize>,
    /// Show only these query rows: 0..32, 100.. or ..8
    #[arg(long, value_name = "A..B")]
    rows: Option<Part>,
    /// Show only these keys: 0..32, 100.. or ..8
    #[arg(long, value_name = "A..B")]
    keys: Option<Part>,
    /// Tokens to write beside queries and keys, separated by spaces or commas
    #[arg(long, value_name = "TOKENS")]
    labels_tokens: Option<String>,
    /// Draw with ASCII characters only
    #[arg(long)]
    ascii: bool,
}

const EXAMPLES: &str = "\
Examples:
  noren show causal
  noren show 'causal & padding' --lengths 5,3
  noren show 'sliding(4) | global(0)' --labels-tokens 'the cat sat on the mat'
  noren show 'causal & documents' --facts facts.json -o mask.svg
  noren show 'causal & documents([5, 3])' -o mask.html
  noren show 'heads(0..2: sliding(4), 2..: causal)' --heads 4
  noren show 'chunk(512) & causal' --len 4096 --tiles
  noren show 'sliding(4096)' --len 1048576 --rows 4090..4110 --keys ..16
  noren show causal --past 12 --new 4";

/// Maximum number of queries of a mask whose rows are printed as JSON.
const MOST_LISTED: usize = 1 << 16;

/// A range `a..b` of indices; `a` or `b` or both may be left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    start: usize,
    end: Option<usize>,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let expected = || "expected a range such as 0..32, 100.. or ..8".to_string();
        let (start, end) = text.split_once("..").ok_or_else(expected)?;
        let number = |text: &str, default| match text.trim() {
            "" => Ok(default),
            text => text.parse().map(Some).map_err(|_| expected()),
        };
        let (start, end) = (number(start, Some(0))?.unwrap_or(0), number(end, None)?);
        match end {
            Some(end) if end < start => Err(format!("{start}..{end} is reversed: write {end}..{start}")),
            Some(end) if end == start => Err(format!("{start}..{end} is empty")),
            _ => Ok(Part { start, end }),
        }
    }
}

impl Part {
    fn within(self, len: usize) -> Range<usize> {
        self.start..self.end.unwrap_or(len.max(self.start))
    }
}

impl LookArgs {
    /// Returns the tokens of `--labels-tokens`. The text is split at spaces; if it has no space, the text is split at
    /// commas.
    fn tokens(&self) -> Option<Vec<&str>> {
        let text = self.labels_tokens.as_deref()?;
        let spaced: Vec<&str> = text.split_whitespace().collect();
        Some(if spaced.len() > 1 { spaced } else { text.split(',').map(str::trim).collect() })
    }

    /// Returns `picture` with the head, batch row, queries, keys and token labels that the command line gives.
    pub(crate) fn apply<'a>(&self, mut picture: Picture<'a>, bound: &'a noren_mask::BoundMask) -> Picture<'a> {
        if let Some(head) = self.head {
            picture = picture.head(head);
        }
        if let Some(batch_row) = self.batch_row {
            picture = picture.batch(batch_row);
        }
        if let Some(rows) = self.rows {
            picture = picture.queries(rows.within(bound.shape().q_len()));
        }
        if let Some(keys) = self.keys {
            picture = picture.keys(keys.within(bound.shape().kv_len()));
        }
        match self.tokens() {
            Some(tokens) => picture.labels(tokens),
            None => picture,
        }
    }

    /// Returns the selected query rows of the first mask of `bound` as JSON.
    fn cells(&self, bound: &Bound) -> Result<serde_json::Value> {
        let (mask, shape) = (&bound.masks[0], bound.masks[0].shape());
        let (batch_row, head) = (self.batch_row.unwrap_or(0), self.head.unwrap_or(0));
        let rows = self.rows.map_or(0..shape.q_len(), |rows| rows.within(shape.q_len()));
        let [batch, heads, q_len, kv_len] = [shape.batch_len(), shape.head_count(), shape.q_len(), shape.kv_len()];
        if batch_row >= batch || head >= heads || rows.end > q_len {
            let asked = format!("batch row {batch_row}, head {head}, query rows {}..{}", rows.start, rows.end);
            return Err(Failure::new(format!(
                "{asked}: the mask has {batch} batch rows, {heads} heads and {q_len} query rows"
            )));
        }
        if q_len > MOST_LISTED {
            let problem =
                format!("--json lists the rows of masks of at most {MOST_LISTED} queries, but there are {q_len}");
            return Err(Failure::new(problem).hint("`noren plan --json` has the counts"));
        }
        let plan = mask.plan();
        let runs = plan.row_runs(plan.pattern_of(batch_row, head));
        let keys = self.keys.map_or(0..kv_len, |keys| keys.within(kv_len));
        let within = |run: &[u32; 2]| [run[0].max(keys.start as u32), run[1].min(keys.end as u32)];
        let row = |row: usize| runs.list(row).iter().map(within).filter(|[a, z]| a < z).collect::<Vec<_>>();
        Ok(serde_json::json!({
            "mask": bound.specs[0].mask.to_string(),
            "scores": bound.specs[0].scores.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "shape": [batch, heads, q_len, kv_len],
            "batch_row": batch_row,
            "head": head,
            "first_query": rows.start,
            "rows": rows.map(row).collect::<Vec<_>>(),
        }))
    }

    /// Returns the minimum sizes of the mask that the given options need: `--head 3`, for example, needs at least 4
    /// heads.
    pub(crate) fn sizes(&self) -> Sizes {
        let more = |n: usize| n.saturating_add(1);
        Sizes {
            len: self.tokens().map(|t| t.len()),
            batch: self.batch_row.map(more),
            heads: self.head.map(more),
            ..Sizes::default()
        }
    }

    /// Returns the options for a picture on the terminal.
    pub(crate) fn terminal(&self, screen: &Screen) -> TerminalOptions {
        TerminalOptions { unicode: !self.ascii, ..screen.terminal() }
    }
}

pub(crate) fn run(args: &ShowArgs, screen: &mut Screen) -> Result<Verdict> {
    // A file that cannot be written is reported before the picture is computed.
    let target = match &args.output {
        Some(path) => Some((Form::of(path)?, Target::new(path)?)),
        None => None,
    };
    let sizes = args.look.sizes();
    let mut shape = args.shape.clone();
    if shape.len.is_none() && shape.q.is_none() && shape.past.is_none() {
        // The number of tokens is the number of labels, also if this is less than the default.
        shape.len = sizes.len;
    }
    let bound = bind(std::slice::from_ref(&args.mask), &shape, &args.facts, &sizes)?;
    let mask = &bound.masks[0];
    if args.json {
        screen.json(&args.look.cells(&bound)?)?;
        return Ok(Verdict::Yes);
    }
    let mut picture = args.look.apply(mask.picture(), mask);
    if args.tiles {
        picture = picture.tiles(args.blocks.options()?);
    }
    match target {
        Some((form, target)) => save(form, &target, &picture, &bound, &args.look)?,
        None => {
            screen.text(picture.to_terminal(&args.look.terminal(screen))?)?;
            if let Some(scores) = scores(&bound) {
                screen.line(format!("{} {scores}", paint(STRONG, "scores")))?;
            }
            screen.remark(&bound)?;
        }
    }
    Ok(Verdict::Yes)
}

/// Returns the score modifiers of a mask, such as `alibi`, as text; `None` if the mask has no score modifiers.
fn scores(bound: &Bound) -> Option<String> {
    let scores: Vec<String> = bound.specs[0].scores.iter().map(|s| format!("+ {s}")).collect();
    (!scores.is_empty()).then(|| scores.join(" "))
}

/// The file format of a picture.
#[derive(Clone, Copy, Debug)]
enum Form {
    Svg,
    Png,
    Text,
    /// A web page in one file.
    Html,
}

impl Form {
    /// Returns the picture format for the extension of a file name.
    fn of(path: &Path) -> Result<Form> {
        let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
        match extension.as_str() {
            "svg" => Ok(Form::Svg),
            "png" => Ok(Form::Png),
            "txt" => Ok(Form::Text),
            "html" => Ok(Form::Html),
            _ => Err(Failure::new(format!("{}: unknown file format", path.display()))
                .hint("end the file name with .svg, .png, .txt or .html")),
        }
    }
}

fn save(form: Form, target: &Target, picture: &Picture<'_>, bound: &Bound, look: &LookArgs) -> Result<()> {
    let bytes = match form {
        Form::Svg => picture.to_svg()?.into_bytes(),
        Form::Png => picture.to_png()?,
        Form::Text => {
            let options = TerminalOptions { unicode: !look.ascii, ..TerminalOptions::default() };
            let mut text = picture.to_terminal(&options)?;
            if let Some(scores) = scores(bound) {
                text.push_str(&format!("scores {scores}\n"));
            }
            text.into_bytes()
        }
        Form::Html => {
            let (spec, mask) = (&bound.specs[0], &bound.masks[0]);
            let page = picture.clone().expression(spec.to_string());
            let all = noren_code::all(spec, mask.shape(), mask.facts());
            let page = all.into_iter().fold(page, |page, code| page.code(code.target.title(), code.text));
            page.to_html()?.into_bytes()
        }
    };
    target.write(|out| out.write_all(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_open_ends() {
        let part = |start, end| Ok(Part { start, end });
        assert_eq!("3..5".parse(), part(3, Some(5)));
        assert_eq!("3..".parse(), part(3, None));
        assert_eq!("..5".parse(), part(0, Some(5)));
        assert_eq!(Part { start: 9, end: None }.within(4), 9..9);
        for wrong in ["", "3", "5..3", "3..3", "a..b", "-1..3"] {
            assert!(wrong.parse::<Part>().is_err(), "{wrong}");
        }
    }
}
