//! [`Store`]: the most recently used definitions of masks. A definition is an expression with its shape and facts, or
//! the cells of a mask. The identity of a mask is a hash of its definition.

use hmac_sha256::Hash;
use noren_mask::text::hex;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// The maximum number of definitions in the store.
const MOST: usize = 4096;
/// The maximum size of all definitions together, in bytes.
const MOST_BYTES: usize = 256 << 20;

/// Definitions of masks as (identity, definition), the most recently used definition first.
#[derive(Default)]
pub(crate) struct Store(Mutex<VecDeque<(String, Arc<[u8]>)>>);

/// Returns the identity of the mask that `definition` defines: a hash of the bytes of the definition.
pub(crate) fn identity(definition: &[u8]) -> String {
    hex(&Hash::hash(definition)[..16])
}

impl Store {
    /// Stores a definition, and removes the least recently used definitions beyond [`MOST`] and [`MOST_BYTES`].
    pub(crate) fn insert(&self, definition: Vec<u8>) {
        let id = identity(&definition);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(known, _)| *known != id);
        kept.push_front((id, definition.into()));
        let mut bytes = 0;
        let fits = kept.iter().take(MOST).take_while(|(_, definition)| {
            bytes += definition.len();
            bytes <= MOST_BYTES
        });
        let fits = fits.count().max(1);
        kept.truncate(fits);
    }

    /// Returns the definition whose hash is the identity `id`; `None` if the store does not have this definition.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<[u8]>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(known, _)| known == id)?;
        let found = kept.remove(at)?;
        kept.push_front(found);
        Some(kept[0].1.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_is_forgotten() {
        let store = Store::default();
        let large = |byte| vec![byte; MOST_BYTES / 2];
        store.insert(large(1));
        store.insert(large(2));
        assert!(store.get(&identity(&large(1))).is_some());
        store.insert(large(3));
        assert!(store.get(&identity(&large(2))).is_none());
        assert!(store.get(&identity(&large(1))).is_some());
    }

    #[test]
    fn small_definitions_are_counted_too() {
        let store = Store::default();
        (0..=MOST).for_each(|i| store.insert(i.to_string().into_bytes()));
        assert!(store.get(&identity(b"0")).is_none());
        assert!(store.get(&identity(b"1")).is_some());
        assert_eq!(store.0.lock().expect("no panic").len(), MOST);
    }
}
