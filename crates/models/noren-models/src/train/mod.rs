//! Training: masked-LM and causal-LM over packed documents, with AdamW and checkpoints. A process may be stopped at any
//! time.
//!
//! Random choices (weights, order of rows, corruption) depend only on the seed and the step, and nothing depends on time or
//! threads. A checkpoint stores the exact weights and averages of the optimiser. Training that was stopped and continued
//! therefore ends with the same weights as training without a stop.

mod checkpoint;
mod config;
mod history;
mod learner;
mod loss;
mod trainer;
mod weights;

pub use config::TrainConfig;
pub use history::{History, Point};
pub use trainer::{Progress, Trained, Trainer};
