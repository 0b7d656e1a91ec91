"""Productions of types."""

from __future__ import annotations

from pytrace.frontend.ast import nodes
from pytrace.frontend.syntax.grammar_support import Rule, report, span_of
from pytrace.frontend.syntax.lexical.tokens import SIZED_TYPES


def p_type_name(p: Rule) -> None:
    """type : IDENT"""
    p[0] = nodes.NamedType(p[1].span, p[1].text)


def p_type_tagged(p: Rule) -> None:
    """type : STRUCT IDENT
    | UNION IDENT
    | ENUM IDENT"""
    p[0] = nodes.StructTypeExpr(span_of(p), p[1].text, p[2].text)


def p_type_pointer(p: Rule) -> None:
    """type : type TIMES"""
    p[0] = nodes.PointerTypeExpr(span_of(p), p[1])


def p_type_array(p: Rule) -> None:
    """type : type LBRACKET RBRACKET
    | type LBRACKET expr RBRACKET"""
    count = p[3] if len(p) == 5 else None
    element = p[1]
    sized = isinstance(element, nodes.NamedType) and element.name in SIZED_TYPES and element.capacity is None
    if not sized:
        p[0] = nodes.ArrayTypeExpr(span_of(p), element, count)
    elif isinstance(count, nodes.IntLiteral):
        p[0] = nodes.NamedType(span_of(p), element.name, count.value)
    else:
        report(p, f"the capacity of '{element.name}' is a number", count.span if count else span_of(p))
        p[0] = element


def p_type_typeof(p: Rule) -> None:
    """type : TYPEOF LPAREN operand RPAREN"""
    p[0] = nodes.TypeofExpr(span_of(p), p[3])


def p_type_tuple(p: Rule) -> None:
    """type : LPAREN type_list RPAREN
    | LPAREN type_list COMMA RPAREN
    | LPAREN RPAREN"""
    p[0] = nodes.TupleTypeExpr(span_of(p), tuple(p[2]) if len(p) > 3 else ())


def p_type_list(p: Rule) -> None:
    """type_list : type
    | type_list COMMA type"""
    p[0] = [p[1]] if len(p) == 2 else [*p[1], p[3]]


def p_operand(p: Rule) -> None:
    """operand : expr
    | TYPE_MARK type"""
    p[0] = p[len(p) - 1]
