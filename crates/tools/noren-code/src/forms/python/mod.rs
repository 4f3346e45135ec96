//! Python code of a program: text, expressions, tables and helper functions, for NumPy, PyTorch and JAX.

pub(crate) mod expression;
pub(crate) mod helpers;
pub(crate) mod scores;
pub(crate) mod statements;
pub(crate) mod tables;
pub(crate) mod text;

/// The array library whose functions the generated code calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Library {
    NumPy,
    PyTorch,
    /// JAX. NumPy makes the tables, and the code then converts them to JAX arrays.
    Jax,
}

impl Library {
    /// Returns the name of the library's module in the code, such as `np`.
    pub(crate) fn module(self) -> &'static str {
        match self {
            Library::NumPy => "np",
            Library::PyTorch => "torch",
            Library::Jax => "jnp",
        }
    }

    /// Returns the library that makes tables: NumPy for JAX, otherwise the library itself.
    pub(crate) fn of_tables(self) -> Library {
        if self == Library::Jax { Library::NumPy } else { self }
    }

    /// Returns the name of the boolean type of the library, as code.
    pub(crate) fn boolean(self) -> &'static str {
        if self == Library::PyTorch { "torch.bool" } else { "bool" }
    }

    /// Returns the code that makes an array of the numbers or booleans in `list`, a Python list.
    pub(crate) fn array(self, list: &str) -> String {
        match self {
            Library::PyTorch => format!("torch.tensor({list})"),
            library => format!("{}.array({list})", library.module()),
        }
    }

    /// Returns the code that limits the array `of` to the range from `least` to `most`; all three are Python code.
    pub(crate) fn clip(self, of: &str, least: &str, most: &str) -> String {
        match self {
            Library::PyTorch => format!("torch.clamp({of}, {least}, {most})"),
            library => format!("{}.clip({of}, {least}, {most})", library.module()),
        }
    }
}
