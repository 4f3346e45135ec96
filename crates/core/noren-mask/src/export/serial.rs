//! Serialization of masks, bound masks and plans.
//!
//! A mask is serialized as its text. A bound mask is serialized as its mask (as text), its shape and its facts. A plan
//! is serialized as the same entries of its bound mask, its options and its tiles. Other programs can read the tiles:
//!
//! ```json
//! {"version": 1, "mask": "causal", "shape": {"q_len": 4, "...": 0}, "facts": {},
//!  "options": {"block_q": 96, "block_kv": 64, "reorder": "auto"},
//!  "pattern_of": [0], "patterns": [{"rows": [0, 4], "spans": [[[0, 4, "mixed"]]]}]}
//! ```
//!
//! `pattern_of` has the index in `patterns` for each pair (batch row, head): first all heads of batch row 0, then of
//! batch row 1, and so on. `rows` has the first query row of each tile, and as its last element the number of query
//! rows. `spans` has one list per tile, with entries `[first key, first key after the span, "full" or "mixed"]`. A
//! pattern with reordered queries or keys has `query_order` and `key_order`, lists of `[first index, step, number of
//! indices]`. The rows and spans of such a pattern are places in these orders, not indices. [`Plan::from_json`] does
//! not trust the tiles: it binds and plans the mask again, and returns an error if the tiles differ.

use crate::Error;
use crate::bind::BoundMask;
use crate::facts::Facts;
use crate::facts::json::{At, Json};
use crate::facts::shape::Shape;
use crate::mask::Mask;
use crate::mask::score::Spec;
use crate::plan::{PatternPlan, Plan, PlanOptions, Reorder, TileSpan};
use crate::sets::order::MOST_CLASSES;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::ser::{Error as _, Serialize, SerializeStruct, Serializer};
use std::fmt;

/// The version of the serial form of plans that this module reads and writes.
const VERSION: i64 = 1;
const AGAIN: &str = "the plan was edited or written by another version: plan the mask again";

impl BoundMask {
    /// Returns the mask, shape and facts as one line of JSON, which [`from_json`](Self::from_json) reads.
    ///
    /// ```
    /// use noren_mask::{BoundMask, Facts, Shape, atoms::*};
    /// let bound = (causal() & padding()).bind(&Shape::square(5), &Facts::new().lengths([3]))?;
    /// let again = BoundMask::from_json(&bound.to_json()?)?;
    /// assert_eq!((again.mask(), again.shape(), again.facts()), (bound.mask(), bound.shape(), bound.facts()));
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the mask contains a function or an atom that the user implements, or if the
    /// mask was [selected](Self::select) from another mask.
    pub fn to_json(&self) -> Result<String, Error> {
        self.check_serial()?;
        serde_json::to_string(self).map_err(|e| Error::invalid(format!("plan: {e}")))
    }

    /// Reads the mask, the shape and the facts from JSON that [`to_json`](Self::to_json) wrote, and binds the mask.
    ///
    /// # Errors
    /// Returns an error if the text is not JSON or has unknown or missing keys. Returns the errors of the parser,
    /// [`Facts::from_json`], [`Shape::from_json`] and [`Mask::bind`].
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let json = Json::parse(text, "JSON").map_err(of_plan)?;
        read_bound(&At::root(&json)).map_err(of_plan)
    }
}

impl BoundMask {
    /// Returns an error if the mask cannot be written as JSON: if rows and keys were selected, or if the mask
    /// contains a function or an atom that the user implements.
    fn check_serial(&self) -> Result<(), Error> {
        if self.whole().is_some() {
            return Err(Error::invalid(
                "plan: a mask with selected rows and keys cannot be written as JSON: write the whole mask, and select again \
                 after reading"
                    .to_owned(),
            ));
        }
        if let Some(atom) = crate::atoms::foreign(self.mask()) {
            return Err(Error::invalid(format!(
                "plan: `{atom}` is defined outside of noren and cannot be written as JSON: give its cells as an array, or \
                 store the shape and the facts and bind the mask again"
            )));
        }
        self.facts().check_serial()
    }
}

impl Plan {
    /// Returns the plan as one line of JSON, which [`from_json`](Self::from_json) reads.
    ///
    /// ```
    /// use noren_mask::{Facts, Plan, Shape, atoms::*};
    /// let plan = causal().bind(&Shape::square(128), &Facts::new())?.plan();
    /// let json = plan.to_json()?;
    /// assert_eq!(Plan::from_json(&json)?.patterns()[0].tile(1), plan.patterns()[0].tile(1));
    ///
    /// let edited = json.replace(r#"[97,128,"mixed"]"#, r#"[97,128,"full"]"#);
    /// assert_eq!(
    ///     Plan::from_json(&edited).unwrap_err().to_string(),
    ///     "plan: patterns[0].spans[1] differs from the plan of `causal`: the plan was edited or written by another version: plan \
    ///      the mask again"
    /// );
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the bound mask cannot be serialized: see [`BoundMask::to_json`].
    pub fn to_json(&self) -> Result<String, Error> {
        self.bound().check_serial()?;
        serde_json::to_string(self).map_err(|e| Error::invalid(format!("plan: {e}")))
    }

    /// Reads a mask, shape, facts and options from JSON, computes the plan from them, and compares its tiles with the
    /// tiles in `text`.
    ///
    /// # Errors
    /// Returns the errors of [`BoundMask::from_json`]. Returns an error if `text` is of another version of the format,
    /// or if its tiles are not those of its mask.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let json = Json::parse(text, "JSON").map_err(of_plan)?;
        read_plan(&At::root(&json)).map_err(of_plan)
    }
}

/// Converts an error of the JSON reader to an error about the plan.
fn of_plan(error: Error) -> Error {
    match error {
        Error::Fact { fact, problem } => Error::invalid(format!("plan: {fact}: {problem}")),
        other => other,
    }
}

fn read_parts(at: &At<'_>) -> Result<(Mask, Shape, Facts), Error> {
    let mask = at.needed("mask")?;
    let text = mask.text("a mask as text")?;
    let shape = Shape::read(&at.needed("shape")?)?;
    Ok((text.parse()?, shape, Facts::read(&at.needed("facts")?)?))
}

fn read_bound(at: &At<'_>) -> Result<BoundMask, Error> {
    at.only(&["mask", "shape", "facts"])?;
    let (mask, shape, facts) = read_parts(at)?;
    mask.bind(&shape, &facts)
}

fn read_plan(at: &At<'_>) -> Result<Plan, Error> {
    let version = at.needed("version")?.whole("a version", 0, i64::MAX)?;
    if version != VERSION {
        return Err(Error::invalid(format!(
            "plan: the version of the plan is {version}, but this program reads version {VERSION}: plan the mask again"
        )));
    }
    at.only(&["version", "mask", "shape", "facts", "options", "pattern_of", "patterns"])?;
    let options = read_options(&at.needed("options")?)?;
    let (mask, shape, facts) = read_parts(at)?;

    // Lists that are too short are refused first, so that the length of the text limits the work of planning.
    let pattern_of = at.needed("pattern_of")?;
    let pairs = shape.batch_len() * shape.head_count();
    let given = pattern_of.items("a list with one pattern number for each pair of batch row and head")?.len();
    if given != pairs {
        return Err(pattern_of.error(format!(
            "{given} pattern numbers are given for {pairs} pairs of batch row and head: give one number for each pair"
        )));
    }
    let patterns = at.needed("patterns")?;
    let fewest = shape.q_len().div_ceil(options.block_q as usize);
    let given = patterns.items("a list of patterns, which are objects with rows and spans")?;
    let count = given.len();
    for pattern in given {
        pattern.only(&["rows", "spans", "query_order", "key_order"])?;
        let rows = pattern.needed("rows")?;
        let tiles = rows.items("a list of the query rows at which tiles begin and end")?.len().saturating_sub(1);
        if tiles < fewest {
            return Err(
                rows.error(format!("{tiles} tiles are given, but {} query rows need at least {fewest}", shape.q_len()))
            );
        }
    }
    let bound = mask.bind(&shape, &facts)?;
    let differs = |place: String| Error::invalid(format!("plan: {place} differs from the plan of `{mask}`: {AGAIN}"));
    if count != bound.pattern_count() {
        return Err(differs(patterns.to_string()));
    }
    let plan = bound.plan_with(&options);
    let made = [serde_json::to_string(plan.bound().pattern_list()), serde_json::to_string(plan.patterns())];
    for (given, made) in [pattern_of, patterns].iter().zip(made) {
        let made = made.map_err(|e| Error::invalid(format!("plan: {e}")))?;
        // the list of spans of a tile is named as a whole
        given.same_as(&Json::parse(&made, "JSON")?, 3).map_err(differs)?;
    }
    Ok(plan)
}

fn read_options(options: &At<'_>) -> Result<PlanOptions, Error> {
    options.only(&["block_q", "block_kv", "reorder"])?;
    let block = |key| options.needed(key)?.whole("a block size", 1, u32::MAX.into()).map(|n| n as u32);
    Ok(PlanOptions { block_q: block("block_q")?, block_kv: block("block_kv")?, reorder: read_reorder(options)? })
}

/// Reads the option `reorder`: `"auto"`, `"never"`, `"always"`, `"copies"` or `{"residues": 8}`. Returns
/// [`Reorder::Never`] if the option is missing: plans written by versions without reordering do not have it.
fn read_reorder(options: &At<'_>) -> Result<Reorder, Error> {
    let Some(at) = options.field("reorder") else { return Ok(Reorder::Never) };
    if let Some(residues) = at.field("residues") {
        at.only(&["residues"])?;
        let modulus = residues.whole("a modulus", 0, MOST_CLASSES.into())?;
        return Ok(Reorder::Residues(modulus as u32));
    }
    match at.text("how to reorder")? {
        "auto" => Ok(Reorder::Auto),
        "never" => Ok(Reorder::Never),
        "always" => Ok(Reorder::Always),
        "copies" => Ok(Reorder::Copies),
        other => {
            Err(at.error(format!(r#"is "{other}": give "auto", "never", "always", "copies" or {{"residues": 8}}"#)))
        }
    }
}

/// Serializes as `{"mask": "..", "shape": {..}, "facts": {..}}`. Returns an error if the mask cannot be serialized, for
/// example because it contains a function.
impl Serialize for BoundMask {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.check_serial().map_err(S::Error::custom)?;
        let mut object = serializer.serialize_struct("BoundMask", 3)?;
        object.serialize_field("mask", self.mask())?;
        object.serialize_field("shape", self.shape())?;
        object.serialize_field("facts", self.facts())?;
        object.end()
    }
}

/// Deserializes as [`BoundMask::from_json`] does.
impl<'de> Deserialize<'de> for BoundMask {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        read_bound(&At::root(&json)).map_err(|e| D::Error::custom(of_plan(e)))
    }
}

/// Serializes the plan in the format that the documentation of this module describes. Returns an error if the bound
/// mask cannot be serialized, for example because it contains a function.
impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.bound().check_serial().map_err(S::Error::custom)?;
        let shape = self.shape();
        let mut object = serializer.serialize_struct("Plan", 7)?;
        object.serialize_field("version", &VERSION)?;
        object.serialize_field("mask", self.bound().mask())?;
        object.serialize_field("shape", shape)?;
        object.serialize_field("facts", self.bound().facts())?;
        object.serialize_field("options", self.options())?;
        object.serialize_field("pattern_of", self.bound().pattern_list())?;
        object.serialize_field("patterns", self.patterns())?;
        object.end()
    }
}

/// Deserializes as [`Plan::from_json`] does.
impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        read_plan(&At::root(&json)).map_err(|e| D::Error::custom(of_plan(e)))
    }
}

/// Serializes as `{"rows": [..], "spans": [[[first key, first key after the span, "full"], ..], ..]}`, with one list of
/// spans for each tile, and with `query_order` and `key_order` if the pattern is reordered.
impl Serialize for PatternPlan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows: Vec<u32> = std::iter::once(0).chain(self.tiles().map(|tile| tile.end)).collect();
        let spans: Vec<&[TileSpan]> = self.tiles().map(|tile| tile.spans).collect();
        let orders = [("query_order", self.query_order()), ("key_order", self.key_order())];
        let mut object =
            serializer.serialize_struct("PatternPlan", 2 + orders.iter().filter(|o| o.1.is_some()).count())?;
        object.serialize_field("rows", &rows)?;
        object.serialize_field("spans", &spans)?;
        for (key, order) in orders {
            match order {
                Some(order) => object.serialize_field(key, &order.runs().collect::<Vec<_>>())?,
                None => object.skip_field(key)?,
            }
        }
        object.end()
    }
}

/// Serializes as `[first key, first key after the span, "full" or "mixed"]`.
impl Serialize for TileSpan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.start, self.end, self.kind).serialize(serializer)
    }
}

macro_rules! serde_as_text {
    ($kind:ty, $what:literal) => {
        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mask: &Mask = self.as_ref();
                match crate::atoms::foreign(mask) {
                    None => serializer.collect_str(self),
                    Some(atom) => Err(S::Error::custom(format!(
                        "`{atom}` is defined outside of noren and cannot be written as JSON: give its cells as an array"
                    ))),
                }
            }
        }

        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl Visitor<'_> for Text {
                    type Value = $kind;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($what)
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$kind, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }
    };
}
serde_as_text!(Mask, "a mask as text, such as \"causal & padding\"");
serde_as_text!(Spec, "a mask with scores as text, such as \"causal + alibi\"");
