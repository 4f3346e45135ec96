//! [`Server`]: the state that all requests share: workers, definitions of masks, and memory for bodies and answers.

use crate::budget::{Budget, Share};
use crate::call::{Call, Speeds};
use crate::http::{BODY, Body, BodyError};
use crate::pool::Pool;
use crate::problem::{Problem, Result};
use crate::store::Store;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The maximum memory for bodies and answers at a time, in MiB.
const MOST_HELD: usize = 1024;
/// The maximum time for which a request waits for memory.
const PATIENCE: Duration = Duration::from_secs(10);
/// The maximum time of the measurement of this machine's speed.
const MEASURE: Duration = Duration::from_secs(60);

/// The state that all requests share.
pub(crate) struct Server {
    /// The workers that answer requests about masks.
    pub(crate) masks: Pool,
    /// The worker that answers requests about texts, and measures this machine.
    pub(crate) model: Pool,
    pub(crate) store: Arc<Store>,
    /// The maximum number of workers for masks.
    pub(crate) workers: usize,
    /// The free memory, one unit for each MiB.
    memory: Arc<Budget>,
    speeds: Mutex<Option<Speeds>>,
}

impl Server {
    /// Returns a server. Its workers for masks and for texts are this program, started with these arguments.
    pub(crate) fn new(masks: &[String], model: &[String], workers: usize) -> Self {
        let store = Arc::new(Store::default());
        Server {
            masks: Pool::new(masks.to_vec(), workers, store.clone()),
            model: Pool::new(model.to_vec(), 1, store.clone()),
            store,
            workers,
            memory: Budget::new(MOST_HELD),
            speeds: Mutex::default(),
        }
    }

    /// Reserves memory for this many bytes.
    pub(crate) fn memory(&self, bytes: usize) -> Result<Share> {
        let mebibytes = bytes.div_ceil(1 << 20).clamp(1, MOST_HELD);
        let share = self.memory.take(mebibytes, PATIENCE);
        share.ok_or_else(|| Problem::status(503, "the requests take too much memory together: try again in a moment"))
    }

    /// Reads the body of a request, and returns it with its reserved memory. Returns an error if the body has more than
    /// `most` bytes.
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
            Err(BodyError::Broken(error)) => Err(Problem::new(format!("the request's body is broken: {error}"))),
            Err(BodyError::Slow) => {
                Err(Problem::status(408, format!("the request did not arrive within {} s", BODY.as_secs())))
            }
        }
    }

    /// Returns the speed of this machine, which is measured at the first call.
    pub(crate) fn speeds(&self) -> Result<Speeds> {
        let mut speeds = self.speeds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(speeds) = &*speeds {
            return Ok(speeds.clone());
        }
        let answer = self.model.call(Call::Calibrate, Vec::new(), MEASURE, &|| false)?;
        if answer.head.status != 200 {
            return Err(Problem::status(500, "the speed of this machine cannot be measured"));
        }
        let measured: Speeds = serde_json::from_slice(&answer.blobs[0])?;
        *speeds = Some(measured.clone());
        Ok(measured)
    }
}
