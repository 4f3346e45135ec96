//! The names of the elementary masks (atoms), such as `causal`, and the allowed values of their arguments.

use crate::read::expr::{Arg, Branches, Expr, Set, Span};

/// The arguments of one elementary mask (atom), such as `sliding(4)`.
struct Args<'a> {
    atom: &'a str,
    names: &'a [&'a str],
    values: Vec<Option<Arg>>,
}

impl<'a> Args<'a> {
    /// Assigns each argument of `given`, a pair `(name, value)`, to one of the argument names `names`. Arguments
    /// without a name must come first and are assigned in the order of `names`.
    fn new(atom: &'a str, names: &'a [&'a str], given: Vec<(Option<String>, Arg)>) -> Result<Self, String> {
        let mut values: Vec<Option<Arg>> = names.iter().map(|_| None).collect();
        let mut named = false;
        for (place, (name, value)) in given.into_iter().enumerate() {
            let at = match &name {
                Some(name) => names.iter().position(|known| known == name),
                None => Some(place).filter(|&place| place < names.len() && !named),
            };
            named |= name.is_some();
            match at {
                Some(at) if values[at].is_none() => values[at] = Some(value),
                Some(at) => return Err(format!("`{atom}` with the argument `{}` twice", names[at])),
                None => {
                    return Err(format!(
                        "`{atom}` with the unexpected argument {}",
                        name.unwrap_or_else(|| format!("at index {place}, counted from 0"))
                    ));
                }
            }
        }
        Ok(Self { atom, names, values })
    }

    fn take(&mut self, name: &str) -> Option<Arg> {
        let at = self.names.iter().position(|known| *known == name)?;
        self.values[at].take()
    }

    fn bad<T>(&self, name: &str, value: &Arg, expected: &str) -> Result<T, String> {
        Err(format!("`{}`: `{name}` is {value:?}, expected {expected}", self.atom))
    }

    fn need(&mut self, name: &str) -> Result<Arg, String> {
        self.take(name).ok_or_else(|| format!("`{}` without the argument `{name}`", self.atom))
    }

    fn int(&mut self, name: &str) -> Result<Option<i128>, String> {
        match self.take(name) {
            None => Ok(None),
            Some(Arg::Int(value)) => Ok(Some(value)),
            Some(other) => self.bad(name, &other, "a whole number"),
        }
    }

    fn int_if(&mut self, name: &str, min: i128) -> Result<Option<i128>, String> {
        let at = self.names.iter().position(|known| *known == name);
        if at.is_none_or(|at| self.values[at].is_none()) { Ok(None) } else { self.int_from(name, min).map(Some) }
    }

    fn int_from(&mut self, name: &str, min: i128) -> Result<i128, String> {
        match self.need(name)? {
            Arg::Int(value) if value >= min => Ok(value),
            other => self.bad(name, &other, &format!("a whole number of at least {min}")),
        }
    }

    fn ints(&mut self, name: &str, min: i128) -> Result<Option<Vec<i128>>, String> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let list: Option<Vec<i128>> = match &value {
            Arg::List(list) => {
                list.iter().map(|arg| if let Arg::Int(value) = arg { Some(*value) } else { None }).collect()
            }
            _ => None,
        };
        match list {
            Some(list) if list.iter().all(|&value| value >= min) => Ok(Some(list)),
            _ => self.bad(name, &value, &format!("a list of whole numbers that are at least {min}")),
        }
    }

    fn word(&mut self, name: &str, words: &[&str]) -> Result<Option<usize>, String> {
        match self.take(name) {
            None => Ok(None),
            Some(Arg::Name(word) | Arg::Text(word)) if words.contains(&word.as_str()) => {
                Ok(words.iter().position(|known| *known == word))
            }
            Some(other) => self.bad(name, &other, &words.join(" or ")),
        }
    }

    fn name(&mut self, name: &str) -> Result<String, String> {
        match self.need(name)? {
            Arg::Name(text) | Arg::Text(text) => Ok(text),
            other => self.bad(name, &other, "a name"),
        }
    }
}

/// Reads a position, a range of positions, or a list of positions and ranges.
pub(crate) fn spans(value: &Arg) -> Result<Vec<Span>, String> {
    match value {
        Arg::Int(at) if *at >= 0 => Ok(vec![(*at, Some(at + 1))]),
        Arg::Span(span) => Ok(vec![*span]),
        Arg::List(list) if !list.iter().any(|arg| matches!(arg, Arg::List(_))) => {
            Ok(list.iter().map(spans).collect::<Result<Vec<_>, _>>()?.concat())
        }
        other => Err(format!(
            "a syntax error (expected a position, a range, or a list of positions and ranges, found {other:?})"
        )),
    }
}

/// Reads the argument of the elementary mask (atom) named `atom` that is a set of positions: either positions and
/// ranges, or the name of a label.
fn set(atom: &str, given: Vec<(Option<String>, Arg)>) -> Result<Set, String> {
    let mut args = Args::new(atom, &["set", "label"], given)?;
    match (args.take("set"), args.take("label")) {
        (Some(value), None) => Ok(Set::Spans(spans(&value)?)),
        (None, Some(Arg::Text(label) | Arg::Name(label))) => Ok(Set::Label(label)),
        _ => Err(format!("`{atom}` whose arguments are not exactly one set of positions or exactly one label")),
    }
}

/// Returns the mask expression for the elementary mask (atom) `name` with the arguments `given`, pairs `(argument name,
/// value)`. The error contains the name of the wrong atom or argument.
pub(crate) fn atom(name: &str, given: Vec<(Option<String>, Arg)>) -> Result<Expr, String> {
    let names: &[&str] = match name {
        "full" | "none" | "clearance" => &[],
        "causal" => &["offset"],
        "window" => &["left", "right"],
        "sliding" | "sliding_window" => &["window"],
        "chunk" => &["size"],
        "stride" => &["step"],
        "distances" => &["distances"],
        "prefix" => &["n"],
        "keys" => return Ok(Expr::Keys(set(name, given)?)),
        "queries" => return Ok(Expr::Queries(set(name, given)?)),
        "global" => return Ok(Expr::Global(set(name, given)?)),
        "padding" => &["side", "lengths", "on"],
        "documents" => &["lengths"],
        "spans" => &["spans"],
        "tree" => &["parents", "start", "runs", "window", "chunk"],
        "neighborhood" => &["grid", "size", "dilation"],
        "random" => &["p", "seed"],
        "random_blocks" => &["block", "count", "seed"],
        "dense" => &["name"],
        _ => return Err(format!("the unknown atom `{name}`")),
    };
    let mut args = Args::new(name, names, given)?;
    Ok(match name {
        "full" => Expr::Full,
        "none" => Expr::None,
        "clearance" => Expr::Clearance,
        "causal" => Expr::Window(None, Some(args.int("offset")?.unwrap_or(0))),
        "window" => Expr::Window(args.int("left")?, args.int("right")?),
        "sliding" | "sliding_window" => Expr::Window(Some(args.int_from("window", 1)? - 1), Some(0)),
        "chunk" => Expr::Chunk(args.int_from("size", 1)?),
        "stride" => Expr::Stride(args.int_from("step", 1)?),
        "distances" => match args.ints("distances", i128::MIN)? {
            Some(list) if !list.is_empty() => Expr::Distances(list),
            _ => return Err("`distances` without a list of at least one distance".into()),
        },
        "prefix" => match args.need("n")? {
            Arg::Int(n) if n >= 0 => Expr::Prefix(vec![n], true),
            list => {
                args.values[0] = Some(list);
                Expr::Prefix(args.ints("n", 0)?.unwrap_or_default(), false)
            }
        },
        "padding" => Expr::Padding {
            left: args.word("side", &["right", "left"])?.map(|at| at == 1),
            lengths: args.ints("lengths", 0)?,
            both: args.word("on", &["keys", "both"])? == Some(1),
        },
        "documents" => Expr::Documents(args.ints("lengths", 0)?),
        "spans" => Expr::Spans(spans(&args.need("spans")?)?),
        "tree" => Expr::Tree(Branches {
            parents: args.ints("parents", -1)?.ok_or("`tree` without the argument `parents`")?,
            runs: args.ints("runs", 1)?,
            window: args.int_if("window", 1)?,
            chunk: args.int_if("chunk", 1)?,
            start: args.int("start")?.unwrap_or(0),
        }),
        "neighborhood" => neighborhood(&mut args)?,
        "random" => Expr::Random { p: probability(&mut args)?, seed: args.int_from("seed", 0)? },
        "random_blocks" => Expr::RandomBlocks,
        _ => Expr::Dense(args.name("name")?),
    })
}

fn probability(args: &mut Args<'_>) -> Result<f64, String> {
    let value = args.need("p")?;
    match value {
        Arg::Int(p @ 0..=1) => Ok(p as f64),
        Arg::Float(p) if (0.0..=1.0).contains(&p) => Ok(p),
        _ => args.bad("p", &value, "a probability from 0 to 1"),
    }
}

fn neighborhood(args: &mut Args<'_>) -> Result<Expr, String> {
    let grid = args.ints("grid", 1)?.ok_or("`neighborhood` without the argument `grid`")?;
    let size = args.ints("size", 1)?.ok_or("`neighborhood` without the argument `size`")?;
    let dilation = args.ints("dilation", 1)?.unwrap_or_else(|| vec![1; grid.len()]);
    if !(1..=3).contains(&grid.len()) || size.len() != grid.len() || dilation.len() != grid.len() {
        return Err(
            "`neighborhood`: `grid`, `size` and `dilation` must be lists of equal length with 1 to 3 numbers".into()
        );
    }
    if (0..grid.len()).any(|d| (size[d] - 1).saturating_mul(dilation[d]) >= grid[d]) {
        return Err("`neighborhood` with a window that is larger than the grid".into());
    }
    Ok(Expr::Neighborhood { grid, size, dilation })
}
