//! Training: masked-LM and causal-LM over packed documents, with AdamW and checkpoints. A process may be stopped at any
//! time.
//!
//! Random choices (weights, order of rows, corruption) follow from the seed and the step, nothing depends on time or
//! threads, and a checkpoint holds the weights and the optimiser's averages to the bit. Training that was stopped and
//! continued therefore ends with the same weights as training that was not.

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
