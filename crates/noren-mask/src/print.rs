//! stub
use crate::Mask;
impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.node().fmt(f)
    }
}
impl std::fmt::Display for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.node())
    }
}
impl Mask {
    /// stub
    pub fn check(&self) -> Result<(), crate::Error> {
        Ok(())
    }
    /// stub
    pub fn simplify(&self) -> Mask {
        self.clone()
    }
}
