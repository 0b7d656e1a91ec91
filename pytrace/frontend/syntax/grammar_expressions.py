"""Productions of expressions and types."""

from __future__ import annotations

from pytrace.core.builtins import public_name
from pytrace.core.source import Span
from pytrace.core.types import shown_name
from pytrace.frontend.ast import nodes
from pytrace.frontend.syntax.grammar_support import Rule, make_if, report, span_of
from pytrace.frontend.syntax.lexical.tokens import SIZED_TYPES

_PLACES = (nodes.Variable, nodes.MapRef, nodes.MapIndex)


def p_expr_binary(p: Rule) -> None:
    """expr : expr LOR expr
    | expr LAND expr
    | expr BOR expr
    | expr BXOR expr
    | expr BAND expr
    | expr EQ expr
    | expr NE expr
    | expr LT expr
    | expr GT expr
    | expr LE expr
    | expr GE expr
    | expr LSHIFT expr
    | expr RSHIFT expr
    | expr PLUS expr
    | expr MINUS expr
    | expr TIMES expr
    | expr DIVIDE expr
    | expr MODULO expr"""
    p[0] = nodes.Binary(span_of(p), p[2].text, p[1], p[3])


def p_expr_ternary(p: Rule) -> None:
    """expr : expr QUESTION expr COLON expr
    | expr QUESTION COLON expr"""
    p[0] = nodes.Ternary(span_of(p), p[1], p[3] if len(p) == 6 else None, p[len(p) - 1])


def p_first_part(p: Rule) -> None:
    """expr : unary
    unary : postfix
    postfix : primary
    declared_size : expr"""
    p[0] = p[1]


def p_list(p: Rule) -> None:
    """expressions : expr
    | expressions COMMA expr
    arguments : operand
    | arguments COMMA operand
    type_list : type
    | type_list COMMA type
    parameter_list : parameter
    | parameter_list COMMA parameter
    macro_parameter_list : macro_parameter
    | macro_parameter_list COMMA macro_parameter"""
    if len(p) == 2:
        p[0] = [p[1]]
    else:
        p[1].append(p[3])
        p[0] = p[1]


def p_optional_list(p: Rule) -> None:
    """parameters :
    | parameter_list
    macro_parameters :
    | macro_parameter_list"""
    p[0] = [] if len(p) == 1 else p[1]


def p_unary_operator(p: Rule) -> None:
    """unary : NOT unary
    | BNOT unary
    | MINUS unary
    | TIMES unary"""
    p[0] = nodes.Unary(span_of(p), p[1].text, p[2])


def p_unary_place(p: Rule) -> None:
    """unary : BAND unary
    | INCREMENT unary
    | DECREMENT unary"""
    if not isinstance(p[2], _PLACES):
        report(p, f"'{p[1].text}' needs a variable or a map", p[2].span)
    p[0] = nodes.Unary(span_of(p), p[1].text, p[2])


def p_unary_cast(p: Rule) -> None:
    """unary : LPAREN TYPE_MARK type RPAREN unary"""
    p[0] = nodes.Cast(span_of(p), p[3], p[5])


def p_unary_comptime(p: Rule) -> None:
    """unary : COMPTIME unary"""
    p[0] = nodes.Comptime(span_of(p), p[2])


# ---------------------------------------------------------------------------------------------- postfix


def p_postfix_field(p: Rule) -> None:
    """postfix : postfix DOT IDENT
    | postfix ARROW IDENT"""
    p[0] = nodes.FieldAccess(span_of(p), p[1], p[3].text)


def p_postfix_tuple(p: Rule) -> None:
    """postfix : postfix DOT INT"""
    p[0] = nodes.TupleAccess(span_of(p), p[1], p[3].data)


def p_postfix_index(p: Rule) -> None:
    """postfix : postfix LBRACKET expressions RBRACKET"""
    base, keys = p[1], p[3]
    if isinstance(base, nodes.MapRef):
        p[0] = nodes.MapIndex(span_of(p), base, tuple(keys))
        return
    if len(keys) > 1:
        report(p, "expected one index", keys[1].span.to(keys[-1].span), "only maps take several keys")
    p[0] = nodes.Index(span_of(p), base, keys[0])


def p_postfix_step(p: Rule) -> None:
    """postfix : postfix INCREMENT
    | postfix DECREMENT"""
    if not isinstance(p[1], _PLACES):
        report(p, f"'{p[2].text}' needs a variable or a map", p[1].span)
    p[0] = nodes.Unary(span_of(p), p[2].text, p[1], postfix=True)


# ---------------------------------------------------------------------------------------------- primary


def p_primary_identifier(p: Rule) -> None:
    """primary : IDENT"""
    p[0] = nodes.Identifier(p[1].span, public_name(p[1].text))


def p_primary_int(p: Rule) -> None:
    """primary : INT"""
    p[0] = nodes.IntLiteral(p[1].span, p[1].data, p[1].text)


def p_primary_float(p: Rule) -> None:
    """primary : FLOAT"""
    p[0] = nodes.FloatLiteral(p[1].span, p[1].data, p[1].text)


def p_primary_string(p: Rule) -> None:
    """primary : STRING"""
    p[0] = nodes.StringLiteral(p[1].span, p[1].data)


def p_primary_bool(p: Rule) -> None:
    """primary : TRUE
    | FALSE"""
    p[0] = nodes.BoolLiteral(p[1].span, p[1].type == "TRUE")


def p_primary_variable(p: Rule) -> None:
    """primary : VARIABLE"""
    p[0] = nodes.Variable(p[1].span, p[1].data)


def p_primary_map(p: Rule) -> None:
    """primary : MAP"""
    p[0] = nodes.MapRef(p[1].span, p[1].text)


def p_primary_parameter(p: Rule) -> None:
    """primary : PARAM"""
    p[0] = nodes.PositionalParam(p[1].span, p[1].data)


def p_primary_parameter_count(p: Rule) -> None:
    """primary : PARAM_COUNT"""
    p[0] = nodes.ParamCount(p[1].span)


def p_primary_call(p: Rule) -> None:
    """primary : IDENT LPAREN RPAREN
    | IDENT LPAREN arguments RPAREN"""
    arguments = tuple(p[3]) if len(p) == 5 else ()
    p[0] = nodes.Call(span_of(p), public_name(p[1].text), arguments)


def p_primary_group(p: Rule) -> None:
    """primary : LPAREN expr RPAREN"""
    p[0] = p[2]


def p_primary_tuple(p: Rule) -> None:
    """primary : LPAREN RPAREN
    | LPAREN expr COMMA RPAREN
    | LPAREN expr COMMA expressions RPAREN
    | LPAREN expr COMMA expressions COMMA RPAREN"""
    members: tuple[nodes.Expr, ...] = () if len(p) == 3 else (p[2],)
    if len(p) > 5:
        members = (p[2], *p[4])
    p[0] = nodes.TupleLiteral(span_of(p), members)


def p_primary_record(p: Rule) -> None:
    """primary : LPAREN record_fields RPAREN
    | LPAREN record_fields COMMA RPAREN"""
    names: list[str] = []
    members: list[nodes.Expr] = []
    known: set[str] = set()
    for token, name, value in p[2]:
        if (shown := shown_name(name)) in known:
            report(p, f"the record has a field '{shown}' already", token.span)
            continue
        known.add(shown)
        names.append(name)
        members.append(value)
    p[0] = nodes.RecordLiteral(span_of(p), tuple(names), tuple(members))


def p_record_fields(p: Rule) -> None:
    """record_fields : field_name ASSIGN expr
    | record_fields COMMA field_name ASSIGN expr"""
    p[0] = [(*p[1], p[3])] if len(p) == 4 else [*p[1], (*p[3], p[5])]


def p_field_name(p: Rule) -> None:
    """field_name : IDENT"""
    p[0] = (p[1], p[1].text)


def p_field_name_text(p: Rule) -> None:
    """field_name : STRING"""
    name = p[1].data.decode("utf-8", "surrogateescape")
    if not name.isprintable() or '"' in name or not name:
        hint = "a name in quotes is the title of a column: printable characters other than quotes"
        report(p, f"a field cannot have the name {p[1].text}", p[1].span, hint)
        name = "?"
    p[0] = (p[1], f'"{name}"')


def p_primary_sizeof(p: Rule) -> None:
    """primary : SIZEOF LPAREN operand RPAREN"""
    p[0] = nodes.Sizeof(span_of(p), p[3])


def p_primary_typeinfo(p: Rule) -> None:
    """primary : TYPEINFO LPAREN operand RPAREN"""
    p[0] = nodes.TypeInfo(span_of(p), p[3])


def p_primary_offsetof(p: Rule) -> None:
    """primary : OFFSETOF LPAREN operand COMMA member_path RPAREN"""
    p[0] = nodes.Offsetof(span_of(p), p[3], tuple(p[5]))


def p_member_path(p: Rule) -> None:
    """member_path : IDENT
    | member_path DOT IDENT
    | member_path LBRACKET INT RBRACKET"""
    if len(p) == 2:
        p[0] = [p[1].text]
    else:
        p[0] = [*p[1], p[3].text if p[3].type == "IDENT" else str(p[3].data)]


def p_primary_block(p: Rule) -> None:
    """primary : block"""
    p[0] = nodes.BlockExpr(p[1].span, p[1])


def p_primary_if(p: Rule) -> None:
    """primary : IF if_rest"""
    p[0] = make_if(p[1], p[2])


def p_if_rest(p: Rule) -> None:
    """if_rest : condition block
    | condition block ELSE block
    | condition block ELSE IF if_rest"""
    other = None
    if len(p) == 5:
        other = p[4]
    elif len(p) == 6:
        other = make_if(p[4], p[5])
    comptime, condition = p[1]
    end: Span = other.span if other is not None else p[2].span
    p[0] = (condition, p[2], other, comptime, end)


def p_condition(p: Rule) -> None:
    """condition : expr
    | IF_COMPTIME expr"""
    p[0] = (len(p) == 3, p[len(p) - 1])


# ---------------------------------------------------------------------------------------------- types


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


def p_operand(p: Rule) -> None:
    """operand : expr
    | TYPE_MARK type"""
    p[0] = p[len(p) - 1]
