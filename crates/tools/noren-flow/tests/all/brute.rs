//! A brute-force check of policies: facts and policies are read independently, and masks are evaluated cell by cell.

use noren_mask::{Facts, Mask, Shape};
use serde_json::Value;
use std::ops::Range;

/// A stack with its facts, as explicit tables.
pub(crate) struct Brute {
    facts: Value,
    shape: Shape,
    /// The tokens that each token reads in some head, by batch row and layer.
    layers: Vec<Vec<Vec<Vec<bool>>>>,
    /// The sources that influence each token, by batch row and number of layers.
    known: Vec<Vec<Vec<Vec<bool>>>>,
}

/// The expected result of one `deny` line in one batch row.
pub(crate) struct Expected {
    pub(crate) batch: usize,
    pub(crate) sources: u64,
    pub(crate) targets: u64,
    pub(crate) pairs: Vec<(usize, usize)>,
    pub(crate) reached: Vec<(usize, usize)>,
}

/// The two groups of a line as tokens, and the condition of their letters.
struct Line {
    from: Vec<bool>,
    to: Vec<bool>,
    /// Whether two tokens must be in one document (true) or in different ones (false).
    same: Option<bool>,
}

impl Brute {
    pub(crate) fn new(shape: &Shape, facts: &Facts, stack: &[Mask], finite: bool) -> Self {
        let text = facts.to_json().expect("no closures");
        let facts_value = serde_json::from_str(&text).expect("JSON");
        let mut brute = Brute { facts: facts_value, shape: shape.clone(), layers: vec![], known: vec![] };
        let n = shape.kv_len();
        for batch in 0..shape.batch_len() {
            let layers: Vec<_> = stack.iter().map(|mask| brute.layer(mask, facts, batch, finite)).collect();
            let mut known: Vec<Vec<Vec<bool>>> = vec![(0..n).map(|i| (0..n).map(|j| i == j).collect()).collect()];
            for rows in &layers {
                let before = known.last().expect("the first");
                let row = |t: usize| -> Vec<bool> {
                    (0..n).map(|s| before[t][s] || (0..n).any(|k| rows[t][k] && before[k][s])).collect()
                };
                known.push((0..n).map(row).collect());
            }
            brute.layers.push(layers);
            brute.known.push(known);
        }
        brute
    }

    fn layer(&self, mask: &Mask, facts: &Facts, batch: usize, finite: bool) -> Vec<Vec<bool>> {
        let bound = mask.bind(&self.shape, facts).expect("it binds");
        let n = self.tokens();
        let mut rows = vec![vec![false; n]; n];
        for head in 0..self.shape.head_count() {
            for q in 0..self.shape.q_len() {
                let keys: Vec<bool> = (0..n).map(|k| bound.allowed(batch, head, q, k)).collect();
                let everything = finite && !keys.contains(&true);
                let row = &mut rows[self.token_of_row(batch, q)];
                row.iter_mut().zip(keys).for_each(|(reads, key)| *reads |= key || everything);
            }
        }
        rows
    }

    pub(crate) fn tokens(&self) -> usize {
        self.shape.kv_len()
    }

    pub(crate) fn depth(&self) -> usize {
        self.layers[0].len()
    }

    pub(crate) fn reads(&self, batch: usize, layer: usize, query: usize, key: usize) -> bool {
        self.layers[batch][layer][query][key]
    }

    /// Returns whether `source` influences `token` after this number of layers.
    pub(crate) fn knows(&self, batch: usize, layers: usize, token: usize, source: usize) -> bool {
        self.known[batch][layers][token][source]
    }

    /// Returns a fact of one batch row. The fact is one list for all rows, or a list of lists by row.
    fn of_row(&self, fact: &Value, batch: usize) -> Option<Vec<Value>> {
        let list = fact.as_array()?;
        match list.first() {
            Some(Value::Array(_)) => list[batch].as_array().cloned(),
            _ => Some(list.clone()),
        }
    }

    fn position(&self, batch: usize, token: usize) -> i64 {
        let given = self.of_row(&self.facts["positions"], batch);
        given.map_or(token as i64, |positions| positions[token].as_i64().expect("a position"))
    }

    pub(crate) fn is_slot_empty(&self, batch: usize, token: usize) -> bool {
        self.position(batch, token) < 0
    }

    pub(crate) fn token_of_row(&self, batch: usize, row: usize) -> usize {
        let position = self.shape.query_offset(batch) + row as i64;
        (0..self.tokens()).find(|t| self.position(batch, *t) == position).expect("queries are among the keys")
    }

    pub(crate) fn is_real(&self, batch: usize, token: usize) -> bool {
        if let Some(lengths) = self.facts["lengths"].as_array() {
            let length = lengths[batch].as_u64().expect("a length") as usize;
            return if self.facts["side"] == "left" { token >= self.tokens() - length } else { token < length };
        }
        match self.facts["real_keys"].as_array() {
            Some(rows) => in_spans(rows[batch].as_array().expect("a list"), token as i64),
            None => true,
        }
    }

    pub(crate) fn in_label(&self, batch: usize, label: &str, token: usize) -> bool {
        let spans = self.of_row(&self.facts["labels"][label], batch).expect("a label");
        in_spans(&spans, self.position(batch, token))
    }

    pub(crate) fn level(&self, batch: usize, token: usize) -> Option<i64> {
        let levels = self.of_row(&self.facts["levels"], batch)?;
        levels.get(usize::try_from(self.position(batch, token)).ok()?)?.as_i64()
    }

    /// Returns the document of a non-padding token.
    pub(crate) fn document(&self, batch: usize, token: usize) -> Option<usize> {
        let lengths: Vec<i64> =
            self.of_row(&self.facts["documents"], batch)?.iter().map(|n| n.as_i64().expect("a length")).collect();
        let position = self.position(batch, token);
        let sum: i64 = lengths.iter().sum();
        let left = self.facts["side"] == "left" && self.facts["positions"].is_null();
        let of_real_tokens = left && self.facts["lengths"][batch].as_i64() == Some(sum);
        let mut start = if of_real_tokens { self.tokens() as i64 - sum } else { 0 };
        let holds = |n: &i64| {
            let document: Range<i64> = start..start + n;
            start = document.end;
            document.contains(&position)
        };
        lengths.iter().map(holds).position(|holds| holds).filter(|_| position >= 0 && self.is_real(batch, token))
    }

    fn group(&self, text: &str, batch: usize) -> Vec<bool> {
        let (name, argument) =
            text.split_once('(').map_or((text, ""), |(name, rest)| (name, rest.trim_end_matches(')')));
        let member = |token: usize| match name {
            "all" => true,
            "output" => (0..self.shape.q_len()).any(|row| self.token_of_row(batch, row) == token),
            "label" => self.in_label(batch, argument, token),
            "level" => self.level(batch, token) == Some(argument.parse().expect("a level")),
            "document" => match argument.parse::<usize>() {
                Ok(number) => self.document(batch, token) == Some(number),
                Err(_) => self.document(batch, token).is_some(),
            },
            "token" => token == argument.parse::<usize>().expect("a token"),
            "tokens" => {
                let (a, z) = argument.split_once("..").expect("a range");
                (a.parse::<usize>().expect("a token")..z.parse().expect("a token")).contains(&token)
            }
            _ => panic!("{text}"),
        };
        (0..self.tokens()).map(member).collect()
    }

    /// Returns a line in one batch row, or the text of the group that has no tokens there.
    fn line(&self, words: &str, batch: usize) -> Result<Line, String> {
        let (word, rest) = words.split_once(": ").expect("a line");
        let (from, to) = rest.split_once(" -> ").expect("two groups");
        for group in [from, to] {
            let last = match group.trim_end_matches(')').split_once("token") {
                Some((_, rest)) => rest.rsplit(['(', '.']).next().and_then(|n| n.parse::<usize>().ok()),
                None => None,
            };
            let most = if group.starts_with("tokens") { self.tokens() } else { self.tokens() - 1 };
            if last.is_some_and(|last| last > most) {
                return Err(group.to_string());
            }
            if !word.ends_with("maybe") && !self.group(group, batch).contains(&true) {
                return Err(group.to_string());
            }
        }
        let letters = |group: &str| ["document(i)", "document(j)"].contains(&group);
        let same = (letters(from) && letters(to)).then_some(from == to);
        Ok(Line { from: self.group(from, batch), to: self.group(to, batch), same })
    }

    fn covers(&self, line: &Line, batch: usize, s: usize, t: usize) -> bool {
        let documents = || self.document(batch, s) == self.document(batch, t);
        line.from[s] && line.to[t] && line.same.is_none_or(|same| documents() == same)
    }

    /// Returns the expected results of a policy, or the text of a group that the error must name.
    pub(crate) fn check(&self, policy: &str) -> Result<Vec<Expected>, String> {
        let lines = || policy.lines().filter(|line| !line.is_empty());
        let rows = 0..self.shape.batch_len();
        // Errors are in the order of batch rows, with exceptions first.
        for batch in rows.clone() {
            for word in ["allow", "deny"] {
                for line in lines().filter(|line| line.starts_with(word)) {
                    self.line(line, batch)?;
                }
            }
        }
        let mut out = Vec::new();
        for deny in lines().filter(|line| line.starts_with("deny")) {
            for batch in rows.clone() {
                let allows = lines().filter(|line| line.starts_with("allow")).map(|line| self.line(line, batch));
                let allows: Vec<Line> = allows.collect::<Result<_, _>>()?;
                let line = self.line(deny, batch)?;
                let n = self.tokens();
                let denied = |&(s, t): &(usize, usize)| {
                    s != t
                        && self.covers(&line, batch, s, t)
                        && !allows.iter().any(|allow| self.covers(allow, batch, s, t))
                };
                let pairs: Vec<_> = (0..n).flat_map(|s| (0..n).map(move |t| (s, t))).filter(denied).collect();
                let reached = pairs.iter().copied().filter(|&(s, t)| self.knows(batch, self.depth(), t, s)).collect();
                let count = |set: &[bool]| set.iter().filter(|x| **x).count() as u64;
                out.push(Expected { batch, sources: count(&line.from), targets: count(&line.to), pairs, reached });
            }
        }
        Ok(out)
    }

    /// Returns the smallest number of cells of one layer whose removal cuts all paths of `reached`, or `None` if no
    /// layer is enough.
    pub(crate) fn cheapest_cut(&self, batch: usize, reached: &[(usize, usize)]) -> Option<u64> {
        let (n, depth) = (self.tokens(), self.depth());
        // The tokens that influence each target from layer `l` on.
        let mut later = vec![(0..n).map(|i| (0..n).map(|j| i == j).collect::<Vec<bool>>()).collect::<Vec<_>>()];
        for rows in self.layers[batch].iter().rev() {
            let after = later.last().expect("the last");
            let row = |t: usize| -> Vec<bool> {
                (0..n).map(|k| after[t][k] || (0..n).any(|q| after[t][q] && rows[q][k])).collect()
            };
            later.push((0..n).map(row).collect());
        }
        later.reverse();
        let cells = |layer: usize| {
            let mut cells = 0;
            for (q, keys) in self.layers[batch][layer].iter().enumerate() {
                for k in (0..n).filter(|&k| k != q && keys[k]) {
                    let carries = |&(s, t): &(usize, usize)| self.known[batch][layer][k][s] && later[layer + 1][t][q];
                    cells += u64::from(reached.iter().any(carries));
                }
            }
            cells
        };
        let kept = |layer: usize, (s, t): (usize, usize)| {
            (0..n).any(|at| self.known[batch][layer][at][s] && later[layer + 1][t][at])
        };
        let enough = |layer: &usize| reached.iter().all(|&pair| !kept(*layer, pair));
        (0..depth).filter(enough).map(cells).filter(|cells| *cells > 0).min()
    }
}

/// Returns whether spans such as `3`, `"3..9"` and `"3.."` contain a position.
fn in_spans(spans: &[Value], position: i64) -> bool {
    spans.iter().any(|span| match span {
        Value::Number(at) => at.as_i64() == Some(position),
        _ => {
            let (start, end) = span.as_str().and_then(|text| text.split_once("..")).expect("a range");
            let start: i64 = start.parse().expect("a start");
            start <= position && (end.is_empty() || position < end.parse().expect("an end"))
        }
    })
}
