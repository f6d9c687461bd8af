//! Reading text as the model reads it: the layer that every text detector shares (SPEC section 2).
//!
//! Three steps, each linear in the input and each usable alone:
//! - [`reveal`] removes what the eye does not see and undoes what is spelled in escapes, in one pass, and keeps
//!   a map back to the original bytes. What it had to undo is reported as [`Concealment`]s.
//! - [`blobs`] finds encoded runs (base64, hexadecimal, base32, ...) that decode to text.
//! - [`lookalike`] says which ASCII letter a character imitates.

mod ansi;
mod blob;
mod confusable;
mod escape;
mod invisible;
mod map;
mod radix;
mod reveal;

pub use blob::{Blob, Encoding, blobs};
pub use confusable::lookalike;
pub use invisible::{Invisible, invisible};
pub use map::OffsetMap;
pub use reveal::{Concealed, Concealment, Revealed, reveal, strip_invisible};
