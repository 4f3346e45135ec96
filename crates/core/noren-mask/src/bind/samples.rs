//! Compares samples of the bounds of functions with their cells.

use crate::Error;
use crate::mask::Mask;
use crate::mask::pattern::Pattern;
use crate::sets::bounds::Bounds;
use crate::sets::frame::Frame;
use crate::sets::interval::IntervalSet;
use crate::sets::philox::philox;

/// Compares samples of the bounds of each atom in the first patterns with its rows. [`Mask::bind`] calls this function with debug assertions
/// for masks with functions, because wrong bounds give wrong cells in whole tiles.
///
/// # Errors
/// Returns [`Error::Atom`] with the first sample that differs.
pub(super) fn sample_bounds<'a>(
    mask: &Mask,
    patterns: impl Iterator<Item = (&'a Frame, &'a Pattern)>,
) -> Result<(), Error> {
    for (frame, pattern) in patterns.take(8) {
        let atoms = pattern.leaves().into_iter().filter_map(|leaf| match leaf {
            Pattern::Atom(atom) => Some(atom),
            _ => None,
        });
        for (atom, sample) in atoms.flat_map(|atom| (0..12).map(move |sample| (atom, sample))) {
            let [start, length, within, key] = philox([sample, 0, 0, 0], 0);
            let rows = start % frame.q_len..frame.q_len.min(start % frame.q_len + 1 + length % 64);
            let Some(Bounds { upper, lower }) = atom.bounds(frame, rows.clone()) else { continue };
            // bounds that are wrong by a few positions are wrong at the ends of their ranges
            let ends = [&upper, &lower].into_iter().filter_map(IntervalSet::covering_range);
            let keys = ends.flat_map(|keys| [keys.start.wrapping_sub(1), keys.start, keys.end - 1, keys.end]);
            for key in keys.chain([key % frame.kv_len]).filter(|key| *key < frame.kv_len) {
                if upper.contains(key) && !lower.contains(key) {
                    continue;
                }
                for row in [rows.start, rows.start + within % rows.len() as u32, rows.end - 1] {
                    let mut read = false;
                    atom.row(frame, row, (key, key + 1), &mut |_, _| read = true);
                    let (problem, list) = match read {
                        true if !upper.contains(key) => ("reads", "`some` leaves this key out"),
                        false if lower.contains(key) => ("does not read", "`every` contains this key"),
                        _ => continue,
                    };
                    return Err(Error::atom(
                        mask,
                        format!(
                            "the bounds of the query positions {}..{} are wrong: the query at position {} {problem} the key at position {}, but {list}",
                            frame.query(rows.start),
                            frame.query(rows.end),
                            frame.query(row),
                            frame.key(key)
                        ),
                    ));
                }
            }
        }
    }
    Ok(())
}
