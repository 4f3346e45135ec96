//! [`LayerPlans`]: the attention plans of all layers of a stack. Layers with equal masks share one plan.

use crate::error::Result;
use noren::{Facts, Mask, Plan, Shape};
use noren_candle::plan;
use std::sync::Arc;

/// One attention plan for each layer of a stack. Layers with equal masks share one plan.
#[derive(Clone, Debug)]
pub struct LayerPlans {
    plans: Vec<Arc<Plan>>,
}

impl LayerPlans {
    /// Makes the plans of `mask` for `layers` layers. The expression `layers(...)` in `mask` selects another mask for
    /// some layers.
    ///
    /// # Errors
    /// Returns the errors of [`Mask::bind`].
    pub fn new(mask: &Mask, layers: usize, shape: &Shape, facts: &Facts) -> Result<Self> {
        let mut known: Vec<(Mask, Arc<Plan>)> = Vec::new();
        let mut plans = Vec::with_capacity(layers);
        for layer in 0..layers {
            let mask = mask.at_layer(layer).simplify();
            let found = known.iter().find(|(other, _)| *other == mask).map(|(_, plan)| plan.clone());
            let planned = match found {
                Some(planned) => planned,
                None => {
                    let planned = plan(&mask, shape, facts)?;
                    known.push((mask, planned.clone()));
                    planned
                }
            };
            plans.push(planned);
        }
        Ok(LayerPlans { plans })
    }

    /// Returns the plans of `layers` layers that all use `plan`.
    pub fn same(plan: &Arc<Plan>, layers: usize) -> Self {
        LayerPlans { plans: vec![plan.clone(); layers] }
    }

    /// Returns the plan of a layer; `None` if there is no such layer.
    pub fn get(&self, layer: usize) -> Option<&Arc<Plan>> {
        self.plans.get(layer)
    }

    /// Returns the number of layers.
    pub fn len(&self) -> usize {
        self.plans.len()
    }

    /// Returns whether there is no layer.
    pub fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }

    /// Returns all plans, or an error if there are not exactly `layers` plans.
    pub(crate) fn of(&self, layers: usize) -> Result<&[Arc<Plan>]> {
        if self.plans.len() != layers {
            let expected = format!("this stack of the model has {layers} layers: give one plan for each layer");
            return Err(crate::Error::input(
                "the list `plans`",
                format!("{} entries long", self.plans.len()),
                expected,
            ));
        }
        Ok(&self.plans)
    }
}
