//! Wiring of kamsd and kams.
