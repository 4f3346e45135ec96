//! The masks, sizes and facts (data given with a mask, such as lengths) that the caller expects in a certificate, and
//! the cells of one mask.

use crate::cells::node::{Node, World};
use crate::check::certificate::Certificate;
use crate::facts::Facts;
use crate::facts::frame::Frame;
use crate::facts::shape::Shape;
use crate::read::json::{At, Value};
use crate::read::refusal::{Result, wrong};
use crate::read::text::parse;
use crate::runs::Runs;
use crate::work::Work;

/// The masks, sizes and facts (data given with a mask, such as lengths) that the caller expects in a certificate. A
/// field that is `None` is not compared with the certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Given {
    /// The texts of the masks that the certificate must have, one text for each layer; `None` for any masks.
    pub layers: Option<Vec<String>>,
    /// The number of layers that the certificate must have; `None` for any number.
    pub depth: Option<usize>,
    /// The shape that the certificate must have, as JSON; `None` for any shape.
    pub shape: Option<String>,
    /// The number of queries that the certificate must have; `None` for any number.
    pub q_len: Option<usize>,
    /// The number of keys that the certificate must have; `None` for any number.
    pub kv_len: Option<usize>,
    /// The number of batch rows that the certificate must have; `None` for any number.
    pub batch: Option<usize>,
    /// The number of query heads that the certificate must have; `None` for any number.
    pub heads: Option<usize>,
    /// The number of key-value heads that the certificate must have; `None` for any number.
    pub kv_heads: Option<usize>,
    /// The position of the first query that the certificate must have: a list of one position for all batch rows, or of
    /// one position for each batch row. `None` for any position.
    pub query_offsets: Option<Vec<i64>>,
    /// The facts (data given with the masks, such as lengths or labels) that the certificate must have, as JSON; `None`
    /// for any facts.
    pub facts: Option<String>,
    /// The behaviour that the certificate must state for a query that may read no key. True: the query reads all keys
    /// (`"fill": "finite"` in the certificate). False: the query reads nothing (`"fill": "nothing"`). `None`: any
    /// behaviour.
    pub finite: Option<bool>,
}

impl Given {
    pub(crate) fn compare(&self, certificate: &Certificate) -> Result<()> {
        if let Some(layers) = &self.layers {
            self.compare_layers(layers, certificate)?;
        }
        if let Some(depth) = self.depth
            && depth != certificate.layers.len()
        {
            return Err(wrong(
                "layers",
                certificate.layers.len().to_string(),
                format!("the given number of layers, {depth}"),
            ));
        }
        self.compare_sizes(&certificate.shape)?;
        if let Some(json) = &self.shape
            && Shape::read(&At::new(&Value::read(json)?, "the given shape"))? != certificate.shape
        {
            return Err(wrong("shape", format!("{:?}", certificate.shape), format!("the given shape {json}")));
        }
        if let Some(json) = &self.facts {
            let facts = Facts::read(&At::new(&Value::read(json)?, "the given facts"), &certificate.shape)?;
            if facts != certificate.facts {
                return Err(wrong("facts", "other facts", format!("the given facts {json}")));
            }
        }
        match self.finite {
            Some(finite) if finite != certificate.finite => {
                let word = |finite: bool| if finite { "finite" } else { "nothing" };
                Err(wrong("fill", word(certificate.finite), format!("the given value {:?}", word(finite))))
            }
            _ => Ok(()),
        }
    }

    fn compare_sizes(&self, shape: &Shape) -> Result<()> {
        let sizes = [
            ("q_len", self.q_len, shape.q_len as usize),
            ("kv_len", self.kv_len, shape.kv_len as usize),
            ("batch", self.batch, shape.batch),
            ("heads", self.heads, shape.heads),
            ("kv_heads", self.kv_heads, shape.kv_heads),
        ];
        for (name, given, certified) in sizes {
            if let Some(given) = given
                && given != certified
            {
                return Err(wrong(format!("shape.{name}"), certified.to_string(), format!("the given value {given}")));
            }
        }
        match &self.query_offsets {
            Some(given)
                if (given.len() != 1 && given.len() != shape.batch)
                    || shape
                        .offsets
                        .iter()
                        .enumerate()
                        .any(|(row, at)| given.get(if given.len() == 1 { 0 } else { row }) != Some(at)) =>
            {
                Err(wrong("shape.query_offset", format!("{:?}", shape.offsets), format!("the given value {given:?}")))
            }
            _ => Ok(()),
        }
    }

    fn compare_layers(&self, layers: &[String], certificate: &Certificate) -> Result<()> {
        if layers.len() != certificate.layers.len() {
            let given = format!("{} layers", certificate.layers.len());
            return Err(wrong("layers", given, format!("one layer for each of the {} given masks", layers.len())));
        }
        for (number, (text, of)) in layers.iter().zip(&certificate.layer_of).enumerate() {
            let field = format!("layers[{number}]");
            if *text == certificate.layers[number] {
                continue;
            }
            let expr = parse(text)
                .map_err(|found| wrong(format!("the given mask of layer {number}"), found, "the text of a mask"))?;
            if expr != certificate.masks[*of] {
                return Err(wrong(field, certificate.layers[number].clone(), format!("the given mask {text}")));
            }
        }
        Ok(())
    }
}

/// The masks of all batch rows and heads, from one mask expression with a shape and facts (data of the mask), as the
/// verifier reads them. Cells are computed only when they are requested.
#[derive(Debug)]
pub struct Masks {
    frames: Vec<Frame>,
    /// The resolved masks as `nodes[batch row][head]`.
    nodes: Vec<Vec<Node>>,
    work: Work,
}

impl Masks {
    /// Reads the text of a mask, and the shape and the facts as JSON.
    ///
    /// ```
    /// let mask = noren_verify::Masks::read("causal & padding", r#"{"q_len": 3, "kv_len": 3}"#, r#"{"lengths": [2]}"#)?;
    /// assert!(mask.allowed(0, 0, 1, 0) && !mask.allowed(0, 0, 0, 1) && !mask.allowed(0, 0, 2, 2));
    /// # Ok::<(), noren_verify::Refusal>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if a text cannot be read, if facts (data that the mask needs) are missing or do not fit the
    /// shape, or if the mask has an elementary mask (atom) that the verifier cannot evaluate
    /// (`random_blocks`).
    pub fn read(mask: &str, shape: &str, facts: &str) -> Result<Self> {
        let shape = Shape::read(&At::new(&Value::read(shape)?, "shape"))?;
        let facts = Facts::read(&At::new(&Value::read(facts)?, "facts"), &shape)?;
        let expr = parse(mask).map_err(|found| wrong("mask", found, "the text of a mask"))?;
        let work = Work::new();
        let world = World::new(&facts, &shape, &work, false)?;
        let frames: Vec<Frame> = (0..shape.batch).map(|row| Frame::new(&shape, &facts, row)).collect();
        let heads = |frame: &Frame| (0..shape.heads).map(|head| world.resolve(&expr, frame, head, "mask")).collect();
        let nodes = frames.iter().map(heads).collect::<Result<Vec<Vec<Node>>>>()?;
        Ok(Self { frames, nodes, work })
    }

    /// Returns true if the mask allows the cell (batch row, head, query, key), with indices from 0. Returns false for a
    /// cell outside the shape.
    pub fn allowed(&self, batch: usize, head: usize, query: usize, key: usize) -> bool {
        let (Some(frame), Some(node)) = (self.frames.get(batch), self.nodes.get(batch).and_then(|row| row.get(head)))
        else {
            return false;
        };
        let (i, j) = (query as i64, key as i64);
        i < frame.q_len && j < frame.kv_len && node.allowed(frame, i, j)
    }

    /// Returns the allowed keys of a query row as half-open ranges `(start, end)`. For most masks, this is faster than
    /// a call of [`allowed`](Self::allowed) for each key.
    ///
    /// # Errors
    /// Returns an error if the query row is outside the shape, or if the computation exceeds the limit of steps or of
    /// stored ranges.
    pub fn row(&self, batch: usize, head: usize, query: usize) -> Result<Vec<(usize, usize)>> {
        let outside =
            || wrong("row", format!("batch row {batch}, head {head}, query {query}"), "indices inside the shape");
        let frame = self.frames.get(batch).filter(|frame| (query as i64) < frame.q_len).ok_or_else(outside)?;
        let node = self.nodes[batch].get(head).ok_or_else(outside)?;
        let runs: Runs = node.row(frame, query as i64, &self.work)?;
        Ok(runs.into_iter().map(|run| (run.0 as usize, run.1 as usize)).collect())
    }
}
