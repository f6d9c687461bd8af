//! A bounded reader of BTF, the kernel's type information.
//!
//! aya parses BTF as well but keeps struct members to itself. This reader knows three things: at which byte a member
//! lies, through anonymous structs and unions; the number of a function; the value of an enumerator. It trusts nothing: every length and index is checked, the
//! nesting is bounded, and no input makes it panic or loop (`/sys/kernel/btf/vmlinux` is root's, but a custom
//! file may be given).
//!
//! Format: kernel documentation `Documentation/bpf/btf.rst`; little-endian only, as is every supported machine.

use std::collections::HashMap;

/// Where the running kernel publishes its types.
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// Most bytes that are accepted; a distribution kernel has 4 to 8 MB.
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Most anonymous structs and unions inside each other.
const MAX_DEPTH: u32 = 16;
/// Most type records looked at to answer one question.
const MAX_STEPS: u32 = 100_000;

const MAGIC: u16 = 0xeb9f;
const HEADER_LEN: usize = 24;

const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_FUNCTION: u32 = 12;

/// Why type information was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// More than 64 MB.
    #[error("larger than 64 MB")]
    TooLarge,
    /// The header is short, has the wrong magic number or points outside the data.
    #[error("header is not valid")]
    Header,
    /// A type record reaches outside the type section.
    #[error("type {0} reaches outside the type section")]
    Truncated(u32),
    /// A kind this reader does not know: the length of the record is unknown, so reading stops.
    #[error("type {id} has unknown kind {kind}")]
    Kind {
        /// Type number.
        id: u32,
        /// Its kind.
        kind: u32,
    },
}

/// Parsed type information: an index over the bytes.
#[derive(Debug)]
pub struct Btf {
    bytes: Vec<u8>,
    strings: std::ops::Range<usize>,
    /// Byte position of the record of type `i + 1`; type 0 is void.
    types: Vec<u32>,
    /// Struct and union records by name; a name can have several.
    structs: HashMap<Vec<u8>, Vec<u32>>,
}

/// One type record's fixed part.
#[derive(Clone, Copy)]
struct TypeHead {
    name: u32,
    info: u32,
    /// Size or referred type.
    size_or_type: u32,
}

impl TypeHead {
    const fn kind(self) -> u32 {
        (self.info >> 24) & 0x1f
    }
    const fn vlen(self) -> u32 {
        self.info & 0xffff
    }
    const fn kind_flag(self) -> bool {
        self.info >> 31 == 1
    }
    /// Bytes after the fixed part, `None` for an unknown kind.
    const fn tail_len(self) -> Option<usize> {
        let vlen = self.vlen() as usize;
        Some(match self.kind() {
            // int, var, declaration tag
            1 | 14 | 17 => 4,
            // pointer, forward, typedef, volatile, const, restrict, func, float, type tag
            2 | 7..=12 | 16 | 18 => 0,
            // array
            3 => 12,
            // struct, union, data section, 64-bit enum
            KIND_STRUCT | KIND_UNION | 15 | 19 => vlen * 12,
            // enum, function prototype
            6 | 13 => vlen * 8,
            _ => return None,
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let slice = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(slice.try_into().ok()?))
}

impl Btf {
    /// Reads the running kernel's types.
    pub fn of_running_kernel() -> std::io::Result<Result<Self, BtfError>> {
        Ok(Self::parse(std::fs::read(VMLINUX)?))
    }

    /// Indexes `bytes`.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, BtfError> {
        if bytes.len() > MAX_BYTES {
            return Err(BtfError::TooLarge);
        }
        let (types_range, strings) = sections(&bytes).ok_or(BtfError::Header)?;
        let mut types = Vec::with_capacity(types_range.len() / 24);
        let mut structs: HashMap<Vec<u8>, Vec<u32>> = HashMap::new();
        let mut at = types_range.start;
        let mut id = 0u32;
        while at < types_range.end {
            id += 1;
            let head = head_at(&bytes[..types_range.end], at).ok_or(BtfError::Truncated(id))?;
            let tail = head.tail_len().ok_or(BtfError::Kind {
                id,
                kind: head.kind(),
            })?;
            let end = at + 12 + tail;
            if end > types_range.end {
                return Err(BtfError::Truncated(id));
            }
            let position = u32::try_from(at).map_err(|_too_large| BtfError::TooLarge)?;
            types.push(position);
            if matches!(head.kind(), KIND_STRUCT | KIND_UNION) && head.name != 0 {
                let name = string(&bytes, &strings, head.name).ok_or(BtfError::Truncated(id))?;
                structs.entry(name.to_vec()).or_default().push(id);
            }
            at = end;
        }
        Ok(Self {
            bytes,
            strings,
            types,
            structs,
        })
    }

    /// Number of types, void not counted.
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// Whether there is no type at all.
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// Byte offset of a member, by a dotted path: `member_offset("sock", "__sk_common.skc_family")`.
    ///
    /// Each step of the path is looked for through anonymous members too. `None` if there is no such member, or it
    /// is a bit field that does not start at a byte.
    pub fn member_offset(&self, structure: &str, path: &str) -> Option<u32> {
        let candidates = self.structs.get(structure.as_bytes())?;
        candidates.iter().find_map(|&id| self.path_offset(id, path))
    }

    /// Size in bytes of a struct or union.
    pub fn size_of(&self, structure: &str) -> Option<u32> {
        let &id = self.structs.get(structure.as_bytes())?.first()?;
        Some(self.head(id)?.size_or_type)
    }

    /// The number of a function's type record: what a call of a kernel function names it by. `None` if the kernel
    /// has no function of this name that programs may be attached to or call.
    pub fn function(&self, name: &str) -> Option<u32> {
        self.named(KIND_FUNCTION, name)
    }

    /// The value of an enumerator of a named enumeration.
    pub fn enumerator(&self, enumeration: &str, name: &str) -> Option<u32> {
        let id = self.named(KIND_ENUM, enumeration)?;
        let count = usize::try_from(self.head(id)?.vlen()).ok()?;
        let base = self.position(id)? + 12;
        (0..count).find_map(|index| {
            let at = base + index * 8;
            let found = string(&self.bytes, &self.strings, u32_at(&self.bytes, at)?)?;
            (found == name.as_bytes())
                .then(|| u32_at(&self.bytes, at + 4))
                .flatten()
        })
    }

    /// The first type of this kind and name. Looks at every type.
    fn named(&self, kind: u32, name: &str) -> Option<u32> {
        let count = u32::try_from(self.types.len()).ok()?;
        (1..=count).find(|&id| {
            self.head(id).is_some_and(|head| {
                head.kind() == kind && string(&self.bytes, &self.strings, head.name) == Some(name.as_bytes())
            })
        })
    }

    fn path_offset(&self, structure: u32, path: &str) -> Option<u32> {
        let mut steps = MAX_STEPS;
        let mut id = structure;
        let mut bits = 0u32;
        for name in path.split('.') {
            let (member_bits, member_type) = self.find_member(id, name.as_bytes(), 0, &mut steps)?;
            bits = bits.checked_add(member_bits)?;
            id = member_type;
        }
        bits.is_multiple_of(8).then_some(bits / 8)
    }

    /// Bit offset and type of the member `name` of struct or union `id`, looking into anonymous members.
    fn find_member(&self, id: u32, name: &[u8], depth: u32, steps: &mut u32) -> Option<(u32, u32)> {
        if depth > MAX_DEPTH {
            return None;
        }
        let id = self.strip_modifiers(id, steps)?;
        let head = self.head(id)?;
        if !matches!(head.kind(), KIND_STRUCT | KIND_UNION) {
            return None;
        }
        let base = self.position(id)? + 12;
        for i in 0..head.vlen() as usize {
            *steps = steps.checked_sub(1)?;
            let at = base + i * 12;
            let member_name = u32_at(&self.bytes, at)?;
            let member_type = u32_at(&self.bytes, at + 4)?;
            let raw = u32_at(&self.bytes, at + 8)?;
            let bits = if head.kind_flag() { raw & 0x00ff_ffff } else { raw };
            if member_name == 0 {
                if let Some((inner, ty)) = self.find_member(member_type, name, depth + 1, steps) {
                    return Some((bits.checked_add(inner)?, ty));
                }
            } else if string(&self.bytes, &self.strings, member_name)? == name {
                return Some((bits, member_type));
            }
        }
        None
    }

    /// Follows typedef, const, volatile, restrict and type tags.
    fn strip_modifiers(&self, mut id: u32, steps: &mut u32) -> Option<u32> {
        loop {
            *steps = steps.checked_sub(1)?;
            let head = self.head(id)?;
            match head.kind() {
                8..=11 | 18 => id = head.size_or_type,
                _ => return Some(id),
            }
        }
    }

    fn position(&self, id: u32) -> Option<usize> {
        let index = usize::try_from(id.checked_sub(1)?).ok()?;
        usize::try_from(*self.types.get(index)?).ok()
    }

    fn head(&self, id: u32) -> Option<TypeHead> {
        head_at(&self.bytes, self.position(id)?)
    }
}

fn head_at(bytes: &[u8], at: usize) -> Option<TypeHead> {
    Some(TypeHead {
        name: u32_at(bytes, at)?,
        info: u32_at(bytes, at + 4)?,
        size_or_type: u32_at(bytes, at + 8)?,
    })
}

/// Byte ranges of the type and the string section.
fn sections(bytes: &[u8]) -> Option<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    let magic = u16::from_le_bytes(bytes.get(0..2)?.try_into().ok()?);
    let header_len = usize::try_from(u32_at(bytes, 4)?).ok()?;
    if magic != MAGIC || header_len < HEADER_LEN {
        return None;
    }
    let range = |offset_at: usize| -> Option<std::ops::Range<usize>> {
        let offset = usize::try_from(u32_at(bytes, offset_at)?).ok()?;
        let len = usize::try_from(u32_at(bytes, offset_at + 4)?).ok()?;
        let start = header_len.checked_add(offset)?;
        let end = start.checked_add(len)?;
        (end <= bytes.len()).then_some(start..end)
    };
    Some((range(8)?, range(16)?))
}

/// The NUL-terminated string at `offset` of the string section.
fn string<'a>(bytes: &'a [u8], strings: &std::ops::Range<usize>, offset: u32) -> Option<&'a [u8]> {
    let section = bytes.get(strings.clone())?;
    let tail = section.get(usize::try_from(offset).ok()?..)?;
    let end = tail.iter().position(|&b| b == 0)?;
    tail.get(..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Builds type information record by record.
    #[derive(Default)]
    struct Builder {
        types: Vec<u8>,
        strings: Vec<u8>,
    }

    impl Builder {
        fn name(&mut self, name: &str) -> u32 {
            if self.strings.is_empty() {
                self.strings.push(0);
            }
            if name.is_empty() {
                return 0;
            }
            let at = u32::try_from(self.strings.len()).expect("small");
            self.strings.extend_from_slice(name.as_bytes());
            self.strings.push(0);
            at
        }

        fn record(&mut self, words: &[u32]) {
            for word in words {
                self.types.extend_from_slice(&word.to_le_bytes());
            }
        }

        fn composite(&mut self, kind: u32, name: &str, kind_flag: bool, members: &[(&str, u32, u32)]) {
            let name = self.name(name);
            let vlen = u32::try_from(members.len()).expect("small");
            self.record(&[name, u32::from(kind_flag) << 31 | kind << 24 | vlen, 64]);
            for (member, ty, offset) in members {
                let member = self.name(member);
                self.record(&[member, *ty, *offset]);
            }
        }

        fn build(&self) -> Vec<u8> {
            let len = |bytes: &[u8]| u32::try_from(bytes.len()).expect("small");
            let mut all = vec![0x9f, 0xeb, 1, 0];
            for word in [24, 0, len(&self.types), len(&self.types), len(&self.strings)] {
                all.extend_from_slice(&word.to_le_bytes());
            }
            all.extend_from_slice(&self.types);
            all.extend_from_slice(&self.strings);
            all
        }
    }

    /// 1: int; 2: anonymous union {a, b}; 3: anonymous struct {c at 8 bytes, bits}; 4: inner {x at 4 bytes};
    /// 5: const inner; 6: outer.
    fn sample() -> Vec<u8> {
        let mut builder = Builder::default();
        let int = builder.name("int");
        builder.record(&[int, 1 << 24, 4, 32]);
        builder.composite(KIND_UNION, "", false, &[("a", 1, 0), ("b", 1, 0)]);
        builder.composite(
            KIND_STRUCT,
            "",
            true,
            &[("c", 1, 64), ("bits", 1, 3 << 24 | 0x64)],
        );
        builder.composite(KIND_STRUCT, "inner", false, &[("x", 1, 32)]);
        builder.record(&[0, 10 << 24, 4]);
        builder.composite(
            KIND_STRUCT,
            "outer",
            false,
            &[("first", 1, 0), ("", 2, 64), ("", 3, 128), ("in", 5, 320)],
        );
        builder.build()
    }

    #[test]
    fn members_are_found_through_anonymous_and_const_types() {
        let btf = Btf::parse(sample()).expect("valid");
        assert_eq!(btf.len(), 6);
        assert_eq!(btf.member_offset("outer", "first"), Some(0));
        assert_eq!(btf.member_offset("outer", "b"), Some(8));
        assert_eq!(btf.member_offset("outer", "c"), Some(24));
        assert_eq!(btf.member_offset("outer", "in.x"), Some(44));
        assert_eq!(btf.member_offset("outer", "bits"), None, "not at a byte");
        assert_eq!(
            btf.member_offset("outer", "x"),
            None,
            "only inside a named member"
        );
        assert_eq!(btf.member_offset("outer", ""), None);
    }

    #[test]
    fn functions_and_enumerators_are_found_by_name() {
        let mut builder = Builder::default();
        let name = builder.name("kind");
        let (first, second) = (builder.name("FIRST"), builder.name("SECOND"));
        builder.record(&[name, 6 << 24 | 2, 4, first, 0, second, 7]);
        let function = builder.name("kind");
        builder.record(&[function, 12 << 24, 1]);
        let btf = Btf::parse(builder.build()).expect("valid");
        assert_eq!(btf.enumerator("kind", "SECOND"), Some(7));
        assert_eq!(btf.enumerator("kind", "THIRD"), None);
        assert_eq!(btf.enumerator("other", "FIRST"), None);
        assert_eq!((btf.function("kind"), btf.function("FIRST")), (Some(2), None));
    }

    #[test]
    fn a_type_that_contains_itself_ends() {
        let mut builder = Builder::default();
        builder.composite(KIND_STRUCT, "loop", false, &[("", 1, 0), ("", 1, 0)]);
        // A typedef of itself.
        builder.record(&[0, 8 << 24, 2]);
        builder.composite(KIND_STRUCT, "through", false, &[("t", 2, 0)]);
        let btf = Btf::parse(builder.build()).expect("valid");
        assert_eq!(btf.member_offset("loop", "missing"), None);
        assert_eq!(btf.member_offset("through", "t.missing"), None);
    }

    #[test]
    fn damaged_headers_and_records_are_refused() {
        let good = sample();
        assert_eq!(Btf::parse(Vec::new()).unwrap_err(), BtfError::Header);
        assert_eq!(Btf::parse(good[..23].to_vec()).unwrap_err(), BtfError::Header);
        assert_eq!(
            Btf::parse(good[..good.len() - 1].to_vec()).unwrap_err(),
            BtfError::Header
        );
        let mut unknown = good.clone();
        unknown[31] = 0x1f;
        assert_eq!(
            Btf::parse(unknown).unwrap_err(),
            BtfError::Kind { id: 1, kind: 31 }
        );
        let mut long = good;
        // The second type claims 65,535 members.
        long[44..46].copy_from_slice(&[0xff, 0xff]);
        assert_eq!(Btf::parse(long).unwrap_err(), BtfError::Truncated(2));
    }

    proptest! {
        #[test]
        fn changed_bytes_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12)) {
            let mut bytes = sample();
            for (index, value) in changes {
                let at = index.index(bytes.len());
                bytes[at] = value;
            }
            if let Ok(btf) = Btf::parse(bytes) {
                for path in ["first", "b", "c", "in.x", "bits", "missing"] {
                    btf.member_offset("outer", path);
                }
                btf.enumerator("outer", "first");
                btf.function("outer");
            }
        }

        #[test]
        fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut with_magic = vec![0x9f, 0xeb, 1, 0, 24, 0, 0, 0];
            with_magic.extend_from_slice(&bytes);
            let _refused_or_not = Btf::parse(with_magic).map(|btf| btf.member_offset("", ""));
            let _refused = Btf::parse(bytes);
        }
    }
}
