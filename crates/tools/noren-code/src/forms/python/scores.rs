//! [`Scores`]: writes the score modifiers of a mask, such as `alibi`, as Python expressions.

use super::Library;
use super::expression::Style;
use super::text::Text;
use crate::Error;
use crate::program::names::Names;
use crate::request::Request;
use noren_mask::{Real, Score, Shape, Spec};

/// Score modifiers as Python code.
#[derive(Default)]
pub(crate) struct Scores {
    /// Statements that must come before the expressions, such as the slopes of `alibi`.
    pub(crate) setup: Text,
    /// Expressions that are added to scores.
    pub(crate) added: Vec<String>,
    /// The limit of the modifier `softcap`; `None` without this modifier.
    pub(crate) softcap: Option<f64>,
    /// The variable of the array of soft weights; `None` without soft weights.
    pub(crate) soft: Option<String>,
    /// The variable of the array of sinks; `None` without sinks.
    pub(crate) sinks: Option<String>,
    /// Arrays that the user of the code supplies, as (variable, sizes as text).
    pub(crate) inputs: Vec<(String, String)>,
    /// Two values: true if a modifier depends on the head, and true if a modifier depends on positions.
    pub(crate) reads: (bool, bool),
}

/// Returns the name of the kind of a score modifier.
pub(crate) fn kind(score: &Score) -> &'static str {
    match score {
        Score::Bias { .. } => "bias",
        Score::Relative { .. } => "relative",
        Score::Alibi { .. } => "alibi",
        Score::Softcap { .. } => "softcap",
        Score::Soft { .. } => "soft",
        Score::Sinks { .. } => "sinks",
        _ => "score",
    }
}

/// Returns true if a score modifier of a mask depends on the positions of queries and keys.
pub(crate) fn read_positions(spec: &Spec) -> bool {
    spec.scores.iter().any(|score| matches!(score, Score::Alibi { .. } | Score::Relative { .. }))
}

/// Checks that the score modifiers of a mask can be computed together, over the heads of `shape`.
///
/// # Errors
/// Returns an error for a second softcap, second soft weights or second sinks, and for slopes that are not one for each head.
pub(crate) fn check(spec: &Spec, shape: &Shape) -> Result<(), Error> {
    for (i, score) in spec.scores.iter().enumerate() {
        let kind = kind(score);
        if matches!(kind, "softcap" | "soft" | "sinks")
            && spec.scores[..i].iter().any(|other| self::kind(other) == kind)
        {
            let part = format!("a mask with the score modifier `{kind}` more than once");
            return Err(Error::unreadable(part, "give the modifier once"));
        }
        if let Score::Alibi { slopes: Some(slopes) } = score
            && slopes.len() != shape.head_count()
        {
            let part = format!("`alibi` with {} slopes for {} query heads", slopes.len(), shape.head_count());
            return Err(Error::unreadable(part, "give one slope for each head"));
        }
    }
    Ok(())
}

/// Returns the score modifiers of a request as code. `kinds` are the kinds of modifiers that the target supports. `at`
/// is the code of the index of a cell, such as `[b, h, q_idx, kv_idx]`; empty if whole arrays are added.
pub(crate) fn scores(request: &Request<'_>, style: &Style<'_>, kinds: &[&str], at: &str) -> Result<Scores, Error> {
    let mut out = Scores::default();
    let all = &request.spec.scores;
    for (i, score) in all.iter().enumerate() {
        let kind = kind(score);
        if !kinds.contains(&kind) {
            let advice = match kind {
                "sinks" if kinds.contains(&"soft") => {
                    "apply the sinks after attention, by multiplying the output by sigmoid(lse - sink), because a sink is added to the denominator of the softmax only"
                }
                _ => "leave out the modifier here; pass the modifier separately, if the target has an argument for it",
            };
            return Err(request.refuse(format!("the score modifier `{score}`"), advice));
        }
        if kind == "alibi" && all[..i].iter().any(|other| self::kind(other) == kind) {
            let part = format!("a mask with the score modifier `{kind}` more than once");
            return Err(Error::unreadable(part, "give the modifier once, with the sums of the slopes"));
        }
        if matches!(kind, "alibi" | "relative") && request.facts.place_keys() {
            let part = format!("the score modifier `{score}` if positions of keys differ from their indices");
            return Err(request.refuse(part, "sort the keys by position"));
        }
        out.add(request, style, score, at)?;
    }
    Ok(out)
}

impl Scores {
    fn add(&mut self, request: &Request<'_>, style: &Style<'_>, score: &Score, at: &str) -> Result<(), Error> {
        let shape = request.shape;
        let (batch, heads, q_len, kv_len) = (shape.batch_len(), shape.head_count(), shape.q_len(), shape.kv_len());
        let whole = format!("[{batch}, {heads}, {q_len}, {kv_len}]");
        let (q, k) = (style.q(), style.k());
        match score {
            Score::Bias { name } => {
                let name = self.input(request, name, whole);
                self.added.push(format!("{name}{at}"));
            }
            Score::Relative { name } => {
                let name = self.input(request, name, format!("[{heads}, 2 * reach + 1]"));
                let distance = style.library.clip(&format!("{k} - {q}"), "-reach", "reach");
                let distance = distance.replace("reach", &format!("({name}.shape[1] // 2)"));
                self.added.push(format!("{name}[h, {distance} + {name}.shape[1] // 2]"));
                self.reads = (true, true);
            }
            Score::Alibi { slopes } => {
                self.slopes(style.library, slopes.as_deref(), heads);
                self.added.push(format!("-slopes[h] * abs({q} - {k})"));
                self.reads = (true, true);
            }
            Score::Softcap { cap } => self.softcap = Some(cap.get()),
            Score::Soft { name } => {
                self.soft = Some(self.input(request, name, format!("{whole}, weights from 0 to 1")))
            }
            Score::Sinks { name } => self.sinks = Some(self.input(request, name, format!("[{heads}]"))),
            other => return Err(request.refuse(format!("the score modifier `{other}`"), "leave out the modifier")),
        }
        Ok(())
    }

    fn slopes(&mut self, library: Library, slopes: Option<&[Real]>, heads: usize) {
        let module = library.module();
        let Some(slopes) = slopes else {
            self.setup.line(format!(
                "slopes = 2.0 ** (-8 * {module}.arange(1, {heads} + 1) / {heads})  # ALiBi, one slope for each head"
            ));
            return;
        };
        let numbers: Vec<String> = slopes.iter().map(|slope| real(slope.get())).collect();
        let array = library.array(&super::text::list(20, numbers));
        self.setup.line(format!("slopes = {array}  # ALiBi, one slope for each head"));
    }

    /// Adds an array that the user of the code supplies, and returns the name of its variable.
    fn input(&mut self, request: &Request<'_>, name: &str, sizes: String) -> String {
        let name = variable(request, name);
        if !self.inputs.iter().any(|input| input.0 == name) {
            self.inputs.push((name.clone(), sizes));
        }
        name
    }

    /// Returns the sum of the expressions that are added to scores; `None` without such expressions.
    pub(crate) fn sum(&self) -> Option<String> {
        (!self.added.is_empty()).then(|| self.added.join(" + ").replace("+ -", "- "))
    }
}

/// Returns the name of the variable that holds the array `name` of a score modifier.
pub(crate) fn variable(request: &Request<'_>, name: &str) -> String {
    let mut used: Vec<String> = request.program.tables.iter().map(|table| table.name.clone()).collect();
    used.extend(request.program.given.iter().map(|(_, variable)| variable.clone()));
    used.extend(request.program.parts.iter().map(|part| part.name.clone()));
    for score in &request.spec.scores {
        let Some(known) = array_of(score) else { continue };
        let numbered = |n: u32| if n == 1 { Names::variable(known) } else { format!("{}_{n}", Names::variable(known)) };
        let free = (1..).map(numbered).find(|free| !used.contains(free)).unwrap_or_default();
        if known == name {
            return free;
        }
        used.push(free);
    }
    Names::variable(name)
}

/// Returns the name of the array that a score modifier reads; `None` if it reads no array.
pub(crate) fn array_of(score: &Score) -> Option<&str> {
    match score {
        Score::Bias { name } | Score::Relative { name } | Score::Soft { name } | Score::Sinks { name } => Some(name),
        _ => None,
    }
}

/// Returns a number with a decimal point, as code of Python and Rust.
pub(crate) fn real(number: f64) -> String {
    format!("{number:?}")
}
