"""The `[[report]]` tables: what they may say, and what is told where they do not."""

from __future__ import annotations

import re
from datetime import time
from secrets import token_hex
from traceback import format_exception

import pytest

from costguard.errors import InputError
from costguard.reporting.schedule import ReportSchedule
from costguard.reporting.statement.groups import DEFAULT_GROUP_KEYS
from costguard.settings import check_settings

NOTIFY = """
[notify]
mail = "env:MAIL_URL"
[[notify.route]]
name = "team"
to = ["env:SLACK_URL", "console"]
"""


def reports(text: str) -> tuple[ReportSchedule, ...]:
    return check_settings(text, "costguard.toml").reports


def test_a_report_says_how_often_and_to_whom_and_the_rest_has_defaults() -> None:
    [one] = reports(f'{NOTIFY}[[report]]\nevery = "month"\nto = "lead@lab.org"\n')
    assert one == ReportSchedule(
        name="month", every="month", at=time(8), channels=("mail:lead@lab.org",), by=DEFAULT_GROUP_KEYS, format="html"
    )


def test_it_goes_to_people_routes_and_channels_each_once() -> None:
    [one] = reports(
        f"{NOTIFY}[[report]]\n"
        'name = "lab"\nevery = "week"\nat = "17:30"\nby = ["owner", "label:run"]\nformat = "csv"\n'
        'to = ["lead@lab.org", "team", "env:HOOK", "https://example.com/hook", "console", "lead@lab.org"]\n'
    )
    assert one.channels == ("mail:lead@lab.org", "env:SLACK_URL", "console", "env:HOOK", "https://example.com/hook")
    assert (one.name, one.every, one.at, one.by, one.format) == ("lab", "week", time(17, 30), ("owner", "label:run"), "csv")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('every = "month"\nto = []', "report 1 (month).to: is empty\nhint: write to = "),
        ('every = "month"', "report 1 (month).to: is missing"),
        ('to = "console"', 'report 1.every: is missing\nhint: write every = "month"'),
        ('every = "year"\nto = "console"', "report 1.every: unknown value 'year'"),
        ('every = "month"\nto = "console"\nat = "8"', "report 1 (month).at: must be a time of day, not '8'"),
        ('every = "month"\nto = "console"\nat = "24:00"', "report 1 (month).at: must be a time of day, not '24:00'"),
        ('every = "month"\nto = "console"\nat = 08:00:30', "report 1 (month).at: must be a whole minute, not 08:00:30"),
        ('every = "month"\nto = "console"\nby = ["ownr"]', "report 1 (month).by: "),
        ('every = "month"\nto = "console"\nby = []', "report 1 (month).by: names nothing to group by"),
        ('every = "month"\nto = "console"\nformat = "x y"', "report 1 (month).format: 'x y' is not a name of a format"),
        ('every = "month"\nto = "console"\nform = "csv"', "report 1 (month).form: unknown key 'form'"),
        ('every = "month"\nto = "slack://TOKEN"', "report 1 (month).to: slack:// addresses hold a secret"),
        ('every = "month"\nto = "tem"', "report 1 (month).to: is not an address, and no route has this name\nhint: did"),
        ('every = "month"\nto = "a@b@c"', "report 1 (month).to: is not an address of a person's mail: 'a@b@c'"),
        ('every = "month"\nto = 7', "report 1 (month).to: must be a list of texts, not 7"),
        (
            'every = "month"\nto = "console"\n[[report]]\nevery = "month"\nto = "console"',
            "report 2 (month).name: is also the name of report 1",
        ),
    ],
)  # fmt: skip
def test_what_it_cannot_mean_is_an_error_that_names_the_field_and_what_to_write(text: str, says: str) -> None:
    with pytest.raises(InputError) as wrong:
        reports(f"{NOTIFY}[[report]]\n{text}\n")
    assert re.sub(r" \(at line \d+\)", "", str(wrong.value)).startswith(f"costguard.toml: {says}")
    assert "hint: " in str(wrong.value)
    assert "TOKEN" not in str(wrong.value)


def test_the_address_of_the_mail_server_is_named_and_not_stated() -> None:
    secret = token_hex(8)
    with pytest.raises(InputError, match=r"notify\.mail: holds a secret; the settings file must not contain one") as wrong:
        check_settings(f'[notify]\nmail = "mailtos://me:{secret}@smtp.lab.org"\n', "costguard.toml")
    assert secret not in "".join(format_exception(wrong.value))
