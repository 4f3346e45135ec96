//! The messages between the server and its workers.

use crate::call::Call;
use serde::{Deserialize, Serialize};

/// The content type of most answers.
pub(crate) const JSON: &str = "application/json";

/// The head of a message that sends a call to a worker. The blobs of the message are sequences of bytes; the first blob
/// is the body of the call.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) call: Call,
    /// The identities of the masks whose definitions are in the blobs after the first blob, in the same order.
    pub(crate) defined: Vec<String>,
}

/// The head of a worker's answer to a call. The first blob of the answer, a sequence of bytes, is the body of the
/// response; the other blobs are definitions of new masks.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    /// The file name with which the browser saves a download; `None` if the answer is not a download.
    pub(crate) file_name: Option<String>,
    /// The identity of a mask whose definition the worker needs before it can answer the call; `None` if no definition
    /// is missing.
    pub(crate) needs: Option<String>,
}

impl Reply {
    /// Returns a reply with status 200 and this content type.
    pub(crate) fn of(content_type: &str) -> Self {
        Reply { status: 200, content_type: content_type.into(), ..Reply::default() }
    }
}
