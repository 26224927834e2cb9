"""List words with a special meaning to YAML, a shell, HTML, Jinja, a terminal or a command line."""

WORDS = [
    "no",
    "123",
    "1e3",
    "0x1f",
    "on",
    "~",
    "null",
    "a: b",
    "- a",
    "#a",
    "a\nb",
    "1:30",
    ".5",
    "y",
    "{a",
    "*a",
    "é",
    "0o17",
]

HOSTILE = [
    *WORDS,
    *("'", '"', "\\", "`touch canary`", "$(touch canary)", "; touch canary;", "&& touch canary", "' $(touch canary) '"),
    *(
        "a\r",
        "a\u2028b: c",
        "a\x85b: c",
        "\x1b]0;x\x07",
        "\x7f",
        "\ufeff",
        "${{ github.token }}",
        "-a",
        "--",
        "\U0001f600",
    ),
    *(
        "!!python/object:os.system",
        "<script>touch()</script>",
        "'\"><img src=x onerror=x>",
        "{{ 7 * 7 }}",
        "a|b",
        "]]>",
    ),
]
