"""The rules of the house as functions from a source tree to a list of faults, so that the rules themselves can be tested."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PLUGIN_ROOMS = {
    "costguard.reports": ("costguard/renderers", "costguard.renderers.{}:render"),
    "costguard.notifiers": ("costguard/notifiers", "costguard.notifiers.{}:notify"),
    "costguard.providers": ("providers", "{}:provider"),
    "costguard.price_sources": ("providers/costguard_public", "costguard_public.{}:source"),
}
"""Entry-point group -> folder of its plug-ins, and what the line of a plug-in says."""

PUBLIC_PRICES = "costguard_public"
"""The package of public price sources: no cloud. A module of it is a plug-in if it makes a `source`; others help them."""

OPEN_TO_PRICE_SOURCES = (
    "costguard.errors",
    "costguard.providers.ports.price_source",
    "costguard.quoting.offer",
    "costguard.quoting.price_drift",
    "costguard.values",
)
"""All of costguard that a price source sees."""

PURE = frozenset(
    "__future__ abc bisect calendar collections dataclasses datetime decimal difflib enum fractions functools hashlib heapq "  # noqa: SIM905
    "itertools math operator re statistics string types typing unicodedata".split()
)
"""Standard modules that know no clock, disk, network or chance. `datetime` is a value here: see CLOCKS."""

READERS = frozenset(("csv", "io", "json", "msgspec", "urllib.parse", "zipfile", "zlib"))
"""Modules that a price source may read feeds with, beside the pure ones."""

CLOCKS = frozenset(("now", "utcnow", "today", "fromtimestamp"))
DISK = frozenset(("open", "print", "input", "exec", "eval", "__import__"))
NOT_OUR_WORDS = re.compile(r"(?:^|_|(?<=[a-z]))(?:[Kk]ill|[Mm]anager|[Hh]andler|[Hh]elper|[Uu]tils?)(?:s|$|_|(?=[A-Z]))")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b|raise NotImplementedError")
ADDRESSES = re.compile("python" + "hosted|py" + r"pi\.org|registry\." + r"npmjs|/wo" + "rk/(?:main|shared)|/fa" + "rm/")
LOCK_FILES = frozenset(("uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "pylock.toml", "package-lock.json"))
STATEMENT = re.compile(r"\s*\b(?:SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER|DROP)\s")
SQL_PLACES = (
    "costguard/ledger/migrations/",
    "costguard/ledger/db/schema.py",
    "costguard/ledger/db/schema_check.py",
    "costguard/ledger/db/triggers.py",
    "costguard/ledger/market",
    "agent/",
)
"""Where SQL is text: migrations, views and triggers, the catalogue, the market file, and the agent's readers of snapshots."""
LONGEST_MODULE, SHORTEST_MODULE = 500, 40
PURE_ROOMS = ("agents", "bills", "budgets", "guard", "metering", "quoting", "reporting", "runs", "sizing", "values", "views")
"""What decides: values in, values out."""

CLOSED_TO_CLOUDS = tuple(
    f"costguard.{room}"
    for room in (
        *("cli", "data", "files", "formats", "ledger", "notifiers", "providers.plugins", "renderers", "services", "settings"),
        *("testing", "watchdog", "web"),
    )
)
"""What a cloud's package does not see: it has the pure rooms, errors, the clock, the provider ports and the transport."""

VERBS = frozenset(
    """
    accept accrue acquire act activate adapt add admit adopt advance age align allocate allows annotate announce answer
    append apply approve arm as ask assemble assert assess assign attach attend audit await backup balance begin bind
    block bound break build cache calculate calibrate call can cancel cap capture carry cast change charge check choose
    claim clamp classify clean clear clip close codify collapse collect combine commit compare compile complete compose
    compute configure confirm connect consume contain continues convert copy correct count counts cover covers create
    cross cut damp date debit decide declare decode deduce default define delay delete deliver deny derive describe detect
    determine digest disable disarm discard dispatch display divide do download draw drop dump emit enable encode encrypt
    end enforce enqueue enrich enrol ensure enter enumerate erase escape estimate evaluate examine exclude execute exit
    expand expect expire explain export expose express extend extract fail fall feed fetch fill filter find finish fit
    fits fix flag flatten flush fold follow forecast forget fork form format forward freeze from gather generate get give
    go grant group guard guess halt handle has hash have hide hold holds identify ignore import include index infer inform
    init insert inspect install instantiate interpolate interpret intersect invert invoke is issue itemize iterate join
    judge keep label launch learn lease leave lift limit link lint list listen load locate lock log look looks make map
    mark mask match matches may measure meet merge migrate mock mount move multiply name narrow needs negate normalise
    normalize note notify observe obtain of offer open order overlay own pack page pair parse partition pass patch pause
    pay perform permit pick ping place plan play poll pop post predict prefer prepare present press prevent price print
    probe proceed process produce project promise propose protect prove provide prune publish pull push put quantile
    quantize queue quit quote raise rank rate reach reaches react read rebuild receive recheck recognise recognize
    recommend reconcile record redact reduce refer refill refresh refuse register reject relate release reload remember
    remind remove rename render renew repeat replace replay reply report represent request require reread rescale reset
    resolve respond restore restrict resume retain retrieve retry return revert review revise revoke rewind rewrite roll
    rotate round route run sample save say scale scan schedule score scrub seal search seed select send separate serialise
    serialize serve set settle shard share shift shorten should show shut sign simulate size skip sleep slice smooth
    snapshot snooze solve sort space spawn split stamp start state step stop store stream strip subtract suggest sum
    summarise summarize suppress survey suspend swap sync synchronise tabulate tag tail take tell terminate test throttle
    tick tighten to tokenize total trace track train transform translate transmit trim truncate try tune turn uncache
    unfreeze unlock unpack unwrap update upgrade upsert use validate verify view visit wait wake walk warm warn watch
    weigh widen wind withdraw wrap write yield zip
    """.split()  # noqa: SIM905 - one word a line would be two hundred lines
)
"""Words that a public function may begin with; `from`, `of` and `to` are converters."""

NAMED_BY_CONTRACT = frozenset(
    ("main", "notify", "render", "upgrade", "downgrade", "provider", "command", "progress", "beat", "phase", "status")
)
"""Functions that an entry point, Alembic or users of the hints call by this name."""

RIDDLES = frozenset(("told", "said", "beside", "further", "asked", "seen", "found", "known"))
"""Participles that say nothing when they stand alone as a name."""
VAGUE_WORDS = RIDDLES | frozenset(
    (
        *(
            "sight",
            "seat",
            "seats",
            "wish",
            "wishes",
            "kin",
            "lot",
            "stated",
            "given",
            "held",
            "gone",
            "lately",
            "lives",
            "kept",
        ),
        *("made", "done", "wanted", "taken", "meant", "put", "came", "named", "heard", "placed", "laid", "moved", "before"),
        *("after", "there", "here", "whole", "ours", "mine"),
    )
)
"""No parameter, local or field is one of these alone (HOUSE.md, Locals)."""
NAMED_BY_USERS = frozenset(("costguard/cli/reconcile.py whole", "costguard/cli/stop.py after"))
"""Parameters that are the names of options."""


PACKAGES = {
    "apscheduler": "costguard/watchdog",
    "boto3": "providers/costguard_aws",
    "google.cloud.compute_v1": "providers/costguard_gcp",
    "moto": "tests",
    "procrastinate": "costguard/services",
    "pydantic": "costguard/settings",
    "pytest": "tests",
    "rich": "costguard/cli",
    "sqlmodel": "costguard/ledger",
    "typer": "costguard/cli",
}
"""The owner's packages (HOUSE.md, decisions 1, 2 and 5), each with the room that is written with it."""

AWAITED = frozenset[str]()
"""Those of PACKAGES whose room does not use them yet. Whoever brings one takes it out, and the rule holds from then on."""

BUDGETS = {
    "agent": 7020,
    "costguard/agents": 710,
    "costguard/bills": 2166,
    "costguard/budgets": 1149,
    "costguard/cli": 3931,
    "costguard/data": 320,
    "costguard/files": 655,
    "costguard/formats": 4117,
    "costguard/guard": 12517,
    "costguard/integrations": 250,
    "costguard/ledger": 14_736,
    "costguard/mcp": 605,
    "costguard/metering": 4273,
    "costguard/notifiers": 1_560,
    "costguard/providers": 2225,
    "costguard/quoting": 2430,
    "costguard/renderers": 1363,
    "costguard/reporting": 3333,
    "costguard/runs": 800,
    "costguard/services": 24639,
    "costguard/settings": 5068,
    "costguard/sizing": 12864,
    "costguard/system": 2378,
    "costguard/testing": 1618,
    "costguard/values": 2136,
    "costguard/views": 8635,
    "costguard/watchdog": 500,
    "costguard/web": 3547,
    "integrations": 1408,
    "providers/costguard_aws": 4633,
    "providers/costguard_azure": 2260,
    "providers/costguard_coreweave": 685,
    "providers/costguard_gcp": 3881,
    "providers/costguard_lambda": 1490,
    "providers/costguard_local": 340,
    "providers/costguard_public": 2250,
    "providers/costguard_runpod": 2190,
    "providers/costguard_scaleway": 1257,
    "providers/costguard_sim": 1250,
    "providers/costguard_vast": 2340,
}
"""Room -> lines that it may have at most; `python -m tests.house` prints what each has. Lower it with what you delete. Who
needs more raises the room's line here, in the commit that adds the lines, and says there what for: growth is a decision."""


def faults(root: Path) -> list[str]:
    """Everything wrong with the house at `root`, each a sentence that says what to do."""
    checks = (
        *(plugin_faults, purity_faults, cloud_faults, word_faults, name_faults, binding_faults, size_faults),
        *(budget_faults, command_faults),
        *(package_faults, leftovers),
    )
    return [fault for check in checks for fault in check(root)]


def plugin_faults(root: Path) -> Iterator[str]:
    """A plug-in without its line in pyproject.toml, or a line without its file."""
    groups = tomllib.loads((root / "pyproject.toml").read_text())["project"].get("entry-points", {})
    for group, (folder, target) in PLUGIN_ROOMS.items():
        there = {name: target.format(name) for name in _plugins(root / folder) if _is_plugin(group, root / folder, name)}
        lines = {str(v): k for k, v in groups.get(group, {}).items()}
        for name, wanted in there.items():
            if wanted not in lines:
                yield f'{folder}/{name} is not a plug-in yet: add {name} = "{wanted}" under [project.entry-points."{group}"]'
        for wanted, name in lines.items():
            if wanted not in there.values():
                line = f'{name} = "{wanted}" under [project.entry-points."{group}"]'
                yield f"{line} has no file: add it in {folder}/, or drop the line"
        if not (root / folder).is_dir() and group in groups and groups[group]:
            yield f"{folder}/ does not exist, but {group} has lines"


def purity_faults(root: Path) -> Iterator[str]:
    """What a pure room imports or calls that a deciding room must not."""
    inside = ("costguard.errors", *(f"costguard.{room}" for room in PURE_ROOMS))
    for path in sorted(p for room in PURE_ROOMS for p in (root / "costguard" / room).rglob("*.py")):
        for node in _nodes(path.read_text()):
            for module in _imported(node):
                ours = any(module == room or module.startswith(f"{room}.") for room in inside)
                if not ours and module.split(".")[0] not in PURE:
                    yield f"{_line(root, path, node)} imports {module}: a pure room takes what it needs as an argument"
            if isinstance(node, ast.Call):
                called = node.func
                if isinstance(called, ast.Attribute) and called.attr in CLOCKS:
                    yield f"{_line(root, path, node)} reads the clock with .{called.attr}(): take the time as an argument"
                if isinstance(called, ast.Name) and called.id in DISK:
                    yield f"{_line(root, path, node)} calls {called.id}(): a pure room touches nothing outside"


def cloud_faults(root: Path) -> Iterator[str]:
    """What the package of one cloud imports of costguard, or of another cloud, that it must not see."""
    for path in sorted((root / "providers").rglob("*.py")):
        cloud = path.relative_to(root / "providers").parts[0]
        for node in _nodes(path.read_text()):
            for module in _imported(node):
                names = [f"costguard.{a.name}" for a in node.names] if module == "costguard" else [module]  # type: ignore[attr-defined]
                closed = any(name == room or name.startswith(f"{room}.") for name in names for room in CLOSED_TO_CLOUDS)
                if closed or (module.startswith("costguard_") and module.split(".")[0] != cloud):
                    yield f"{_line(root, path, node)} imports {module}: a cloud takes what it needs from ProviderContext"
                elif cloud == PUBLIC_PRICES and not all(map(_may_price_source_import, names)):
                    yield f"{_line(root, path, node)} imports {module}: a price source takes what it needs from PriceFetcher"


def word_faults(root: Path) -> Iterator[str]:
    """Names with words that this house does not use (DESIGN section 3)."""
    for path in _sources(root):
        if NOT_OUR_WORDS.search(path.stem):
            yield f"{path.relative_to(root)} is named with a word we do not use: name it after the thing it is"
        for node in _nodes(path.read_text()):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and NOT_OUR_WORDS.search(node.name):
                yield f"{_line(root, path, node)} {node.name} uses a word we do not use: name it after the thing it is"


def name_faults(root: Path) -> Iterator[str]:
    """Public functions that do not begin with a verb, and names that are riddles."""
    for path in _sources(root):
        if path.stem in RIDDLES:
            yield f"{path.relative_to(root)} is a riddle: name it by the noun of its topic"
        for node in _parse(path.read_text()).body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                continue
            if node.name.strip("_").lower() in RIDDLES:
                yield f"{_line(root, path, node)} {node.name} is a riddle: say what it does, or what it is"
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_") or node.name in NAMED_BY_CONTRACT:
                continue
            if node.name.split("_")[0] not in VERBS:
                fault = "does not begin with a verb: say what it does, or add the verb to VERBS"
                yield f"{_line(root, path, node)} {node.name}() {fault}"


def binding_faults(root: Path) -> Iterator[str]:
    """Parameters and locals whose name says nothing."""
    for path in _sources(root):
        for node, name in _list_vague_names(path, of_fields=False):
            if f"{path.relative_to(root).as_posix()} {name}" not in NAMED_BY_USERS:
                yield f"{_line(root, path, node)} `{name}` says nothing: give it the name of what it is, such as `observation`"


def count_vague_fields(root: Path) -> int:
    """Return how many fields of classes have a name that says nothing."""
    return sum(1 for path in _sources(root) for _ in _list_vague_names(path, of_fields=True))


def _list_vague_names(path: Path, *, of_fields: bool) -> Iterator[tuple[ast.AST, str]]:
    tree = _parse(path.read_text())
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    fields = {id(one.target) for cls in classes for one in cls.body if isinstance(one, ast.AnnAssign)}
    for node in ast.walk(tree):
        name = node.arg if isinstance(node, ast.arg) else _get_stored_name(node)
        if name in VAGUE_WORDS and (id(node) in fields) == of_fields:
            yield node, name


def _get_stored_name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else ""


def size_faults(root: Path) -> Iterator[str]:
    """Modules so long that they are two things, or so short that they are a part of one."""
    for path in _sources(root):
        lines = len(path.read_text().splitlines())
        if lines > LONGEST_MODULE:
            yield f"{path.relative_to(root)} has {lines} lines: look whether it is one thing (at most {LONGEST_MODULE})"
        if lines < SHORTEST_MODULE and not _may_be_short(path.relative_to(root)):
            yield f"{path.relative_to(root)} has {lines} lines: put it where its topic is (at least {SHORTEST_MODULE})"


def budget_faults(root: Path) -> Iterator[str]:
    """Rooms over their budget of lines, and rooms without one."""
    for room, lines in count_lines(root).items():
        if room not in BUDGETS:
            yield f"{room} has no budget: write its {lines} lines into BUDGETS (tests/house.py)"
        elif lines > BUDGETS[room]:
            instead = "delete as much as you add, or raise BUDGETS (tests/house.py) and say in the commit what for"
            yield f"{room} has {lines} lines, over its budget of {BUDGETS[room]}: {instead}"


def count_lines(root: Path) -> dict[str, int]:
    """Return the lines of each room: of costguard, of each provider, of the agent and the integrations."""
    rooms = (*sorted((root / "costguard").iterdir()), *sorted((root / "providers").iterdir()))
    inside = [*(room for room in rooms if room.name != "__pycache__"), root / "agent", root / "integrations"]
    return {
        room.relative_to(root).as_posix(): sum(len(path.read_text().splitlines()) for path in room.rglob("*.py"))
        for room in inside
        if room.is_dir() and any(room.rglob("*.py"))
    }


def package_faults(root: Path) -> Iterator[str]:
    """A package of the owner's that its room does not import, or that is still called awaited."""
    for package, room in PACKAGES.items():
        if not (root / room).is_dir():
            continue
        used = any(
            module == package or module.startswith(f"{package}.")
            for path in (root / room).rglob("*.py")
            for node in _nodes(path.read_text())
            for module in _list_imports(node)
        )
        if used == (package in AWAITED):
            instead = f"take {package} out of AWAITED (tests/house.py)" if used else "use it, as HOUSE.md decides"
            yield f"{room} {'imports' if used else 'does not import'} {package}: {instead}"


def _list_imports(node: ast.AST) -> list[str]:
    """Return the modules of an import, and what is taken of one as if it was a module of it."""
    below = [f"{node.module}.{one.name}" for one in node.names] if isinstance(node, ast.ImportFrom) and node.module else []
    return [*_imported(node), *below]


def _may_be_short(path: Path) -> bool:
    """Whether it is a plug-in, a command, a migration or the docstring of a package."""
    rooms = {"cli", "tables", "formats", "renderers", "notifiers", "versions", "migrations", "clouds", "schedulers"}
    return path.stem in ("__init__", "__main__") or path.parent.name in rooms


def command_faults(root: Path) -> Iterator[str]:
    """A command in the table of contents without its file."""
    cli = root / "costguard" / "cli"
    if not cli.is_dir():
        return
    tree = ast.parse((cli / "__init__.py").read_text())
    tables = [
        n.value for n in ast.walk(tree) if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "COMMAND_GROUPS"
    ]
    groups: dict[str, dict[str, str]] = ast.literal_eval(tables[0]) if tables else {}
    for name in (name for group in groups.values() for name in group):
        if not (cli / f"{name}.py").is_file():
            yield f"COMMAND_GROUPS names {name}, but costguard/cli/{name}.py is missing: add it or drop the line"


def leftovers(root: Path) -> Iterator[str]:
    """Unfinished words, registry addresses, machine paths and lock files."""
    for path in _texts(root):
        if path.name in LOCK_FILES:
            yield f"{path.relative_to(root)} is a lock file that records addresses: remove it"
            continue
        text = path.read_text(errors="replace")
        if not ADDRESSES.search(text) and not (path.suffix == ".py" and UNFINISHED.search(text)):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if path.suffix == ".py" and path.name != "house.py" and UNFINISHED.search(line):
                yield f"{path.relative_to(root)}:{number} is unfinished: {line.strip()[:80]}"
            if ADDRESSES.search(line):
                yield f"{path.relative_to(root)}:{number} names a registry or a path of one machine: {line.strip()[:80]}"


@cache
def _parse(source: str) -> ast.Module:
    return ast.parse(source)


@cache
def count_sql_strings(root: Path) -> tuple[int, int]:
    """Return how many texts outside of `SQL_PLACES` begin as a statement, and how many lines carry `noqa: S608`."""
    sources = [path.read_text() for path in _sources(root) if not path.relative_to(root).as_posix().startswith(SQL_PLACES)]
    return sum(map(_count_statements, sources)), sum(source.count("noqa: " + "S608") for source in sources)


def _count_statements(source: str) -> int:
    if not STATEMENT.search(source):
        return 0
    nodes = list(ast.walk(_parse(source)))
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    joined = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values[1:]}
    texts = (node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return sum(bool(STATEMENT.match(str(node.value))) for node in texts if id(node) not in prose | joined)


def _nodes(source: str) -> tuple[ast.AST, ...]:
    """Those nodes of a module that a rule looks at, found once however often the house is looked over."""
    kinds = ast.Import | ast.ImportFrom | ast.Call | ast.FunctionDef | ast.ClassDef
    return tuple(node for node in ast.walk(_parse(source)) if isinstance(node, kinds))


def _plugins(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    files = [p.stem for p in folder.glob("*.py") if p.stem != "__init__"]
    packages = [p.parent.name for p in folder.glob("*/__init__.py")]
    return sorted(files + packages)


def _is_plugin(group: str, folder: Path, name: str) -> bool:
    """Whether a file or folder of a plug-in room is one: of public prices, a module that makes a `source`."""
    if group == "costguard.price_sources":
        tree = ast.parse((folder / f"{name}.py").read_text())
        return any(isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "source" for n in tree.body)
    return group != "costguard.providers" or name != PUBLIC_PRICES


def _may_price_source_import(module: str) -> bool:
    """Whether a price source may import `module`: the few open rooms, its own package, and what knows no network or disk."""
    if module.split(".", maxsplit=1)[0] == "costguard":
        return any(module == room or module.startswith(f"{room}.") for room in OPEN_TO_PRICE_SOURCES)
    return module in READERS or module.split(".", maxsplit=1)[0] in (PUBLIC_PRICES, *PURE)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [a.name for a in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def _sources(root: Path) -> list[Path]:
    return sorted(p for room in ("costguard", "agent", "providers") for p in (root / room).rglob("*.py"))


def _texts(root: Path) -> list[Path]:
    rooms = ("costguard", "agent", "providers", "tests", "bench", "scripts", "docs", "config", ".ci")
    inside = [p for room in rooms for p in (root / room).rglob("*")]
    kept = (".py", ".md", ".toml", ".txt", ".json", ".csv", ".lock", ".yml", ".yaml", "")
    texts = (p for p in (*inside, *root.glob("*")) if p.is_file() and p.suffix in kept and p.name != ".git")
    return sorted(p for p in texts if "__pycache__" not in p.parts)


def _line(root: Path, path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(root)}:{getattr(node, 'lineno', 0)}"


if __name__ == "__main__":
    for name, count in count_lines(Path(__file__).parent.parent).items():
        print(f"{name}: {count} of {BUDGETS.get(name)}; {-(-count // 50) * 50} would be enough")  # noqa: T201 - who asks wants to see it
