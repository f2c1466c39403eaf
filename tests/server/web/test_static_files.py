"""The files of the page: their types, and nothing in them that its policy for content would refuse."""

import re
from html.parser import HTMLParser
from importlib import resources

STATIC = resources.files("worldloom.server.web") / "static"


class Markup(HTMLParser):
    """Whatever in a page the policy for its content would refuse."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.problems: list[str] = []
        self._is_script = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_script = tag == "script"
        if tag in ("style", "base", "iframe", "object", "embed") or (tag == "script" and "src" not in dict(attrs)):
            self.problems.append(tag)
        for name, value in attrs:
            is_foreign = name in ("src", "href", "action") and not re.match(r"[/#](?!/)", value or "")
            if name.startswith("on") or name == "style" or is_foreign:
                self.problems.append(f"{tag} {name}={value}")

    def handle_data(self, data: str) -> None:
        if self._is_script and data.strip():
            self.problems.append(f"script: {data}")

    def handle_endtag(self, tag: str) -> None:
        self._is_script = False


def test_markup_without_scripts() -> None:
    pages = [file for file in STATIC.iterdir() if file.name.endswith(".html")]
    assert sorted(file.name for file in pages) == ["index.html", "login.html"]
    assert {file.name: Markup(file.read_text()).problems for file in pages} == {"index.html": [], "login.html": []}
    bad = '<p onclick="x"><script>x</script><a href="//x"><a href="javascript:x"><img src="http://x"><p style="x">'
    assert len(Markup(bad).problems) == 7


def test_scripts_make_no_markup_of_texts() -> None:
    """Names and settings of clients become text nodes: nothing that parses HTML or code is in the scripts at all."""
    words = r"innerHTML|outerHTML|insertAdj|document\.write|\beval\b|new Function|DOMParser|createContextual|srcdoc"
    for file in STATIC.iterdir():
        if file.name.endswith(".js"):
            assert not re.findall(words, file.read_text()), file.name
