//! Replaces the object's placeholders by calls of this kernel's functions, before the kernel sees the programs.
//!
//! aya 0.14 cannot resolve calls of kernel functions. The kernel side holds calls of helpers that do not exist in
//! their place ([`kams_sensor_abi::placeholder`]), one instruction each.

use kams_sensor_abi::placeholder::{PREEMPT_DISABLE, PREEMPT_ENABLE};

use crate::btf::Btf;

/// Placeholder, name of the kernel's function.
const FUNCTIONS: [(u64, &str); 2] = [
    (PREEMPT_DISABLE, "bpf_preempt_disable"),
    (PREEMPT_ENABLE, "bpf_preempt_enable"),
];

/// `r0 = 0`: what a call is replaced by where the kernel does not have the function.
const NOTHING: u64 = 0xb7;
/// `call` with `BPF_PSEUDO_KFUNC_CALL`, without the function's number.
const CALL: u64 = 0x2085;

/// Whether this kernel lets a program keep others from its CPU (6.10 and later).
pub(crate) fn can_hold_cpu(btf: &Btf) -> bool {
    FUNCTIONS.iter().all(|(_, name)| btf.function(name).is_some())
}

/// Replaces every placeholder in an object file, by nothing for an `old_kernel`. Instructions lie at multiples of
/// eight bytes in it.
pub(crate) fn fill(object: &mut [u8], btf: &Btf, old_kernel: bool) {
    // One without the other would be refused.
    let usable = !old_kernel && can_hold_cpu(btf);
    let replacements = FUNCTIONS.map(|(placeholder, name)| {
        let number = btf.function(name).filter(|_| usable);
        let instruction = number.map_or(NOTHING, |number| CALL | u64::from(number) << 32);
        (placeholder.to_le_bytes(), instruction.to_le_bytes())
    });
    for word in object.as_chunks_mut::<8>().0 {
        for (placeholder, instruction) in &replacements {
            if word == placeholder {
                *word = *instruction;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Type information with functions of these names, numbered from 1.
    fn types(names: &[&str]) -> Btf {
        let (mut types, mut strings) = (Vec::new(), vec![0]);
        for name in names {
            let at = u32::try_from(strings.len()).expect("small");
            strings.extend_from_slice(name.as_bytes());
            strings.push(0);
            for word in [at, 12 << 24, 0] {
                types.extend_from_slice(&word.to_le_bytes());
            }
        }
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).expect("small");
        let mut all = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, len(&types), len(&types), len(&strings)] {
            all.extend_from_slice(&u32::to_le_bytes(word));
        }
        all.extend_from_slice(&types);
        all.extend_from_slice(&strings);
        Btf::parse(all).expect("valid")
    }

    fn object() -> Vec<u8> {
        let other = 0x0000_0005_0000_0085_u64;
        let words = [PREEMPT_DISABLE, other, PREEMPT_ENABLE, PREEMPT_DISABLE];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn words(bytes: &[u8]) -> Vec<u64> {
        bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|word| u64::from_le_bytes(*word))
            .collect()
    }

    #[test]
    fn placeholders_become_calls_of_the_kernels_functions() {
        let mut bytes = object();
        fill(
            &mut bytes,
            &types(&["bpf_preempt_enable", "x", "bpf_preempt_disable"]),
            false,
        );
        let other = 0x5_0000_0085;
        let (enable, disable) = (0x1_0000_2085, 0x3_0000_2085);
        assert_eq!(words(&bytes), [disable, other, enable, disable]);
    }

    #[test]
    fn where_one_function_is_missing_nothing_is_called() {
        let mut bytes = object();
        fill(&mut bytes, &types(&["bpf_preempt_enable"]), false);
        assert_eq!(words(&bytes), [0xb7, 0x5_0000_0085, 0xb7, 0xb7]);
    }

    #[test]
    fn the_embedded_object_holds_placeholders() {
        let mut bytes = crate::loader::embedded_object().to_vec();
        fill(&mut bytes, &types(&[]), false);
        assert_ne!(bytes, crate::loader::embedded_object());
    }
}
