//! [`prove`]: a test that released outputs of a model do not depend on private tokens.

use crate::error::{Error, Result};
use noren::noren_mask::philox;
use noren_text::{Policy, PrivateTokens};

/// The result of a test for leaks of private tokens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proof {
    /// Number of trials: calls of the model in which other tokens replaced the private tokens of the text.
    pub trials: usize,
    /// Number of output values that were compared in each trial: all values of the released outputs.
    pub compared: usize,
    /// The indices of the tokens whose output is released, but changed in any bit in at least one trial.
    pub leaks: Vec<usize>,
    /// Number of private tokens whose own output changed in at least one trial. If this number is 0, replacing the
    /// private tokens had no effect, and the test establishes nothing.
    pub secret_changed: usize,
}

impl Proof {
    /// Returns true if no bit of a released output changed, and the output of at least one private token changed.
    pub fn holds(&self) -> bool {
        self.leaks.is_empty() && self.secret_changed > 0
    }
}

/// Returns the mean of the states of the tokens that `policy` releases: a vector for the text without its private
/// tokens. `states` has one state for each token. Returns `None` if no token is released.
///
/// ```
/// use noren_candle::pool_released;
/// use noren_text::{ByteTokenizer, Detectors, Policy, PrivateTokens, Tokenizer};
/// let text = "a@b.example";
/// let tokens = ByteTokenizer.encode(text)?;
/// let private = PrivateTokens::locate(&"email".parse::<Detectors>()?.find(text)?, text, &tokens);
/// let mut states = vec![vec![f32::NAN]; tokens.len()]; // a secret's own state holds the secret
/// states[0] = vec![2.0];
/// assert_eq!(pool_released(&states, &private, &Policy::Hide), Some(vec![2.0]));
/// # Ok::<(), noren_text::Error>(())
/// ```
pub fn pool_released(states: &[Vec<f32>], private: &PrivateTokens, policy: &Policy) -> Option<Vec<f32>> {
    let released = || states.iter().enumerate().filter(|(at, _)| policy.released(private, *at)).map(|(_, state)| state);
    let mut sum = vec![0f32; released().next()?.len()];
    for state in released() {
        sum.iter_mut().zip(state).for_each(|(sum, x)| *sum += x);
    }
    let count = released().count() as f32;
    Some(sum.into_iter().map(|x| x / count).collect())
}

/// Runs the model with the given text, and `trials` times with a variant of the text. In a variant, another token from
/// `choices` replaces each private token that `policy` hides from the reader. Compares the released outputs bit by bit.
///
/// `run` takes token ids and returns one row of numbers for each token (a state or logits). All variants have the same
/// number of tokens, and private tokens at the same indices. The test therefore does not show whether outputs depend on
/// this number and these indices. If an output reads a private token, the test finds it almost certainly, because
/// another token changes at least one bit of the values that are read.
///
/// # Errors
/// Returns an error if `choices` has fewer than two tokens, if `private` has another number of tokens than `ids`, if
/// `run` does not return one row for each token, and any error of `run`.
pub fn prove(
    ids: &[u32],
    private: &PrivateTokens,
    policy: &Policy,
    choices: &[u32],
    trials: usize,
    mut run: impl FnMut(&[u32]) -> Result<Vec<Vec<f32>>>,
) -> Result<Proof> {
    if choices.len() < 2 {
        return Err(Error::input(
            "the vocabulary",
            choices.len(),
            "at least two tokens are needed, because a secret is replaced by another token",
        ));
    }
    if private.len() != ids.len() {
        return Err(Error::input(
            "private tokens",
            private.len(),
            format!("the text has {} tokens: give the private tokens of the same text", ids.len()),
        ));
    }
    let released: Vec<usize> = (0..ids.len()).filter(|at| policy.released(private, *at)).collect();
    let secret: Vec<usize> = (0..ids.len()).filter(|at| policy.secret(private, *at)).collect();
    let own = rows(&mut run, ids)?;
    let mut proof = Proof {
        trials,
        compared: released.iter().map(|at| own[*at].len()).sum(),
        leaks: Vec::new(),
        secret_changed: 0,
    };
    let mut changed = vec![false; ids.len()];
    for trial in 0..trials {
        let mut other = ids.to_vec();
        for at in &secret {
            other[*at] = another(ids[*at], choices, *at, trial);
        }
        let other = rows(&mut run, &other)?;
        for (at, changed) in changed.iter_mut().enumerate() {
            let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            *changed |= bits(&own[at]) != bits(&other[at]);
        }
    }
    proof.leaks = released.into_iter().filter(|at| changed[*at]).collect();
    proof.secret_changed = secret.into_iter().filter(|at| changed[*at]).count();
    Ok(proof)
}

fn rows(run: &mut impl FnMut(&[u32]) -> Result<Vec<Vec<f32>>>, ids: &[u32]) -> Result<Vec<Vec<f32>>> {
    let rows = run(ids)?;
    match rows.len() == ids.len() {
        true => Ok(rows),
        false => {
            Err(Error::input("outputs", rows.len(), format!("one row for each of {} tokens is needed", ids.len())))
        }
    }
}

/// Returns a random token of `choices` that is not `own`. Calls with the same token index `at` and the same trial
/// number `trial` return the same token.
fn another(own: u32, choices: &[u32], at: usize, trial: usize) -> u32 {
    let word = philox([at as u32, trial as u32, 0x5EC7, 0], 0)[0] as usize;
    let chosen = choices[word % choices.len()];
    if chosen != own { chosen } else { choices[(word + 1) % choices.len()] }
}
