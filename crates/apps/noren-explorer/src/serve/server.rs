//! [`Server`]: the state that all requests share: workers, definitions of masks, and memory for bodies and answers.

use crate::request::call::{Call, Numbers, Question, Speeds};
use crate::request::problem::{Problem, Result};
use crate::request::query::Query;
use crate::request::store::Store;
use crate::serve::guard::hosts;
use crate::serve::http::Share;
use crate::serve::pool::Pool;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;

/// The maximum time that a client may take to send the body of a request.
const BODY: Duration = Duration::from_secs(60);
/// The maximum memory for bodies and answers at a time, in MiB.
const MOST_HELD: usize = 1024;
/// The maximum time for which a request waits until enough memory is free.
const PATIENCE: Duration = Duration::from_secs(10);
/// The maximum time of the measurement of this machine's speed.
const MEASURE: Duration = Duration::from_secs(60);

/// The state of the server of the explorer, which all requests share.
pub(crate) struct Server {
    pub(crate) hosts: Vec<String>,
    /// The worker processes that answer requests about masks.
    pub(crate) masks: Arc<Pool>,
    /// The pool with one worker, which runs the text model and measures the speed of this machine.
    pub(crate) model: Arc<Pool>,
    pub(crate) store: Arc<Store>,
    /// The memory that is free for bodies and answers: one permit for each MiB.
    memory: Arc<Semaphore>,
    speeds: Mutex<Vec<Speeds>>,
}

impl Server {
    /// Returns a server that is reached at `port` of this machine. Its worker processes run this program: with the
    /// arguments `masks` for requests about masks, and with the arguments `model` for requests about texts. `workers` is
    /// the maximum number of processes for masks.
    pub(crate) fn new(port: u16, masks: &[String], model: &[String], workers: usize) -> Self {
        let store = Arc::default();
        Server {
            hosts: hosts(port),
            masks: Pool::new(masks, workers, &store),
            model: Pool::new(model, 1, &store),
            store,
            memory: Arc::new(Semaphore::new(MOST_HELD)),
            speeds: Mutex::default(),
        }
    }

    /// Reserves memory for `bytes` bytes. Waits if other requests use too much memory; returns an error after a wait of
    /// `PATIENCE`.
    pub(crate) async fn memory(&self, bytes: usize) -> Result<Share> {
        let mebibytes = bytes.div_ceil(1 << 20).clamp(1, MOST_HELD);
        let share = timeout(PATIENCE, self.memory.clone().acquire_many_owned(mebibytes as u32)).await;
        share.ok().and_then(std::result::Result::ok).ok_or_else(|| {
            Problem::status(
                503,
                "the requests that the server answers now need too much memory together: try again in a moment",
            )
        })
    }

    /// Reads the body of a request. Returns the bytes of the body with the reservation of their memory, or an error if
    /// the body has more than `most` bytes.
    pub(crate) async fn body(&self, body: &mut Incoming, most: usize) -> Result<(Vec<u8>, Share)> {
        let large = || Problem::status(413, format!("the request is larger than {most} bytes"));
        let announced = body.size_hint().exact();
        if announced.is_some_and(|n| n > most as u64) {
            return Err(large());
        }
        let share = self.memory(announced.map_or(most, |n| n as usize)).await?;
        let mut bytes = Vec::new();
        let read = async {
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|e| Problem::new(format!("the request's body cannot be read: {e}")))?;
                let data = frame.into_data().unwrap_or_default();
                if data.len() > most - bytes.len() {
                    return Err(large());
                }
                bytes.extend_from_slice(&data);
            }
            Ok(())
        };
        let late = || Problem::status(408, format!("the request did not arrive within {} s", BODY.as_secs()));
        timeout(BODY, read).await.map_err(|_| late())??;
        Ok((bytes, share))
    }

    /// Returns the speed of attention on this machine for the head dimension and the data type in `numbers`. The speed
    /// is measured at the first call with these numbers.
    pub(crate) async fn speeds(&self, query: &Query) -> Result<Speeds> {
        let numbers = Numbers::of(query)?;
        let mut speeds = self.speeds.lock().await;
        if let Some(speeds) = speeds.iter().find(|speeds| speeds.numbers == numbers) {
            return Ok(speeds.clone());
        }
        let call = Call { question: Question::Calibrate, places: Vec::new(), query: query.clone(), speeds: None };
        let answer = self.model.turn().await?.call(call, Vec::new(), MEASURE).await?;
        if answer.head.status != 200 {
            return Err(Problem::status(500, "the speed of this machine cannot be measured"));
        }
        let measured: Speeds = serde_json::from_slice(&answer.blobs[0])?;
        speeds.push(measured.clone());
        Ok(measured)
    }
}
