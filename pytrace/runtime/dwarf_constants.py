"""Numbers of DWARF that pytrace looks at: tags, attributes, forms, kinds of units.

Source: the DWARF 5 standard, section 7; what GNU tools used before DWARF 5 (split units, supplementary files) is in
``include/dwarf2.def`` of binutils and https://gcc.gnu.org/wiki/DebugFission.
"""

from __future__ import annotations

from enum import IntEnum


class Tag(IntEnum):
    """``DW_TAG_*``: what a debugging information entry describes."""

    ARRAY_TYPE = 0x01
    CLASS_TYPE = 0x02
    ENUMERATION_TYPE = 0x04
    FORMAL_PARAMETER = 0x05
    LEXICAL_BLOCK = 0x0B
    MEMBER = 0x0D
    POINTER_TYPE = 0x0F
    REFERENCE_TYPE = 0x10
    COMPILE_UNIT = 0x11
    STRUCTURE_TYPE = 0x13
    SUBROUTINE_TYPE = 0x15
    TYPEDEF = 0x16
    UNION_TYPE = 0x17
    INHERITANCE = 0x1C
    INLINED_SUBROUTINE = 0x1D
    PTR_TO_MEMBER_TYPE = 0x1F
    SUBRANGE_TYPE = 0x21
    BASE_TYPE = 0x24
    CONST_TYPE = 0x26
    ENUMERATOR = 0x28
    SUBPROGRAM = 0x2E
    VOLATILE_TYPE = 0x35
    RESTRICT_TYPE = 0x37
    NAMESPACE = 0x39
    UNSPECIFIED_TYPE = 0x3B
    RVALUE_REFERENCE_TYPE = 0x42
    ATOMIC_TYPE = 0x47


class At(IntEnum):
    """``DW_AT_*``: attributes of an entry."""

    SIBLING = 0x01
    LOCATION = 0x02
    NAME = 0x03
    BYTE_SIZE = 0x0B
    BIT_OFFSET = 0x0C
    BIT_SIZE = 0x0D
    STMT_LIST = 0x10
    LOW_PC = 0x11
    HIGH_PC = 0x12
    COMP_DIR = 0x1B
    CONST_VALUE = 0x1C
    UPPER_BOUND = 0x2F
    ABSTRACT_ORIGIN = 0x31
    ARTIFICIAL = 0x34
    CALLING_CONVENTION = 0x36
    COUNT = 0x37
    DATA_MEMBER_LOCATION = 0x38
    DECLARATION = 0x3C
    ENCODING = 0x3E
    EXTERNAL = 0x3F
    SPECIFICATION = 0x47
    TYPE = 0x49
    VIRTUALITY = 0x4C
    RANGES = 0x55
    CALL_FILE = 0x58
    CALL_LINE = 0x59
    SIGNATURE = 0x69
    DATA_BIT_OFFSET = 0x6B
    LINKAGE_NAME = 0x6E
    STR_OFFSETS_BASE = 0x72
    ADDR_BASE = 0x73
    RNGLISTS_BASE = 0x74
    DWO_NAME = 0x76
    DEFAULTED = 0x8B
    LOCLISTS_BASE = 0x8C
    MIPS_LINKAGE_NAME = 0x2007
    GNU_DWO_NAME = 0x2130
    GNU_DWO_ID = 0x2131
    GNU_RANGES_BASE = 0x2132
    GNU_ADDR_BASE = 0x2133


class Form(IntEnum):
    """``DW_FORM_*``: how the value of an attribute is stored."""

    ADDR = 0x01
    BLOCK2 = 0x03
    BLOCK4 = 0x04
    DATA2 = 0x05
    DATA4 = 0x06
    DATA8 = 0x07
    STRING = 0x08
    BLOCK = 0x09
    BLOCK1 = 0x0A
    DATA1 = 0x0B
    FLAG = 0x0C
    SDATA = 0x0D
    STRP = 0x0E
    UDATA = 0x0F
    REF_ADDR = 0x10
    REF1 = 0x11
    REF2 = 0x12
    REF4 = 0x13
    REF8 = 0x14
    REF_UDATA = 0x15
    INDIRECT = 0x16
    SEC_OFFSET = 0x17
    EXPRLOC = 0x18
    FLAG_PRESENT = 0x19
    STRX = 0x1A
    ADDRX = 0x1B
    REF_SUP4 = 0x1C
    STRP_SUP = 0x1D
    DATA16 = 0x1E
    LINE_STRP = 0x1F
    REF_SIG8 = 0x20
    IMPLICIT_CONST = 0x21
    LOCLISTX = 0x22
    RNGLISTX = 0x23
    REF_SUP8 = 0x24
    STRX1 = 0x25
    STRX2 = 0x26
    STRX3 = 0x27
    STRX4 = 0x28
    ADDRX1 = 0x29
    ADDRX2 = 0x2A
    ADDRX3 = 0x2B
    ADDRX4 = 0x2C
    GNU_ADDR_INDEX = 0x1F01
    GNU_STR_INDEX = 0x1F02
    GNU_REF_ALT = 0x1F20
    GNU_STRP_ALT = 0x1F21


class UnitKind(IntEnum):
    """``DW_UT_*``: kinds of units since DWARF 5."""

    COMPILE = 1
    TYPE = 2
    PARTIAL = 3
    SKELETON = 4
    SPLIT_COMPILE = 5
    SPLIT_TYPE = 6


STRING_INDEXES = frozenset((Form.STRX, Form.STRX1, Form.STRX2, Form.STRX3, Form.STRX4, Form.GNU_STR_INDEX))
"""Strings by number in ``.debug_str_offsets``."""
ADDRESS_INDEXES = frozenset((Form.ADDRX, Form.ADDRX1, Form.ADDRX2, Form.ADDRX3, Form.ADDRX4, Form.GNU_ADDR_INDEX))
"""Addresses by number in ``.debug_addr``."""
LOCAL_REFERENCES = frozenset((Form.REF1, Form.REF2, Form.REF4, Form.REF8, Form.REF_UDATA))
"""Entries by their place in the same unit."""
SUPPLEMENT_REFERENCES = frozenset((Form.REF_SUP4, Form.REF_SUP8, Form.GNU_REF_ALT))
"""Entries by their place in the supplementary file."""
