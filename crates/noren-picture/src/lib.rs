//! [`Picture`]: a mask to look at, in a terminal, as SVG or as PNG.
//!
//! One path for all media: the checked question (`scene::Layout`) is down-sampled (`grid`) into panels of inks
//! (`scene::Scene`), which `terminal`, `svg` and `png` only draw.

mod draw;
mod font;
mod picture;
mod png;
mod scene;
mod svg;
mod terminal;
mod text;

pub use draw::Draw;
pub use picture::Picture;
pub use terminal::TerminalOptions;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
