//! Training data: documents packed into rows, and the tokens that a model predicts in them.
//!
//! [`Rows::pack`] splits documents and places them one after another into rows of one length; the mask (`causal &
//! documents & padding`) separates them. A [`Sampler`] draws batches of rows in an order that is shuffled for each
//! epoch. For masked language modelling, other tokens are chosen for replacement each time a row is drawn. All random
//! choices depend only on the seed and the number of the batch, so a training run that was stopped continues with the
//! same data.
//!
//! ```
//! use noren_text::ByteTokenizer;
//! use noren_text::data::{Objective, Rows, Sampler};
//! let rows = Rows::pack(&["one fine day", "it rained"], &ByteTokenizer, 32)?;
//! assert_eq!(rows.get(0).documents, [14, 11]); // each with a token that begins it and one that ends it
//! let sampler = Sampler::new(rows, &ByteTokenizer, Objective::Clm, 1)?;
//! let batch = sampler.batch(0, 1);
//! assert_eq!(batch.targets[0][0], Some(u32::from(b'o'))); // the model predicts the first letter at the begin token,
//! assert_eq!(batch.targets[0][13], None); // and nothing at the last token of a document
//! # Ok::<(), noren_text::Error>(())
//! ```

mod objective;
mod pack;

pub use objective::{Batch, Objective, Sampler};
pub use pack::{Row, Rows};
