//! Policy text to checked policy to decision. Pure: no IO, no clock, no unsafe.
#![forbid(unsafe_code)]
