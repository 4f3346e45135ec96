//! Rows of arrays that a thread will read or write soon. They are prefetched line by line *during* a product: many
//! prefetches one after another would wait for each other, and the product would wait for them.

use crate::inputs::view::Layout;

/// Rows of an array to prefetch, and the place up to which they are prefetched. Adjacent rows count as one long row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    /// The address of the current row. Only prefetches use addresses of rows, so they may be outside any memory.
    row: *const u8,
    /// The number of bytes of a row, and the number of bytes of the current row that are not prefetched.
    width: usize,
    left: usize,
    /// The number of rows after the current one, and the number of bytes from one row to the next.
    rows: usize,
    stride: isize,
}

impl Ahead {
    /// Returns `rows` rows of an array that begins at `data`, from the row at `[batch, head, row]` on. If the numbers of a
    /// row are not adjacent, no row is prefetched.
    pub(crate) fn new<T>(data: *const T, layout: &Layout, at: [usize; 3], rows: usize) -> Self {
        let row = data.wrapping_add(layout.index([at[0], at[1], at[2], 0])).cast();
        let width = layout.shape[3] * size_of::<T>();
        // The stride of a dimension of length 1 may be any number.
        let stride = layout.strides[2].wrapping_mul(size_of::<T>() as isize);
        if rows == 0 || layout.strides[3] != 1 {
            Self::nothing()
        } else if stride == width as isize {
            Ahead { row, width: rows * width, left: rows * width, rows: 0, stride }
        } else {
            Ahead { row, width, left: width, rows: rows - 1, stride }
        }
    }

    /// Returns an `Ahead` without rows.
    #[inline(always)]
    pub(crate) fn nothing() -> Self {
        Ahead { row: std::ptr::null(), width: 0, left: 0, rows: 0, stride: 0 }
    }

    /// Returns whether all rows are prefetched.
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Returns the addresses that the next steps of a loop prefetch, as `(first address, bytes from one address to the
    /// next, number of steps)`. There are at least one and at most `steps` steps, which must not be 0. `each` is the
    /// number of bytes that a step prefetches. If no row is left, the second result is 0, and nothing has to be prefetched.
    #[inline(always)]
    pub(crate) fn take(&mut self, steps: usize, each: usize) -> (*const u8, usize, usize) {
        let next = self.row.wrapping_add(self.width - self.left);
        if self.left == 0 {
            return (next, 0, steps);
        }
        let steps = steps.min(self.left.div_ceil(each));
        self.left = self.left.saturating_sub(steps * each);
        if self.left == 0 && self.rows > 0 {
            self.row = self.row.wrapping_offset(self.stride);
            self.left = self.width;
            self.rows -= 1;
        }
        (next, each, steps)
    }
}

/// The rows that a thread will read or write after its current products, in the order of their use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Upcoming {
    rows: [Ahead; 4],
    current: usize,
}

impl Upcoming {
    /// Returns the given rows, in the order in which they are prefetched.
    pub(crate) fn new(rows: [Ahead; 4]) -> Self {
        Upcoming { rows, current: 0 }
    }

    /// Returns the rows that are prefetched next.
    #[inline(always)]
    pub(crate) fn current(&mut self) -> &mut Ahead {
        while self.current + 1 < self.rows.len() && self.rows[self.current].is_done() {
            self.current += 1;
        }
        &mut self.rows[self.current]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::View;

    /// Returns the index of the number at each address that is prefetched if steps of `each` bytes are taken, a few at a
    /// time.
    fn prefetched(data: &[f32], mut ahead: Ahead, each: usize) -> Vec<usize> {
        let mut found = Vec::new();
        for steps in (1..4).cycle() {
            if ahead.is_done() {
                return found;
            }
            let (first, bytes, count) = ahead.take(steps, each);
            assert!((1..=steps).contains(&count) && bytes == each);
            found.extend((0..count).map(|i| (first.addr() + i * bytes - data.as_ptr().addr()) / size_of::<f32>()));
        }
        found
    }

    #[test]
    fn every_line_of_every_row_is_prefetched_once() {
        let data = vec![0.0; 2 * 3 * 5 * 32];
        let shape = [2, 3, 5, 32];
        let dense = View::new(&data, shape).unwrap().into_parts().1;
        let expected: Vec<usize> = (0..3 * 32).step_by(16).map(|i| (3 * 5 + 5 + 2) * 32 + i).collect();
        assert_eq!(prefetched(&data, Ahead::new(data.as_ptr(), &dense, [1, 1, 2], 3), 64), expected);
        // [batch, rows, heads, numbers] memory, read backwards: rows are far apart.
        let strides = [5 * 3 * 32, 32, -(3 * 32), 1];
        let apart = View::strided(&data, shape, strides, 4 * 3 * 32).unwrap().into_parts().1;
        let expected: Vec<usize> = (2..5).flat_map(|row| [0, 16].map(|i| ((4 - row) * 3 + 1) * 32 + i)).collect();
        assert_eq!(prefetched(&data, Ahead::new(data.as_ptr(), &apart, [0, 1, 2], 3), 64), expected);
        let quarters = prefetched(&data, Ahead::new(data.as_ptr(), &apart, [0, 1, 2], 3), 16);
        assert_eq!(quarters.len(), 4 * expected.len());
        assert_eq!(quarters.iter().step_by(4).copied().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn nothing_is_prefetched_of_rows_whose_numbers_are_apart() {
        let data = vec![0.0f32; 64];
        let apart = View::strided(&data, [1, 1, 4, 8], [0, 0, 1, 4], 0).unwrap().into_parts().1;
        assert!(Ahead::new(data.as_ptr(), &apart, [0; 3], 4).is_done());
        // A stride that no step uses may be any number.
        let one = View::strided(&data, [1, 1, 1, 8], [0, 0, isize::MAX, 1], 0).unwrap().into_parts().1;
        assert_eq!(prefetched(&data, Ahead::new(data.as_ptr(), &one, [0; 3], 1), 64), [0]);
    }
}
