//! Python statements that several targets share: inputs, tables, indices, positions, and conditions of cells.

use super::Library;
use super::expression::Style;
use super::helpers::helpers;
use super::scores::{Scores, scores};
use super::tables::tables;
use super::text::{Text, WIDTH};
use crate::Error;
use crate::program::table::Content;
use crate::program::{Num, Test, Uses};
use crate::request::Request;

/// The begin of code that computes whole arrays of cells at once.
pub(crate) struct Opening {
    /// The imports, the comments about inputs, and the statements before the condition of the cells.
    pub(crate) out: Text,
    /// The names of the arrays that the user of the code supplies.
    pub(crate) names: Vec<String>,
    pub(crate) scores: Scores,
    /// The indices (batch row, head, query, key) on which the cells or the scores depend.
    pub(crate) uses: Uses,
}

impl Request<'_> {
    /// Returns the begin of code for a target that takes score modifiers of the given `kinds`. `given` are the inputs of
    /// the target with their sizes.
    pub(crate) fn opening(
        &self,
        library: Library,
        imports: &str,
        given: &[(&str, String)],
        kinds: &[&str],
    ) -> Result<Opening, Error> {
        let scores = scores(self, &self.style(library), kinds, "")?;
        let mut uses = self.program.uses(&self.program.root);
        uses.head |= scores.reads.0;
        uses.batch |= scores.reads.1 && self.program.uses(&Num::Q.equals(Num::K)).batch;
        let (inputs, names) = self.inputs(given, &scores);
        let mut out = Text::default();
        out.line(imports);
        out.block(inputs);
        out.block(self.prelude(library, uses));
        Ok(Opening { out, names, scores, uses })
    }

    /// Returns the statements that compute the array `keep` of the cells of the mask. If `sizes` is not empty, the array
    /// is broadcast to these sizes.
    pub(crate) fn keep(&self, library: Library, sizes: &str) -> Text {
        let mut out = self.parts(&self.style(library));
        out.append(self.cells(library, "keep", &self.program.root, sizes));
        out
    }

    /// Returns the variable names of indices for code that computes whole arrays of cells at once.
    pub(crate) fn style(&self, library: Library) -> Style<'_> {
        let row = if self.program.query.is_some() { "row" } else { "q" };
        let key = if self.program.key.is_some() { "slot" } else { "k" };
        Style { program: self.program, library, row, key }
    }

    /// Returns comments that list the arrays that the user of the code supplies, and the names of these arrays.
    pub(crate) fn inputs(&self, given: &[(&str, String)], scores: &Scores) -> (Text, Vec<String>) {
        let arrays = self.program.tables.iter().filter_map(|table| match &table.content {
            Content::Given { shape } => Some((table.name.clone(), *shape)),
            _ => None,
        });
        inputs(given, arrays, scores)
    }

    /// Returns the statements before the condition of the cells: helper functions, tables, indices and positions.
    /// `uses` states which indices the following code reads.
    pub(crate) fn prelude(&self, library: Library, uses: Uses) -> Text {
        let style = self.style(library);
        let mut out = Text::default();
        out.block(helpers(self.program, library));
        out.block(tables(self.program, library, false));
        let shape = self.shape;
        let mut lines = Text::default();
        let module = library.module();
        if uses.batch {
            lines.line(format!("b = {module}.arange({})[:, None, None, None]", shape.batch_len()));
        }
        if uses.head {
            lines.line(format!("h = {module}.arange({})[:, None, None]", shape.head_count()));
        }
        lines.line(format!("{} = {module}.arange({})[:, None]", style.row, shape.q_len()));
        lines.line(format!("{} = {module}.arange({})", style.key, shape.kv_len()));
        positions(&style, &mut lines);
        out.block(lines);
        out
    }

    /// Returns the statements that compute the array `name` of cells by the condition `test`. If `sizes` is not empty,
    /// the array is broadcast to these sizes.
    pub(crate) fn cells(&self, library: Library, name: &str, test: &Test, sizes: &str) -> Text {
        let style = self.style(library);
        let mut out = Text::default();
        out.line(format!("{name} = {}", style.test(test, name.len() + 3)));
        if !sizes.is_empty() {
            out.line(format!("{name} = {}.broadcast_to({name}, {sizes})", library.module()));
        }
        out
    }

    /// Returns the statements that compute the named conditions, one for each elementary mask.
    pub(crate) fn parts(&self, style: &Style<'_>) -> Text {
        let mut out = Text::default();
        for part in &self.program.parts {
            out.line(format!("{} = {}", part.name, style.test(&part.test, part.name.len() + 3)));
        }
        out
    }

    /// Returns the code of a function that returns true if the query may read the key. The function takes, in this
    /// order: batch row, head, query row, key. `parameters` are the names of these parameters.
    pub(crate) fn function(&self, name: &str, parameters: &str) -> Text {
        let style = Style { program: self.program, library: Library::PyTorch, row: "q_idx", key: "kv_idx" };
        let mut body = Text::default();
        positions(&style, &mut body);
        body.append(self.parts(&style));
        body.line(format!("return {}", style.test(&self.program.root, 11)));
        let mut out = Text::default();
        out.line(format!("def {name}({parameters}):"));
        out.indented(body);
        out
    }
}

/// Returns comments that list the arrays that the user of the code supplies, and the names of these arrays. These are
/// `given` with their sizes, the boolean arrays `masks` with their shapes, and the arrays of score modifiers.
pub(crate) fn inputs(
    given: &[(&str, String)],
    masks: impl Iterator<Item = (String, [usize; 4])>,
    scores: &Scores,
) -> (Text, Vec<String>) {
    let (mut text, mut names) = (Text::default(), Vec::new());
    let sizes = |shape: [usize; 4]| match shape {
        [1, 1, q_len, kv_len] => format!("[{q_len}, {kv_len}]"),
        shape => format!("{shape:?}"),
    };
    let masks =
        masks.map(|(name, shape)| (name, format!("booleans {}, true where the query may read the key", sizes(shape))));
    let given = given.iter().map(|(name, sizes)| (name.to_string(), sizes.clone()));
    for (name, sizes) in given.chain(masks).chain(scores.inputs.iter().cloned()) {
        text.line(format!("# {name}: {sizes}"));
        names.extend(name.split(", ").map(str::to_string));
    }
    (text, names)
}

/// Appends the statements that compute the positions of queries and keys to `out`, if positions differ from indices.
pub(crate) fn positions(style: &Style<'_>, out: &mut Text) {
    if let Some(query) = &style.program.query {
        out.line(format!("q = {}", style.num(query)));
    }
    if let Some(key) = &style.program.key {
        out.line(format!("k = {}", style.num(key)));
    }
}

/// Returns a call in one line; if the line would be too long, with one argument in each line.
pub(crate) fn call(function: &str, arguments: &[String]) -> String {
    let plain = format!("{function}({})", arguments.join(", "));
    if plain.len() <= WIDTH && !plain.contains('\n') {
        return plain;
    }
    format!("{function}(\n    {},\n)", arguments.join(",\n    "))
}
