//! The kernel's description of its own types: finds the offset of a structure's member.
//!
//! Format: <https://docs.kernel.org/bpf/btf.html>. Only what is asked for is read; one question
//! walks the list of types once (about 0.3 ms).

use std::fs;

use crate::PlegError;

/// Where the kernel shows it. Since Linux 5.4.
pub(crate) const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u32 = 0xeb9f;
const HEADER_BYTES: usize = 24;
const TYPE_BYTES: usize = 12;

/// Deepest nesting of anonymous structures and type modifiers that is followed.
const DEPTH_MAX: usize = 16;

/// Kinds of types, as numbered by `include/uapi/linux/btf.h`.
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const PTR: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

/// The types of a kernel.
pub(crate) struct Btf {
    bytes: Vec<u8>,
    strings: usize,
    /// Byte offset of each type; number 1 is the first.
    types: Vec<usize>,
}

/// One type's fixed part.
#[derive(Clone, Copy)]
struct Type {
    at: usize,
    name: u32,
    info: u32,
    size_or_target: u32,
}

impl Type {
    fn kind(self) -> u32 {
        self.info >> 24 & 0x1f
    }

    fn members(self) -> usize {
        (self.info & 0xffff) as usize
    }

    /// Bytes behind the fixed part.
    fn tail(self) -> usize {
        match self.kind() {
            kind::INT | kind::VAR | kind::DECL_TAG => 4,
            kind::ARRAY => 12,
            kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12 * self.members(),
            kind::ENUM | kind::FUNC_PROTO => 8 * self.members(),
            _ => 0,
        }
    }
}

impl Btf {
    /// The running kernel's.
    pub(crate) fn of_kernel() -> Result<Self, PlegError> {
        let bytes = fs::read(VMLINUX).map_err(|source| PlegError::NoBtf {
            path: VMLINUX,
            source,
        })?;
        Self::parse(bytes)
    }

    /// Reads the header and finds where each type begins.
    pub(crate) fn parse(bytes: Vec<u8>) -> Result<Self, PlegError> {
        let mut btf = Self {
            bytes,
            strings: 0,
            types: vec![0],
        };
        if btf.word(0)? & 0xffff != MAGIC {
            return Err(PlegError::BadBtf { at: 0 });
        }
        let header = btf.word(4)? as usize;
        if header < HEADER_BYTES {
            return Err(PlegError::BadBtf { at: 4 });
        }
        let begin = header + btf.word(8)? as usize;
        let end = begin + btf.word(12)? as usize;
        btf.strings = header + btf.word(16)? as usize;
        let mut at = begin;
        while at < end {
            let one = btf.type_at(at)?;
            btf.types.push(at);
            at += TYPE_BYTES + one.tail();
        }
        Ok(btf)
    }

    /// Offset in bytes of `structure.member`, also inside anonymous structures and unions.
    pub(crate) fn offset(&self, structure: &str, member: &str) -> Result<u32, PlegError> {
        self.find(structure, &[kind::STRUCT])
            .and_then(|one| self.member(one, member, 0))
            .ok_or_else(|| PlegError::NotInBtf {
                what: format!("{structure}.{member}"),
            })
    }

    /// Size of a structure in bytes.
    pub(crate) fn size(&self, structure: &str) -> Result<u32, PlegError> {
        self.find(structure, &[kind::STRUCT])
            .map(|one| one.size_or_target)
            .ok_or_else(|| PlegError::NotInBtf {
                what: structure.to_owned(),
            })
    }

    /// Value of a name in an enumeration.
    pub(crate) fn value(&self, enumeration: &str, name: &str) -> Result<u32, PlegError> {
        let value = self.find(enumeration, &[kind::ENUM]).and_then(|one| {
            (0..one.members())
                .map(|index| one.at + TYPE_BYTES + 8 * index)
                .find_map(|at| {
                    let here = self.text(self.word(at).ok()?) == name.as_bytes();
                    here.then(|| self.word(at + 4).ok()).flatten()
                })
        });
        value.ok_or_else(|| PlegError::NotInBtf {
            what: format!("{enumeration}.{name}"),
        })
    }

    /// Whether the first argument of a tracepoint is a pointer; `None` if there is no such
    /// tracepoint.
    pub(crate) fn first_argument_is_pointer(&self, tracepoint: &str) -> Option<bool> {
        let typedef = self.find(&format!("btf_trace_{tracepoint}"), &[kind::TYPEDEF])?;
        let pointer = self.resolve(typedef)?;
        let function = self.resolve(self.type_by_id(pointer.size_or_target)?)?;
        if function.kind() != kind::FUNC_PROTO || function.members() < 2 {
            return None;
        }
        // Argument 0 is the tracepoint's own data pointer.
        let argument = self.word(function.at + TYPE_BYTES + 8 + 4).ok()?;
        Some(self.resolve(self.type_by_id(argument)?)?.kind() == kind::PTR)
    }

    fn member(&self, structure: Type, name: &str, depth: usize) -> Option<u32> {
        if depth > DEPTH_MAX {
            return None;
        }
        let has_bit_fields = structure.info >> 31 == 1;
        (0..structure.members()).find_map(|index| {
            let at = structure.at + TYPE_BYTES + 12 * index;
            let (own, inner) = (self.word(at).ok()?, self.word(at + 4).ok()?);
            let bits = self.word(at + 8).ok()?;
            let bytes = if has_bit_fields {
                bits & 0x00ff_ffff
            } else {
                bits
            } / 8;
            let own = self.text(own);
            if own == name.as_bytes() {
                return Some(bytes);
            }
            if !own.is_empty() {
                return None;
            }
            let inner = self.resolve(self.type_by_id(inner)?)?;
            let nested = matches!(inner.kind(), kind::STRUCT | kind::UNION);
            nested
                .then(|| self.member(inner, name, depth + 1))
                .flatten()
                .map(|at| at + bytes)
        })
    }

    /// The type behind typedefs and modifiers.
    fn resolve(&self, mut one: Type) -> Option<Type> {
        for _ in 0..DEPTH_MAX {
            match one.kind() {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    one = self.type_by_id(one.size_or_target)?;
                }
                _ => return Some(one),
            }
        }
        None
    }

    fn find(&self, name: &str, kinds: &[u32]) -> Option<Type> {
        self.types
            .iter()
            .skip(1)
            .filter_map(|at| self.type_at(*at).ok())
            .find(|one| kinds.contains(&one.kind()) && self.text(one.name) == name.as_bytes())
    }

    fn type_by_id(&self, id: u32) -> Option<Type> {
        let at = self.types.get(id as usize).filter(|_| id > 0)?;
        self.type_at(*at).ok()
    }

    fn type_at(&self, at: usize) -> Result<Type, PlegError> {
        Ok(Type {
            at,
            name: self.word(at)?,
            info: self.word(at + 4)?,
            size_or_target: self.word(at + 8)?,
        })
    }

    fn text(&self, offset: u32) -> &[u8] {
        let from = self
            .bytes
            .get(self.strings + offset as usize..)
            .unwrap_or_default();
        from.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    fn word(&self, at: usize) -> Result<u32, PlegError> {
        let four = self.bytes.get(at..).and_then(|rest| rest.first_chunk());
        four.map(|four| u32::from_ne_bytes(*four))
            .ok_or(PlegError::BadBtf { at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_types_are_found() {
        let btf = Btf::of_kernel().expect("this kernel shows its BTF");
        // `kernfs_node.id` was inside an anonymous union for years, and stands behind one today.
        assert!(btf.offset("kernfs_node", "id").expect("kernfs_node.id") > 0);
        assert_eq!(btf.offset("upid", "nr").expect("upid.nr"), 0);
        assert_eq!(btf.size("upid").expect("upid"), 16);
        assert_eq!(
            btf.value("pid_type", "PIDTYPE_TGID").expect("PIDTYPE_TGID"),
            1
        );
        assert_eq!(
            btf.first_argument_is_pointer("sched_process_exit"),
            Some(true)
        );
        assert_eq!(btf.first_argument_is_pointer("no_such_tracepoint"), None);
    }

    #[test]
    fn members_of_anonymous_unions_count_from_the_outer_structure() {
        let btf = Btf::of_kernel().expect("this kernel shows its BTF");
        // `dir` lies in the anonymous union of kernfs_node, behind its reference counts.
        assert!(btf.offset("kernfs_node", "dir").expect("kernfs_node.dir") >= 8);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let btf = Btf::of_kernel().expect("this kernel shows its BTF");
        let error = btf
            .offset("task_struct", "no_such_member")
            .expect_err("not there");
        assert_eq!(
            error.to_string(),
            "the kernel's BTF has no task_struct.no_such_member"
        );
    }

    #[test]
    fn damage_is_an_error() {
        assert!(matches!(
            Btf::parse(vec![0; 64]),
            Err(PlegError::BadBtf { at: 0 })
        ));
        assert!(matches!(
            Btf::parse(Vec::new()),
            Err(PlegError::BadBtf { at: 0 })
        ));
    }
}
