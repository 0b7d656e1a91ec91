"""The LALR(1) grammar: items and statements (``grammar_expressions`` and ``grammar_types`` have the rest).

Each function is a set of productions: its docstring is the rule, its body builds the node.  The tables are generated
ahead by ``scripts/generate-tables`` and shipped as :mod:`pytrace.frontend.syntax.grammar_tables`.  There are no
conflicts: context-dependent tokens are resolved by :mod:`pytrace.frontend.syntax.lexical.structure`.
"""

from __future__ import annotations

from pytrace.frontend.ast import nodes
from pytrace.frontend.syntax.grammar_expressions import *  # noqa: F403
from pytrace.frontend.syntax.grammar_support import EMPTY, Rule, make_if, report, span_of
from pytrace.frontend.syntax.grammar_types import *  # noqa: F403
from pytrace.frontend.syntax.lexical.tokens import KEYWORDS, LITERALS, MARKERS, OPERATORS, Token

tokens = sorted({*LITERALS, *MARKERS, *KEYWORDS.values(), *OPERATORS.values()} - {"FN", "MACRO"})

precedence = (
    ("right", "QUESTION", "COLON"),
    ("left", "LOR"),
    ("left", "LAND"),
    ("left", "BOR"),
    ("left", "BXOR"),
    ("left", "BAND"),
    ("left", "EQ", "NE"),
    ("left", "LT", "GT", "LE", "GE"),
    ("left", "LSHIFT", "RSHIFT"),
    ("left", "PLUS", "MINUS"),
    ("left", "TIMES", "DIVIDE", "MODULO"),
)

start = "start"


def p_start(p: Rule) -> None:
    """start : PROBE_ITEM probe
    | CONFIG_ITEM config
    | IMPORT_ITEM import
    | MACRO_ITEM macro
    | FUNCTION_ITEM function
    | MAP_ITEM map_declaration
    | OPTION_ITEM option_declaration
    | EXPRESSION_ITEM expr"""
    p[0] = p[2]


# ---------------------------------------------------------------------------------------------- items


def p_probe(p: Rule) -> None:
    """probe : block
    | PREDICATE_OPEN expr PREDICATE_CLOSE block"""
    predicate, body = (None, p[1]) if len(p) == 2 else (p[2], p[4])
    points = p.lexer.points
    head = points[0].span.to(points[-1].span)
    p[0] = nodes.Probe(head.to(body.span), points, predicate, body, head)


def p_config(p: Rule) -> None:
    """config : ASSIGN LBRACE entries RBRACE"""
    head = p.lexer.head
    p[0] = nodes.ConfigBlock(head.to(p[4].span), tuple(p[3]), head)


def p_entries(p: Rule) -> None:
    """entries :
    | entries entry
    | entries SEMI
    | entries error RESYNC"""
    p[0] = [] if len(p) == 1 else p[1]
    if len(p) == 4:
        p.parser.errok()
    if len(p) == 3 and isinstance(p[2], nodes.ConfigEntry):
        p[0].append(p[2])


def p_entry(p: Rule) -> None:
    """entry : IDENT ASSIGN entry_value"""
    value, span = p[3]
    p[0] = nodes.ConfigEntry(p[1].span.to(span), p[1].text, value, p[1].span, span)


def p_entry_value(p: Rule) -> None:
    """entry_value : IDENT
    | INT
    | STRING
    | TRUE
    | FALSE
    | MINUS INT"""
    token = p[len(p) - 1]
    if len(p) == 3:
        p[0] = (-token.data, p[1].span.to(token.span))
    else:
        p[0] = (_entry_value(token), token.span)


def _entry_value(token: Token) -> object:
    if token.type == "IDENT":
        return token.text
    return token.type == "TRUE" if token.type in ("TRUE", "FALSE") else token.data


def p_import(p: Rule) -> None:
    """import : STRING SEMI"""
    head = p.lexer.head
    p[0] = nodes.Import(head.to(p[1].span), p[1].data.decode("utf-8", "surrogateescape"))


def p_macro(p: Rule) -> None:
    """macro : IDENT LPAREN macro_parameters RPAREN block"""
    head = p.lexer.head.to(p[1].span)
    p[0] = nodes.Macro(head.to(p[5].span), p[1].text, tuple(p[3]), p[5], head)


def p_macro_parameters(p: Rule) -> None:
    """macro_parameters :
    | macro_parameter_list"""
    p[0] = [] if len(p) == 1 else p[1]


def p_macro_parameter_list(p: Rule) -> None:
    """macro_parameter_list : macro_parameter
    | macro_parameter_list COMMA macro_parameter"""
    p[0] = [p[1]] if len(p) == 2 else [*p[1], p[3]]


def p_macro_parameter(p: Rule) -> None:
    """macro_parameter : IDENT
    | VARIABLE
    | MAP"""
    token: Token = p[1]
    if token.type == "IDENT":
        p[0] = nodes.Identifier(token.span, token.text)
    elif token.type == "VARIABLE":
        p[0] = nodes.Variable(token.span, token.text[1:])
    else:
        p[0] = nodes.MapRef(token.span, token.text)


def p_function(p: Rule) -> None:
    """function : IDENT LPAREN parameters RPAREN block
    | IDENT LPAREN parameters RPAREN COLON type block"""
    head = p.lexer.head.to(p[1].span)
    result = p[6] if len(p) == 8 else None
    body = p[len(p) - 1]
    p[0] = nodes.Function(head.to(body.span), p[1].text, tuple(p[3]), result, body, head)


def p_parameters(p: Rule) -> None:
    """parameters :
    | parameter_list"""
    p[0] = [] if len(p) == 1 else p[1]


def p_parameter_list(p: Rule) -> None:
    """parameter_list : parameter
    | parameter_list COMMA parameter"""
    p[0] = [p[1]] if len(p) == 2 else [*p[1], p[3]]


def p_parameter(p: Rule) -> None:
    """parameter : VARIABLE COLON type"""
    p[0] = nodes.Parameter(span_of(p), nodes.Variable(p[1].span, p[1].data), p[3])


def p_map_declaration(p: Rule) -> None:
    """map_declaration : MAP ASSIGN IDENT LPAREN declared_size RPAREN declaration_end"""
    span = p.lexer.head.to(p[6].span)
    p[0] = nodes.MapDecl(span, nodes.MapRef(p[1].span, p[1].text), p[3].text, p[5])


def p_declared_size(p: Rule) -> None:
    """declared_size : expr"""
    p[0] = p[1]


def p_option_declaration(p: Rule) -> None:
    """option_declaration : LPAREN arguments RPAREN declaration_end"""
    head = p.lexer.head
    p[0] = nodes.OptionDeclaration(head.to(p[3].span), tuple(p[2]), head)


def p_declaration_end(p: Rule) -> None:
    """declaration_end :
    | SEMI"""


# ---------------------------------------------------------------------------------------------- blocks and statements


def p_block(p: Rule) -> None:
    """block : LBRACE block_body RBRACE"""
    statements, value = p[2]
    p[0] = nodes.Block(span_of(p), statements, value, p[1].text == "<")


def p_block_body(p: Rule) -> None:
    """block_body : statements
    | statements simple"""
    statements: list[nodes.Stmt | None] = p[1]
    if len(p) == 3 and p[2] is not None:
        statements.append(p[2])
    last = statements[-1] if statements else None
    whole = len(p) == 3 or (isinstance(last, nodes.ExprStmt) and isinstance(last.value, nodes.If | nodes.BlockExpr))
    value = None
    if whole and isinstance(last, nodes.ExprStmt):
        statements.pop()
        value = last.value
    p[0] = (tuple(statement for statement in statements if statement is not EMPTY), value)


def p_statements(p: Rule) -> None:
    """statements :
    | statements statement
    | statements error RESYNC"""
    p[0] = [] if len(p) == 1 else p[1]
    if len(p) == 4:
        p.parser.errok()  # report the next error even if it is close
    if len(p) == 3 and p[2] is not None:
        p[0].append(p[2])


def p_statement_simple(p: Rule) -> None:
    """statement : simple SEMI"""
    p[0] = p[1]
    if isinstance(p[1], nodes.ExprStmt) and isinstance(p[1].value, nodes.If | nodes.BlockExpr):
        p[0] = nodes.ExprStmt(p[1].span.to(p[2].span), p[1].value)


def p_statement_empty(p: Rule) -> None:
    """statement : SEMI"""
    p[0] = EMPTY


def p_statement_if(p: Rule) -> None:
    """statement : IF_STATEMENT if_rest"""
    node = make_if(p[1], p[2])
    p[0] = nodes.ExprStmt(node.span, node)


def p_statement_block(p: Rule) -> None:
    """statement : BLOCK_STATEMENT block_body RBRACE"""
    span = span_of(p)
    statements, value = p[2]
    p[0] = nodes.ExprStmt(span, nodes.BlockExpr(span, nodes.Block(span, statements, value, p[1].text == "<")))


def p_statement_import(p: Rule) -> None:
    """statement : IMPORT STRING SEMI"""
    p[0] = nodes.Import(p[1].span.to(p[2].span), p[2].data.decode("utf-8", "surrogateescape"))


def p_statement_for(p: Rule) -> None:
    """statement : FOR LPAREN VARIABLE COLON for_source RPAREN block
    | FOR VARIABLE COLON for_source block"""
    first = 3 if len(p) == 8 else 2
    variable = nodes.Variable(p[first].span, p[first].data)
    p[0] = nodes.For(span_of(p), variable, p[first + 2], p[len(p) - 1])


def p_for_source(p: Rule) -> None:
    """for_source : expr
    | expr RANGE expr"""
    if len(p) == 4:
        p[0] = nodes.Range(span_of(p), p[1], p[3])
        return
    p[0] = p[1]
    if not isinstance(p[1], nodes.MapRef):
        report(p, "expected a map or a range in 'for'", p[1].span, "loop over @map, or over 0..10 (10 left out)")


def p_statement_while(p: Rule) -> None:
    """statement : WHILE expr block"""
    p[0] = nodes.While(span_of(p), p[2], p[3])


def p_statement_unroll(p: Rule) -> None:
    """statement : UNROLL expr block"""
    p[0] = nodes.Unroll(span_of(p), p[2], p[3])


def p_simple_expr(p: Rule) -> None:
    """simple : expr"""
    p[0] = nodes.ExprStmt(p[1].span, p[1])


def p_simple_assign(p: Rule) -> None:
    """simple : expr ASSIGN expr
    | expr OP_ASSIGN expr
    | expr TIMES_ASSIGN expr"""
    target = p[1]
    if isinstance(target, nodes.Identifier) and target.name == "_" and p[2].text == "=":
        p[0] = nodes.Discard(span_of(p), p[3])
    elif isinstance(target, nodes.Variable | nodes.MapRef | nodes.MapIndex):
        p[0] = nodes.Assign(span_of(p), target, p[2].text, p[3])
    elif isinstance(target, nodes.TupleAccess | nodes.FieldAccess):
        report(p, "fields cannot be assigned to", target.span, "tuples and records never change: assign a new one")
    else:
        hints = (f"variables are written with '$': ${target.name}",) if isinstance(target, nodes.Identifier) else ()
        report(p, "expected a variable or a map before the assignment", target.span, *hints)


def p_simple_let(p: Rule) -> None:
    """simple : LET VARIABLE
    | LET VARIABLE ASSIGN expr
    | LET VARIABLE COLON type
    | LET VARIABLE COLON type ASSIGN expr
    | LET VARIABLE COLON type TIMES_ASSIGN expr"""
    variable = nodes.Variable(p[2].span, p[2].data)
    type_ = p[4] if len(p) > 4 and p[3].type == "COLON" else None
    value = p[len(p) - 1] if len(p) in (5, 7) and type_ is not p[len(p) - 1] else None
    if len(p) == 7 and p[5].type == "TIMES_ASSIGN":  # `let $p: int8 *= e`
        type_ = nodes.PointerTypeExpr(p[4].span.to(p[5].span), p[4])
    p[0] = nodes.Let(span_of(p), variable, type_, value)


def p_simple_jump(p: Rule) -> None:
    """simple : BREAK
    | CONTINUE"""
    p[0] = nodes.Break(p[1].span) if p[1].type == "BREAK" else nodes.Continue(p[1].span)


def p_simple_return(p: Rule) -> None:
    """simple : RETURN
    | RETURN expr"""
    p[0] = nodes.Return(span_of(p), p[2] if len(p) == 3 else None)


def p_error(token: Token | None) -> None:
    """Replaced for each parse by the parser's own handler (:mod:`pytrace.frontend.syntax.parser`)."""
    raise NotImplementedError(token)


def names() -> dict[str, object]:
    """All names of this module, for PLY, which looks up rules by name."""
    return globals()
