//! [`Server`]: the state that all requests share: workers, definitions of masks, and memory for bodies and answers.

use crate::request::call::{Call, Numbers, Question, Speeds};
use crate::request::problem::{Problem, Result};
use crate::request::query::Query;
use crate::request::store::Store;
use crate::serve::budget::{Budget, Share};
use crate::serve::http::{BODY, Body, BodyError};
use crate::serve::pool::Pool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The maximum memory for bodies and answers at a time, in MiB.
const MOST_HELD: usize = 1024;
/// The maximum time for which a request waits until enough memory is free.
const PATIENCE: Duration = Duration::from_secs(10);
/// The maximum time of the measurement of this machine's speed.
const MEASURE: Duration = Duration::from_secs(60);

/// The state of the server of the explorer, which all requests share.
pub(crate) struct Server {
    /// The worker processes that answer requests about masks.
    pub(crate) masks: Pool,
    /// The pool with one worker, which runs the text model and measures the speed of this machine.
    pub(crate) model: Pool,
    pub(crate) store: Arc<Store>,
    /// The maximum number of worker processes for masks.
    /// The budget of the memory for bodies and answers. One unit of the budget is 1 MiB.
    memory: Arc<Budget>,
    speeds: Mutex<Vec<Speeds>>,
}

impl Server {
    /// Returns a server. Its worker processes run this program: with the arguments `masks` for requests about masks,
    /// and with the arguments `model` for requests about texts. `workers` is the maximum number of processes for masks.
    pub(crate) fn new(masks: &[String], model: &[String], workers: usize) -> Self {
        let store = Arc::new(Store::default());
        Server {
            masks: Pool::new(masks.to_vec(), workers, store.clone()),
            model: Pool::new(model.to_vec(), 1, store.clone()),
            store,
            memory: Budget::new(MOST_HELD),
            speeds: Mutex::default(),
        }
    }

    /// Reserves memory for `bytes` bytes. Waits if other requests use too much memory; returns an error after a wait of
    /// `PATIENCE`.
    pub(crate) fn memory(&self, bytes: usize) -> Result<Share> {
        let mebibytes = bytes.div_ceil(1 << 20).clamp(1, MOST_HELD);
        let share = self.memory.take(mebibytes, PATIENCE);
        share.ok_or_else(|| {
            Problem::status(
                503,
                "the requests that the server answers now need too much memory together: try again in a moment",
            )
        })
    }

    /// Reads the body of a request. Returns the bytes of the body with the reservation of their memory, or an error if
    /// the body has more than `most` bytes.
    pub(crate) fn body(&self, body: &mut Body<'_>, most: usize) -> Result<(Vec<u8>, Share)> {
        let large = || Problem::status(413, format!("the request is larger than {most} bytes"));
        let announced = body.length();
        if announced.is_some_and(|n| n > most as u64) {
            return Err(large());
        }
        let share = self.memory(announced.map_or(most, |n| n as usize))?;
        match body.read(most) {
            Ok(bytes) => Ok((bytes, share)),
            Err(BodyError::Large) => Err(large()),
            Err(BodyError::Broken(error)) => Err(Problem::new(format!("the request's body cannot be read: {error}"))),
            Err(BodyError::Slow) => {
                Err(Problem::status(408, format!("the request did not arrive within {} s", BODY.as_secs())))
            }
        }
    }

    /// Returns the speed of attention on this machine for the head dimension and the data type in `numbers`. The speed
    /// is measured at the first call with these numbers.
    pub(crate) fn speeds(&self, query: &Query) -> Result<Speeds> {
        let numbers = Numbers::of(query)?;
        let mut speeds = self.speeds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(speeds) = speeds.iter().find(|speeds| speeds.numbers == numbers) {
            return Ok(speeds.clone());
        }
        let call = Call { question: Question::Calibrate, places: Vec::new(), query: query.clone(), speeds: None };
        let answer = self.model.turn(&|| false)?.call(call, Vec::new(), MEASURE)?;
        if answer.head.status != 200 {
            return Err(Problem::status(500, "the speed of this machine cannot be measured"));
        }
        let measured: Speeds = serde_json::from_slice(&answer.blobs[0])?;
        speeds.push(measured.clone());
        Ok(measured)
    }
}
