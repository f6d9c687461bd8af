//! Replaces the object's placeholders by calls of this kernel's functions, and by the place of the table of process
//! marks, before the kernel sees the programs.
//!
//! aya 0.14 cannot resolve calls of kernel functions. The kernel side holds calls of helpers that do not exist in
//! their place ([`kams_sensor_abi::placeholder`]), one instruction each. Nor can aya give a program the address of a
//! map's value, except where the map is a section of the object, and then not one that can be mapped.

use kams_sensor_abi::placeholder::{MARKS_HALF, PREEMPT_DISABLE, PREEMPT_ENABLE};

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

/// Writes the table of process marks, by its descriptor, into every program that loads its address.
pub(crate) fn place_marks(object: &mut [u8], marks: u32) {
    /// `rN = constant ll`, first and second instruction; the register's number is in the second byte.
    const LOAD: [u8; 2] = [0x18, 0];
    /// `BPF_PSEUDO_MAP_VALUE`, in the upper half of the second byte of the first: the address of the value of the map
    /// with this descriptor, plus the second half.
    const MAP_VALUE: u8 = 0x20;
    let half = MARKS_HALF.to_le_bytes();
    let (words, _rest) = object.as_chunks_mut::<8>();
    for at in 1..words.len() {
        let Some([first, second]) = words.get_mut(at - 1..=at) else {
            continue;
        };
        let is_load = first[0] == LOAD[0] && first[1] & 0xf0 == 0 && second[..4] == [0; 4];
        if is_load && first[4..] == half && second[4..] == half {
            first[1] |= MAP_VALUE;
            first[4..].copy_from_slice(&marks.to_le_bytes());
            second[4..].fill(0);
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
    fn the_table_of_marks_is_written_into_loads_of_its_address() {
        let half = u64::from(MARKS_HALF);
        let load = |register: u64| [0x18 | register << 8 | half << 32, half << 32];
        let other = [0x18 | 5 << 32, 0];
        let before = [load(3), other, load(0)].concat();
        let mut bytes: Vec<u8> = before.iter().flat_map(|word| word.to_le_bytes()).collect();
        place_marks(&mut bytes, 7);
        let placed = |register: u64| [0x2018 | register << 8 | 7 << 32, 0];
        assert_eq!(words(&bytes), [placed(3), other, placed(0)].concat());
    }

    #[test]
    fn the_embedded_object_holds_placeholders() {
        let embedded = crate::loader::embedded_object();
        let mut bytes = embedded.to_vec();
        fill(&mut bytes, &types(&[]), false);
        assert_ne!(bytes, embedded);
        let filled = bytes.clone();
        place_marks(&mut bytes, 7);
        assert_ne!(bytes, filled);
        let half = MARKS_HALF.to_le_bytes();
        assert!(!bytes.windows(4).any(|window| window == half), "none is left");
    }
}
