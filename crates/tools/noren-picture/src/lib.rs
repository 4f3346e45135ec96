//! Pictures of attention masks: in a terminal, as SVG, as PNG, and as a web page with the reason of each cell.
//!
//! A [`Picture`] shows one bound mask, or the difference of two. If the sequence is too long for one character or pixel
//! per cell, the picture is down-sampled: a picture cell that covers both allowed and denied cells is drawn as mixed.
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
//! | `picture`, `scene` | the options of a picture, and its content: panels of colored picture cells, the same for all output formats |
//! | `draw`, `terminal`, `svg`, `png` | the methods of bound masks, and three output formats |
//! | `page` | the fourth medium: one HTML file with the cells and the reasons as data, and the script that reads them |
//! | `font`, `text` | characters for PNG; texts that the output formats share |

mod draw;
mod font;
mod page;
mod picture;
mod placing;
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
