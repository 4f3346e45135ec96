use super::{Picture, scene::Scene};
pub(super) fn draw(_: &Picture<'_>, _: &Scene) -> String { "<svg".into() }
