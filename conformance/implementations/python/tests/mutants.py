"""mutants changes the decision in one place at a time and lists the changes that no vector notices.

    python3 tests/mutants.py          a hundred changes, drawn with a fixed seed
    python3 tests/mutants.py all      every change
"""

from __future__ import annotations

import ast
import copy
import os
import random
import signal
import sys
import types
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple

sys.dont_write_bytecode = True
FOLDER = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(FOLDER))

from tests.test_decision import vectors

SOURCE = FOLDER / "fetch_decision.py"
LIMIT = 60  # Seconds. A change can make a loop endless.

# Changes that no observation can notice, with the reason.
EQUIVALENT: dict[str, str] = {
    "RetryPolicy: max_jitter=span('max_jitter', 0, 500 * MILLISECOND) => max_jitter=span('max_jitter', 1, 500 * MILLISECOND)":
        "a nanosecond is no millisecond",
    "status_class: status <= 399: return None if 400 <= status <= 499: return 'http_client_error' if 500 <= s"
    " => status <= 399: return None if 500 <= status <= 599: return 'http_server_error' if 400 <= s":
        "no status is in both ranges",
    "failure_of: ype, row.retried) if name == 'tls_handshake': retried = o.retry.retry_tls_handshake if o.r"
    " => ype, row.retried) if name == 'request_timeout': retried = o.retry.download if name == 'tls":
        "no class has both names",
    "backoff: x64(policy.jitter_seed + n & (1 << 64) - 1) % choic => x64(policy.jitter_seed + n & (2 << 64) - 1) % choic":
        "splitmix64 drops the bit",
    "backoff: licy.jitter_seed + n & (1 << 64) - 1) % choices ret => licy.jitter_seed + n & (1 << 65) - 1) % choices ret":
        "splitmix64 drops the bit",
    "parse_http_date: limit: tuple[int, ...] = (10000,) if len(match['yea => limit: tuple[int, ...] = (10001,) if len(match['yea":
        "no year of four digits is greater",
    "decide: ble': retryable(o, found)} if asked is not None: failure['retry_after'] = format_duration("
    " => ble': retryable(o, found)} if found.reason is not None: failure['reason'] = found.reason i":
        "they are independent",
    "ROWS: d': Row('P4', 1, 'permanent', False), 'shutdown': Row( => d': Row('P4', 1, 'permanent', True), 'shutdown': Row(":
        "a class that stops the fetch has no other reason to end it",
    "classify: us) if not 200 <= o.status <= 299: faults -= {name fo => us) if not 200 <= o.status <= 300: faults -= {name fo":
        "a 300 is not followed",
    "classify: n ROWS.items(): if row.group > 4 and ends is not N => n ROWS.items(): if row.group >= 4 and ends is not N":
        "the status decides before",
    "redirect_of: ts') method = o.hop_method if o.status in (301, 302) and method == 'POST' or (o.status ==  => ts') method = o.hop_method if target.fragment is None: target = target._replace(fragment=b":
        "they are independent",
    "parse_seconds: AX_DURATION if len(match[1]) > 11 else int(match[1 => AX_DURATION if len(match[1]) >= 11 else int(match[1":
        "a number of 11 digits saturates, too",
    "parse_timestamp:  + int((match[3] or '').ljust(9, '0')[:9]) =>  + int((match[3] or '').ljust(10, '0')[:9])":
        "only nine digits count",
}

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}


class Mutant(NamedTuple):
    """A change of the module."""

    name: str
    line: int
    tree: ast.Module


def changes(node: ast.AST) -> Iterator[Callable[[ast.AST], None]]:
    """changes yields the changes of a node. Each is applied to a copy of it."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
        def number(n: Any) -> None:
            n.value = not n.value if isinstance(n.value, bool) else n.value + 1
        yield number
    if isinstance(node, ast.Compare):
        def compare(n: Any) -> None:
            n.ops[0] = COMPARISONS[type(n.ops[0])]()
        yield compare
        if len(node.ops) > 1:
            def second(n: Any) -> None:
                n.ops[1] = COMPARISONS[type(n.ops[1])]()
            yield second
    if isinstance(node, ast.BoolOp):
        def junction(n: Any) -> None:
            n.op = ast.Or() if isinstance(n.op, ast.And) else ast.And()
        yield junction
        for i in range(len(node.values)):
            def operand(n: Any, i: int = i) -> None:
                del n.values[i]
            yield operand
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        def sign(n: Any) -> None:
            n.op = ast.Sub() if isinstance(n.op, ast.Add) else ast.Add()
        yield sign
    if isinstance(node, ast.If):  # A rule is left out, and so is its else.
        def never(n: Any) -> None:
            n.test = ast.Constant(False)
        yield never
    if isinstance(node, (ast.Tuple, ast.Set)) and len(node.elts) > 1:
        for i in range(len(node.elts)):
            def element(n: Any, i: int = i) -> None:
                del n.elts[i]
            if all(isinstance(e, ast.Constant) for e in node.elts):
                yield element
    if isinstance(node, ast.Dict) and len(node.keys) > 10:  # Two rows of the table of classes.
        for i in range(len(node.keys) - 1):
            def rows(n: Any, i: int = i) -> None:
                for items in (n.keys, n.values):
                    items[i], items[i + 1] = items[i + 1], items[i]
            yield rows
    for field in ("body", "orelse"):
        body = getattr(node, field, None)
        for i in range(len(body) - 1 if isinstance(body, list) else 0):
            assert isinstance(body, list)
            if isinstance(body[i], ast.If) and isinstance(body[i + 1], ast.If):
                def order(n: Any, field: str = field, i: int = i) -> None:
                    items = getattr(n, field)
                    items[i], items[i + 1] = items[i + 1], items[i]
                yield order


def mutants(source: str) -> Iterator[Mutant]:
    """mutants yields each change of the functions and tables of a module."""
    module = ast.parse(source)
    for n, top in enumerate(module.body):
        where = getattr(top, "name", "")
        decorators = {id(child) for d in getattr(top, "decorator_list", ()) for child in ast.walk(d)}
        if isinstance(top, (ast.Assign, ast.AnnAssign)):
            where = ast.unparse(top.targets[0] if isinstance(top, ast.Assign) else top.target)
        if not where or where == "main":
            continue
        for at, node in enumerate(ast.walk(top)):
            if id(node) in decorators:
                continue
            for change in changes(node):
                tree = copy.deepcopy(module)
                changed = next(c for i, c in enumerate(ast.walk(tree.body[n])) if i == at)
                before = ast.unparse(tree.body[n])
                change(changed)
                after = ast.unparse(tree.body[n])
                line = getattr(node, "lineno", top.lineno)
                yield Mutant(f"{where}: {difference(before, after)}", line, ast.fix_missing_locations(tree))


def difference(before: str, after: str) -> str:
    """difference describes what differs, with a few words around it."""
    before, after = " ".join(before.split()), " ".join(after.split())
    start = len(os.path.commonprefix([before, after]))
    end = min(len(os.path.commonprefix([before[::-1], after[::-1]])), min(len(before), len(after)) - start)
    return " => ".join(text[max(0, start - 30):len(text) - max(0, end - 20)][:90] for text in (before, after))


def noticed(tree: ast.Module, cases: list[dict[str, Any]]) -> bool:
    """noticed reports whether a vector fails, or the module cannot be used."""
    module = types.ModuleType("mutant")
    sys.modules["mutant"] = module  # Data classes look it up.
    signal.alarm(LIMIT)
    try:
        exec(compile(tree, "mutant", "exec"), module.__dict__)
        for case in cases:
            verdict = module.decide(case["observation"])
            if "reason" not in case["verdict"].get("failure", {}):
                verdict.get("failure", {}).pop("reason", None)
            if verdict != case["verdict"]:
                return True
    except Exception:
        return True
    finally:
        signal.alarm(0)
    return False


def main(arguments: list[str]) -> int:
    def late(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    source, cases = SOURCE.read_text(encoding="utf-8"), list(vectors())
    if noticed(ast.parse(source), cases):
        print("a vector fails without a change")
        return 1
    chosen = list(mutants(source))
    count = len(chosen)
    if arguments != ["all"]:
        chosen = sorted(random.Random(1).sample(chosen, 100), key=lambda m: m.line)
    survivors = [m for m in chosen if not noticed(m.tree, cases)]
    for m in survivors:
        print(f"{SOURCE.name}:{m.line}: {m.name}\n    {EQUIVALENT.get(m.name, 'no vector notices it')}")
    equivalent = sum(m.name in EQUIVALENT for m in survivors)
    missed = len(survivors) - equivalent
    print(f"{len(chosen)} of {count} changes: {len(chosen) - len(survivors)} noticed, {equivalent} equivalent, {missed} not noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
