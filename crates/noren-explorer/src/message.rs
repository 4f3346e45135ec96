//! The messages between the server and its workers.

use crate::call::Call;
use serde::{Deserialize, Serialize};

/// The content type of most answers.
pub(crate) const JSON: &str = "application/json";

/// A call on its way to a worker; the first blob is the body.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) call: Call,
    /// The identities of the masks that the blobs after the first define.
    pub(crate) defined: Vec<String>,
}

/// An answer on its way back; the first blob is the body, the others define new masks.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    /// The file name of a download.
    pub(crate) file_name: Option<String>,
    /// A mask whose definition the worker needs before it can answer the call.
    pub(crate) needs: Option<String>,
}

impl Reply {
    /// A success.
    pub(crate) fn of(content_type: &str) -> Self {
        Reply { status: 200, content_type: content_type.into(), ..Reply::default() }
    }
}
