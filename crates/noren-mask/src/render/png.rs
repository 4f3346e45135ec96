use super::scene::Scene; use crate::Error;
pub(super) fn draw(_: &Scene) -> Result<Vec<u8>, Error> { Ok(vec![]) }
