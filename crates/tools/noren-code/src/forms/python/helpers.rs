//! Helper functions that the Python code of some masks defines.

use super::Library;
use super::text::Text;
use crate::program::table::Content;
use crate::program::{Program, Test};

/// Returns the Python code of the helper functions that the code of `program` calls: those for its conditions (such as a
/// search in ranges) and those for its tables.
pub(crate) fn helpers(program: &Program, library: Library) -> Text {
    let mut out = Text::default();
    let mut add = |needed: bool, code: String| {
        if needed {
            let mut text = Text::default();
            text.line(code);
            out.block(text);
            out.gap();
        }
    };
    let module = library.module();
    let drawn = program.has(&|test| matches!(test, Test::Drawn { .. }));
    let blocks = program.tables.iter().any(|table| matches!(table.content, Content::Blocks { .. }));
    add(program.has(&|test| matches!(test, Test::OneOf(..))), ONE_OF.into());
    add(program.has(&|test| matches!(test, Test::InRanges(..))), IN_RANGES.into());
    add(program.has(&|test| matches!(test, Test::SameRange(..))), SAME_RANGE.into());
    let near = match library {
        Library::PyTorch => {
            "torch.minimum(torch.clamp(x // step - window // 2, min=0), torch.clamp(cells - window, min=0))".into()
        }
        _ => format!(
            "{module}.minimum({module}.maximum(x // step - window // 2, 0), {module}.maximum(cells - window, 0))"
        ),
    };
    add(program.has(&|test| matches!(test, Test::Near { .. })), NEAR.replace("FIRST", &near));
    add(drawn || blocks, PHILOX.into());
    let wide = if library == Library::PyTorch { "to(torch.int64)" } else { "astype(np.int64)" };
    add(drawn, DRAWN.replace("WIDE", wide));
    out
}

const ONE_OF: &str = r"def one_of(value, numbers):
    found = value == numbers[0]
    for number in numbers[1:]:
        found = found | (value == number)
    return found";

const IN_RANGES: &str = r"def in_ranges(value, ranges):  # ranges [start, end), without an end if it is None
    found = value != value
    for start, end in ranges:
        found = found | ((value >= start) & (value < end) if end is not None else value >= start)
    return found";

const SAME_RANGE: &str = r"def same_range(q, k, ranges):  # ranges [start, end), without an end if it is None
    found = q != q
    for start, end in ranges:
        both = (q >= start) & (k >= start)
        found = found | (both & (q < end) & (k < end) if end is not None else both)
    return found";

const NEAR: &str = r"def near(x, y, length, window, step):
    # coordinate y is in the window around x, which moves inward at the edges; cells of a window are `step` apart
    cells = (length - x % step + step - 1) // step
    first = FIRST
    return (x % step == y % step) & (y // step >= first) & (y // step < first + window)";

const PHILOX: &str = r"def philox(counter, seed):  # Philox 4x32-10, a random generator that computes numbers from a counter
    word = 0xFFFFFFFF
    c0, c1, c2, c3 = counter
    k0, k1 = seed & word, seed >> 32
    for _ in range(10):
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (b >> 32 & word) ^ c1 ^ k0, b & word, (a >> 32 & word) ^ c3 ^ k1, a & word
        k0, k1 = (k0 + 0x9E3779B9) & word, (k1 + 0xBB67AE85) & word
    return c0, c1, c2, c3";

const DRAWN: &str = r"def drawn(q, k, seed, threshold):  # one random number for each pair of positions
    q, k = q.WIDE, k.WIDE
    block, word = k // 4, 0xFFFFFFFF
    words = philox([block & word, block >> 32 & word, q & word, q >> 32 & word], seed)
    return sum((k % 4 == at) * words[at] for at in range(4)) < threshold";
