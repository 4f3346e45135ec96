//! Removal of tokens from a cache: the last tokens ([`KvCache::truncate`]), all tokens ([`KvCache::clear`]), and the
//! rejected guesses of speculative decoding ([`KvCache::keep`]).

use super::{Form, KvCache, refuse};
use crate::{Element, Error};

impl<T: Element> KvCache<T> {
    /// Removes the last tokens of a sequence until `len` tokens are left. Blocks without tokens return to the pool.
    ///
    /// ```
    /// use noren::{KvCache, KvShape, View};
    /// let mut cache = KvCache::<f32>::paged(&KvShape::new(1, 2), 16, 3)?;
    /// let guesses = [0.0; 2 * 40];
    /// let guesses = View::new(&guesses, [1, 1, 40, 2])?;
    /// cache.append(guesses, guesses)?;
    /// assert_eq!(cache.free_blocks(), 0);
    /// cache.truncate(0, 17)?;
    /// assert_eq!((cache.len(0), cache.free_blocks()), (17, 1));
    /// # Ok::<(), noren::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if there is no such sequence, if `len` is above the sequence's length, or if a rotating cache
    /// has overwritten tokens of the window that ends at `len`. A rotating cache can remove the tokens of the last
    /// step.
    pub fn truncate(&mut self, sequence: usize, len: usize) -> Result<(), Error> {
        self.check_cut(sequence, len)?;
        self.cut(sequence, len);
        Ok(())
    }

    /// Removes all tokens of a sequence, as [`truncate`](Self::truncate) with `len` 0 does. In a paged cache, the
    /// blocks of the sequence return to the pool.
    ///
    /// # Errors
    /// Returns the errors of [`truncate`](Self::truncate).
    pub fn clear(&mut self, sequence: usize) -> Result<(), Error> {
        self.truncate(sequence, 0)
    }

    /// Keeps some of the last `guesses` tokens of a sequence and removes the others. `accepted` has the indices of the
    /// kept tokens, counted from the first of the last `guesses` tokens. The kept tokens move, in the same order, to
    /// the positions directly after the tokens before the guesses.
    ///
    /// After a step with a tree of guesses (`keys(..n) | tree(parents, start=n)`), `accepted` is the path of nodes that
    /// were accepted. The cache then has the same content as if only the accepted tokens had been appended, and later
    /// steps have the same bits. With a rotary embedding, the keys of a node must be rotated for the position `n` plus
    /// the depth of the node.
    ///
    /// ```
    /// use noren::{KvCache, KvShape, Mask, Options, View, atoms};
    /// let mut cache = KvCache::<f32>::contiguous(&KvShape::new(1, 2), 16)?;
    /// let tokens = [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [2.0, 1.0], [1.0, 2.0]].concat();
    /// let x = View::new(&tokens, [1, 1, 5, 2])?;
    /// cache.append(x, x)?;                    // 2 tokens, and 3 guesses of which the first is the parent of the others
    /// let guesses = View::new(&tokens[4..], [1, 1, 3, 2])?;
    /// let mask = atoms::keys(..2) | atoms::tree([-1, 0, 0], 2);
    /// let out = cache.attend(guesses, &mask, &Options::default())?;
    /// # let _ = out;
    /// cache.keep(0, 3, &[0, 2])?;             // the first guess and its second child
    /// assert_eq!(cache.len(0), 4);
    /// # Ok::<(), noren::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`truncate`](Self::truncate). Returns an error if there is no such sequence, if the
    /// sequence has fewer than `guesses` tokens, or if `accepted` does not ascend or has an index of `guesses` or more.
    /// After an error the cache is unchanged.
    pub fn keep(&mut self, sequence: usize, guesses: usize, accepted: &[usize]) -> Result<(), Error> {
        self.check_sequence(sequence)?;
        let held = self.sequences[sequence].len;
        let Some(start) = held.checked_sub(guesses) else {
            return refuse(format!(
                "`guesses` is {guesses}, but sequence {sequence} has only {held} tokens: give at most {held}"
            ));
        };
        if let Some(index) = accepted.iter().find(|index| **index >= guesses) {
            return refuse(format!("guess {index} is accepted, but there are {guesses} guesses, numbered from 0"));
        }
        if let Some(pair) = accepted.windows(2).find(|pair| pair[0] >= pair[1]) {
            return refuse(format!(
                "accepted guesses {} and {} do not ascend: give each index once, in ascending order",
                pair[0], pair[1]
            ));
        }
        let len = start + accepted.len();
        self.check_cut(sequence, len)?;
        let ring = self.ring();
        let oldest = start.max(ring.sink_tokens);
        if oldest < held && oldest.saturating_add(ring.len) < self.sequences[sequence].written {
            return refuse(format!(
                "the guessed tokens of sequence {sequence} begin at position {start}, which the cache has overwritten; only guesses of the \
                 last step can be kept"
            ));
        }
        let from: Vec<usize> = accepted.iter().map(|index| start + index).collect();
        self.store.gather::<T>(&self.sequences[sequence].pages, ring, &from, start);
        self.cut(sequence, len);
        Ok(())
    }

    fn check_sequence(&self, sequence: usize) -> Result<(), Error> {
        match self.sequences.len() {
            count if sequence >= count => {
                refuse(format!("there is no sequence {sequence}: sequences are numbered from 0 to {}", count - 1))
            }
            _ => Ok(()),
        }
    }

    /// Returns an error if a sequence cannot be truncated to `len` tokens.
    fn check_cut(&self, sequence: usize, len: usize) -> Result<(), Error> {
        self.check_sequence(sequence)?;
        let found = &self.sequences[sequence];
        if len > found.len {
            let held = found.len;
            return refuse(format!(
                "sequence {sequence} has {held} tokens and cannot be truncated to {len}: give at most {held}"
            ));
        }
        if let Form::Rotating { window, ring, .. } = self.form {
            let oldest = (len + 1).saturating_sub(window).max(ring.sink_tokens);
            if oldest < len && oldest + ring.len < found.written {
                return refuse(format!(
                    "sequence {sequence} cannot be truncated to {len} tokens: its window would begin at position {oldest}, which is \
                     overwritten; only the tokens of the last step can be removed"
                ));
            }
        }
        Ok(())
    }

    /// Truncates a sequence to `len` tokens, which [`check_cut`](Self::check_cut) must accept.
    fn cut(&mut self, sequence: usize, len: usize) {
        let found = &mut self.sequences[sequence];
        if let Form::Rotating { window, ring, .. } = self.form
            && (len + 1).saturating_sub(window).max(ring.sink_tokens) >= len
        {
            // After this truncation, no older slot is read again, except the slots of the sink tokens.
            found.written = len;
        }
        found.len = len;
        if let Form::Paged { block } = self.form {
            let kept = len.div_ceil(block);
            self.free.extend(found.pages.drain(kept..).rev());
        }
    }
}
