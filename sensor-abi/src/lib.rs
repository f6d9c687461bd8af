//! Types that the kernel side and the user side of the sensor share.
#![no_std]
