//! What the kernel offers, what is used, what is missing and what to do, in words.
