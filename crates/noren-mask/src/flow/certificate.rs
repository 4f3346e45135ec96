//! [`Certificate`]: what was checked, of what, with which verdict, so that somebody else can check it again.

use super::{Fill, Flow, Policy, Ruling};
use crate::{Error, Facts, Mask, Shape, Spec};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Ways by which tokens influence each other that no attention mask shows: a certificate says nothing of them.
pub const CHANNELS: &[&str] = &[
    "position ids: a count of hidden tokens tells how many there are",
    "lengths: padding and truncation tell how long a hidden text is",
    "pooling over tokens after the last layer",
    "normalisation over the batch or over time (batch norm, group norm over time)",
    "convolution and state-space layers",
    "routing: experts with a capacity, and balance over a batch",
    "quantisation by maxima over a batch or a tensor",
    "caches that were filled before a redaction",
    "loss targets: labels that hold what the inputs hide",
];

const FORMAT: &str = "noren certificate 1";

/// A policy's verdict over a stack of masks, with everything needed to reach it again.
///
/// ```
/// use noren_mask::flow::{Certificate, Fill, Flow, Policy};
/// use noren_mask::{Facts, Shape, atoms::*};
/// let facts = Facts::new().documents([4, 4]);
/// let flow = Flow::of_stack(&vec![causal() & documents(); 3], &Shape::square(8), &facts, Fill::Nothing)?;
/// let certificate = Certificate::issue(&flow, &"deny: document(i) -> document(j)".parse()?)?;
/// assert!(certificate.verify()?.holds());
/// let tampered = certificate.to_json()?.replace("causal & documents", "causal");
/// assert!(Certificate::from_json(&tampered)?.verify().is_err());
/// # Ok::<(), noren_mask::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    format: String,
    /// The masks as text, one for each layer.
    pub layers: Vec<String>,
    /// The shape as JSON.
    pub shape: String,
    /// The facts as JSON.
    pub facts: String,
    /// What queries read that may read nothing.
    pub fill: Fill,
    /// The policy, one rule a line.
    pub policy: String,
    /// What it says of the stack.
    pub ruling: Ruling,
    /// What it says nothing of.
    pub not_covered: Vec<String>,
    /// SHA-256 of layers, shape, facts and fill.
    pub masks_sha256: String,
    /// SHA-256 of all of the above.
    pub sha256: String,
}

impl Certificate {
    /// Checks `policy` and writes down the outcome, whether it holds or not.
    ///
    /// # Errors
    /// What [`Policy::check`] refuses, and facts without a serial form.
    pub fn issue(flow: &Flow, policy: &Policy) -> Result<Self, Error> {
        let mut certificate = Certificate {
            format: FORMAT.into(),
            layers: flow.masks.iter().map(Mask::to_string).collect(),
            shape: flow.shape.to_json()?,
            facts: flow.facts.to_json()?,
            fill: flow.fill,
            policy: policy.to_string(),
            ruling: policy.check(flow)?,
            not_covered: CHANNELS.iter().map(|c| (*c).to_string()).collect(),
            masks_sha256: String::new(),
            sha256: String::new(),
        };
        certificate.masks_sha256 = certificate.hash_of_masks();
        certificate.sha256 = certificate.hash_of_all()?;
        Ok(certificate)
    }

    /// Whether the policy holds, as written down.
    pub fn holds(&self) -> bool {
        self.ruling.holds()
    }

    /// Checks everything again: the hashes, then the policy over the masks.
    ///
    /// # Errors
    /// A certificate that was changed, or whose verdict is not the one that its own masks give.
    pub fn verify(&self) -> Result<&Ruling, Error> {
        let refuse = |problem: String| Err(Error::fact("certificate", problem));
        if self.format != FORMAT {
            return refuse(format!("its format is {:?}, expected {FORMAT:?}", self.format));
        }
        if self.masks_sha256 != self.hash_of_masks() {
            return refuse("the masks, shape or facts are not those that were certified: issue a new one".into());
        }
        if self.sha256 != self.hash_of_all()? {
            return refuse("it was changed after it was issued: issue a new one".into());
        }
        let again = self.policy.parse::<Policy>()?.check(&self.flow()?)?;
        match again == self.ruling {
            true => Ok(&self.ruling),
            false => refuse(format!(
                "its verdict is wrong: checked again, there are {} violations, not {}",
                again.violations.len(),
                self.ruling.violations.len()
            )),
        }
    }

    /// Whether it speaks of this stack.
    ///
    /// # Errors
    /// A stack with other masks, sizes or facts.
    pub fn matches(&self, flow: &Flow) -> Result<(), Error> {
        let now = Certificate::issue(flow, &Policy::default())?;
        match now.masks_sha256 == self.masks_sha256 {
            true => Ok(()),
            false => {
                Err(Error::fact("certificate", "it speaks of other masks, sizes or facts than these: issue a new one"))
            }
        }
    }

    /// The stack that it speaks of.
    ///
    /// # Errors
    /// Masks, shape or facts that do not read.
    pub fn flow(&self) -> Result<Flow, Error> {
        let masks = self
            .layers
            .iter()
            .map(|text| text.parse::<Spec>().map(|s| s.mask).map_err(Error::from))
            .collect::<Result<Vec<_>, _>>()?;
        Flow::of_stack(&masks, &Shape::from_json(&self.shape)?, &Facts::from_json(&self.facts)?, self.fill)
    }

    /// As JSON on several lines.
    ///
    /// # Errors
    /// None that is known.
    pub fn to_json(&self) -> Result<String, Error> {
        serde_json::to_string_pretty(self).map_err(|e| Error::fact("certificate", e.to_string()))
    }

    /// From JSON.
    ///
    /// # Errors
    /// Text that is no certificate.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        serde_json::from_str(text).map_err(|e| Error::fact("certificate", format!("not a certificate: {e}")))
    }

    fn hash_of_masks(&self) -> String {
        let mut hash = Sha256::new();
        let fill = format!("{:?}", self.fill);
        let count = self.layers.len().to_string();
        let parts = [count.as_str(), &self.shape, &self.facts, &fill];
        for part in parts.into_iter().chain(self.layers.iter().map(String::as_str)) {
            // Lengths first, so that no two lists of parts look alike.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        hex(&hash.finalize())
    }

    fn hash_of_all(&self) -> Result<String, Error> {
        let bare = Certificate { sha256: String::new(), ..self.clone() };
        let text = serde_json::to_string(&bare).map_err(|e| Error::fact("certificate", e.to_string()))?;
        Ok(hex(&Sha256::digest(text.as_bytes())))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
