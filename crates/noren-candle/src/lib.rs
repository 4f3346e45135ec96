//! Masked transformers on candle.
