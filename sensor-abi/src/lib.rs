//! Types that the kernel side and the user side of the sensor share.
//!
//! Every type is plain `repr(C)` without implicit padding, so that the kernel side can hand out whole records
//! and the user side can read them from unaligned bytes. Both sides are built from the same source; a record
//! never crosses a version boundary, because the object is embedded in the daemon that loads it.
#![no_std]

pub mod function;
pub mod hold;
pub mod loss;
pub mod marks;
pub mod netblock;
pub mod offsets;
pub mod placeholder;
pub mod record;
pub mod stream;
