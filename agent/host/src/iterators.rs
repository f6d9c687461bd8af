//! Resolves where the kernel's iterator over a caller's buffers has what.

use kams_sensor_abi::function::Iterators;

use crate::btf::Btf;

/// A type that no iterator has.
const NO_TYPE: u32 = 0x100;

/// Looks every member and value up; an error names the first that this kernel does not have.
pub(crate) fn resolve(btf: &Btf) -> Result<Iterators, String> {
    let at = |structure: &str, member: &str| {
        btf.member_offset(structure, member)
            .ok_or_else(|| format!("this kernel has no {structure}.{member}"))
    };
    let value = |name: &str| btf.enumerator("iter_type", name);
    // Until 5.13 one member held type and direction.
    let new_type = at("iov_iter", "iter_type");
    let type_mask = if new_type.is_ok() { 0xff } else { 0xfe };
    Ok(Iterators {
        kiocb_file: at("kiocb", "ki_filp")?,
        msghdr_iter: at("msghdr", "msg_iter")?,
        msghdr_flags: at("msghdr", "msg_flags")?,
        iter_type: new_type.or_else(|_older| at("iov_iter", "type"))?,
        iter_offset: at("iov_iter", "iov_offset")?,
        iter_count: at("iov_iter", "count")?,
        iter_vector: at("iov_iter", "__iov").or_else(|_older| at("iov_iter", "iov"))?,
        iter_buffer: at("iov_iter", "ubuf").unwrap_or(0),
        type_mask,
        type_vector: value("ITER_IOVEC").ok_or("this kernel has no ITER_IOVEC")?,
        type_buffer: value("ITER_UBUF").unwrap_or(NO_TYPE),
        resolved: 1,
    })
}
