//! Rows of arrays that a thread will read or write soon. They are prefetched line by line *during* a product: many
//! prefetches one after another would wait for each other, and the product would wait for them.

use crate::view::Layout;

/// Rows of an array to prefetch, and the place up to which they are prefetched. Adjacent rows count as one long row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    /// The address of the next byte to prefetch.
    next: *const u8,
    /// The number of bytes of the current row that are not prefetched.
    left: usize,
    /// The number of rows after the current one, the bytes of a row, and the bytes from one row to the next.
    rows: usize,
    width: usize,
    stride: isize,
}

impl Ahead {
    /// Returns `rows` rows of an array that begins at `data`, from the row at `[batch, head, row]` on. Rows whose numbers
    /// are not adjacent are not prefetched.
    pub(crate) fn new<T>(data: *const T, layout: &Layout, at: [usize; 3], rows: usize) -> Self {
        let next: *const u8 = data.wrapping_add(layout.index([at[0], at[1], at[2], 0])).cast();
        let (stride, width) = (layout.strides[2] * size_of::<T>() as isize, layout.shape[3] * size_of::<T>());
        if rows == 0 || layout.strides[3] != 1 {
            Self::nothing(next)
        } else if stride == width as isize {
            Ahead { next, left: rows * width, rows: 0, width, stride }
        } else {
            Ahead { next, left: width, rows: rows - 1, width, stride }
        }
    }

    /// Returns rows that are all prefetched already. `near` is an address that is in a cache: a loop prefetches it in
    /// every step.
    #[inline(always)]
    pub(crate) fn nothing<T>(near: *const T) -> Self {
        Ahead { next: near.cast(), left: 0, rows: 0, width: 0, stride: 0 }
    }

    /// Returns whether all rows are prefetched.
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Returns addresses to prefetch in the next `times` steps of a loop, as `(first address, bytes from one address to
    /// the next, number of steps)`; at least one step. `each` is the number of bytes to prefetch in a step. If all rows
    /// are prefetched, the address stays the same.
    #[inline(always)]
    pub(crate) fn take(&mut self, times: usize, each: usize) -> (*const u8, usize, usize) {
        if self.left == 0 {
            return (self.next, 0, times);
        }
        let steps = times.min(self.left.div_ceil(each));
        let run = (self.next, each, steps);
        self.left = self.left.saturating_sub(steps * each);
        self.next = self.next.wrapping_add(steps * each);
        if self.left == 0 && self.rows > 0 {
            let back = (self.width.div_ceil(each) * each) as isize;
            self.next = self.next.wrapping_offset(self.stride - back);
            self.left = self.width;
            self.rows -= 1;
        }
        run
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
