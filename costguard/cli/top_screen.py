"""The screen of `costguard top`: totals above, a row per machine, keys below.

Data and acts come from `services/top.py`. Names come from providers and users, so every text is shown literally, never as
Textual's markup.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Protocol

from rich.text import Text
from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static
from textual.worker import get_current_worker

from costguard.cli.watch_screen import WORK_COLOURS
from costguard.errors import CostguardError, replace_unprintable, shorten, to_one_line
from costguard.views.top import SORT_ORDERS, TopRow, TopView, filter_top_rows, format_sparkline

READ_S, ASK_S = 5.0, 60.0
"""Seconds between two looks into the ledger, and between two questions to the providers."""

COLUMNS = ("machine", "$/h", "last hour", "work", "since", "kept", "what", "owner", "spent")
LEDGER, PROVIDERS = "ledger", "providers"
MOST_WARNINGS = 3
LONGEST_LINE = 200
KEEP_QUESTION = "Keep {} for 2 h. No policy stops it until then; a hard cap still can."
APPROVE_QUESTION = "Approve a stop of {}. It is valid for one day, if a policy asks for that stop; this view stops nothing."


class TopSource(Protocol):
    """The methods that the screen needs: `services.top.TopSession`."""

    def poll(self) -> None:
        """Poll the providers."""

    def build_view(self) -> TopView:
        """Return the current state."""

    def keep(self, machine: str, why: str) -> str:
        """Record a lease, and return the message to show."""

    def approve(self, machine: str, why: str) -> str:
        """Record an approval of a stop, and return the message to show."""


class ReasonScreen(ModalScreen[str | None]):
    """A confirmation that requires a reason; None if it is cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "no")]
    CSS = """
    ReasonScreen { align: center middle; }
    ReasonScreen Vertical
    { width: 76; max-width: 95%; height: auto; border: round $accent; padding: 1 2; background: $surface; }
    ReasonScreen Static { height: auto; margin-bottom: 1; }
    """

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """Show the question and an input line for the reason."""
        with Vertical():
            yield Static(Text(self._question))
            yield Input(placeholder="reason (shown to others)", max_length=LONGEST_LINE)
            yield Static(Text("Enter: confirm with a reason. Escape: cancel.", style="dim"), id="how")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Confirm only with a reason, because Enter alone is easily pressed by mistake."""
        if event.value.strip():
            self.dismiss(event.value.strip())
        else:
            self.query_one("#how", Static).update(Text("Enter a reason, or press Escape.", style="bold yellow"))


class TopApp(App[None]):
    """The live view, which runs until q is pressed."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "order", "sort"),
        *(Binding(key, f"order('{name}')", show=False) for key, name in zip("bnuwd", SORT_ORDERS, strict=True)),
        Binding("slash", "filter", "filter"),
        Binding("k", "keep", "keep 2 h"),
        Binding("a", "approve", "approve stop"),
        Binding("r", "ask", "ask providers"),
        Binding("escape", "clear", show=False),
        Binding("q", "quit", "quit"),
    ]
    CSS = """
    #head, #told { height: auto; padding: 0 1; }
    #words { display: none; height: 3; }
    #words.shown { display: block; }
    DataTable { height: 1fr; }
    """

    def __init__(self, fleet: TopSource) -> None:
        super().__init__()
        self._fleet = fleet
        self._view: TopView | None = None
        self._order, self._words, self._said = next(iter(SORT_ORDERS)), "", ""
        self._troubles = {LEDGER: "", PROVIDERS: ""}
        self._rows: dict[str, TopRow] = {}
        self._reading = self._asking = False

    def compose(self) -> ComposeResult:
        """Show totals, filter, machines, messages and keys."""
        yield Static(Text("reading the ledger ..."), id="head")
        yield Input(placeholder="filter: words in a machine's name, owner, GPU, provider or activity", id="words")
        yield DataTable[Text](cursor_type="row", zebra_stripes=True)
        yield Static(id="told")
        yield Footer()

    def on_mount(self) -> None:
        """Start reading the ledger and polling the providers."""
        table = self._table()
        for name in COLUMNS:
            table.add_column(Text(name), key=name)
        table.focus()
        self._read()
        self.action_ask()
        self.set_interval(READ_S, self._read)
        self.set_interval(ASK_S, self.action_ask)

    def action_order(self, name: str = "") -> None:
        """Sort by `name`; "" selects the next order."""
        names = list(SORT_ORDERS)
        self._order = name or names[(names.index(self._order) + 1) % len(names)]
        self._draw()

    def action_filter(self) -> None:
        """Show the filter input."""
        words = self.query_one("#words", Input)
        words.add_class("shown")
        words.focus()

    def action_clear(self) -> None:
        """Clear and hide the filter."""
        words = self.query_one("#words", Input)
        words.value = ""
        words.remove_class("shown")
        self._table().focus()

    @on(Input.Changed, "#words")
    def apply_filter(self, event: Input.Changed) -> None:
        """Filter while the user types."""
        self._words = event.value
        self._draw()

    @on(Input.Submitted, "#words")
    def leave_filter(self) -> None:
        """Return to the rows; the filter stays."""
        self._table().focus()

    def action_keep(self) -> None:
        """Ask for confirmation to keep the machine under the cursor."""
        self._confirm(KEEP_QUESTION, self._fleet.keep)

    def action_approve(self) -> None:
        """Ask for confirmation to approve a stop of the machine under the cursor."""
        self._confirm(APPROVE_QUESTION, self._fleet.approve)

    def action_ask(self) -> None:
        """Poll the providers, unless a poll is in progress."""
        if not self._asking:
            self._asking = True
            self._ask()

    def _confirm(self, question: str, deed: Callable[[str, str], str]) -> None:
        row = self._chosen()
        if row is not None:
            named = f"{row.called} ({to_one_line(row.whole)})"
            self.push_screen(ReasonScreen(question.format(shorten(named, LONGEST_LINE))), partial(self._answered, row, deed))

    def _answered(self, row: TopRow, deed: Callable[[str, str], str], why: str | None) -> None:
        if why is None:
            self._tell("Cancelled.")
        else:
            self._do(deed, row.whole, why)

    @work(thread=True)
    def _do(self, deed: Callable[[str, str], str], machine: str, why: str) -> None:
        try:
            said = deed(machine, why)
        except CostguardError as wrong:
            said = f"Nothing was done: {wrong}"
        self._back(self._tell, said)
        self._back(self._read)

    @work(thread=True)
    def _ask(self) -> None:
        said = ""
        try:
            self._fleet.poll()
        except CostguardError as wrong:
            said = f"The providers could not be asked: {wrong}"
        self._back(self._asked, said)

    def _asked(self, said: str) -> None:
        self._asking = False
        self._troubles[PROVIDERS] = said
        self._read()

    def _read(self) -> None:
        """Read the ledger, unless a read is in progress."""
        if not self._reading:
            self._reading = True
            self._load()

    @work(thread=True)
    def _load(self) -> None:
        try:
            view = self._fleet.build_view()
        except CostguardError as wrong:
            self._back(self._shown, None, f"The ledger cannot be read: {wrong}")
        else:
            self._back(self._shown, view, "")

    def _back(self, told: Callable[..., None], *words: object) -> None:
        """Call `told` on the screen's thread; do nothing if q was pressed meanwhile."""
        if not get_current_worker().is_cancelled:
            self.call_from_thread(told, *words)

    def _shown(self, view: TopView | None, wrong: str) -> None:
        self._reading = False
        self._troubles[LEDGER] = wrong
        if view is not None:
            self._view = view
            self._draw()
        self._tell(self._said)

    def _draw(self) -> None:
        """Redraw everything from the last view; the cursor stays on its machine."""
        view, table = self._view, self._table()
        if view is None:
            return
        chosen = self._chosen()
        rows = filter_top_rows(view, self._order, self._words)
        self._rows = {row.whole: row for row in rows}
        table.clear()
        for row in rows:
            table.add_row(*_build_cells(row), key=row.whole)
        if chosen is not None and chosen.whole in self._rows:
            table.move_cursor(row=table.get_row_index(chosen.whole))
        count = f"{len(rows)} of {len(view.rows)} machines" if len(rows) < len(view.rows) else f"{len(rows)} machines"
        first, *further = view.head
        lines = (f"{first}   {count} by {self._order}", *further)
        self.query_one("#head", Static).update(Text("\n".join(map(to_one_line, lines)), style="bold"))

    def _tell(self, said: str) -> None:
        """Show warnings, read and poll errors, and the result of the last key."""
        self._said = said
        warnings = self._view.warnings if self._view else ()
        more = len(warnings) - MOST_WARNINGS
        text = Text()
        for line in warnings[:MOST_WARNINGS]:
            text.append(f"{shorten(to_one_line(line), LONGEST_LINE)}\n", style="yellow")
        if more > 0:
            text.append(f"and {more} more warnings (costguard status lists them)\n", style="yellow")
        for trouble in filter(None, self._troubles.values()):
            text.append(f"{replace_unprintable(trouble)}\n", style="bold red")
        text.append(replace_unprintable(said), style="bold")
        text.rstrip()
        self.query_one("#told", Static).update(text)

    def _chosen(self) -> TopRow | None:
        table = self._table()
        if not table.row_count:
            return None
        key = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value
        return self._rows.get(key or "")

    def _table(self) -> DataTable[Text]:
        return self.query_one(DataTable)


def _build_cells(row: TopRow) -> tuple[Text, ...]:
    held = "cyan" if row.kept else ""
    texts = (
        (row.called, ""),
        (row.rate, "bold"),
        (format_sparkline(row.duty), "green"),
        (row.work, WORK_COLOURS.get(row.work, "dim")),
        (row.since, ""),
        (row.kept, held),
        (row.what, ""),
        (row.owner, ""),
        (row.spent, ""),
    )
    return tuple(Text(text, style=style, no_wrap=True) for text, style in texts)
