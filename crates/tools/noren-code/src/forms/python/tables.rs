//! Python statements that make the tables of facts (data given with a mask).

use super::Library;
use super::text::{Text, list};
use crate::program::Program;
use crate::program::table::{Content, Table};

/// Returns the statements that make the tables of `program`, except the arrays that the user of the code supplies. If
/// `device` is true, tables are moved to the device of `query`.
pub(crate) fn tables(program: &Program, library: Library, device: bool) -> Text {
    let mut out = Text::default();
    for table in &program.tables {
        if matches!(table.content, Content::Given { .. }) {
            continue;
        }
        out.block(statements(table, library.of_tables()));
        if library == Library::Jax {
            out.line(format!("{0} = jnp.asarray({0})", table.name));
        }
        if device {
            out.line(format!("{0} = {0}.to(query.device)", table.name));
        }
    }
    out
}

/// Returns the sizes of a table as code: `len` if the table has one row, otherwise `(rows, len)`.
fn sizes(rows: usize, len: i64) -> String {
    if rows == 1 { len.to_string() } else { format!("({rows}, {len})") }
}

/// Returns the code that makes a boolean array of the given sizes in which all entries are false.
fn nothing(library: Library, sizes: &str) -> String {
    format!("{}.zeros({sizes}, dtype={})", library.module(), library.boolean())
}

/// Returns the code that makes an array of whole numbers of the given sizes in which all entries are `fill`.
fn filled(library: Library, sizes: &str, fill: i64) -> String {
    let sizes = match library {
        Library::PyTorch if !sizes.starts_with('(') => format!("({sizes},)"),
        _ => sizes.into(),
    };
    format!("{}.full({sizes}, {fill})", library.module())
}

fn statements(table: &Table, library: Library) -> Text {
    let name = &table.name;
    let mut out = Text::default();
    match &table.content {
        Content::PerRow(numbers) => {
            out.line(format!(
                "{name} = {}  # one number for each batch row",
                library.array(&list(name.len() + 45, numbers))
            ));
        }
        Content::Numbers { rows, len, fill, note } => {
            out.line(format!("# {note}"));
            let complete = rows.iter().all(|row| row.len() as i64 == *len);
            let each = |row: &Vec<i64>| list(name.len() + 20, row);
            match (&rows[..], complete) {
                ([row], true) => out.line(format!("{name} = {}", library.array(&each(row)))),
                (rows, true) => {
                    out.line(format!("{name} = {}", library.array(&list(name.len() + 16, rows.iter().map(each)))))
                }
                (rows, false) => {
                    out.line(format!("{name} = {}", filled(library, &sizes(rows.len(), *len), *fill)));
                    for (at, row) in rows.iter().enumerate() {
                        let place = if rows.len() == 1 { String::new() } else { format!("{at}, ") };
                        out.line(format!("{name}[{place}:{}] = {}", row.len(), library.array(&each(row))));
                    }
                }
            }
        }
        Content::Documents { rows, len } => documents(&mut out, name, rows, *len, library),
        Content::Ranges { rows, len, note } => ranges(&mut out, name, (rows, *len, note), library),
        Content::Tree { .. } => tree(&mut out, table, library),
        Content::Blocks { .. } => blocks(&mut out, table, library),
        Content::Cells { shape, cells } => {
            let text = |row: &[bool]| list(0, row.iter().map(|cell| u8::from(*cell)));
            let [batch, heads, q_len, kv_len] = *shape;
            let plane = |cells: &[bool]| list(name.len() + 20, cells.chunks(kv_len).map(text));
            let array = match batch * heads {
                1 => plane(cells),
                _ => {
                    let head = |cells: &[bool]| list(0, cells.chunks(q_len * kv_len).map(plane));
                    list(0, cells.chunks(heads * q_len * kv_len).map(head))
                }
            };
            out.line("# 1 where the query (row) may read the key (column)");
            out.line(format!("{name} = {} == 1", library.array(&array)));
        }
        Content::Given { .. } => {}
    }
    out
}

fn documents(out: &mut Text, name: &str, rows: &[(i64, Vec<i64>)], len: i64, library: Library) {
    let lists: Vec<String> = rows.iter().map(|(_, lengths)| list(26, lengths)).collect();
    if let [(0, lengths)] = rows
        && lengths.iter().sum::<i64>() == len
    {
        out.line("# tokens of each document");
        out.line(format!("document_lengths = {}", lists[0]));
        out.line(match library {
            Library::PyTorch => format!(
                "{name} = torch.repeat_interleave(torch.arange({}), torch.tensor(document_lengths))",
                lengths.len()
            ),
            _ => format!("{name} = np.repeat(np.arange({}), document_lengths)", lengths.len()),
        });
        return;
    }
    let starts: Vec<i64> = rows.iter().map(|row| row.0).collect();
    let later = starts.iter().any(|start| *start != 0);
    let one = rows.len() == 1;
    out.line(format!("# tokens of each document{}", if one { "" } else { ", one list for each batch row" }));
    out.line(format!("document_lengths = {}", if one { lists[0].clone() } else { list(20, lists) }));
    if later && !one {
        out.line("# position of the first token of the first document of each batch row");
        out.line(format!("document_starts = {}", list(20, &starts)));
    }
    out.line(format!("{name} = {}", filled(library, &sizes(rows.len(), len), -1)));
    let first = match (later, one) {
        (false, _) => "0".to_string(),
        (true, true) => starts[0].to_string(),
        (true, false) => "document_starts[row]".into(),
    };
    let (indent, place) = if one { ("", "") } else { ("    ", "row, ") };
    if !one {
        out.line("for row, row_lengths in enumerate(document_lengths):");
    }
    out.line(format!("{indent}start = {first}"));
    out.line(format!(
        "{indent}for document, length in enumerate({}):",
        if one { "document_lengths" } else { "row_lengths" }
    ));
    out.line(format!("{indent}    {name}[{place}start : start + length] = document"));
    out.line(format!("{indent}    start += length"));
}

fn ranges(out: &mut Text, name: &str, (rows, len, note): (&[Vec<(i64, i64)>], i64, &str), library: Library) {
    let one = rows.len() == 1;
    let each =
        |row: &Vec<(i64, i64)>| list(name.len() + 12, row.iter().map(|(start, end)| format!("({start}, {end})")));
    let given = format!("{name}_ranges");
    out.line(format!("# {note}{}", if one { "" } else { ", one list for each batch row" }));
    out.line(format!("{given} = {}", if one { each(&rows[0]) } else { list(given.len() + 3, rows.iter().map(each)) }));
    out.line(format!("{name} = {}", nothing(library, &sizes(rows.len(), len))));
    if one {
        out.line(format!("for start, end in {given}:\n    {name}[start:end] = True"));
    } else {
        out.line(format!("for row, row_ranges in enumerate({given}):\n    for start, end in row_ranges:\n        {name}[row, start:end] = True"));
    }
}

fn tree(out: &mut Text, table: &Table, library: Library) {
    let Content::Tree { parents, runs, window, chunk, nodes } = &table.content else { return };
    let name = &table.name;
    if runs.is_empty() {
        out.line("# parent of each node, -1 for a root");
        out.line(format!("parents = {}", list(12, parents)));
    } else {
        out.line("# parent of each run of nodes, -1 for a root, and number of nodes of each run");
        out.line(format!("run_parents = {}\nrun_lengths = {}", list(14, parents), list(14, runs)));
        out.line("ends = [sum(run_lengths[: run + 1]) for run in range(len(run_lengths))]\nparents = []");
        out.line("for parent, length in zip(run_parents, run_lengths):");
        out.line("    parents.append(ends[parent] - 1 if parent >= 0 else -1)\n    parents.extend(range(len(parents) - 1, len(parents) + length - 2))");
    }
    out.line(format!("{name} = {}", nothing(library, &format!("({nodes}, {nodes})"))));
    out.line(format!(
        "for node in range({nodes}):\n    path = [node]  # the node and its ancestors, the nearest first"
    ));
    out.line("    while parents[path[-1]] >= 0:\n        path.append(parents[path[-1]])");
    let mut limits = Vec::new();
    limits.extend(window.map(|window| window.to_string()));
    limits.extend(chunk.map(|chunk| format!("(len(path) - 1) % {chunk} + 1")));
    let part = match &limits[..] {
        [] => String::new(),
        [limit] => format!("[: {limit}]"),
        limits => format!("[: min({})]", limits.join(", ")),
    };
    out.line(format!("    {name}[node, path{part}] = True"));
}

fn blocks(out: &mut Text, table: &Table, library: Library) {
    let Content::Blocks { first, rows, cols, blocks, count, seed } = &table.content else { return };
    let name = &table.name;
    out.line(format!("# {count} random key blocks for each query block"));
    out.line(format!("{name} = {}", nothing(library, &format!("({rows}, {cols})"))));
    out.line(format!("for row in range({rows}):"));
    let block = if *first == 0 { "row".into() } else { format!("row + {first}").replace("+ -", "- ") };
    let block = if *first == 0 { block } else { format!("({block})") };
    out.line("    chosen = set()");
    out.line(format!("    for number, top in enumerate(range({}, {blocks})):", blocks - count));
    out.line(format!(
        "        words = philox([number, 0xB10C, {block} & 0xFFFFFFFF, {block} >> 32 & 0xFFFFFFFF], {seed})"
    ));
    out.line("        pick = ((words[0] << 32 | words[1]) * (top + 1)) >> 64");
    out.line("        chosen.add(top if pick in chosen else pick)");
    out.line(format!("    {name}[row, sorted(chosen)] = True"));
}
