//! The facts that a mask reads.

use crate::facts::Facts;
use crate::mask::Mask;
use crate::mask::basis::Input;

impl Facts {
    /// Returns only the facts that `mask` reads. Positions of keys are always included. Lengths are included for documents,
    /// clearance levels and grids too, because tokens after the lengths need no document, level or grid cell.
    ///
    /// ```
    /// use noren_mask::{Facts, atoms::*};
    /// let facts = Facts::new().lengths([5, 3]).label("pii", [3..4]);
    /// assert_eq!(facts.used_by(&(causal() & padding())), Facts::new().lengths([5, 3]));
    /// assert_eq!(facts.unused_by(&(causal() & padding())), ["labels[\"pii\"]"]);
    /// ```
    pub fn used_by(&self, mask: &Mask) -> Facts {
        let atoms = mask.atoms();
        let inputs: Vec<Input<'_>> = atoms.iter().flat_map(|atom| atom.inputs()).collect();
        let named = |name: &str| atoms.iter().any(|atom| atom.name() == name);
        let mut used = self.clone();
        // The lists of these atoms are compared with the lengths, and lists inside of the mask have other inputs.
        if !["padding", "documents", "clearance", "neighborhood"].into_iter().any(named)
            && !inputs.contains(&Input::Lengths)
        {
            (used.real, used.query_lengths) = (None, None);
        }
        used.documents = used.documents.filter(|_| inputs.contains(&Input::Documents));
        used.levels = used.levels.filter(|_| inputs.contains(&Input::Levels));
        used.labels.retain(|name, _| inputs.contains(&Input::Label(name)));
        used.arrays.retain(|name, _| inputs.contains(&Input::Array(name)));
        used
    }

    /// Returns the names of the facts that `mask` does not read, and that have no effect on its cells.
    pub fn unused_by(&self, mask: &Mask) -> Vec<String> {
        let used = self.used_by(mask).names();
        self.names().into_iter().filter(|name| !used.contains(name)).collect()
    }

    fn names(&self) -> Vec<String> {
        let single = [
            ("lengths", self.real.is_some()),
            ("query_lengths", self.query_lengths.is_some()),
            ("documents", self.documents.is_some()),
            ("levels", self.levels.is_some()),
        ];
        let single = single.into_iter().filter(|(_, given)| *given).map(|(name, _)| name.to_owned());
        let labels = self.labels.keys().map(|name| format!("labels[{name:?}]"));
        let arrays = self.arrays.keys().map(|name| format!("arrays[{name:?}]"));
        single.chain(labels).chain(arrays).collect()
    }
}
