//! Certificates computed by brute force over all cells and pairs, from the library's cells and the documented meaning of
//! policies.

use crate::draw::{Draw, Setting, mask, setting};
use hmac_sha256::Hash;
use noren_mask::{Arm, Facts, Mask, Node, Selector, Shape};
use serde_json::{Value, json};

/// Paths of information between tokens that masks do not show, as listed in `docs/flow.md`.
pub(crate) const NOT_COVERED: [&str; 9] = [
    "position ids: a count of hidden tokens tells how many there are",
    "lengths: padding and truncation tell how long a hidden text is",
    "pooling over tokens after the last layer",
    "normalisation over the batch or over time (batch norm, group norm over time)",
    "convolution and state-space layers",
    "routing: experts with a capacity, and balance over a batch",
    "quantisation by maxima over a batch or a tensor",
    "caches that were filled before a redaction",
    "loss targets: labels that hold what the inputs hide",
];

/// The tokens that one line of a policy covers: (number of sources, number of targets, pairs of source and target).
type Covered = (usize, usize, Vec<(usize, usize)>);

/// The stack that a certificate describes.
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    pub(crate) layers: Vec<String>,
    pub(crate) shape: String,
    pub(crate) facts: String,
    pub(crate) finite: bool,
    pub(crate) policy: Vec<String>,
}

/// Returns a random stack with a random policy, in which every query is a token.
pub(crate) fn stack(draw: &mut Draw) -> (Setting, Stack) {
    let setting = setting(draw, true, 11);
    let distinct = draw.int(1, 3);
    let hide = ["", " & causal", " & documents", " & sliding(2)", " & padding"];
    let masks = draw.many(distinct, |draw| format!("({}){}", mask(draw, &setting, 2), draw.pick(&hide)));
    let depth = draw.int(1, 5);
    let layers = draw.many(depth, |draw| masks[draw.int(0, masks.len() as i64) as usize].clone());
    let lines = draw.int(1, 4);
    let policy = draw.many(lines, |draw| line(draw, setting.kv_len));
    let stack = Stack { layers, shape: setting.shape(), facts: setting.facts(), finite: draw.once(5), policy };
    (setting, stack)
}

fn line(draw: &mut Draw, len: i64) -> String {
    let group = |draw: &mut Draw| match draw.int(0, 9) {
        0 | 1 => draw.pick(&["label(red)", "label(light blue)"]).to_string(),
        2 | 3 => format!("document({})", draw.pick(&["0", "1", "i", "i", "j"])),
        4 => format!("level({})", draw.int(-1, 3)),
        5 => format!("token({})", draw.int(0, len)),
        6 | 7 => {
            let (a, b) = (draw.int(0, len), draw.int(0, len));
            format!("tokens({}..{})", a.min(b), a.max(b) + 1)
        }
        _ => "all".into(),
    };
    let verb = draw.pick(&["deny", "deny maybe", "deny maybe", "deny maybe", "allow maybe"]);
    let (a, b) = (group(draw), group(draw));
    let b = if draw.once(4) { "output".into() } else { b };
    format!("{verb}: {a} -> {b}")
}

/// Returns true if the masks have an arm that applies to no head or batch row of the shape. Flow refuses such an arm
/// unless another arm has the same mask.
pub(crate) fn uncounted(stack: &Stack) -> bool {
    let Ok(shape) = Shape::from_json(&stack.shape) else { return false };
    stack.layers.iter().filter_map(|text| text.parse::<Mask>().ok()).any(|mask| has_untaken(&mask, &shape))
}

fn has_untaken(mask: &Mask, shape: &Shape) -> bool {
    let untaken = |arms: &[Arm], count: usize| {
        let names = |index: usize| arms.iter().any(|arm| arm.selector.names(index));
        let takes =
            |arm: &Arm, index: usize| arm.selector.names(index) || (arm.selector == Selector::Else && !names(index));
        let taken = |arm: &Arm| (0..count).any(|index| takes(arm, index));
        arms.iter().any(|arm| !arms.iter().any(|other| other.mask == arm.mask && taken(other)))
    };
    let own = match mask.node() {
        Node::Heads(arms) => untaken(arms, shape.head_count()),
        Node::Batch(arms) => untaken(arms, shape.batch_len()),
        _ => false,
    };
    own || mask.children().into_iter().any(|part| has_untaken(part, shape))
}

/// The results of brute force for a stack.
pub(crate) struct Found {
    /// `reads[layer][batch][token][key]`.
    pub(crate) reads: Vec<Vec<Vec<Vec<bool>>>>,
    /// One entry for each deny line and batch row, without `witness` and `counted`.
    pub(crate) rules: Vec<Value>,
    /// The denied pairs of each entry of `rules`.
    pub(crate) denied: Vec<Vec<(usize, usize)>>,
    pub(crate) batch: usize,
    pub(crate) tokens: usize,
}

impl Found {
    /// Computes the results for a stack. Returns `None` if the library refuses the stack, or if the policy is invalid
    /// for the stack.
    pub(crate) fn new(stack: &Stack) -> Option<Self> {
        let shape = Shape::from_json(&stack.shape).ok()?;
        let facts = Facts::from_json(&stack.facts).ok()?;
        let (batch, tokens) = (shape.batch_len(), shape.kv_len());
        let json: Value = serde_json::from_str(&stack.facts).ok()?;
        let places: Vec<Vec<i64>> = (0..batch).map(|row| places(&json, row, tokens)).collect();
        let mut reads = Vec::new();
        for text in &stack.layers {
            let bound = text.parse::<Mask>().ok()?.bind(&shape, &facts).ok()?;
            let mut layer = vec![vec![vec![false; tokens]; tokens]; batch];
            for row in 0..batch {
                for query in 0..shape.q_len() {
                    let position = query as i64 + shape.query_offset(row);
                    let token = places[row].iter().position(|&place| place == position)?;
                    for head in 0..shape.head_count() {
                        let mut keys: Vec<bool> = (0..tokens).map(|key| bound.allowed(row, head, query, key)).collect();
                        if stack.finite && !keys.contains(&true) {
                            keys.fill(true);
                        }
                        keys.iter().enumerate().for_each(|(key, reads)| layer[row][token][key] |= reads);
                    }
                }
            }
            reads.push(layer);
        }
        let mut found = Self { reads, rules: Vec::new(), denied: Vec::new(), batch, tokens };
        let queries =
            |row: usize| (0..shape.q_len()).map(|query| query as i64 + shape.query_offset(row)).collect::<Vec<_>>();
        let rows: Vec<Row> =
            (0..batch).map(|row| Row::new(&json, row, &places[row], queries(row))).collect::<Option<_>>()?;
        let allows: Vec<&String> = stack.policy.iter().filter(|line| line.starts_with("allow")).collect();
        let exempt = |row: &Row| {
            let pairs = allows.iter().map(|allow| row.pairs(allow).map(|covered| covered.2));
            pairs
                .collect::<Option<Vec<_>>>()
                .map(|pairs| pairs.concat().into_iter().collect::<std::collections::HashSet<_>>())
        };
        let exempt: Vec<_> = rows.iter().map(exempt).collect::<Option<_>>()?;
        for line in stack.policy.iter().filter(|line| line.starts_with("deny")) {
            for (number, row) in rows.iter().enumerate() {
                let (sources, targets, pairs) = row.pairs(line)?;
                let denied: Vec<(usize, usize)> =
                    pairs.into_iter().filter(|pair| !exempt[number].contains(pair)).collect();
                let reached = denied
                    .iter()
                    .filter(|pair| found.reach(number, &[pair.0]).last().is_some_and(|set| set[pair.1]))
                    .count();
                found.rules.push(json!({
                    "rule": line, "batch": number, "sources": sources, "targets": targets, "pairs": denied.len(),
                    "violated": reached > 0, "reached_pairs": reached,
                }));
                found.denied.push(denied);
            }
        }
        Some(found)
    }

    /// Returns the tokens that are influenced by `sources`, before the first layer and after each layer.
    pub(crate) fn reach(&self, row: usize, sources: &[usize]) -> Vec<Vec<bool>> {
        let mut set = vec![false; self.tokens];
        sources.iter().for_each(|&source| set[source] = true);
        let mut all = vec![set.clone()];
        for layer in &self.reads {
            let next: Vec<bool> = (0..self.tokens)
                .map(|token| set[token] || (0..self.tokens).any(|key| set[key] && layer[row][token][key]))
                .collect();
            all.push(next.clone());
            set = next;
        }
        all
    }

    /// Returns the steps `[layer, token]` of a path from `source` to `target` that ends in the earliest possible layer.
    fn path(&self, row: usize, source: usize, target: usize) -> Vec<[usize; 2]> {
        let sets = self.reach(row, &[source]);
        let (mut steps, mut token) = (Vec::new(), target);
        for layer in (0..self.reads.len()).rev() {
            if !sets[layer][token] {
                steps.push([layer, token]);
                token = (0..self.tokens)
                    .find(|&key| sets[layer][key] && self.reads[layer][row][token][key])
                    .expect("a reader");
            }
        }
        steps.reverse();
        steps
    }

    /// Returns the entry of `reach` for the source tokens `sources`.
    pub(crate) fn entry(&self, row: usize, sources: &[usize]) -> Value {
        let mut after: Vec<(usize, Value)> = Vec::new();
        for set in self.reach(row, sources) {
            let ranges = ranges(&set);
            match after.last_mut() {
                Some(last) if last.1 == ranges => last.0 += 1,
                _ => after.push((1, ranges)),
            }
        }
        let after: Vec<Value> = after.into_iter().map(|(times, set)| json!([times, set])).collect();
        let mut set = vec![false; self.tokens];
        sources.iter().for_each(|&source| set[source] = true);
        json!({"batch": row, "sources": ranges(&set), "after": after})
    }

    /// Returns the whole certificate, with an entry for each single token and some additional entries.
    pub(crate) fn certificate(&self, stack: &Stack, draw: &mut Draw) -> Value {
        let mut rules = self.rules.clone();
        for (rule, denied) in rules.iter_mut().zip(&self.denied) {
            let row = rule["batch"].as_u64().expect("a number") as usize;
            rule["counted"] = json!("exact");
            rule["witness"] = Value::Null;
            let reached: Vec<_> =
                denied.iter().filter(|pair| self.reach(row, &[pair.0]).last().is_some_and(|set| set[pair.1])).collect();
            if !reached.is_empty() {
                let pair = reached[draw.int(0, reached.len() as i64) as usize];
                rule["witness"] = json!({"source": pair.0, "steps": self.path(row, pair.0, pair.1)});
            }
        }
        let mut reach = Vec::new();
        for row in 0..self.batch {
            reach.extend((0..self.tokens).map(|token| self.entry(row, &[token])));
            if self.tokens > 2 {
                reach.push(self.entry(row, &[0, self.tokens - 1]));
            }
        }
        let pairs: u64 = rules.iter().map(|rule| rule["pairs"].as_u64().expect("a number")).sum();
        let holds = pairs > 0 && rules.iter().all(|rule| rule["violated"] == json!(false));
        let parsed = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        hashed(json!({
            "format": "noren certificate 2",
            "layers": stack.layers,
            "shape": parsed(&stack.shape),
            "facts": parsed(&stack.facts),
            "fill": if stack.finite { "finite" } else { "nothing" },
            "policy": stack.policy,
            "rules": rules,
            "pairs": pairs,
            "holds": holds,
            "reach": reach,
            "not_covered": NOT_COVERED,
        }))
    }
}

/// Returns the certificate with a new hash.
pub(crate) fn hashed(mut certificate: Value) -> Value {
    let fields = certificate.as_object_mut().expect("an object");
    fields.remove("sha256");
    let text = serde_json::to_string(&fields).expect("JSON");
    let hash: String = Hash::hash(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    fields.insert("sha256".into(), json!(hash));
    certificate
}

fn ranges(set: &[bool]) -> Value {
    let mut out: Vec<[usize; 2]> = Vec::new();
    for token in (0..set.len()).filter(|&token| set[token]) {
        match out.last_mut() {
            Some(last) if last[1] == token => last[1] += 1,
            _ => out.push([token, token + 1]),
        }
    }
    json!(out)
}

/// Returns the value of a fact for a batch row: the list `fact` itself, or the list of the batch row in a list of
/// lists.
fn of_row(fact: &Value, row: usize) -> Option<Vec<Value>> {
    let list = fact.as_array()?;
    if list.first().is_some_and(Value::is_array) { list[row].as_array().cloned() } else { Some(list.clone()) }
}

fn numbers(fact: &Value, row: usize) -> Option<Vec<i64>> {
    Some(of_row(fact, row)?.iter().filter_map(Value::as_i64).collect())
}

/// Returns the position of each token.
fn places(facts: &Value, row: usize, tokens: usize) -> Vec<i64> {
    numbers(&facts["positions"], row).unwrap_or_else(|| (0..tokens as i64).collect())
}

/// Returns whether a span in the JSON of the facts contains a position.
fn span_holds(span: &Value, position: i64) -> bool {
    match span.as_str().and_then(|text| text.split_once("..")) {
        Some((a, b)) => position >= a.parse().unwrap_or(0) && position < b.parse().unwrap_or(i64::MAX),
        None => span.as_i64() == Some(position),
    }
}

/// The groups of one batch row, token by token.
struct Row {
    places: Vec<i64>,
    queries: Vec<i64>,
    labels: Vec<(String, Vec<Value>)>,
    levels: Vec<i64>,
    /// The document of each token.
    document: Vec<Option<usize>>,
    /// False if the sum of the lengths of the documents does not fit the length of the batch row.
    documents_fit: bool,
    /// False if the number of levels does not fit the length of the batch row.
    levels_fit: bool,
}

impl Row {
    fn new(facts: &Value, row: usize, places: &[i64], queries: Vec<i64>) -> Option<Self> {
        let tokens = places.len() as i64;
        let length = facts["lengths"].as_array().and_then(|list| list[row].as_i64());
        let left = facts["side"] == json!("left");
        let real = |token: i64| match (length, facts["real_keys"].as_array()) {
            (Some(length), _) if left => token >= tokens - length,
            (Some(length), _) => token < length,
            (None, Some(rows)) => {
                rows[row].as_array().is_some_and(|keys| keys.iter().any(|key| span_holds(key, token)))
            }
            (None, None) => true,
        };
        let documents = numbers(&facts["documents"], row)?;
        let total: i64 = documents.iter().sum();
        let shifted = left && facts["positions"].is_null() && length == Some(total);
        let mut start = if shifted { tokens - total } else { 0 };
        let mut document = vec![None; places.len()];
        for (number, len) in documents.iter().enumerate() {
            for token in (0..tokens).filter(|&token| real(token)) {
                if (start..start + len).contains(&places[token as usize]) {
                    document[token as usize] = Some(number);
                }
            }
            start += len;
        }
        // With padding on the right, a list covers at least the non-padding tokens; otherwise it covers the whole row.
        let reach = places
            .iter()
            .enumerate()
            .filter(|token| left || !facts["positions"].is_null() || real(token.0 as i64))
            .map(|token| token.1 + 1)
            .max()
            .unwrap_or(0);
        let levels = numbers(&facts["levels"], row)?;
        let most = places.iter().map(|place| place + 1).max().unwrap_or(0);
        let fits = |count: i64| (reach..=most).contains(&count);
        let labels = facts["labels"].as_object()?.iter().map(|(name, spans)| Some((name.clone(), of_row(spans, row)?)));
        Some(Self {
            places: places.to_vec(),
            queries,
            labels: labels.collect::<Option<_>>()?,
            documents_fit: shifted || fits(total),
            levels_fit: fits(levels.len() as i64),
            levels,
            document,
        })
    }

    fn members(&self, group: &str) -> Option<Vec<usize>> {
        let inner = group.split_once('(').map_or("", |parts| parts.1.trim_end_matches(')'));
        if (group.starts_with("document") && !self.documents_fit) || (group.starts_with("level") && !self.levels_fit) {
            return None;
        }
        let tokens = 0..self.places.len();
        let out: Vec<usize> = match group.split('(').next()? {
            "all" => tokens.collect(),
            "output" => tokens.filter(|&token| self.queries.contains(&self.places[token])).collect(),
            "label" => {
                let spans = &self.labels.iter().find(|label| label.0 == inner)?.1;
                tokens.filter(|&token| spans.iter().any(|span| span_holds(span, self.places[token]))).collect()
            }
            "level" => {
                let level: i64 = inner.parse().ok()?;
                tokens.filter(|&token| self.levels.get(self.places[token] as usize) == Some(&level)).collect()
            }
            "document" => match inner.parse::<usize>() {
                Ok(number) => tokens.filter(|&token| self.document[token] == Some(number)).collect(),
                Err(_) => tokens.filter(|&token| self.document[token].is_some()).collect(),
            },
            "token" => vec![inner.parse().ok()?],
            _ => {
                let (a, b) = inner.split_once("..")?;
                (a.parse().ok()?..b.parse().ok()?).collect()
            }
        };
        Some(out)
    }

    /// Returns the number of sources and of targets, and the pairs that a line covers.
    fn pairs(&self, line: &str) -> Option<Covered> {
        let (verb, rest) = line.split_once(": ")?;
        let (a, b) = rest.split_once(" -> ")?;
        let (sources, targets) = (self.members(a)?, self.members(b)?);
        if (sources.is_empty() || targets.is_empty()) && !verb.ends_with("maybe") {
            return None;
        }
        let letters = ["document(i)", "document(j)"];
        let both = letters.contains(&a) && letters.contains(&b);
        let covers = |s: usize, t: usize| s != t && (!both || (self.document[s] == self.document[t]) == (a == b));
        let pairs =
            sources.iter().flat_map(|&s| targets.iter().map(move |&t| (s, t))).filter(|&(s, t)| covers(s, t)).collect();
        Some((sources.len(), targets.len(), pairs))
    }
}
