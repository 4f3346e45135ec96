//! Pictures of attention masks: in a terminal, as SVG and as PNG.
//!
//! A [`Picture`] shows one bound mask, or the difference of two. It is down-sampled if the sequence is too long for one character or
//! pixel per cell: a picture cell that covers allowed and denied cells is drawn as mixed.
//!
//! ```
//! use noren_mask::{Facts, Shape, atoms::*};
//! use noren_picture::{Draw, TerminalOptions};
//! let bound = (causal() & documents_of([3, 2])).bind(&Shape::square(5), &Facts::new())?;
//! let text = bound.picture().to_terminal(&TerminalOptions::default())?;
//! assert!(text.starts_with("causal & documents([3, 2])"));
//! # Ok::<(), noren_mask::Error>(())
//! ```
//!
//! Import the trait [`Draw`] to call [`picture`](Draw::picture) on a bound mask. The command `noren show` draws the same pictures.
//!
//! | modules | contents |
//! |---|---|
//! | `picture`, `scene` | the request, checked and down-sampled to panels of colored cells, which all media draw |
//! | `draw`, `terminal`, `svg`, `png` | the methods of bound masks, and the three media |
//! | `font`, `text` | characters for PNG; texts that the media share |

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
