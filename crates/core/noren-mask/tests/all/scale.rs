//! The size of a plan is proportional to the sequence and its allowed ranges, not to the square of the length.

use noren_mask::Shape;
use noren_testing::long;

#[test]
fn long_plans_are_small() {
    let mut sizes = Vec::new();
    for (name, mask, facts, len) in long::masks() {
        let plan = mask.bind(&Shape::square(len), &facts).expect("the cases bind").plan();
        let bytes = plan.bytes();
        assert!(bytes < 64 << 20, "{name} at {len}: {bytes} bytes");
        let [pattern] = plan.patterns() else { panic!("{name}: one pattern") };
        let spans: usize = pattern.tiles().map(|t| t.spans.len()).sum();
        assert!(spans <= 20 * pattern.tile_count(), "{name} at {len}: {spans} spans");
        sizes.push((name, bytes));
    }
    for (name, bytes) in &sizes[2..4] {
        let (_, half) = sizes[..2].iter().find(|s| s.0 == *name).expect("each at both lengths");
        assert!(*bytes <= 2 * half + half / 50, "{name}: {half} bytes, and {bytes} at twice the length");
    }
}
