//! The languages and libraries for which code is written.

pub(crate) mod arrays;
pub(crate) mod native;
pub(crate) mod own;
pub(crate) mod python;
pub(crate) mod pytorch;
pub(crate) mod rust;
