//! [`QueryRows`]: the tokens of the query rows of one batch row.

use noren_mask::Error;
use noren_mask::interval::IntervalSet;
use noren_mask::resolve::{QueryTokens, RowFacts};
use std::ops::Range;

/// The tokens of the query rows of one batch row. Each entry of `pieces` is a range of query rows with consecutive
/// tokens; the entries are in ascending order of query rows.
#[derive(Clone, Debug)]
pub(super) struct QueryRows {
    pieces: Vec<QueryTokens>,
}

impl QueryRows {
    /// Returns the token of each query row: the key at the position of the query.
    ///
    /// # Errors
    /// Returns an error if no key has the position of a query.
    pub(super) fn of(row: RowFacts<'_>) -> Result<Self, Error> {
        let pieces = row.query_tokens();
        let mut next = 0;
        for piece in &pieces {
            if piece.rows.start != next {
                break;
            }
            next = piece.rows.end;
        }
        let frame = row.frame;
        if next == frame.q_len {
            return Ok(QueryRows { pieces });
        }
        let first = frame.offset;
        let end = first + i64::from(frame.q_len);
        Err(Error::Shape(format!(
            "queries {first}..{end} of batch row {} are not among the {} keys: no key is at position {}; flow over layers needs \
             queries that are tokens of the keys' own sequence",
            row.row,
            frame.kv_len,
            frame.query(next)
        )))
    }

    /// Returns the query rows of `tokens`. Tokens that are not queries are left out.
    pub(super) fn rows_of(&self, tokens: &IntervalSet) -> IntervalSet {
        let shifted = |piece: &QueryTokens| {
            let (row, token) = (piece.rows.start, piece.token);
            let shift = move |at: u32| at - token + row;
            tokens.within(token, token + (piece.rows.end - row)).map(move |i| shift(i.start)..shift(i.end))
        };
        self.pieces.iter().flat_map(|piece| shifted(piece).collect::<Vec<_>>()).collect()
    }

    /// Returns the tokens of the query rows `rows`.
    pub(super) fn tokens_of(&self, rows: &IntervalSet) -> IntervalSet {
        let ranges = rows.iter().flat_map(|i| self.tokens_in(i.start..i.end).collect::<Vec<_>>());
        ranges.collect()
    }

    /// Returns the tokens of a range of query rows, in ascending order of query rows.
    pub(super) fn tokens_in(&self, rows: Range<u32>) -> impl Iterator<Item = Range<u32>> + '_ {
        let first = self.pieces.partition_point(|piece| piece.rows.end <= rows.start);
        self.pieces[first..].iter().take_while(move |piece| piece.rows.start < rows.end).map(move |piece| {
            let token = |row: u32| row - piece.rows.start + piece.token;
            token(rows.start.max(piece.rows.start))..token(rows.end.min(piece.rows.end))
        })
    }

    /// Returns the token of query row `row`.
    pub(super) fn token_of(&self, row: u32) -> u32 {
        let piece = &self.pieces[self.pieces.partition_point(|piece| piece.rows.end <= row)];
        row - piece.rows.start + piece.token
    }
}
